"""Writes adapters_fixtures/: what the `adapters` library saves on tiny random models, and the outputs it gives.

Run by hand, in an environment of its own, for the library pins an older transformers:

    pip install torch==2.13.0 adapters==1.3.0
    python tests/exchange/make_adapters_fixtures.py

The outputs are the library's own, in float64 and stored in float32, with its eager attention: with SDPA, its default,
the prefixes of decoders are masked out, or the last tokens of the text are.
"""

import shutil
from pathlib import Path
from typing import Any

import adapters
import torch
import transformers as tf
from adapters import (
    BnConfig,
    CompacterConfig,
    ConfigUnion,
    DoRAConfig,
    DoubleSeqBnConfig,
    IA3Config,
    LoRAConfig,
    LoReftConfig,
    MAMConfig,
    ParBnConfig,
    PrefixTuningConfig,
    PromptTuningConfig,
    SeqBnConfig,
    SeqBnInvConfig,
    UniPELTConfig,
    VeraConfig,
)
from safetensors.torch import save_file

HERE = Path(__file__).parent / "adapters_fixtures"
VOCAB = 30
SPECIAL = {"vocab_size": VOCAB, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BERT = {
    "vocab_size": VOCAB,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 24,
    "pad_token_id": 0,
}
BART = {
    "d_model": 8,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 10,
    "max_position_embeddings": 24,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
LLAMA = {
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 24,
}
T5 = {"d_model": 8, "d_kv": 5, "d_ff": 12, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0}

PREFIX = PrefixTuningConfig(prefix_length=3, bottleneck_size=4)
FLAT = PrefixTuningConfig(prefix_length=3, flat=True)
PARALLEL = ParBnConfig(reduction_factor=4)
WITH_CROSS = BnConfig(
    mh_adapter=True, output_adapter=True, cross_adapter=True, reduction_factor=4, non_linearity="relu"
)  # fmt: skip
COMMON: dict[str, Any] = {
    "seq_bn": SeqBnConfig(reduction_factor=4),
    "houlsby": DoubleSeqBnConfig(reduction_factor=4),
    "parallel": PARALLEL,
    "prefix_flat": FLAT,
    "lora_all": LoRAConfig(r=2, alpha=6, attn_matrices=["q", "k", "v"], intermediate_lora=True, output_lora=True),
}
CASES: dict[str, dict[str, Any]] = {
    "gpt2": COMMON
    | {
        "lora": LoRAConfig(r=2, alpha=6),
        "prefix": PREFIX,
        "prefix_relu": PrefixTuningConfig(prefix_length=2, bottleneck_size=3, non_linearity="relu"),
        "mam": MAMConfig(FLAT, PARALLEL),
        "lora_k": LoRAConfig(r=1, alpha=3, attn_matrices=["k"], leave_out=[0]),
        "widths": BnConfig(
            mh_adapter=True, output_adapter=True, reduction_factor={"1": 2, "default": 4}, non_linearity="gelu",
            ln_before=True, scaling="channel",
        ),
        "prefix_and_lora": ConfigUnion(FLAT, LoRAConfig(r=2, alpha=1)),
        "left_out": PrefixTuningConfig(prefix_length=3, flat=True, leave_out=[0]),
        "unipelt": UniPELTConfig(FLAT, SeqBnConfig(reduction_factor=4), LoRAConfig(r=1)),
        "ia3": IA3Config(),
        "residual": SeqBnConfig(reduction_factor=4, residual_before_ln=False),
    },
    "llama": COMMON | {"prefix": PREFIX, "dora": DoRAConfig(r=1), "loreft": LoReftConfig()},
    "bert": COMMON
    | {
        "mam": MAMConfig(PREFIX, PARALLEL),
        "norm_behind": BnConfig(
            mh_adapter=False, output_adapter=True, reduction_factor=4, non_linearity="relu", ln_after=True,
        ),
        "parallel_norm": ParBnConfig(reduction_factor=4, ln_before=True),
        "parallel_everywhere": BnConfig(
            mh_adapter=True, output_adapter=True, reduction_factor=4, non_linearity="relu", is_parallel=True,
            scaling="learned", leave_out=[1],
        ),
        "two_kinds": ConfigUnion(
            BnConfig(mh_adapter=True, output_adapter=False, reduction_factor=4, non_linearity="relu"),
            ParBnConfig(reduction_factor=2, scaling=0.5),
        ),
        "vera": VeraConfig(r=1),
        "dora": DoRAConfig(r=2, alpha=3, attn_matrices=["q", "k"], intermediate_lora=True, output_lora=True),
        "ia3": IA3Config(alpha=2, output_lora=True),
        "compacter": CompacterConfig(reduction_factor=2, phm_dim=2),
        "compacter_shared": CompacterConfig(
            reduction_factor=2, phm_dim=2, shared_W_phm=True, factorized_phm_rule=True, scaling=8.0,
        ),
        "inverted": SeqBnInvConfig(reduction_factor=4),
        "prompt": PromptTuningConfig(prompt_length=2),
        "residual": SeqBnConfig(reduction_factor=4, residual_before_ln="post_add"),
        "norm_around": DoubleSeqBnConfig(reduction_factor=4, ln_after=True, adapter_residual_before_ln=True),
    },
    "roberta": {name: COMMON[name] for name in ("houlsby", "prefix_flat", "lora_all")},
    "distilbert": {name: COMMON[name] for name in ("houlsby", "prefix_flat", "lora_all")},
    "bart": {name: case for name, case in COMMON.items() if name != "prefix_flat"}
    | {
        "prefix": PrefixTuningConfig(prefix_length=2, bottleneck_size=2),
        "mam": MAMConfig(FLAT, PARALLEL),
        "cross": WITH_CROSS,
        "left_out_first": DoubleSeqBnConfig(reduction_factor=4, non_linearity="relu", leave_out=[0]),
        "no_cross_prefix": PrefixTuningConfig(prefix_length=3, flat=True, cross_prefix=False),
    },
    "t5": COMMON | {"cross": WITH_CROSS},
}  # fmt: skip
REFUSED = {
    "inverted", "left_out", "loreft", "no_cross_prefix", "norm_around", "prompt", "unipelt",
}  # fmt: skip  # nothing to compare


def models() -> dict[str, Any]:
    return {
        "gpt2": (tf.AutoModelForCausalLM, tf.GPT2Config(**SPECIAL, n_embd=8, n_layer=2, n_head=2, n_positions=24)),
        "llama": (tf.AutoModelForCausalLM, tf.LlamaConfig(**SPECIAL, **LLAMA)),
        "bert": (tf.AutoModelForMaskedLM, tf.BertConfig(**BERT)),
        "roberta": (tf.AutoModel, tf.RobertaConfig(**{**BERT, "pad_token_id": 1})),
        "distilbert": (
            tf.AutoModel,
            tf.DistilBertConfig(vocab_size=VOCAB, dim=8, hidden_dim=12, n_layers=2, n_heads=2,
                                max_position_embeddings=24),
        ),
        "bart": (tf.AutoModelForSeq2SeqLM, tf.BartConfig(**SPECIAL, **BART)),
        "t5": (tf.AutoModelForSeq2SeqLM, tf.T5Config(vocab_size=VOCAB, pad_token_id=0, eos_token_id=2, **T5)),
    }  # fmt: skip


def randomise(parameters: Any, scale: float, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(scale * torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype))


def inputs(config: Any) -> dict[str, torch.Tensor]:
    """Two rows, the second padded on the right."""
    text = torch.randint(3, VOCAB, (2, 6), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(text)
    mask[1, 4:] = 0
    text = text * mask + config.pad_token_id * (1 - mask)
    given = {"input_ids": text, "attention_mask": mask}
    if config.is_encoder_decoder:
        given["decoder_input_ids"] = text[:, :4].flip(1).contiguous()
    return given


@torch.no_grad()
def outputs(model: Any, given: dict[str, torch.Tensor]) -> torch.Tensor:
    out = model.double().eval()(**given)
    model.float()
    return (out.logits if "logits" in out else out.last_hidden_state).float().contiguous()


def save(tuned: Any, folder: Path, name: str) -> None:
    """As safetensors; where tensors are shared (prefixes, a norm in front) the library cannot: from its pickle."""
    try:
        tuned.save_adapter(str(folder), name, with_head=False, use_safetensors=True)
    except RuntimeError as problem:
        if "share memory" not in str(problem):
            raise
        tuned.save_adapter(str(folder), name, with_head=False)
        pickled = folder / "pytorch_adapter.bin"
        tensors = torch.load(pickled, weights_only=True)
        save_file({key: value.clone() for key, value in tensors.items()}, folder / "adapter.safetensors")
        pickled.unlink()


def base(auto: Any, config: Any) -> Any:
    torch.manual_seed(0)
    model = auto.from_config(config, attn_implementation="eager").eval()
    randomise(model.parameters(), 0.2, seed=2)
    return model


def make(family: str, auto: Any, config: Any) -> None:
    folder = HERE / family
    model = base(auto, config)
    model.save_pretrained(folder)
    given = inputs(config)
    found = {**given, "bare": outputs(model, given)}
    for name, case in CASES[family].items():
        torch.manual_seed(0)
        tuned = base(auto, config)
        adapters.init(tuned)
        tuned.add_adapter(name, config=case, set_active=True)
        tuned.train_adapter(name)
        own = [value for key, value in tuned.named_parameters() if f".{name}." in key]  # a head is trained too
        randomise(own, 0.4, seed=3)
        save(tuned, folder / name, name)
        if name not in REFUSED:
            found[name] = outputs(tuned, given)
    save_file(found, folder / "outputs.safetensors")
    (folder / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    shutil.rmtree(HERE, ignore_errors=True)
    for family, (auto, config) in models().items():
        make(family, auto, config)
    total = sum(path.stat().st_size for path in HERE.rglob("*") if path.is_file())
    print(f"{total / 1000:.0f} kB")
