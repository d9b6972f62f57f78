"""Families with habits of their own, tiny: keywords kept back, queries cut, chunks, sound and images."""

from typing import Any

import tiny
import torch
import transformers as tf
from torch import Tensor
from zoo import ZOO

from tunescope.methods.artifact import Artifact
from tunescope.methods.contexts.text import Text

SMALL = {**tiny.DECODER, "hidden_size": 24, "intermediate_size": 40, "max_position_embeddings": 64}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
FRONT = [3, 4, 17, 18]
LENGTHS = (7, 4)


def gemma4(per_layer: int = 6) -> Any:
    return tf.Gemma4TextConfig(
        **SMALL,
        **HEADS,
        num_hidden_layers=4,
        head_dim=8,
        global_head_dim=8,
        sliding_window=5,
        layer_types=["sliding_attention", "full_attention"] * 2,
        num_kv_shared_layers=2 if per_layer else 0,  # transformers has no other
        vocab_size_per_layer_input=tiny.VOCAB,
        hidden_size_per_layer_input=per_layer,
    )


def llama4() -> Any:
    return tf.Llama4TextConfig(
        **SMALL,
        **HEADS,
        num_hidden_layers=2,
        head_dim=6,
        attention_chunk_size=8,
        layer_types=["chunked_attention", "full_attention"],
        no_rope_layers=[1, 0],
        intermediate_size_mlp=40,
        num_local_experts=2,
        moe_layers=[],
    )


def minimax_m3(block: int = 4) -> Any:
    return tf.MiniMaxM3VLTextConfig(
        **SMALL,
        **HEADS,
        num_hidden_layers=2,
        head_dim=6,
        rotary_dim=6,
        index_n_heads=2,
        index_head_dim=6,
        index_block_size=block,
        index_topk_blocks=2,
        experts_implementation="eager",
        layer_types=["full_attention", "minimax_m3_sparse"],
        num_local_experts=4,
        num_experts_per_tok=2,
        dense_intermediate_size=40,
        shared_intermediate_size=20,
    )


def jamba() -> Any:
    return tf.JambaConfig(
        **SMALL,
        **HEADS,
        num_hidden_layers=4,
        attn_layer_period=2,
        attn_layer_offset=1,
        num_experts=1,
        mamba_d_state=4,
        mamba_dt_rank=4,
    )


def vit() -> Any:
    layers = {"num_hidden_layers": 2, "num_attention_heads": 3}
    return tf.ViTConfig(hidden_size=24, intermediate_size=40, image_size=8, patch_size=4, **layers)


def whisper() -> Any:
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    return tf.WhisperConfig(
        vocab_size=tiny.VOCAB,
        num_mel_bins=8,
        d_model=24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=40,
        decoder_ffn_dim=40,
        max_source_positions=6,
        max_target_positions=32,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        **special,
    )


def longt5(kind: str = "local") -> Any:
    return tf.LongT5Config(
        vocab_size=tiny.VOCAB,
        d_model=24,
        d_kv=6,
        d_ff=40,
        num_layers=2,
        num_heads=3,
        pad_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=0,
        encoder_attention_type=kind,
        local_radius=7,
    )


def clip() -> Any:
    layers = {"num_hidden_layers": 2, "num_attention_heads": 3, "projection_dim": 24}
    return tf.CLIPTextConfig(**SMALL, **layers)


CONFIGS = {
    "jamba": jamba,
    "vit": vit,
    "whisper": whisper,
    "longt5": longt5,
    "clip_text_model": clip,
    **{name: ZOO[name] for name in ("bigbird_pegasus", "stablelm", "nemotron", "ctrl")},
    "llama": lambda: tiny.configs()["llama"],
    "gpt2": lambda: tiny.configs()["gpt2"],
    "gemma4_text": gemma4,
    "llama4_text": llama4,
    "minimax_m3_vl_text": minimax_m3,
}


AUTO = {
    "vit": tf.AutoModel,
    "clip_text_model": tf.AutoModel,
    "whisper": tf.AutoModelForSpeechSeq2Seq,
    "longt5": tf.AutoModelForSeq2SeqLM,
    "bigbird_pegasus": tf.AutoModelForSeq2SeqLM,
}


def model(family: str) -> Any:
    return tiny.build(AUTO.get(family, tf.AutoModelForCausalLM), CONFIGS[family]())


def text(ids: list[int] = FRONT) -> Artifact:
    return Artifact(Text(text="x"), {"ids": torch.tensor(ids)})


def padded(side: str) -> dict[str, Tensor]:
    """Two rows of LENGTHS, without position_ids."""
    ids = torch.zeros(len(LENGTHS), max(LENGTHS), dtype=torch.long)
    mask = ids.clone()
    for row, length in enumerate(LENGTHS):
        columns = slice(length) if side == "right" else slice(-length, None)
        ids[row, columns], mask[row, columns] = tiny.ids(1, length, seed=row)[0], 1
    return {"input_ids": ids, "attention_mask": mask}


def rows_of(given: dict[str, Tensor]) -> list[Tensor]:
    return [ids[mask.bool()][None] for ids, mask in zip(given["input_ids"], given["attention_mask"], strict=True)]


def close(got: Tensor, expected: Tensor, atol: float = 1e-10) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=atol)
