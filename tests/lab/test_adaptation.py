"""Which learning rate a lesson is learned at: by trials that go on until they tell the rates apart."""

import pytest

from tunescope.lab.worlds import adaptation
from tunescope.trial.train.settings import Settings

RATES = (1e-3, 1e-2, 1e-1)


@pytest.fixture
def asked(monkeypatch):
    """Trials whose scores are those of a table: steps -> one a rate; and the (rate, steps) that were run."""
    runs = []

    def of(scores, longest):
        def run(model, arm, given, tests, rate, settings, seed, saving):
            runs.append((rate, settings.steps))
            return {"dev": scores.get(settings.steps, (0.0, 0.0, 0.0))[RATES.index(rate)]}

        monkeypatch.setattr(adaptation, "_run", run)
        course = adaptation.Course(rates=RATES, settings=Settings(steps=5000), trial=100, longest=longest)
        return adaptation.adapted(None, "full", None, {}, course, 0), runs

    return of


PLATEAU = {100: (0.41, 0.40, 0.38), 200: (0.40, 0.41, 0.40), 400: (0.41, 0.43, 0.62), 800: (0.9, 0.1, 0.1)}


def test_trials_on_the_plateau_are_run_again_twice_as_long_until_one_has_left_it(asked):
    found, runs = asked(PLATEAU, longest=10_000)
    assert (found["rate"], found["trial_steps"]) == (1e-1, 400)
    assert runs == [(rate, steps) for steps in (100, 200, 400) for rate in RATES] + [(1e-1, 5000)]
    assert found["trials"] == {"0.001": 0.41, "0.01": 0.43, "0.1": 0.62}


@pytest.mark.parametrize(("longest", "steps", "rate"), [(0, 100, 1e-3), (200, 200, 1e-2), (399, 200, 1e-2)])
def test_no_trial_is_longer_than_the_longest(asked, longest, steps, rate):
    found, _ = asked(PLATEAU, longest)
    assert (found["trial_steps"], found["rate"]) == (steps, rate)


def test_rates_that_all_solve_it_need_no_longer_trial(asked):
    found, runs = asked({100: (0.97, 1.0, 0.99)}, longest=10_000)
    assert found["rate"] == 1e-2 and len(runs) == 4


def test_a_rate_that_diverged_tells_no_others_apart(asked):
    found, _ = asked({100: (0.41, 0.40, adaptation.DIVERGED), 200: (0.41, 0.62, adaptation.DIVERGED)}, longest=10_000)
    assert (found["rate"], found["trial_steps"]) == (1e-2, 200)
    found, _ = asked({100: (adaptation.DIVERGED,) * 3}, longest=10_000)
    assert found["trial_steps"] == 100
