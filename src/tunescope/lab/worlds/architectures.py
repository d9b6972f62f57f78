"""Small untrained models of six architectures, ready to learn: every kind of attention that a user's model may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import transformers as tf

from tunescope.errors import UserError
from tunescope.system import machine

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

POSITIONS = 128
INITIAL = 0.05  # the standard deviation of fresh weights; transformers' .02 is for widths near 768


@dataclass(frozen=True)
class Body:
    """An architecture and its size. layers: of each of the two stacks, where there are two."""

    architecture: str
    layers: int
    width: int
    heads: int

    def __str__(self) -> str:
        return f"{self.architecture}, {self.layers} layers of {self.width}, {self.heads} heads"

    @property
    def kind(self) -> str:
        """As `compare` calls it: decoder, encoder or encoder-decoder."""
        return {"bert": "encoder", "t5": "encoder-decoder", "bart": "encoder-decoder"}.get(self.architecture, "decoder")


def new_model(body: Body, tokenizer: PreTrainedTokenizerFast, seed: int) -> PreTrainedModel:
    """The body with fresh weights for the tokenizer's words, drawn by `seed`, without dropout.

    Every matrix is normal with one deviation, what is added to the stream divided by the root of twice the layers,
    which is how often that is done in a stack without cross attention (Radford et al. 2019, section 2.3): so a deep one
    learns at a shallow one's rate.

    Raises:
        UserError: an architecture that is not in `ARCHITECTURES`.
    """
    if body.architecture not in ARCHITECTURES:
        raise UserError(
            f"A lab world was asked for the architecture '{body.architecture}'; there are: {', '.join(ARCHITECTURES)}."
        )
    words = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }
    config, build = ARCHITECTURES[body.architecture](body, words)
    with machine.seeded(seed):
        model = build(config)
        draw_weights(model, body.layers)
    return model.eval()


@torch.no_grad()
def draw_weights(model: PreTrainedModel, layers: int) -> None:
    """Draw every matrix anew, those added to the stream smaller; a T5's distances tell from the start."""
    for name, parameter in model.named_parameters():
        if "relative_attention_bias" in name:
            parameter.normal_()
        elif parameter.dim() > 1:
            added = name.endswith(ADDED)
            parameter.normal_(0.0, INITIAL / (2 * layers) ** 0.5 if added else INITIAL)


# the last map of attention and of the feed-forward layer, as each architecture calls it
ADDED = tuple(
    f"{name}.weight"
    for name in (
        *("c_proj", "o_proj", "down_proj", "attention.dense", "dense_4h_to_h"),
        *("attention.output.dense", "output.dense", ".o", "wo", "out_proj", "fc2"),
    )
)


def _gpt2(body: Body, words: dict[str, Any]) -> tuple[Any, Any]:
    config = tf.GPT2Config(
        **words,
        n_positions=POSITIONS,
        n_embd=body.width,
        n_layer=body.layers,
        n_head=body.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    return config, tf.GPT2LMHeadModel


def _sizes(body: Body, wider: int) -> dict[str, int]:
    """What most configurations call the sizes; the feed-forward layer is so many times wider than the rest."""
    return {
        "hidden_size": body.width,
        "intermediate_size": wider * body.width,
        "num_hidden_layers": body.layers,
        "num_attention_heads": body.heads,
        "max_position_embeddings": POSITIONS,
    }


def _llama(body: Body, words: dict[str, Any]) -> tuple[Any, Any]:
    """Two query heads share a key head, where there are two."""
    config = tf.LlamaConfig(
        **words,
        **_sizes(body, 2),
        num_key_value_heads=max(1, body.heads // 2),
        tie_word_embeddings=False,
    )
    return config, tf.LlamaForCausalLM


def _gpt_neox(body: Body, words: dict[str, Any]) -> tuple[Any, Any]:
    config = tf.GPTNeoXConfig(**words, **_sizes(body, 4))
    return config, tf.GPTNeoXForCausalLM


def _bert(body: Body, words: dict[str, Any]) -> tuple[Any, Any]:
    config = tf.BertConfig(
        **words,
        **_sizes(body, 4),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return config, tf.BertForMaskedLM


def _t5(body: Body, words: dict[str, Any]) -> tuple[Any, Any]:
    """Version 1.1: gated, its output map its own."""
    config = tf.T5Config(
        **words,
        d_model=body.width,
        d_kv=body.width // body.heads,
        d_ff=2 * body.width,
        num_layers=body.layers,
        num_heads=body.heads,
        feed_forward_proj="gated-gelu",
        dropout_rate=0.0,
        tie_word_embeddings=False,
        decoder_start_token_id=words["pad_token_id"],
    )
    return config, tf.T5ForConditionalGeneration


def _bart(body: Body, words: dict[str, Any]) -> tuple[Any, Any]:
    config = tf.BartConfig(
        **words,
        d_model=body.width,
        encoder_layers=body.layers,
        decoder_layers=body.layers,
        encoder_attention_heads=body.heads,
        decoder_attention_heads=body.heads,
        encoder_ffn_dim=4 * body.width,
        decoder_ffn_dim=4 * body.width,
        max_position_embeddings=POSITIONS,
        dropout=0.0,
        decoder_start_token_id=words["eos_token_id"],
        forced_eos_token_id=None,
    )
    return config, tf.BartForConditionalGeneration


ARCHITECTURES: dict[str, Callable[[Body, dict[str, Any]], tuple[Any, Any]]] = {
    "gpt2": _gpt2,
    "llama": _llama,
    "gpt_neox": _gpt_neox,
    "bert": _bert,
    "t5": _t5,
    "bart": _bart,
}
