"""Later turns of a chat, behind a cache: where the output starts, and how far a window reaches over padding within."""

from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from torch import Tensor

import tunescope as ts

WORDS = (5, 9, 11, 20, 7)
TEXT = " ".join(f"w{number}" for number in WORDS)
HOW: dict[str, Any] = {"max_new_tokens": 4, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
HOW |= {"eos_token_id": None, "pad_token_id": 0}


def cached(model: Any, ids: Tensor, **more: Any) -> tf.DynamicCache:
    made = tf.DynamicCache(config=model.config)
    model(input_ids=ids, past_key_values=made, **more)
    return made


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize(
    ("arm", "banked"),
    [("infix:length=3", False), ("infix:length=3", True), (f"text:text={TEXT}+reweight:anchors=1/3", False)],
)
def test_new_ids_alone_start_the_output_where_the_whole_ids_do(family: str, arm: str, banked: bool) -> None:
    """One pass over all of it, told where the output starts, is the oracle."""
    model = tiny.make(family, attention="eager")
    first, new = tiny.ids(2, 8, seed=5), tiny.ids(2, 6, seed=6)
    whole, start = torch.cat([first, new], 1), torch.tensor([13, 13])
    artifacts = tiny.away(model, arm, by=1.0)
    attached = [ts.Bank({"a": artifacts})] if banked else artifacts
    rows = {"rows": ["a", "a"]} if banked else {}
    with tiny.Float64(), ts.attach(model, *attached, tokenizer=tiny.tokenizer()):
        for ids in (whole, new):
            held = cached(model, first, output_start=start, **rows)
            mask = torch.ones_like(whole)
            found = model.generate(input_ids=ids, attention_mask=mask, past_key_values=held, **rows, **HOW)
            sequences = torch.cat([whole, found.sequences[:, -4:]], 1)[:, :-1]
            expected = model(input_ids=sequences, output_start=start, use_cache=False, **rows).logits[:, 13:]
            torch.testing.assert_close(torch.stack(found.logits, 1), expected, rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2"])
@pytest.mark.parametrize("banked", [False, True])
def test_a_window_reaches_words_in_front_as_if_they_were_in_the_row_where_padding_stands_within(
    family: str, banked: bool
) -> None:
    """The second row's first turn ended two tokens earlier; transformers' windows count the columns between."""
    model = tiny.make(family)
    first, new = tiny.ids(2, 4, seed=5), tiny.ids(2, 5, seed=6)
    real = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    mask = torch.cat([real, torch.ones_like(new)], 1)
    front = torch.tensor([WORDS, WORDS])
    whole = torch.cat([torch.ones_like(front), mask], 1)
    positions = whole.cumsum(1) - 1
    with tiny.Float64():
        held = cached(model, torch.cat([front, first], 1), attention_mask=whole[:, :9], position_ids=positions[:, :9])
        given = {"input_ids": new, "attention_mask": whole, "position_ids": positions[:, 9:]}
        expected = model(**given, past_key_values=held).logits
        words = ts.Text(text=TEXT)
        attached, rows = ([ts.Bank({"a": words})], {"rows": ["a", "a"]}) if banked else ([words], {})
        with ts.attach(model, *attached, tokenizer=tiny.tokenizer()):
            held = cached(model, first, attention_mask=real, **rows)
            got = model(input_ids=new, attention_mask=mask, past_key_values=held, **rows).logits
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
