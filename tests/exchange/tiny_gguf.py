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


def gguf_of(model, path):
    """Write a Llama in float32, with a vocabulary of bytes that nobody reads."""
    import gguf

    config, made = model.config, gguf.GGUFWriter(path, "llama")
    made.add_context_length(config.max_position_embeddings)
    made.add_embedding_length(config.hidden_size)
    made.add_block_count(config.num_hidden_layers)
    made.add_feed_forward_length(config.intermediate_size)
    made.add_head_count(config.num_attention_heads)
    made.add_head_count_kv(config.num_key_value_heads)
    made.add_layer_norm_rms_eps(config.rms_norm_eps)
    made.add_rope_freq_base(config.rope_parameters["rope_theta"])
    made.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
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
    for name, weight in tensors(model):
        made.add_tensor(name, np.ascontiguousarray(weight))
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def tensors(model):
    """(GGUF's name, weight) of a Llama."""
    config = model.config
    known = {name: value.detach().float().numpy() for name, value in model.state_dict().items()}
    yield "token_embd.weight", known["model.embed_tokens.weight"]
    yield "output_norm.weight", known["model.norm.weight"]
    yield "output.weight", known["lm_head.weight"]
    parts = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    for layer in range(config.num_hidden_layers):
        own = f"model.layers.{layer}"
        for short, long in parts.items():
            yield f"blk.{layer}.{short}.weight", known[f"{own}.{long}.weight"]
        for short, heads in (("q", config.num_attention_heads), ("k", config.num_key_value_heads)):
            yield f"blk.{layer}.attn_{short}.weight", paired(known[f"{own}.self_attn.{short}_proj.weight"], heads)
