"""The intervals in results.json are told by how far seeds of trained arms scatter, and by no other's."""

import pytest
import tinyrun

from tunescope.comparison import results
from tunescope.comparison.standing import Standing
from tunescope.report.verdict import stats
from tunescope.trial import plan, plan_check
from tunescope.trial.open import open_bench
from tunescope.trial.train.settings import Settings

# Of 32 rows, by seed.
RIGHT = {"soft": (20, 22, 24), "lora": (26, 27, 25), "demos:k=1": (4, 16, 30), "full": (2, 31, 3)}


def standing(name, **how):
    runs = []
    for seed, right in enumerate(RIGHT[name]):
        table = [[float(row < right), 0.0, float(row % 2)] for row in range(32)]
        curve = [{"step": 1, "loss": 1.0, "dev": right / 32}]
        runs.append({"id": f"{name}{seed}", "seed": seed, "dev": right / 32, "stats": table, "curve": curve})
        runs[-1]["test"] = {"accuracy": right / 32}
    trials = [] if name.startswith("demos") else [{"learning_rate": 0.1}]
    return Standing(name, runs=runs, trials=trials, parameters={"trained": 1, "stored": 1, "live": 1}, **how)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    model, data = tinyrun.write(tmp_path_factory.mktemp("material"))
    settings = Settings(steps=12, batch_size=8, eval_every=4, schedule="constant")
    fields = {"task": {"kind": "classification"}, "seeds": (0, 1, 2), "rates": (0.1, 0.2), "forgetting": "none"}
    asked = plan.Plan(model=model, data=data, arms=("soft", "lora"), budgets=(256,), settings=settings, **fields)
    bench = open_bench(plan_check.check(asked))
    standings = [standing(name) for name in RIGHT if name != "full"] + [standing("full", status="failed")]
    return results.assemble(bench, standings)


def tables(name):
    return {seed: [[float(row < right), 0.0, 0.0] for row in range(32)] for seed, right in enumerate(RIGHT[name])}


def test_scores_and_differences_pool_the_seeds_of_the_arms_that_were_trained_and_done(found):
    score = stats.scorer("accuracy")
    pool = stats.pool_of([tables("soft"), tables("lora")], score)
    own = {one["name"]: one for one in found["arms"]}
    for name in ("soft", "lora", "demos:k=1"):
        expected = stats.interval(tables(name), score, pool=pool)
        assert own[name]["interval"] == pytest.approx([expected.low, expected.high], abs=1e-12)
        assert own[name]["score"] == pytest.approx(sum(RIGHT[name]) / 96)
    assert own["full"]["score"] is None and own["full"]["interval"] is None and own["full"]["chosen"] is None
    assert found["best"] == {"arm": "lora", "path": "best"}
    assert [(one["a"], one["b"]) for one in found["comparisons"]] == [("soft", "lora"), ("demos:k=1", "lora")]
    for one in found["comparisons"]:
        gap = stats.paired(tables(one["a"]), tables("lora"), score, pool=pool)
        assert one["difference"] == pytest.approx((sum(RIGHT[one["a"]]) - sum(RIGHT["lora"])) / 96)
        assert one["interval"] == pytest.approx([gap.low, gap.high], abs=1e-12)


def test_the_protocol_is_that_of_the_question(found):
    told = found["protocol"]
    assert (told["budget"], told["budgets"], told["steps"], told["batch_size"]) == (256, [256], 12, 8)
    assert (told["seeds"], told["rates"], told["trials_per_arm"], told["trial_steps"]) == ([0, 1, 2], [0.1, 0.2], 2, 12)
    assert (told["schedule"], told["k_shot"], told["looks"], told["pilot_of"]) == ("constant", None, None, None)
