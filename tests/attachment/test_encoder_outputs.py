"""Encoder states that are given to a model mean what they meant when they were made, whatever ran in between."""

from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from torch import Tensor

import tunescope as ts

TEXT, OUT = tiny.ids(2, 7), tiny.ids(2, 5, seed=2)
SOFT = {"a": "soft:length=3", "b": "soft:length=1"}


def t5gemma() -> Any:
    """An encoder-decoder that is told positions, so that a prompt may stand in front of left-padded text."""
    sizes = {"vocab_size": tiny.VOCAB, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "query_pre_attn_scalar": 8}
    half = sizes | heads | {"sliding_window": 64, "max_position_embeddings": 64, "pad_token_id": 0}
    return tiny.build(tf.AutoModelForSeq2SeqLM, tf.T5GemmaConfig(encoder=half, decoder=half, vocab_size=tiny.VOCAB))


def in_the_row(model: Any, prompt: Tensor, text: Tensor, out: Tensor) -> Tensor:
    """The bare model's logits (n, vocabulary) of one row with the prompt's embeddings among its words."""
    whole = torch.cat([prompt.to(model.dtype), model.get_input_embeddings()(text)])[None]
    logits: Tensor = model(inputs_embeds=whole, decoder_input_ids=out[None]).logits[0]
    return logits


def artifacts(model: Any) -> dict[str, Any]:
    return {name: tiny.away(model, arm, seed) for seed, (name, arm) in enumerate(SOFT.items())}


@torch.no_grad()
@pytest.mark.parametrize("between", [["b", "a"], [None, None], ["a", "a"]], ids=str)
def test_rows_of_a_bank_with_given_encoder_states_are_as_their_prompts_in_the_row(between: list[str | None]) -> None:
    model = tiny.make("t5")
    members = artifacts(model)
    expected = [in_the_row(model, members["ab"[i]][0].tensors["embeddings"], TEXT[i], OUT[i]) for i in (0, 1)]
    mask = torch.ones_like(TEXT)
    with ts.attach(model, ts.Bank(members)) as bank:
        with bank.rows(["a", "b"]):
            states = model.get_encoder()(input_ids=TEXT, attention_mask=mask)
        model(input_ids=TEXT, decoder_input_ids=OUT, rows=between)
        for given in ({"attention_mask": mask}, {}):
            got = model(encoder_outputs=states, decoder_input_ids=OUT, **given, rows=["a", "b"]).logits
            torch.testing.assert_close(got, torch.stack(expected), rtol=0, atol=1e-12)


@torch.no_grad()
def test_left_padded_encoder_states_are_read_behind_a_prompt_whatever_ran_since() -> None:
    model = t5gemma()
    (soft,) = tiny.away(model, "soft:length=3")
    mask = torch.ones_like(TEXT)
    mask[0, :3] = 0
    expected = in_the_row(model, soft.tensors["embeddings"], TEXT[0, 3:], OUT[0])
    with ts.attach(model, soft):
        states = model.get_encoder()(input_ids=TEXT, attention_mask=mask)
        for other in (torch.ones_like(mask), mask.flip(0)):
            model(input_ids=TEXT, attention_mask=other, decoder_input_ids=OUT)
            got = model(encoder_outputs=states, attention_mask=mask, decoder_input_ids=OUT).logits[0]
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)  # its norms are computed in float32


@torch.no_grad()
def test_beams_of_given_encoder_states_write_what_the_text_itself_does() -> None:
    model = tiny.make("t5")
    mask = torch.ones_like(TEXT)
    how: dict[str, Any] = {"max_new_tokens": 4, "num_beams": 3, "rows": ["a", "b"]}
    with ts.attach(model, ts.Bank(artifacts(model))) as bank:
        with bank.rows(["a", "b"]):
            states = model.get_encoder()(input_ids=TEXT, attention_mask=mask)
        expected = model.generate(input_ids=TEXT, attention_mask=mask, **how)
        model.generate(input_ids=TEXT, attention_mask=mask, **how | {"rows": ["b", "a"]})
        assert torch.equal(model.generate(encoder_outputs=states, attention_mask=mask, **how), expected)


@torch.no_grad()
@pytest.mark.parametrize(("rows", "width"), [([None, None], 7), (["b", "b"], 7), (["a", "b"], 10)], ids=str)
def test_encoder_states_that_the_rows_do_not_explain_are_refused(rows: list[str | None], width: int) -> None:
    model = tiny.make("t5")
    with ts.attach(model, ts.Bank(artifacts(model))) as bank:
        with bank.rows(["a", "b"]):
            states = model.get_encoder()(input_ids=TEXT)
        mask = torch.ones(2, width, dtype=torch.long)
        with pytest.raises(ts.UserError, match=r"encoder_outputs of 10 columns .* give the rows= and the text's own"):
            model(encoder_outputs=states, attention_mask=mask, decoder_input_ids=OUT, rows=rows)


@torch.no_grad()
def test_encoder_states_of_the_bare_model_have_no_context_in_front_of_them() -> None:
    model, mask = tiny.make("t5"), torch.ones_like(TEXT)
    mask[0, 5:] = 0
    given = {"encoder_outputs": model.get_encoder()(input_ids=TEXT, attention_mask=mask), "decoder_input_ids": OUT}
    expected = model(**given, attention_mask=mask).logits
    with ts.attach(model, ts.Bank(artifacts(model))):
        got = model(**given, attention_mask=mask, rows=["b", "b"]).logits
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
