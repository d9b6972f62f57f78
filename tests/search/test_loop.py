"""The rule by which a prompt is kept, and what it costs."""

import re
from dataclasses import replace
from itertools import count

import pytest
import torch
from search_tools import bench, rows

import tunescope as ts
from tunescope.data.scores import aggregate
from tunescope.data.splits import split
from tunescope.search import loop, vocabulary
from tunescope.search.apply import stats_of
from tunescope.search.loop import ASKED, CHANGED, DROPPED, STEPS, Within, drive, scored
from tunescope.search.methods.autoprompt import AutoPrompt
from tunescope.search.methods.gcg import GCG
from tunescope.search.methods.pez import PEZ

ROWS = 6  # development rows, all of which are looked at
LOOK = 2 * ROWS


def quiet(_line):
    return None


def proposing(prompts, cost=10):
    """Moves that take `cost` passes each and propose these prompts, the last one again and again."""

    def moves(goal, _generator, _passes):
        for index in count():
            goal.passes += cost if isinstance(cost, int) else next(cost)
            yield torch.tensor(prompts[min(index, len(prompts) - 1)])

    return moves


@pytest.fixture
def scores(monkeypatch):
    """What is looked at, in order, with given (score, loss) by text instead of the model's."""
    seen, given = [], {}

    def look(_bench, text, ids, rows, _behind):
        seen.append(text)
        assert len(rows) == ROWS
        return loop.Scored(text, *given.get(text, (0.5, 1.0)))

    monkeypatch.setattr(loop, "scored", look)
    return seen, given


def run(prompts, passes, cost=10, family="gpt2"):
    given = bench(family)
    return drive(given, Within(2), proposing(prompts, cost), passes, 0, quiet)


def tokens(*places):
    """The text of rows of the table: the allowed tokens begin at w4."""
    return " ".join(f"w{place + 4}" for place in places)


def test_it_looks_after_every_twentieth_and_at_the_end_and_stays_within_the_passes(scores):
    found = run([(index, 0) for index in range(80)], passes=1000)
    at = [point.passes for point in found.trace]
    assert len(at) == 20 and found.passes == at[-1]
    assert 1000 - 10 - LOOK < found.passes <= 1000
    for number, passes in enumerate(at[:-1], 1):
        assert number * 50 <= passes - LOOK < number * 50 + 10 + LOOK  # the first step after each twentieth


def test_a_large_step_is_looked_at_each_time(scores):
    found = run([(index, 0) for index in range(9)], passes=500, cost=100)
    assert [point.passes for point in found.trace] == [112, 224, 336, 448]


def test_the_best_score_is_kept_then_the_least_loss_then_the_first(scores):
    _, given = scores
    prompts = [(1, 1), (2, 2), (3, 3), (4, 4)]
    given |= {tokens(2, 2): (0.75, 2.0), tokens(3, 3): (0.75, 1.5), tokens(4, 4): (0.75, 1.5)}
    assert run(prompts, passes=500, cost=100).text == tokens(3, 3)
    given[tokens(1, 1)] = (0.8, 9.0)
    found = run(prompts, passes=500, cost=100)
    assert (found.text, found.dev) == (tokens(1, 1), 0.8)


def test_a_text_is_scored_once_and_costs_nothing_again(scores):
    seen, _ = scores
    found = run([(1, 1)], passes=500, cost=100)
    assert seen == [tokens(1, 1)]
    assert [point.passes for point in found.trace] == [112, 212, 312, 412]


def test_prompts_that_are_changed_or_dropped_are_counted(scores, monkeypatch):
    settled = vocabulary.vocabulary(bench().tokenizer, 96).__class__.settled

    def changing(self, ids):
        changed = {(5, 5): None, (6, 6): settled(self, [20, 21])}
        return changed.get(tuple(ids), settled(self, ids))

    monkeypatch.setattr("tunescope.search.vocabulary.Vocabulary.settled", changing)
    found = run([(1, 1), (2, 2), (3, 3)], passes=500, cost=100)
    assert found.counts == {DROPPED: 1, CHANGED: 1, STEPS: 4, ASKED: 6}
    assert [point.shown for point in found.trace] == ["w20 w21", tokens(3, 3), tokens(3, 3)]
    with pytest.raises(ts.UserError, match="None of the 4 prompts looked at could be written as text"):
        run([(1, 1)], passes=500, cost=100)


def test_too_few_passes_for_one_step_and_one_look_are_told(scores):
    with pytest.raises(
        ts.UserError, match=r"111 passes are too few: one step takes 100 and a look at 6 .* at least 112: --passes, or"
    ):
        run([(1, 1)], passes=111, cost=100)
    assert run([(1, 1)], passes=112, cost=100).passes == 112


def test_a_last_step_that_is_dearer_than_all_before_it_loses_nothing(scores):
    costs = iter([10, 10, 10, 10, 400])
    found = run([(1, 1)], passes=120, cost=costs)
    assert found.trace and found.text


