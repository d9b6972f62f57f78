"""What a long run tries, how far it goes on, and that its seed is none that a pilot has."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tunescope.comparison import comparison
from tunescope.lab.worlds import long_run
from tunescope.trial.plan import Plan
from tunescope.trial.train.settings import Settings

PILOT = Plan(model="m", arms=("prefix", "lora"), seeds=(0, 1, 2), settings=Settings(steps=100))


@pytest.fixture
def asked(monkeypatch):
    """Of test scores, one an arm in their order, the plans that were asked and what the long run comes to."""

    def of(*scores):
        plans, left = [], iter(scores)

        def ask(plan, folder, **more):
            plans.append(plan)
            score = next(left)
            run = {"dev": score / 2}
            arm = {"status": "done", "score": score, "learning_rate": 0.1, "runs": [run]}
            lost = {"status": "diverged", "score": None, "learning_rate": None, "runs": []}
            return SimpleNamespace(results={"arms": [lost if score == LOST else arm]})

        monkeypatch.setattr(comparison, "ask", ask)
        return plans, long_run.long_run(PILOT, Path("nowhere"))

    return of


LOST = -1.0


def test_contexts_are_tried_until_one_is_good_enough_and_then_no_delta(asked):
    plans, found = asked(0.5, 0.99)
    assert [one["group"] for one in found] == ["context", "context"] and found[-1]["score"] == 0.99
    assert [plan.arms for plan in plans] == [
        ("prefix:length=20,init_from=demos",),
        ("prefix:length=20,init_from=noise",),
    ]


def test_where_no_context_is_good_enough_lora_is_tried_too(asked):
    plans, found = asked(0.5, 0.6, 0.7, 0.4)
    assert [(one["group"], one["score"]) for one in found] == [
        *(("context", score) for score in (0.5, 0.6, 0.7)),
        ("delta", 0.4),
    ]
    assert plans[-1].arms == ("lora",) and [one["dev"] for one in found] == [0.25, 0.3, 0.35, 0.2]


def test_a_long_run_has_more_steps_and_a_seed_of_its_own(asked):
    plans, _ = asked(0.99)
    assert plans[0].settings.steps > PILOT.settings.steps and not {*plans[0].seeds} & {*PILOT.seeds}
    assert plans[0].max_seeds is None and plans[0].halving and plans[0].beyond == 0


def test_an_arm_that_did_not_finish_has_nothing_right_and_no_score_on_dev(asked):
    _, found = asked(LOST, 0.99)
    assert (found[0]["dev"], found[0]["score"]) == (None, 0.0)
