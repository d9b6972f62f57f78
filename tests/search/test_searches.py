"""Each search against its algorithm written out, in float64 on a tiny model."""

from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import pytest
import torch
from reference import searches as literal
from search_tools import bench, byte_level

import tunescope as ts
from tunescope.search.methods._start import begun
from tunescope.search.methods.autoprompt import RATE, AutoPrompt
from tunescope.search.methods.fluentprompt import FluentPrompt
from tunescope.search.methods.gcg import GCG
from tunescope.search.methods.pez import PEZ
from tunescope.search.names import parse
from tunescope.search.objective import Objective, Slope, objective
from tunescope.search.vocabulary import vocabulary

ALL = 99  # rows of a step: all there are, so that a step is a function of the prompt
STEPS = 12


def opened(given, length=3, fluency=0.0):
    return objective(given, vocabulary(given.tokenizer, 96), length, fluency)


def drawn(seed=5):
    return torch.Generator().manual_seed(seed)


def settings(search, **more):
    found = {"steps": STEPS, "rate": search.rate, "start": [], "fluency": getattr(search, "fluency", 0.0)}
    return found | more


def taken(goal, moves, passes=1):
    """The tokens of the first prompts that a search proposes."""
    return [goal.ids(prompt) for prompt in islice(moves(goal, drawn(), passes), STEPS)]


@pytest.mark.parametrize(
    "search",
    [
        PEZ(length=3, rate=0.3, batch=ALL),
        PEZ(length=3, rate=0.3, nearest="euclidean", batch=ALL),
        PEZ(length=3, rate=3.0, optimizer="sgd", batch=ALL),
        PEZ(length=3, rate=0.3, optimizer="adafactor", batch=ALL),
        PEZ(length=3, rate=0.3, fluency=0.4, batch=ALL),
        PEZ(length=3, rate=3.0, keeps="projected", batch=ALL),
    ],
    ids=["cosine", "euclidean", "sgd", "adafactor", "fluency", "projected"],
)
def test_pez_is_algorithm_1(search):
    given = bench()
    with opened(given, fluency=search.fluency) as goal:
        got = taken(goal, search.moves)
        first = goal.ids(begun(goal, "vocabulary", drawn()))
    more = settings(search, by=search.nearest, optimizer=search.optimizer, keeps=search.keeps)
    assert got == literal.pez(given.model, first, goal.rows, list(goal.words.ids), more)
    assert len({tuple(ids) for ids in got}) > 3


def test_pez_keeps_the_continuous_prompt_and_so_differs_from_projected_descent():
    """Where the iterate itself is projected after each step, as in the released code, the two are the same."""
    given = bench()
    rate = 3.0
    with opened(given) as goal:
        pez = taken(goal, PEZ(length=3, rate=rate, optimizer="sgd", nearest="euclidean", batch=ALL).moves)
        plain = taken(goal, AutoPrompt(length=3, rate=rate, mode="projected", batch=ALL).steps)
        kept = PEZ(length=3, rate=rate, optimizer="sgd", nearest="euclidean", keeps="projected", batch=ALL)
        control = taken(goal, kept.moves)
    assert pez[0] == plain[0]  # the first step is the same
    assert pez != plain == control
    assert len({tuple(ids) for ids in pez}) > len({tuple(ids) for ids in plain})


def test_projected_autoprompt_is_projected_gradient_descent():
    given, search = bench(), AutoPrompt(length=3, rate=30.0, mode="projected", batch=ALL)
    with opened(given) as goal:
        got = taken(goal, search.steps)
        first = goal.ids(begun(goal, "vocabulary", drawn()))
    assert got == literal.projected_descent(given.model, first, goal.rows, list(goal.words.ids), settings(search))
    assert len({tuple(ids) for ids in got}) > 3


def test_fluentprompt_takes_the_steps_of_projected_autoprompt_and_the_noise_of_the_paper():
    mine, published = FluentPrompt(), FluentPrompt(rate=0.3, noise=1.0, noise_end=1e-4)
    assert mine.rate == RATE
    for own, theirs in ((mine.noise, published.noise), (mine.noise_end, published.noise_end)):
        assert mine.rate * own == pytest.approx(published.rate * theirs)


def test_fluentprompt_is_projected_langevin_with_fading_noise():
    given, search = bench(), FluentPrompt(length=3, rate=0.5, noise=1.0, noise_end=1e-4, fluency=0.2, batch=ALL)
    step = 3 * 8  # passes of a step: seven rows and the prompt alone
    with opened(given, fluency=0.2) as goal:
        got = taken(goal, search.moves, STEPS * step)
        again = drawn()
        first = goal.ids(begun(goal, "vocabulary", again))
        width = goal.table.shape[1]

    def noise(index):
        beta = 1e-4 ** (index / STEPS)  # from 1 to 1e-4, by equal factors
        torch.randperm(7, generator=again)
        return (2 * 0.5 * beta) ** 0.5 * torch.randn(3, width, generator=again, dtype=torch.float64)

    more = settings(search)
    assert got == literal.projected_descent(given.model, first, goal.rows, list(goal.words.ids), more, noise)
    assert len({tuple(ids) for ids in got}) > 3