def test_development_rows_are_few_and_fixed_by_the_passes_alone(monkeypatch):
    given = bench()
    monkeypatch.setattr(type(given), "encoded", lambda *_args, **_keywords: [None] * 1000)
    counts = [len(loop._dev_rows(given, passes)) for passes in (100, 16_000, 10**6)]
    assert counts == [16, 100, 256]
    assert loop._dev_rows(given, 100) == loop._dev_rows(given, 200)


@pytest.mark.parametrize("family", ["llama", "t5"])
def test_a_score_is_that_of_the_text_attached(family):
    given = bench(family, start=True)
    got = scored(given, "w20 w21", (1, 20, 21), list(range(ROWS)))
    assert got.dev == aggregate("accuracy", stats_of(given, "w20 w21", "dev"))["accuracy"]
    with ts.attach(given.model, ts.Text(text="w20 w21"), tokenizer=given.tokenizer), torch.no_grad():
        rows = given.encoded("dev", behind="", room=None)
        assert got.loss == pytest.approx(float(given.task.loss(given.model, rows, given.tokenizer)), abs=1e-6)


@pytest.mark.parametrize("family", ["gpt2", "t5"])
@pytest.mark.parametrize(
    "search",
    [PEZ(length=2, batch=4), GCG(length=2, swaps=4, top=5, batch=4), AutoPrompt(length=2, top=3, batch=4)],
    ids=["pez", "gcg", "autoprompt"],
)
def test_a_search_never_sees_the_test_rows_and_the_same_seed_finds_the_same(search, family):
    given = bench(family)
    encoded, asked = given.encoded, []

    def watched(part, **keywords):
        asked.append(part)
        return encoded(part, **keywords)

    given.encoded = watched
    before = {name: value.clone() for name, value in given.model.state_dict().items()}
    found = search.search(given, 400, 3, quiet)
    assert set(asked) == {"train", "dev"}
    assert search.search(given, 400, 3, quiet) == found
    assert found.passes <= 400 and len(found.text.split()) == 2
    assert (found.template, found.words) == (given.task.template, given.task.words)
    assert all(torch.equal(value, before[name]) for name, value in given.model.state_dict().items())


def test_an_encoder_is_refused():
    from tunescope.tasks.kinds.classification import Classification

    given = bench("bert", task=Classification(template="{text}", words={"a": "a", "b": "b", "c": "c"}, by="head"))
    with pytest.raises(ts.UserError, match="an encoder has no answer before its head is trained"):
        PEZ().search(given, 500, 0, quiet)


def test_as_many_passes_as_are_asked_for_suffice():
    """More passes are looked at on more rows, which the number that is told counts."""
    given = bench()
    parts = [rows(40, 0), rows(300, 7), rows(5, 23)]
    made = split(*parts)
    task = given.task.prepare(made.parts(), given.tokenizer, model_kind="decoder")
    given = replace(given, splits=made, task=task, rows={})
    search = GCG(length=3, swaps=512, top=64)
    with pytest.raises(ts.UserError) as caught:
        search.search(given, 5000, 0, [].append)
    (least,) = map(int, re.findall(r"Give at least (\d+)", str(caught.value)))
    assert search.search(given, least, 0, [].append).passes <= least
    with pytest.raises(ts.UserError, match="too few"):
        search.search(given, least - 3, 0, [].append)


def test_of_equal_scores_a_loss_that_is_no_number_is_the_last():
    one, other = (loop.Scored("a", 0.5, loss) for loss in (float("nan"), 9.0))
    assert max([one, other], key=lambda each: each.rank) is max([other, one], key=lambda each: each.rank) is other


def test_development_rows_are_drawn_from_all_of_them(monkeypatch):
    """Files are often sorted by label, so that the first rows would be of one."""
    given = bench()
    monkeypatch.setattr(type(given), "encoded", lambda *_args, **_keywords: [None] * 1000)
    chosen = loop._dev_rows(given, 10**6)
    assert chosen == sorted(set(chosen)) and len(chosen) == 256
    assert all(any(start <= row < start + 100 for row in chosen) for start in range(0, 1000, 100))


def test_the_loss_of_more_rows_than_go_forward_at_once_is_the_mean_over_all_of_their_tokens():
    given = bench()
    many, part = [index % ROWS for index in range(34)], [0, 1, 2, 3]  # of 32 at once, and 0 to 3 once more than 4 and 5
    all_six, four, got = (scored(given, "w20 w21", (1, 20, 21), some).loss for some in (list(range(ROWS)), part, many))
    words = [len(row.target_ids) for row in given.encoded("dev", behind="", room=None)]
    whole = 5 * sum(words) * all_six + sum(words[:4]) * four
    assert got == pytest.approx(whole / (5 * sum(words) + sum(words[:4])), rel=1e-9)
