"""Searches in front of a masked language model that answers in words."""

import masked
import pytest
import torch
from test_objective import opened

from tunescope.data.splits import split
from tunescope.models.fingerprint import fingerprint
from tunescope.search.typed import parse
from tunescope.tasks.kinds.classification import Classification
from tunescope.trial.bench import Bench
from tunescope.trial.plan import Plan

WORDS = {"a": "good", "b": "bad", "c": "dull"}


def bench(family):
    model, tokenizer = masked.make(family)
    texts = ["film was", "the plot is dull", "cast and plot", "it was good", "the film", "news about sport", "bad"]
    made = [
        [{"text": f"{one} {extra}".strip(), "label": "abc"[i % 3]} for i, one in enumerate(texts)]
        for extra in ("", "in", "every")
    ]
    splits = split(*made)
    task = Classification(template="{text} it was {mask} .", words=WORDS)
    task = task.prepare(splits.parts(), tokenizer, model_kind="encoder")
    plan = Plan(model="tiny", data={"train": "none"}, task={"kind": "classification"})
    return Bench(plan, model, tokenizer, "encoder", task, splits, {}, fingerprint(model), torch.device("cpu"))


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_loss_of_a_prompt_is_that_of_one_sequence_with_it_in_front(family):
    given = bench(family)
    with opened(given) as goal:
        some = torch.randint(len(goal.words.ids), (3, goal.length), generator=torch.Generator().manual_seed(3))
        slopes = [goal.slope(prompt, goal.rows).loss for prompt in some]
        losses = goal.losses(some, goal.rows)
        fronts = [goal.front(prompt) for prompt in some]
    tokens = [word[0] for word in given.task.word_ids(given.tokenizer, "encoder").values()]
    for front, slope, loss in zip(fronts, slopes, losses.tolist(), strict=True):
        each = []
        for row in goal.rows:
            logits = given.model(torch.tensor([[*front, *row.input_ids]])).logits[0]
            at = logits[len(front) + row.slot, tokens]
            assert [*front, *row.input_ids][len(front) + row.slot] == given.tokenizer.mask_token_id
            each.append(-at.log_softmax(-1)[row.label])
        expected = float(torch.stack(each).mean().detach())
        assert slope == pytest.approx(expected, abs=1e-10)
        assert loss == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("typed", ["pez:length=2,batch=4", "gcg:length=2,batch=4,swaps=4"])
def test_a_search_finds_a_text_for_it(family, typed):
    found = parse(typed).search(bench(family), 600, 0, lambda line: None)
    assert found.text and 0 <= found.dev <= 1 and found.passes <= 600
