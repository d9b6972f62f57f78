"""Tiny random models of every family, made from transformers configs: seconds for the whole zoo."""

import copy
from functools import cache
from typing import Any

import torch
import transformers as tf
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch.overrides import TorchFunctionMode

VOCAB = 97
DECODER = {"vocab_size": VOCAB, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LLAMA_LIKE = {
    **DECODER,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
BERT_LIKE = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
BART_LIKE = {
    "vocab_size": VOCAB,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 44,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}


def configs() -> dict[str, Any]:
    """Model type -> tiny config, for the fifteen mapped families."""
    return {
        "gpt2": tf.GPT2Config(**DECODER, n_embd=24, n_layer=2, n_head=3, n_positions=64),
        "gpt_neox": tf.GPTNeoXConfig(
            **DECODER, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3
        ),
        "opt": tf.OPTConfig(
            **DECODER,
            hidden_size=24,
            ffn_dim=40,
            num_hidden_layers=2,
            num_attention_heads=3,
            max_position_embeddings=64,
            word_embed_proj_dim=24,
        ),
        "llama": tf.LlamaConfig(**LLAMA_LIKE),
        "mistral": tf.MistralConfig(**LLAMA_LIKE, sliding_window=5, head_dim=6),
        "qwen2": tf.Qwen2Config(**LLAMA_LIKE),
        "qwen3": tf.Qwen3Config(**LLAMA_LIKE, head_dim=8),
        "gemma2": tf.Gemma2Config(
            **LLAMA_LIKE, head_dim=8, sliding_window=5, query_pre_attn_scalar=8, attn_logit_softcapping=2.0
        ),
        "phi": tf.PhiConfig(**{**LLAMA_LIKE, "hidden_size": 32, "num_key_value_heads": 4}),
        "bert": tf.BertConfig(**BERT_LIKE),
        "roberta": tf.RobertaConfig(**{**BERT_LIKE, "max_position_embeddings": 66, "pad_token_id": 1}),
        "distilbert": tf.DistilBertConfig(
            vocab_size=VOCAB, dim=24, hidden_dim=40, n_layers=2, n_heads=3, max_position_embeddings=64
        ),
        "t5": tf.T5Config(
            vocab_size=VOCAB,
            d_model=24,
            d_kv=6,
            d_ff=40,
            num_layers=2,
            num_heads=3,
            pad_token_id=0,
            eos_token_id=2,
            decoder_start_token_id=0,
        ),
        "bart": tf.BartConfig(**BART_LIKE),
        "mbart": tf.MBartConfig(**BART_LIKE),
    }


def auto_class(config: Any) -> Any:
    if config.is_encoder_decoder:
        return tf.AutoModelForSeq2SeqLM
    return tf.AutoModel if config.model_type in ("bert", "roberta", "distilbert") else tf.AutoModelForCausalLM


def make(name: str, *, seed: int = 0, dtype: torch.dtype = torch.float64, attention: str | None = None) -> Any:
    """A tiny random model in eval mode, without dropout, whose weights, biases and norms are away from 0 and 1."""
    return copy.deepcopy(_made(name, seed, dtype, attention))


@cache
def _made(name: str, seed: int, dtype: torch.dtype, attention: str | None) -> Any:
    config = configs()[name]
    return build(auto_class(config), config, seed=seed, dtype=dtype, attention=attention)


def build(
    auto: Any, config: Any, *, seed: int = 0, dtype: torch.dtype = torch.float64, attention: str | None = None
) -> Any:
    """The same for any config, mapped family or not."""
    for field in list(config.to_dict()):
        if "drop" in field and isinstance(getattr(config, field, None), float):
            setattr(config, field, 0.0)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = auto.from_config(config, attn_implementation=attention).to(dtype).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.15 * torch.randn_like(parameter))
    return model


def tokenizer() -> Any:
    """A word is a token: "w7" is 7; "<pad>", "<s>" and "</s>" are 0, 1 and 2, and never put in by itself."""
    words = {"<pad>": 0, "<s>": 1, "</s>": 2} | {f"w{i}": i for i in range(3, VOCAB)}
    made = Tokenizer(WordLevel(words, unk_token="w3"))
    made.pre_tokenizer = WhitespaceSplit()
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="w3"
    )


def ids(rows: int = 2, length: int = 7, *, seed: int = 1) -> torch.Tensor:
    """Random token ids, none of them special."""
    return torch.randint(3, VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))


LENGTHS = (7, 4)  # of the two rows of a padded batch


def batch(model: Any, padding: str = "right") -> dict[str, torch.Tensor]:
    """Inputs of two rows. padding: "none", "left" or "right"; a decoder's positions count real tokens alone."""
    text = ids()
    given = {"input_ids": text}
    if padding != "none":
        mask = torch.ones_like(text)
        for row, length in enumerate(LENGTHS):
            if padding == "left":
                mask[row, : text.shape[1] - length] = 0
            else:
                mask[row, length:] = 0
        given |= {"input_ids": text * mask + model.config.pad_token_id * (1 - mask), "attention_mask": mask}
        if is_decoder(model):
            given["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = ids(length=5, seed=2)
    return given


def is_decoder(model: Any) -> bool:
    return type(model).__name__.endswith(("ForCausalLM", "LMHeadModel"))


def output(model: Any, given: dict[str, torch.Tensor]) -> torch.Tensor:
    """Logits, or an encoder's last states."""
    out = model(**given)
    return out.logits if "logits" in out else out.last_hidden_state


def real(given: dict[str, torch.Tensor], out: torch.Tensor) -> torch.Tensor:
    """The outputs (n, width) at real tokens; all of them where the output is not over the given text."""
    mask = given.get("attention_mask")
    if mask is None or out.dim() < 3 or "decoder_input_ids" in given:
        return out
    return out[mask.bool()]


class Float64(TorchFunctionMode):
    """Within it, what transformers computes in float32 whatever the model's type (norms, softmax) stays in float64."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is torch.Tensor.float and args[0].dtype == torch.float64:
            return args[0]
        if function is torch.Tensor.to and args[0].dtype == torch.float64 and torch.float32 in args[1:]:
            return args[0]
        if kwargs.get("dtype") is torch.float32 and isinstance(args[0], torch.Tensor):
            kwargs = {**kwargs, "dtype": args[0].dtype}
        return function(*args, **kwargs)
