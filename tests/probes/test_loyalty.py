"""Loyalty by hand, importance by autograd through eager attention, and what a measurement says of each way."""

from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest
import tiny
import torch
import torch.nn.functional as F
from torch import Tensor

import tunescope as ts
from tunescope.attachment.initial_artifacts import initialised
from tunescope.methods.artifact import Artifact
from tunescope.probes.anchors.compression import compress, positions_of, random_sets, text_anchor
from tunescope.probes.anchors.importance import importance, most_important
from tunescope.probes.anchors.loyalty import Queries, label_loyalty, measured_ways, trade_off, word_loyalty
from tunescope.probes.anchors.prompts import Choices, Prompt
from tunescope.tasks.prompts.demonstrations import Demonstration
from tunescope.tasks.prompts.spans import Spans, spans
from tunescope.tasks.task import Encoded

CHOICES = Choices(lead=(41,), tokens=(6, 5))
NAMES = {"prompt", "full", "anchors", "labels", "text_anchor", "random", "random-top", "zero-shot"}


def test_loyalty_is_counted_as_by_hand() -> None:
    before = torch.tensor([[3.0, 1, 2, 0], [0, 1, 2, 3], [5, 0, 1, 0], [0, 9, 8, 7]])
    after = torch.tensor([[3.0, 2, 1, 0], [0, 1, 3, 2], [0, 5, 1, 9], [0, 9, 8, 7]])
    assert label_loyalty(before, after) == 2 / 4
    # of the two likeliest: {0, 2} and {0, 1}; {3, 2} and {2, 3}; {0, 2} and {3, 1}; {1, 2} twice
    assert word_loyalty(before, after, k=2) == pytest.approx((1 / 3 + 1 + 0 + 1) / 4)
    assert word_loyalty(before, after, k=4) == 1


@pytest.mark.parametrize("k", [1, 5, 10])
def test_everything_is_loyal_to_itself_and_the_measure_is_symmetric(k: int) -> None:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(7, 31, generator=g), torch.randn(7, 31, generator=g)
    assert label_loyalty(x, x) == word_loyalty(x, x, k) == 1
    assert label_loyalty(x, y) == label_loyalty(y, x)
    assert word_loyalty(x, y, k) == word_loyalty(y, x, k) < 1


def solved(start: tuple[int, ...] = ()) -> Spans:
    words = {"a": "w6 w4", "b": "w5"}
    texts = (("w10 w11 w12 w13", "a"), ("w20 w21 w22", "b"), ("w50 w51", "a"))
    found = spans(
        tiny.tokenizer(), [Demonstration(name, "w40 ", text, " w41 ", words[name], " w42 ") for text, name in texts]
    )
    places = tuple({part: tuple(at + len(start) for at in ats) for part, ats in one.items()} for one in found.places)
    return Spans((*start, *found.ids), places, found.names)


def rows(count: int = 6) -> list[Encoded]:
    draw = torch.Generator().manual_seed(2)
    made = []
    for index in range(count):
        text = torch.randint(7, tiny.VOCAB, (2 + index % 3,), generator=draw).tolist()
        made.append(Encoded(index + 1, (40, *text), (), index % 2, (), ""))
    return made


def asked(model: Any, **fields: Any) -> Queries:
    return Queries(model, tiny.tokenizer(), rows(), CHOICES, **fields)


@cache
def plain(family: str) -> tuple[Any, Tensor]:
    """The eager model's logits (rows, vocabulary) behind all demonstrations, one row at a time."""
    eager = tiny.make(family, attention="eager")
    with torch.no_grad(), tiny.Float64():
        texts = [torch.tensor([[*solved().ids, *row.input_ids, *CHOICES.lead]]) for row in rows()]
        return eager, torch.cat([eager(input_ids=text).logits[:, -1] for text in texts])


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "gemma2"])
def test_each_way_is_measured_against_the_whole_prompt(family: str) -> None:
    model, found = tiny.make(family), solved()
    _, whole = plain(family)
    classes = list(CHOICES.tokens)
    gold = torch.tensor([row.label for row in rows()])
    with tiny.Float64():
        queries = asked(model, at_once=4)
        got = measured_ways(queries, found, seed=1)
        torch.testing.assert_close(
            queries.logits(compress(model, tiny.tokenizer(), found, range(len(found.ids)))), whole, rtol=0, atol=1e-12
        )
        alone = {
            "full": [compress(model, tiny.tokenizer(), found, range(len(found.ids)))],
            "anchors": [compress(model, tiny.tokenizer(), found, "anchors")],
            "labels": [compress(model, tiny.tokenizer(), found, "labels")],
            "text_anchor": [text_anchor(tiny.tokenizer(), found)],
            "zero-shot": [],
        }
        logits = {name: queries.logits(*context) for name, context in alone.items()}
        sets = [queries.logits(compress(model, tiny.tokenizer(), found, one)) for one in random_sets(found, 1)]
    assert got.keys() == NAMES
    for name, answers in logits.items():
        assert got[name].accuracy == float((answers[:, classes].argmax(-1) == gold).double().mean())
        assert got[name].label_loyalty == label_loyalty(whole[:, classes], answers[:, classes])
        assert got[name].word_loyalty == word_loyalty(whole, answers)
    assert got["full"].label_loyalty == got["full"].word_loyalty == got["prompt"].label_loyalty == 1
    loyal = [label_loyalty(whole[:, classes], one[:, classes]) for one in sets]
    assert got["random"].label_loyalty == pytest.approx(sum(loyal) / 20)
    assert got["random-top"].label_loyalty == max(loyal)
    assert got["random-top"].word_loyalty == word_loyalty(whole, sets[loyal.index(max(loyal))])
    assert all(one.seconds > 0 for one in got.values())


