"""A mask that does not say which places of the text are padding is refused in a line, by all that looks."""

from collections.abc import Callable
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor
from traces import assert_no_trace, trace

import tunescope as ts
from tunescope.probes.mechanism import mechanism
from tunescope.probes.see import see

TEXT, PAIRS = tiny.ids(3, 7), torch.ones(3, 1, 7, 7, dtype=torch.bool).tril()


@pytest.mark.parametrize("look", [see, mechanism])
@pytest.mark.parametrize(
    ("mask", "shape"),
    [
        (PAIRS, r"\(3, 1, 7, 7\)"),
        (PAIRS[:, 0], r"\(3, 7, 7\)"),
        (torch.ones(3, 32), r"\(3, 32\)"),
        (torch.ones(1, 7), r"\(1, 7\)"),
        ({"full_attention": PAIRS}, "a dict"),
    ],
)
def test_a_mask_of_another_shape_than_the_text_s(look: Callable[..., Any], mask: Any, shape: str) -> None:
    model = tiny.make("llama")
    before = trace(model)
    told = rf"attention_mask is {shape}, .* give one of shape \(3, 7\), 1 at"
    with ts.attach(model, ts.Prefix(length=2)) as tuned, pytest.raises(ts.UserError, match=told):
        look(model, tuned, {"input_ids": TEXT, "attention_mask": mask})
    assert_no_trace(model, before)


@pytest.mark.parametrize("text", ["decoder_input_ids", "labels"])
def test_a_decoder_s_mask_behind_an_encoder(text: str) -> None:
    model, given = tiny.make("t5"), {"input_ids": TEXT, "attention_mask": torch.ones_like(TEXT), "labels": TEXT}
    inputs: dict[str, Tensor] = {**given, text: TEXT, "decoder_attention_mask": PAIRS}
    asked = r"\(3, 7\)" if text == "decoder_input_ids" else r"\(batch, text\)"
    with pytest.raises(ts.UserError, match=rf"decoder_attention_mask is \(3, 1, 7, 7\), .* of shape {asked}"):
        mechanism(model, [ts.Prefix(length=2)], inputs)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_left_padding_is_no_difference_between_the_bare_run_and_the_attached_one(family: str) -> None:
    """In the first layer a prefix moves no pattern; bare, GPT-2 counts positions over padding, too."""
    model, mask = tiny.make(family), torch.ones_like(TEXT)
    mask[1, :3] = 0
    right = TEXT[1:2, 3:]
    with ts.attach(model, ts.Prefix(length=2)) as tuned:
        padded = see(model, tuned, {"input_ids": TEXT, "attention_mask": mask})
        alone = see(model, tuned, {"input_ids": right})
        found = mechanism(model, tuned, {"input_ids": TEXT, "attention_mask": mask})
    for one, other in zip(padded.bare.values(), alone.bare.values(), strict=True):
        torch.testing.assert_close(one.weights[1:2, :, 3:, 3:], other.weights, atol=1e-9, rtol=0)
    assert found["by_layer"][0]["along"] == pytest.approx(0, abs=1e-9) and found["by_layer"][1]["along"] > 1e-6


def test_embeddings_say_how_long_the_text_is() -> None:
    model = tiny.make("llama")
    with torch.no_grad():
        embeds = model.get_input_embeddings()(TEXT)
    mask = torch.ones_like(TEXT).tril(3)
    assert see(model, (), {"inputs_embeds": embeds, "attention_mask": mask}).real["decoder"].equal(mask.bool())
    with pytest.raises(ts.UserError, match=r"of shape \(3, 7\)"):
        see(model, (), {"inputs_embeds": embeds, "attention_mask": PAIRS})
