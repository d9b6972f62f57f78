"""A really pretrained decoder: a context is what it is in the row, LoRA what it is in the weights.

Run with TUNESCOPE_PRETRAINED=FOLDER, of SmolLM2-135M or any other decoder that fits into memory in float64.
"""

import copy
import os
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor
from transformers import DynamicCache

import tunescope as ts
from tunescope.attachment.attention.reach import reached
from tunescope.methods.artifact import Artifact
from tunescope.models.load import load_model

FOLDER = os.environ.get("TUNESCOPE_PRETRAINED")
pytestmark = pytest.mark.skipif(not FOLDER, reason="TUNESCOPE_PRETRAINED names no folder of a pretrained decoder")
TEXTS = ("The film has a heart, and it beats for two hours.", "A dull story, badly told")
FRONT = "Below are sentences from reviews of films. Say of each one whether the reviewer liked it."
CLOSE = 1e-9  # of the largest logit


@pytest.fixture(scope="module")
def pretrained() -> Any:
    model, tokenizer = load_model(str(FOLDER))
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    with torch.no_grad(), tiny.Float64():
        yield model.double().eval(), tokenizer


def batch(tokenizer: Any, side: str) -> dict[str, Tensor]:
    tokenizer.padding_side = side
    made = tokenizer(list(TEXTS), return_tensors="pt", padding=True)
    return {"input_ids": made["input_ids"], "attention_mask": made["attention_mask"]}


def same(got: Tensor, wanted: Tensor) -> None:
    assert (got - wanted).abs().max() <= CLOSE * wanted.abs().max()


def in_front(model: Any, tokenizer: Any) -> dict[str, tuple[Artifact, Tensor]]:
    """Artifact -> and the embeddings that it is."""
    ids = tokenizer(FRONT, return_tensors="pt")["input_ids"][0]
    rows = model.get_input_embeddings()(ids)
    moved = rows + 0.1 * rows.std() * torch.randn(rows.shape, generator=torch.Generator().manual_seed(0)).double()
    return {
        "text": (Artifact(ts.Text(text=FRONT), {"ids": ids}), rows),
        "soft": (Artifact(ts.Soft(length=len(rows)), {"embeddings": moved}), moved),
    }


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("what", ["text", "soft"])
def test_a_context_is_what_it_is_in_the_row(pretrained: Any, what: str, side: str) -> None:
    model, tokenizer = pretrained
    artifact, rows = in_front(model, tokenizer)[what]
    given = batch(tokenizer, side)
    with ts.attach(model, artifact):
        got = model(**given).logits
    for row, mask in enumerate(given["attention_mask"].bool()):
        text = model.get_input_embeddings()(given["input_ids"][row, mask])
        same(got[row, mask], model(inputs_embeds=torch.cat([rows, text])[None]).logits[0, len(rows) :])


@pytest.mark.parametrize("how", [{}, {"num_beams": 3}], ids=["greedy", "beams"])
@pytest.mark.parametrize("what", ["text", "soft"])
def test_it_writes_what_it_writes_with_the_context_in_the_row(pretrained: Any, what: str, how: dict[str, int]) -> None:
    model, tokenizer = pretrained
    artifact, rows = in_front(model, tokenizer)[what]
    given, asked = batch(tokenizer, "left"), {"max_new_tokens": 6, "do_sample": False, **how}
    with ts.attach(model, artifact):
        got = model.generate(**given, **asked)[:, given["input_ids"].shape[1] :]
    for row, mask in enumerate(given["attention_mask"].bool()):
        text = model.get_input_embeddings()(given["input_ids"][row, mask])
        wanted = model.generate(inputs_embeds=torch.cat([rows, text])[None], **asked)[0]
        assert got[row].tolist()[: len(wanted)] == wanted.tolist()


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_prefix_is_what_its_keys_and_values_are_in_the_cache(pretrained: Any, side: str) -> None:
    model, tokenizer = pretrained
    (prefix,) = tiny.away(model, "prefix:length=5,positions=after")
    given = batch(tokenizer, side)
    with ts.attach(model, prefix):
        got = model(**given).logits
    for row, mask in enumerate(given["attention_mask"].bool()):
        cache = DynamicCache()
        for index, place in enumerate(reached(model)):
            cache.update(*(prefix.tensors[f"{place.name}.{kind}"][None] for kind in ("key", "value")), index)
        same(got[row, mask], model(input_ids=given["input_ids"][row, mask][None], past_key_values=cache).logits[0])


@pytest.mark.parametrize("sites", ["attn.q,attn.v", "all-linear", "path:*.down_proj"])
def test_lora_is_what_it_is_in_the_weights(pretrained: Any, sites: str) -> None:
    model, tokenizer = pretrained
    given = batch(tokenizer, "right")
    artifacts = tiny.away(model, f"lora:rank=2,sites={sites}", by=0.02)
    with ts.attach(model, *artifacts):
        got = model(**given).logits
    assert (got - model(**given).logits).abs().max() > 1e-3
    same(got, ts.merge(copy.deepcopy(model), *artifacts)(**given).logits)