def test_gcg_is_algorithm_1():
    given, search = bench(), GCG(length=3, top=6, swaps=5, batch=ALL)
    with opened(given) as goal:
        got = taken(goal, search.moves)
        again = drawn()
        ids = goal.ids(begun(goal, "vocabulary", again))
    for found in got:
        torch.randperm(7, generator=again)
        positions, ranks = torch.randint(3, (5,), generator=again), torch.randint(6, (5,), generator=again)
        draws = list(zip(positions.tolist(), ranks.tolist(), strict=True))
        ids = literal.gcg_step(given.model, ids, goal.rows, list(goal.words.ids), draws, 6)
        assert found == ids
    assert len({tuple(found) for found in got}) > 3


@pytest.mark.parametrize("typed", ["autoprompt:rate=0.1", "autoprompt:mode=projected,top=3"])
def test_what_a_mode_of_autoprompt_has_no_use_for_is_refused(typed):
    with pytest.raises(ts.UserError, match=r"autoprompt:mode=\w+ has no use for (rate=0\.1|top=3); leave it out"):
        parse(typed)


@pytest.mark.parametrize("off", [0.0, 0.1, -0.1])
def test_swapping_autoprompt_is_section_2_2_whatever_rounding_does_to_the_loss_of_the_gradient(off, monkeypatch):
    given, search = bench(), AutoPrompt(length=3, top=4, batch=ALL)
    slope = Objective.slope
    monkeypatch.setattr(Objective, "slope", lambda *args: Slope((found := slope(*args)).loss + off, found.gradient))
    with opened(given) as goal:
        got = taken(goal, search.swaps)
        assert goal.passes == STEPS * 7 * (3 + 4 + 1)  # a gradient, the tokens tried, the prompt itself
        again = drawn()
        ids = goal.ids(begun(goal, "vocabulary", again))
    for found in got:
        torch.randperm(7, generator=again)
        position = int(torch.randint(3, (1,), generator=again))
        ids = literal.autoprompt_step(given.model, ids, goal.rows, list(goal.words.ids), position, 4)
        assert found == ids
    assert len({tuple(found) for found in got}) > 3


def test_a_random_prompt_comes_back_even_where_most_do_not():
    tokens = byte_level()
    words = vocabulary(tokens, len(tokens))
    known = tokens.get_vocab()
    words = replace(words, ids=tuple(known[letter] for letter in "goodba"))  # many of them merge: go, od, ba
    goal = SimpleNamespace(words=words, length=20, ids=lambda prompt: [words.ids[int(place)] for place in prompt])
    drawn_at_once = torch.randint(6, (50, 20), generator=drawn())
    assert sum(words.all_come_back([goal.ids(prompt) for prompt in drawn_at_once])) < 10
    prompts = [begun(goal, "vocabulary", drawn(seed)) for seed in range(5)]
    assert all(len(prompt) == 20 and words.comes_back(goal.ids(prompt)) for prompt in prompts)
    assert len({tuple(prompt.tolist()) for prompt in prompts}) == 5


def test_label_words_begin_a_prompt_over_and_over():
    with opened(bench(), length=6) as goal:
        assert goal.ids(begun(goal, "labels", drawn())) == [5, 6, 7, 8, 5, 6]


def test_label_words_are_tokens_enough_where_a_word_without_a_space_in_front_is_two():
    def cut(text, add_special_tokens):
        _, *others = text.split()
        return {"input_ids": [5, 6, *[8] * len(others)]}

    with opened(bench(), length=6) as goal:
        for length in (1, 4, 10, 15):
            words = SimpleNamespace(tokenizer=cut)
            given = SimpleNamespace(bench=goal.bench, words=words, length=length, table=goal.table)
            found = begun(given, "labels", drawn())
            assert [goal.words.ids[int(place)] for place in found] == [5, 6, *[8] * length][:length]


def test_a_banned_label_word_is_begun_by_what_is_nearest_to_it():
    given = bench()
    words = vocabulary(given.tokenizer, 96, ("w5",))
    with objective(given, words, 2) as goal:
        first, second = goal.ids(begun(goal, "labels", drawn()))
    whole = literal.table(given.model)
    distance = [float((whole[token] - whole[5]).norm()) for token in words.ids]
    assert first == words.ids[distance.index(min(distance))] != 5
    assert second == 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PEZ(rate=0), r"PEZ\(rate=0\) must be above 0"),
        (lambda: PEZ(batch=-1), r"PEZ\(batch=-1\) must be above 0"),
        (lambda: GCG(swaps=0), r"GCG\(swaps=0\) must be above 0"),
        (lambda: AutoPrompt(top=0), r"AutoPrompt\(top=0\) must be above 0"),
        (lambda: FluentPrompt(noise_end=0.0), r"FluentPrompt\(noise_end=0.0\) must be above 0"),
    ],
)
def test_a_setting_that_must_be_positive_is_told(make, message):
    with pytest.raises(ts.UserError, match=message):
        make()
