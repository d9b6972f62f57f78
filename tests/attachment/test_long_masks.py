"""A mask that is longer than the columns so far says no more than its first ones: transformers reads no others."""

from typing import Any

import pytest
import tiny
import torch
from torch import Tensor
from transformers import StaticCache

import tunescope as ts

CONTEXTS = ["prefix:length=3,positions=same", "prefix:length=3,positions=after", "soft:length=3", "infix:length=3"]
LENGTH, MORE, STEPS = 7, 5, 2


def masks(padding: str) -> Tensor:
    """(2, LENGTH + STEPS), of which each call sees the first columns."""
    mask = torch.ones(2, LENGTH + STEPS, dtype=torch.long)
    mask[1, : 3 if padding == "left" else 0] = 0
    return mask


def longer(mask: Tensor, by: int) -> Tensor:
    """With ones for one row and zeros for the other behind it, which are of tokens that never come."""
    return torch.cat([mask, torch.tensor([[1], [0]]).expand(-1, by)], 1)


@torch.no_grad()
@pytest.mark.parametrize("padding", ["none", "left"])
@pytest.mark.parametrize("arm", [*CONTEXTS, "lora"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral"])
def test_what_lies_behind_the_text_in_a_mask_changes_nothing(family: str, arm: str, padding: str) -> None:
    model, text, mask = tiny.make(family), tiny.ids(), masks(padding)[:, :LENGTH]
    with ts.attach(model, *tiny.away(model, arm)):
        expected, got = (model(text, attention_mask=one).logits for one in (mask, longer(mask, MORE)))
    torch.testing.assert_close(got[mask.bool()], expected[mask.bool()], rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("arm", CONTEXTS)
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_static_cache_may_have_the_mask_of_its_whole_length(family: str, arm: str) -> None:
    model, text, mask = tiny.make(family), tiny.ids(length=LENGTH + STEPS), masks("left")

    def read(*, whole: bool) -> Tensor:
        cache, found = StaticCache(config=model.config, max_cache_len=LENGTH + STEPS), []
        for begin, end in [(0, LENGTH), *((at, at + 1) for at in range(LENGTH, LENGTH + STEPS))]:
            seen = mask if whole else mask[:, :end]
            out = model(text[:, begin:end], attention_mask=seen, past_key_values=cache, use_cache=True)
            found.append(out.logits)
        return torch.cat(found, 1)[mask.bool()]

    with ts.attach(model, *tiny.away(model, arm)):
        torch.testing.assert_close(read(whole=True), read(whole=False), rtol=0, atol=1e-12)


@torch.no_grad()
def test_nor_does_it_in_a_bank() -> None:
    model, text, mask = tiny.make("llama"), tiny.ids(), masks("left")[:, :LENGTH]
    with ts.attach(model, ts.Bank({"a": tiny.away(model, CONTEXTS[0])})):
        expected, got = (model(text, attention_mask=one, rows=["a", None]).logits for one in (mask, longer(mask, MORE)))
    torch.testing.assert_close(got[mask.bool()], expected[mask.bool()], rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_head_reads_the_last_token_of_the_text() -> None:
    model, mask = tiny.make("llama").base_model, masks("none")[:, :LENGTH].clone()
    mask[1, 5:] = 0
    with ts.attach(model, *tiny.away(model, "head:n_labels=3,token=last")):
        text = model.get_input_embeddings()(tiny.ids())
        expected, got = (model(inputs_embeds=text, attention_mask=one)["logits"] for one in (mask, longer(mask, MORE)))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("family", ["bert", "t5"])
def test_an_encoder_behind_embeddings_asks_for_a_mask_of_its_text(family: str) -> None:
    model = tiny.make(family)
    given: dict[str, Any] = {name: value for name, value in tiny.batch(model, "none").items() if name != "input_ids"}
    mask = torch.ones(2, LENGTH + MORE, dtype=torch.long)
    with (
        ts.attach(model, *tiny.away(model, "soft:length=3")),
        pytest.raises(ts.UserError, match="The attention_mask has 12 columns, and the text 7"),
    ):
        model(tiny.ids(), attention_mask=mask, **given)
