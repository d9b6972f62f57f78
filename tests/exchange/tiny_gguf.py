"""What a llama.cpp server is given: a tiny Llama as GGUF, and the tokenizer that stands beside it."""

import numpy as np
import transformers as tf
from tokenizers import Tokenizer, models, pre_tokenizers


def words():
    """w0 to w299, no token in front."""
    made = Tokenizer(models.WordLevel({f"w{index}": index for index in range(300)}, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tf.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="w0")


def paired(weight, heads):
    """As llama.cpp's converter orders the rows of Llama's queries and keys: pairs that turn together side by side."""
    return weight.reshape(heads, 2, len(weight) // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


ARCHITECTURES = {"mistral": "llama"}


def gguf_of(model, path):
    """Write a decoder in float32, with a vocabulary of bytes that nobody reads."""
    import gguf

    config = model.config
    made = gguf.GGUFWriter(path, ARCHITECTURES.get(config.model_type, config.model_type))
    made.add_context_length(config.max_position_embeddings)
    made.add_embedding_length(config.hidden_size)
    made.add_block_count(config.num_hidden_layers)
    made.add_head_count(config.num_attention_heads)
    if config.model_type == "gpt2":
        made.add_feed_forward_length(4 * config.hidden_size)
        made.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        made.add_feed_forward_length(config.intermediate_size)
        made.add_head_count_kv(config.num_key_value_heads)
        made.add_layer_norm_rms_eps(config.rms_norm_eps)
        made.add_rope_freq_base(config.rope_parameters["rope_theta"])
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        made.add_rope_dimension_count(width)
        made.add_key_length(width)
        made.add_value_length(width)
    made.add_vocab_size(config.vocab_size)
    made.add_file_type(0)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    more = [f"w{index}" for index in range(config.vocab_size - len(tokens))]
    made.add_tokenizer_model("llama")
    made.add_token_list([*tokens, *more])
    made.add_token_scores([0.0] * config.vocab_size)
    made.add_token_types([2, 3, 3] + [6] * 256 + [1] * len(more))
    made.add_bos_token_id(1)
    made.add_eos_token_id(2)
    for name, weight in (of_gpt2 if config.model_type == "gpt2" else tensors)(model):
        made.add_tensor(name, np.ascontiguousarray(weight))
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


PARTS = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_q.bias": "self_attn.q_proj.bias",  # of Qwen2
    "attn_k.bias": "self_attn.k_proj.bias",
    "attn_v.bias": "self_attn.v_proj.bias",
    "attn_q_norm.weight": "self_attn.q_norm.weight",  # of Qwen3
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
PARTS_OF_GPT2 = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}


def tensors(model):
    """(GGUF's name, weight) of a Llama or one of its kin."""
    config = model.config
    known = {name: value.detach().float().numpy() for name, value in model.state_dict().items()}
    yield "token_embd.weight", known["model.embed_tokens.weight"]
    yield "output_norm.weight", known["model.norm.weight"]
    yield "output.weight", known["lm_head.weight"]
    heads = {"attn_q.weight": config.num_attention_heads, "attn_k.weight": config.num_key_value_heads}
    for layer in range(config.num_hidden_layers):
        for short, long in PARTS.items():
            weight = known.get(f"model.layers.{layer}.{long}")
            if weight is not None:
                turned = short in heads and config.model_type in ("llama", "mistral")
                yield f"blk.{layer}.{short}", paired(weight, heads[short]) if turned else weight


def of_gpt2(model):
    """The same of a GPT-2, whose maps lie transposed."""
    known = {
        name.removeprefix("transformer."): value.detach().float().numpy() for name, value in model.state_dict().items()
    }
    yield "token_embd.weight", known["wte.weight"]
    yield "position_embd.weight", known["wpe.weight"]
    yield "output.weight", known["lm_head.weight"]
    for end in ("weight", "bias"):
        yield f"output_norm.{end}", known[f"ln_f.{end}"]
        for layer in range(model.config.num_hidden_layers):
            for short, long in PARTS_OF_GPT2.items():
                yield f"blk.{layer}.{short}.{end}", known[f"h.{layer}.{long}.{end}"].T