def test_what_is_kept_is_told_in_positions_and_bytes() -> None:
    model, found = tiny.make("llama"), solved()
    got = measured_ways(asked(model), found)
    per_position = 2 * 2 * 2 * 6 * 8  # layers, keys and values, heads of them, width, bytes of a float64
    sizes = {name: int(one.kept) for name, one in got.items()}
    n_anchors = len(positions_of(found, "anchors"))
    assert sizes["full"] == len(found.ids)
    assert sizes["anchors"] == sizes["text_anchor"] == sizes["random"] == sizes["random-top"] == n_anchors
    assert (sizes["labels"], sizes["zero-shot"], sizes["prompt"]) == (5, 0, 0)
    assert all(one.bytes == sizes[name] * per_position for name, one in got.items())


def test_without_demonstrations_the_start_token_still_stands_in_front() -> None:
    model, found = tiny.make("gpt2"), solved(start=(1,))
    eager = tiny.make("gpt2", attention="eager")
    got = measured_ways(asked(model), found)["zero-shot"]
    with torch.no_grad():
        whole, bare = (
            torch.cat([eager(input_ids=torch.tensor([[*ids, *row.input_ids, 41]])).logits[:, -1] for row in rows()])
            for ids in (found.ids, (1,))
        )
    assert got.kept == 1
    assert got.word_loyalty == word_loyalty(whole, bare)


def test_deltas_that_are_in_force_are_in_force_everywhere() -> None:
    model, found = tiny.make("llama"), solved()
    under = initialised(model, [ts.LoRA(rank=2)], None, 0)
    under[0].tensors = {name: value + 0.2 for name, value in under[0].tensors.items()}
    tuned, bare = (measured_ways(asked(model, under=one), found) for one in (under, ()))
    assert tuned["full"].label_loyalty == tuned["full"].word_loyalty == 1
    assert tuned["anchors"] != bare["anchors"]


@pytest.mark.parametrize("before", [(), (60, 61, 62)])
@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral"])
def test_importance_is_what_the_queries_take_by_autograd(family: str, before: tuple[int, ...]) -> None:
    """Also behind a context that is attached, whose keys are no part of the demonstrations."""
    model, found = tiny.make(family), solved()
    eager = tiny.make(family, attention="eager")
    first, n = len(before), len(before) + len(found.ids)
    expected = torch.zeros(len(found.ids), dtype=torch.float64)
    for row in rows():
        out = eager(
            input_ids=torch.tensor([[*before, *found.ids, *row.input_ids, *CHOICES.lead]]), output_attentions=True
        )
        classes = out.logits[0, -1, list(CHOICES.tokens)]
        loss = F.cross_entropy(classes[None], classes.argmax()[None])
        for weights, slope in zip(
            out.attentions, torch.autograd.grad(loss, out.attentions, allow_unused=True), strict=True
        ):
            if slope is not None:
                expected += (weights * slope).sum(1).abs()[0, n:, first:n].sum(0).detach()
    prompts = [Prompt(found, row) for row in rows()]
    with ExitStack() as stack:
        if before:
            stack.enter_context(ts.attach(model, Artifact(ts.Text(text="w"), {"ids": torch.tensor(before)})))
        got = importance(model, tiny.tokenizer(), prompts, CHOICES, at_once=4)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-12)
    assert got.min() > 0 or family == "mistral"  # a window hides the first demonstrations


def test_the_most_important_are_taken_first_and_told_in_order() -> None:
    worth = torch.tensor([0.1, 0.9, 0.0, 0.9, 0.5])
    assert [most_important(worth, size) for size in (1, 2, 3)] == [(1,), (1, 3), (1, 3, 4)]


def test_a_trade_off_ends_in_full_loyalty_and_grows_in_bytes() -> None:
    model, found = tiny.make("llama"), solved()
    queries = asked(model)
    worth = importance(model, tiny.tokenizer(), [Prompt(found, row) for row in rows()], CHOICES)
    sizes = (1, 5, 10, len(found.ids))
    got = trade_off(queries, found, [most_important(worth, size) for size in sizes])
    assert [one.kept for one in got] == list(sizes)
    assert [one.bytes for one in got] == sorted({one.bytes for one in got})
    assert got[-1].label_loyalty == got[-1].word_loyalty == 1


def test_importance_over_several_demonstrations_is_refused() -> None:
    model, prompts = tiny.make("gpt2"), [Prompt(solved(start), rows()[0]) for start in ((), (1,))]
    with pytest.raises(ts.UserError, match="Importance is of one set of demonstrations"):
        importance(model, tiny.tokenizer(), prompts, CHOICES)


@pytest.mark.parametrize("family", ["bert", "t5", "bart"])
def test_a_model_that_cannot_compress_is_not_measured(family: str) -> None:
    with pytest.raises(ts.UserError, match="cannot be compressed in an encoder"):
        measured_ways(asked(tiny.make(family)), solved())
    with pytest.raises(ts.UserError, match="cannot be compressed in an encoder"):
        importance(tiny.make(family), tiny.tokenizer(), [Prompt(solved(), rows()[0])], CHOICES)


def test_loyalty_without_queries_is_refused() -> None:
    with pytest.raises(ts.UserError, match="Loyalty is measured on queries, and there are none"):
        Queries(tiny.make("gpt2"), tiny.tokenizer(), (), CHOICES)
