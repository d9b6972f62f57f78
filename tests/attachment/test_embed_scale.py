"""Encoders that multiply the embeddings of ids, and not those they are given: text in front is as in the row."""

from typing import Any

import pytest
import torch
import transformers as tf

import tunescope as ts
from tunescope.attachment.context_keys import embedder
from tunescope.attachment.embed_scale import embed_scale
from tunescope.exchange import convert
from tunescope.methods.artifact import Artifact

WORDS, ROW, TARGET = torch.tensor([5, 6, 7]), torch.tensor([[11, 12, 13, 14]]), torch.tensor([[3, 21, 22]])
SIZES = {
    "vocab_size": 64,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "decoder_start_token_id": 3,
    "eos_token_id": 2,
    "init_std": 0.125,
}
FAMILIES = {
    "marian": (tf.MarianConfig, tf.MarianMTModel),
    "pegasus": (tf.PegasusConfig, tf.PegasusForConditionalGeneration),
    "blenderbot-small": (tf.BlenderbotSmallConfig, tf.BlenderbotSmallForConditionalGeneration),
    "bart": (tf.BartConfig, tf.BartForConditionalGeneration),  # its table multiplies by itself
}


def made(family: str, scaled: bool = True) -> Any:
    config, kind = FAMILIES[family]
    torch.manual_seed(0)
    return kind(config(scale_embedding=scaled, **SIZES)).eval().double()


def text() -> Artifact:
    return Artifact(ts.Text(text="x"), {"ids": WORDS})


@torch.no_grad()
@pytest.mark.parametrize("kind", ["text", "soft"])
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_words_in_front_are_what_they_are_in_the_row(family: str, scaled: bool, kind: str) -> None:
    model = made(family, scaled)
    context = text() if kind == "text" else Artifact(ts.Soft(length=3), {"embeddings": embedder(model)(WORDS)})
    wanted = model(input_ids=torch.cat([WORDS[None], ROW], 1), decoder_input_ids=TARGET).logits
    bare = model(input_ids=ROW, decoder_input_ids=TARGET).logits
    padded = torch.cat([ROW, torch.zeros_like(ROW)], 1)
    with ts.attach(model, context):
        got = model(input_ids=ROW, decoder_input_ids=TARGET).logits
        mask = (padded != 0).long()
        longer = model(input_ids=padded, attention_mask=mask, decoder_input_ids=TARGET).logits
    assert (wanted - bare).abs().max() > 1e-2
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(longer, wanted, rtol=0, atol=1e-12)


def test_the_factor_is_the_root_of_the_width_where_ids_alone_are_multiplied() -> None:
    assert [embed_scale(made(family)) for family in FAMILIES] == [4.0, 4.0, 4.0, 1.0]
    assert [embed_scale(made(family, False)) for family in FAMILIES] == [1.0] * 4


@torch.no_grad()
@pytest.mark.parametrize("drops", [True, False])
def test_an_encoder_that_makes_more_of_ids_is_refused_text_and_soft(drops: bool) -> None:
    sizes = {"vocab_size": 33, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "pad_token_id": 1, "mask_token_id": 32, "max_position_embeddings": 40}
    config = tf.EsmConfig(token_dropout=drops, position_embedding_type="rotary", **sizes)
    torch.manual_seed(0)
    model = tf.EsmModel(config, add_pooling_layer=False).eval().double()
    if drops:
        with pytest.raises(ts.UserError, match=r"it makes more of a token's id than its embedding\. Use a prefix"):
            ts.attach(model, text())
        with ts.attach(model, ts.LoRA(rank=2), seed=0):
            return
    wanted = model(input_ids=torch.cat([WORDS[None], ROW], 1)).last_hidden_state[:, len(WORDS) :]
    with ts.attach(model, text()):
        torch.testing.assert_close(model(input_ids=ROW).last_hidden_state, wanted, rtol=0, atol=1e-12)


@torch.no_grad()
def test_peft_reads_the_text_behind_its_prompt_without_the_factor() -> None:
    peft = pytest.importorskip("peft")
    model = made("marian")
    wanted = model(input_ids=torch.cat([WORDS[None], ROW], 1), decoder_input_ids=TARGET).logits
    rows = embedder(model)(WORDS)
    config = peft.PromptTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=len(WORDS))
    wrapped = peft.get_peft_model(model, config).double().eval()
    wrapped.prompt_encoder["default"].embedding.weight.copy_(torch.cat([rows, rows]))
    mask = torch.ones_like(ROW)
    got = wrapped(input_ids=ROW, attention_mask=mask, decoder_input_ids=TARGET).logits
    if (got - wanted).abs().max() < 1e-9:
        pytest.skip("this peft gives the text its factor")
    with ts.attach(made("marian"), Artifact(ts.Soft(length=3), {"embeddings": rows})) as tuned:
        torch.testing.assert_close(
            tuned.model(input_ids=ROW, decoder_input_ids=TARGET).logits, wanted, rtol=0, atol=1e-12
        )


def test_a_soft_prompt_is_not_made_peft_s_whose_text_would_come_without_the_factor(tmp_path: Any) -> None:
    model = made("marian")
    with ts.attach(model, ts.Soft(length=3), seed=0) as tuned:
        artifacts = tuned.artifacts
    with pytest.raises(ts.UserError, match="multiplies the embeddings of ids by 4, and behind a soft prompt of peft's"):
        convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    convert.export(tmp_path / "out", artifacts, to="peft", model=made("marian", False))
