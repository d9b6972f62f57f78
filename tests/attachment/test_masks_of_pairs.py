"""A mask for every pair of tokens, as transformers takes it beside one of columns, behind virtual tokens."""

import pytest
import tiny
import torch
from torch import Tensor

import tunescope as ts

TEXT, WORDS = tiny.ids(2, 7), torch.tensor([[5, 6]])
KEPT = {"right": torch.tensor([[1, 1, 1, 1, 0, 0, 0], [1] * 7]), "left": torch.tensor([[0, 0, 0, 1, 1, 1, 1], [1] * 7])}


def as_bool(mask: Tensor) -> Tensor:
    return mask.bool()[:, None, None].expand(-1, 1, 7, -1)


def as_added(mask: Tensor) -> Tensor:
    return (1 - mask.double())[:, None, None].expand(-1, 1, 7, -1) * torch.finfo(torch.float64).min


@torch.no_grad()
@pytest.mark.parametrize("padding", KEPT)
@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_a_text_in_front_is_as_its_words_in_the_row(family: str, padding: str) -> None:
    model, kept = tiny.make(family), KEPT[padding]
    alone = [
        model(torch.cat([WORDS, text[mask.bool()][None]], 1)).last_hidden_state[0, 2:]
        for text, mask in zip(TEXT, kept, strict=True)
    ]
    text = ts.Text(text="w5 w6")
    with ts.attach(model, text, tokenizer=tiny.tokenizer()):
        for mask in (as_bool(kept), as_added(kept), as_bool(kept)[:, :, :1]):
            got = model(TEXT, attention_mask=mask).last_hidden_state[kept.bool()]
            torch.testing.assert_close(got, torch.cat(alone), rtol=0, atol=1e-12)
    with ts.attach(model, ts.Bank({"a": text}), tokenizer=tiny.tokenizer()):
        got = model(TEXT, attention_mask=as_bool(kept), rows=["a", None]).last_hidden_state
    whole = model(TEXT, attention_mask=kept).last_hidden_state
    torch.testing.assert_close(got[1], whole[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(got[0][kept[0].bool()], alone[0], rtol=0, atol=1e-12)


@torch.no_grad()
def test_one_mask_for_all_rows_is_each_row_s() -> None:
    model = tiny.make("bert")
    expected = model(torch.cat([WORDS.expand(2, -1), TEXT], 1)).last_hidden_state[:, 2:]
    with ts.attach(model, ts.Text(text="w5 w6"), tokenizer=tiny.tokenizer()):
        got = model(TEXT, attention_mask=torch.ones(1, 1, 7, 7, dtype=torch.bool)).last_hidden_state
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "mask",
    [
        torch.ones(2, 1, 7, 7).tril().bool(),
        torch.ones(2, 7, 7, dtype=torch.long),  # transformers takes none of three axes
        torch.linspace(-1, 0, 7, dtype=torch.float64).expand(2, 1, 7, 7),
        torch.ones(2, 1, 7, 7, dtype=torch.float64),  # which is added, and hides nothing
    ],
    ids=["causal", "of three axes", "biases", "ones that are added"],
)
def test_a_mask_that_says_more_than_padding_is_refused(mask: Tensor) -> None:
    model = tiny.make("bert")
    with ts.attach(model, ts.Soft(length=2)), pytest.raises(ts.UserError, match=r"give a mask \(batch, length\)"):
        model(TEXT, attention_mask=mask)


@torch.no_grad()
@pytest.mark.parametrize("is_windowed", [True, False])
def test_a_mask_says_what_is_seen_of_the_text_and_a_layer_s_window_what_is_seen_in_front(is_windowed: bool) -> None:
    with tiny.Float64():
        model, n, n_front = tiny.make("mistral"), 12, 3
        (soft,) = tiny.away(model, f"soft:length={n_front}")
        text = tiny.ids(2, n)
        at = torch.arange(n_front + n)
        causal = at[:, None] >= at
        near = causal & (at[:, None] - at < model.config.sliding_window)
        whole = near.clone() if is_windowed else torch.cat([near[:, :n_front], causal[:, n_front:]], 1)
        with ts.attach(model, soft):
            got = model(text, attention_mask=whole[None, None, n_front:, n_front:], use_cache=False).logits
        embedded = torch.cat([soft.tensors["embeddings"].expand(2, -1, -1), model.get_input_embeddings()(text)], 1)
        expected, dense = (
            model(inputs_embeds=embedded, attention_mask=mask[None, None], use_cache=False).logits[:, n_front:]
            for mask in (whole, causal)
        )
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    assert (expected - dense).abs().max() > 1e-3


def causal(mask: Tensor) -> Tensor:
    """(batch, 1, 7, 7): what each query sees of the real tokens up to its own column."""
    return torch.ones(7, 7).tril().bool() & mask.bool()[:, None, None]


@torch.no_grad()
@pytest.mark.parametrize("padding", KEPT)
@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3"])
def test_an_infix_begins_behind_the_last_real_token_of_each_row(family: str, padding: str) -> None:
    model, kept = tiny.make(family), KEPT[padding]
    given = {"input_ids": TEXT, "position_ids": (kept.cumsum(1) - 1).clamp(min=0)}
    added = torch.zeros(2, 1, 7, 7, dtype=torch.float64).masked_fill(~causal(kept), torch.finfo(torch.float64).min)
    with ts.attach(model, *tiny.away(model, "infix:length=2")):
        expected = model(**given, attention_mask=kept).logits[kept.bool()]
        for mask in (causal(kept), added):
            got = model(**given, attention_mask=mask).logits[kept.bool()]
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
        one = model(TEXT, attention_mask=torch.ones(1, 1, 7, 7).tril().bool()).logits
        torch.testing.assert_close(one, model(TEXT).logits, rtol=0, atol=1e-12)


@torch.no_grad()
def test_where_padding_sees_nothing_an_infix_has_to_be_told_where_the_text_ends() -> None:
    model, kept = tiny.make("llama"), KEPT["right"]
    mask = causal(kept) & kept.bool()[:, None, :, None]
    mask[0, 0, 4:, 0] = False
    ends, artifacts = kept.sum(1) - 1, tiny.away(model, "infix:length=2")
    with ts.attach(model, *artifacts):
        with pytest.raises(ts.UserError, match=r"An infix needs output_start=.* last column of a row sees nothing"):
            model(TEXT, attention_mask=mask)
        told = model(TEXT, attention_mask=mask, output_start=ends).logits[kept.bool()]
        expected = model(TEXT, attention_mask=kept).logits[kept.bool()]
    torch.testing.assert_close(told, expected, rtol=0, atol=1e-12)
    with ts.attach(model, *tiny.away(model, "prefix:length=2")):
        model(TEXT, attention_mask=mask)  # asks for no such place


def test_a_mask_of_other_axes_tells_no_place() -> None:
    from tunescope.attachment.contexts import _text_told

    model = tiny.make("llama")
    for mask, start in ((torch.ones(2, 7, 7), None), (KEPT["right"], [3, 6]), (causal(KEPT["right"]), [3, 6])):
        told = _text_told(model, {"input_ids": TEXT, "attention_mask": mask}, stand=False)
        assert told is not None
        assert (None if told.output_start is None else told.output_start.tolist()) == start
