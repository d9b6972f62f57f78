"""The comparison that fits: the order of what is cut, counted by hand; and one that is done in its minutes."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunescope.comparison import comparison, costs, deadline, estimate, preview, protocol, time_cuts, time_limit
from tunescope.comparison.costs import Costs, Sizes
from tunescope.comparison.pilot import piloted
from tunescope.errors import UserError
from tunescope.system import run_folder
from tunescope.trial.bench import Bench
from tunescope.trial.plan import Fit, Plan
from tunescope.trial.plan_json import to_json
from tunescope.trial.train.settings import Settings

SIZES = Sizes(dev=100, test=150, labelled=True)
ZERO = Costs("zero-shot", row=0.01)
SOFT = Costs("soft", "context", True, True, step=1.0, row=0.01)
LORA = Costs("lora", "delta", True, True, step=1.0, row=0.01)
FULL = Costs("full", "full", True, True, step=4.0, row=0.01)
ARMS = {"zero-shot": [ZERO], "soft": [SOFT], "lora": [LORA], "full": [FULL]}


def asked(**fields: Any) -> Plan:
    settings = Settings(steps=60, batch_size=8, eval_every=20)
    return Plan(
        **({"minutes": 8.0, "settings": settings, "seeds": (0, 1, 2), "dev_share": 1.0, "forgetting": "none"} | fields)
    )


def test_what_a_plan_takes_is_what_its_runs_take_counted_by_hand() -> None:
    found = costs.rounds(asked(beyond=1), [ZERO, SOFT], SIZES)
    run = 60 * 1.0 + 3 * 100 * 0.01
    assert found.trials == pytest.approx([run] * 3) and found.past == [pytest.approx([run])]
    assert found.seeds == pytest.approx([100 * 0.01 + 150 * 0.01, 1.5, run + 1.5, run + 1.5])
    assert found.total() == pytest.approx(6 * run + 4.5 + 2.5)
    fifth = costs.rounds(asked(beyond=0, dev_share=0.2), [SOFT], SIZES)  # 46 rows thrice, then all 100
    assert fifth.trials == pytest.approx([60 + (3 * 46 + 100) * 0.01] * 3)
    raced = costs.rounds(asked(beyond=0, halving=True), [SOFT], SIZES)
    assert raced.trials == pytest.approx([20 + 1, 20 + 1, run])
    both = costs.rounds(asked(beyond=0, halving=True, dev_share=0.2), [SOFT], SIZES)
    assert both.trials == pytest.approx([20 + 0.46, 20 + 0.46, 60 + 3 * 0.46 + 1])
    pilot = piloted(asked(beyond=1))  # whose trials are told apart by the loss
    first = costs.rounds(pilot, [SOFT], SIZES)
    assert first.trials == [float(pilot.trial_steps or 0)] * 3 and first.past == [first.trials[:1]] * pilot.past


@pytest.mark.parametrize(("workers", "seconds"), [(1, 10.0), (2, 5.0), (3, 4.0), (9, 4.0)])
def test_side_by_side_the_longest_come_first(workers: int, seconds: float) -> None:
    assert costs.side_by_side([3.0, 1.0, 4.0, 2.0], workers) == seconds


def test_what_is_cut_is_cut_in_the_order_that_is_told_and_each_takes_less() -> None:
    plan = asked(
        beyond=3, seeds=(0, 1, 2, 3, 4), forgetting="", settings=Settings(steps=60, batch_size=8, eval_every=6)
    )
    steps = list(time_cuts.ladder(plan))
    kinds = list(dict.fromkeys(kind for _, told in steps for kind in told))
    assert kinds == ["other text", "past", "seeds", "halving", "share", "scores", "steps"]
    taken = [costs.rounds(one, [ZERO, SOFT, LORA, FULL], SIZES).total() for one, _ in steps]
    assert all(less <= more + 1e-9 for more, less in pairwise(taken))
    last = steps[-1][0]
    assert (last.past, len(last.seeds), last.halving, last.settings.steps) == (0, 3, True, 20)
    assert steps[-1][1]["scores"] == "3 development scores a run" and last.settings.eval_every == 7
    assert steps[0] == (plan, {})
    few = list(time_cuts.one_seed(plan))
    assert {len(one.seeds) for one, _ in few} == {1} and {one.past for one, _ in few} == {0}
    assert [one.settings.steps for one, _ in few] == [*range(60, 20, -3), *[20] * 5]
    assert few[0][1]["seeds"] == "1 seed, which is too few for a verdict"


def test_the_first_that_fits_is_taken_and_nothing_is_cut_without_need() -> None:
    plan = asked(beyond=1)
    whole = costs.rounds(plan, [one for some in ARMS.values() for one in some], SIZES).total()
    enough = time_cuts.fitted(plan, ARMS, SIZES, time_cuts.Time(whole + 0.001, 1))
    assert enough.fit is not None and enough.fit.left_out == () and replace(enough, fit=None) == plan
    less = time_cuts.fitted(plan, ARMS, SIZES, time_cuts.Time(whole - 1, 1))
    assert less.fit is not None and less.fit.left_out == (
        "learning rates that have lost stop at the first development score from a third of the steps on",
    )
    assert less.fit.seconds <= whole - 1
    for seconds in (1500.0, 1000.0, 700.0, 400.0, 250.0):
        found = time_cuts.fitted(plan, ARMS, SIZES, time_cuts.Time(seconds, 1))
        left = [ARMS[text][0] for text in found.arms or ARMS]
        assert costs.rounds(found, left, SIZES).total() <= seconds


def test_arms_go_from_the_end_but_what_trains_nothing_and_a_context_and_a_delta_stay() -> None:
    arms = {**ARMS, "prefix": [replace(SOFT, arm="prefix")], "demos:k=4": [replace(ZERO, arm="demos:k=4")]}
    left = list(time_cuts.shorter(arms))
    assert left == [
        ["zero-shot", "soft", "lora", "full", "prefix", "demos:k=4"],
        ["zero-shot", "soft", "lora", "full", "demos:k=4"],
        ["zero-shot", "soft", "lora", "demos:k=4"],
    ]
    found = time_cuts.fitted(asked(beyond=0), ARMS, SIZES, time_cuts.Time(150.0, 1))
    assert found.arms == ("zero-shot", "soft", "lora")
    assert found.fit is not None and found.fit.left_out[-1] == "left out of the arms: full"
    with pytest.raises(UserError, match=r"^--minutes 8: with everything cut that may be, the runs take about 1.3 min"):
        time_cuts.fitted(asked(beyond=0), ARMS, SIZES, time_cuts.Time(30.0, 1))


def test_the_last_arm_that_is_trained_stays_whatever_it_is() -> None:
    both = replace(FULL, arm="both", group="both")
    assert list(time_cuts.shorter({"both": [both]})) == [["both"]]
    assert list(time_cuts.shorter({"zero-shot": [ZERO], "full": [FULL], "both": [both]})) == [
        ["zero-shot", "full", "both"],
        ["zero-shot", "full"],
    ]
    with pytest.raises(UserError, match=r"the runs take about .* Half the rows a step"):
        time_cuts.fitted(asked(), {"both": [both]}, SIZES, time_cuts.Time(1.0, 1))
    with pytest.raises(UserError, match=r"the runs take about .*\. Type: --minutes"):
        time_cuts.fitted(asked(), {"zero-shot": [ZERO]}, SIZES, time_cuts.Time(0.01, 1))


def test_steps_go_down_to_a_tenth_before_a_seed_and_with_it_the_verdict_goes() -> None:
    plan = asked(beyond=0, settings=Settings(steps=500, batch_size=8, eval_every=50))
    few = list(time_cuts.few_steps(plan))
    assert [one.settings.steps for one, _ in few] == [100, 75, 50] and {len(one.seeds) for one, _ in few} == {3}
    arms = {"soft": [SOFT], "lora": [LORA]}
    at = [costs.rounds(one, [SOFT, LORA], SIZES).total() for one, _ in few]
    least = costs.rounds(list(time_cuts.ladder(plan))[-1][0], [SOFT, LORA], SIZES).total()
    for seconds, steps, seeds in (
        (least, 125, 3),
        (at[0], 100, 3),
        (at[1], 75, 3),
        (at[2], 50, 3),
        (at[2] - 1, 100, 1),
    ):
        found = time_cuts.fitted(plan, arms, SIZES, time_cuts.Time(seconds + 1e-6, 1))
        assert (found.settings.steps, len(found.seeds)) == (steps, seeds)


def test_the_minutes_that_a_refusal_names_are_enough_and_one_less_is_not() -> None:
    half = r" Half the rows a step take about half of it \(--batch-size \d+\)\."
    with pytest.raises(time_cuts.TooShort, match=half + r" Type: --minutes \d+$") as told:
        time_cuts.fitted(asked(minutes=0.5), ARMS, SIZES, time_cuts.Time(1.0, 1, spent=20.0))
    least = told.value.minutes
    for minutes, fits in ((least, True), (least - 1, False)):
        left = time_cuts.Time(60 * minutes - time_cuts.reserve(minutes) - 20.0, 1, 20.0)
        if fits:
            assert time_cuts.fitted(asked(minutes=float(minutes)), ARMS, SIZES, left).fit is not None
        else:
            with pytest.raises(time_cuts.TooShort):
                time_cuts.fitted(asked(minutes=float(minutes)), ARMS, SIZES, left)


def test_what_would_be_over_too_late_at_the_pace_so_far_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(deadline.time, "monotonic", lambda: now[0])

    def job(name: str, **more: Any) -> Any:
        arm = SimpleNamespace(arm=SimpleNamespace(name="soft"))
        return SimpleNamespace(id=name, arm=arm, steps=60, until=None, test=False, **more)

    found = deadline.Deadline(asked(), end=100.0 + 130.0, costs={"soft": SOFT}, sizes=SIZES)  # a run is 63 s
    assert found.allows([job("a"), job("b")]) and not found.allows([job("a"), job("b")], [job("c")])

    def run(jobs: Any, together: int) -> dict[str, Any]:
        now[0] += 84.0
        return {}

    found.timed(run)([job("a")], 1)
    assert found.slower == pytest.approx(84 / 63)
    assert found.allows([job("a")]) and not found.allows([job("b")])  # 46 s are left, and it is done
    found.known = lambda todo: todo.id == "b"  # by an earlier go
    assert found.allows([job("b")], [job("b")]) and not found.allows([job("b")], [job("c")])
    assert deadline.Deadline(asked()).allows([job("x")] * 1000)


@pytest.fixture
def question(tmp_path: Path) -> Plan:
    from tunescope.lab import demo

    setup = demo.prepare(tmp_path / "data")
    rows = {part: tmp_path / f"{part}.jsonl" for part in ("train", "dev", "test")}
    for part, path in rows.items():
        lines = setup.tasks[0][part].read_text().splitlines(keepends=True)  # type: ignore[literal-required]
        path.write_text("".join(lines[:40]))
    return Plan(
        model=str(setup.model),
        data={part: str(path) for part, path in rows.items()},
        task={"kind": "generation"},
        arms=("zero-shot", "prefix:length=2", "lora:rank=1", "full"),
        seeds=(0, 1, 2),
        settings=Settings(steps=200, batch_size=8, eval_every=20),
        forgetting="none",
    )


def test_a_comparison_is_cut_to_its_minutes_done_in_them_and_gone_on_with_as_it_was_cut(
    question: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline.Deadline, "allows", lambda self, *rounds: True)  # all that was chosen, on any machine
    monkeypatch.setattr(time_cuts, "SECONDS", 6.0)
    asked = replace(question, minutes=0.2)
    start = time.monotonic()
    found = comparison.ask(asked, tmp_path / "run", quiet=True)
    assert time.monotonic() - start < 12
    kept = found.results["protocol"]["fit"]
    assert kept["minutes"] == 0.2 and kept["left_out"] and kept["seconds"] < 12
    assert kept["chosen"]["steps"] == found.results["protocol"]["steps"]
    assert found.results["data"]["notes"][0].startswith(f"To be done in 0.2 minutes: {kept['left_out'][0]}")
    assert "--minutes" not in found.results["command"] and "--halving" in found.results["command"]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["fit"]["left_out"] == kept["left_out"]

    monkeypatch.setattr(estimate, "estimates", lambda *_: pytest.fail("timed again"))
    monkeypatch.setattr("tunescope.comparison.run.train", lambda *_, **__: pytest.fail("trained again"))
    again = comparison.resume(tmp_path / "run", quiet=True)
    assert again.results["protocol"]["fit"] == kept
    once_more = comparison.ask(replace(asked, minutes=None), tmp_path / "run", quiet=True)
    assert once_more.results["arms"] == again.results["arms"]
    with pytest.raises(UserError, match=r"holds another comparison \(it differs in: .*settings"):
        comparison.ask(replace(asked, settings=Settings(steps=7)), tmp_path / "run", quiet=True)


def test_a_text_that_is_named_is_measured_of_a_finished_run_that_was_cut(tmp_path: Path) -> None:
    plan = asked(model="model", data={"train": "rows.jsonl"}, arms=("lora",))
    cut = replace(plan, fit=Fit(8.0, 400.0, ("the other text",), time_limit.digest(plan)), forgetting="none")
    (tmp_path / "config.json").write_text(json.dumps({"version": run_folder.VERSION, **to_json(cut)}))

    def gone_on_with(text: str) -> str:
        found, _ = time_limit.before(replace(plan, forgetting=text), tmp_path)
        assert found.fit == cut.fit
        return found.forgetting

    assert gone_on_with("other.txt") == gone_on_with("") == "none"
    (tmp_path / "results.json").write_text("{}")
    assert (gone_on_with("other.txt"), gone_on_with("")) == ("other.txt", "none")


def test_what_does_not_fit_is_refused_before_anything_is_written(question: Plan, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^--minutes 0\.01: with everything cut .* Type: --minutes \d+$"):
        comparison.ask(replace(question, minutes=0.01), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run" / "config.json").exists() and not (tmp_path / "run" / "arms").exists()
    with pytest.raises(UserError, match=r"^--minutes and --pilot make a comparison shorter, each by a rule of its own"):
        comparison.ask(piloted(replace(question, minutes=5.0)), tmp_path / "run", quiet=True)
    pytest.importorskip("submitit")
    with pytest.raises(
        UserError, match=r"^--minutes times this machine, and --executor slurm:cluster=local runs on oth"
    ):
        comparison.ask(replace(question, minutes=5.0), tmp_path / "run", executor="slurm:cluster=local", quiet=True)


def test_where_it_goes_slower_than_timed_there_are_fewer_seeds_which_is_told(
    question: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replace(question, minutes=30.0, arms=("zero-shot", "prefix:length=2", "lora:rank=1"), trials=1)
    asked = replace(asked, settings=Settings(steps=4, batch_size=8, eval_every=2))
    monkeypatch.setattr(
        deadline.Deadline, "allows", lambda self, *rounds: sum(map(len, map(list, rounds))) <= 3
    )  # one seed
    found = comparison.ask(asked, tmp_path / "run", quiet=True)
    assert {arm["name"]: len(arm["runs"]) for arm in found.results["arms"]} == dict.fromkeys(asked.arms, 1)
    assert found.results["protocol"]["seeds"] == [0]
    assert "1 of 3 seeds" in found.results["protocol"]["fit"]["left_out"][-1]


def test_that_there_is_no_time_for_rates_beyond_the_grids_is_told_once_and_kept(
    question: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = replace(question, minutes=30.0, arms=("zero-shot", "prefix:length=2", "lora:rank=1"), trials=2, beyond=3)
    asked = replace(asked, settings=Settings(steps=4, batch_size=8, eval_every=2), seeds=(0,))
    monkeypatch.setattr(protocol.trials, "next_rates", lambda bench, entry, outcomes: (0.5,) if entry.trials else None)
    monkeypatch.setattr(deadline.Deadline, "allows", lambda self, *rounds: len(rounds) < 2)  # the seeds, and no more
    found = comparison.ask(asked, tmp_path / "run")
    told = capsys.readouterr()
    assert (
        " ".join((told.out + told.err).split()).count("leaves no time for learning rates beyond those of the grids")
        == 1
    )
    kept = found.results["protocol"]["fit"]["left_out"]
    assert kept[-1] == "no time for more learning rates beyond those of the grids" and kept.count(kept[-1]) == 1


def test_that_minutes_cut_nothing_of_what_was_begun_without_them_is_told_while_it_is_half_done(
    question: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = replace(question, arms=("zero-shot", "lora:rank=1"), trials=1, seeds=(0,))
    asked, folder = replace(asked, settings=Settings(steps=2, batch_size=8, eval_every=2)), tmp_path / "run"
    comparison.ask(asked, folder)
    told = f"note: --minutes 30 cuts nothing here: the comparison in {folder} was begun without it"
    for is_done in (True, False):
        if not is_done:
            (folder / "results.json").unlink()
        comparison.ask(replace(asked, minutes=30.0), folder)
        shown = capsys.readouterr()
        assert (told in " ".join((shown.out + shown.err).split())) == (not is_done)


def test_check_ends_with_the_command_that_fits(question: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    from tunescope.trial.open import open_bench

    def slow(bench: Bench) -> Iterator[estimate.Estimate]:  # on any machine
        for one in estimate.estimates(bench):
            assert one.costs is not None
            yield replace(one, costs=replace(one.costs, step=0.025 if one.costs.trained else 0.0, row=0.002))

    monkeypatch.setattr(preview, "estimates", slow)
    told = list(preview.lines(open_bench(replace(question, minutes=0.75)), workers=2))
    (head,) = [line for line in told if line.startswith("a comparison of ")]
    assert head.endswith(" rows, one run after another:") and [line for line in told if "worker" in line] == told[-2:-1]
    assert told[-2].startswith("to be done in 0.75 minutes, with 2 workers, it is cut: ") and ", of 3" in told[-2]
    assert told[-1].startswith("for that on this machine, type: tunescope compare ")
    assert Path(told[-1].split()[8]).absolute() == Path(question.model)  # as from here
    assert told[-1].endswith(" --minutes 0.75")
    least = list(preview.lines(open_bench(replace(question, minutes=0.01))))[-1].rpartition(" ")[2]
    assert int(least) >= 1


def test_the_digest_is_of_the_question_and_not_of_what_changes_no_number() -> None:
    plan = asked(model="m", data={"train": "d"})
    assert time_limit.digest(plan) == time_limit.digest(replace(plan, minutes=3.0, margin=0.01))
    assert time_limit.digest(plan) != time_limit.digest(replace(plan, trials=2))


def test_what_was_quicker_than_timed_promises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(deadline.time, "monotonic", lambda: now[0])
    jobs = [
        SimpleNamespace(
            id=name, arm=SimpleNamespace(arm=SimpleNamespace(name="soft")), steps=60, until=None, test=False
        )
        for name in "abc"
    ]
    found = deadline.Deadline(asked(), end=100.0 + 100.0, costs={"soft": SOFT}, sizes=SIZES)  # a run is 63 s

    def stopped(_jobs: Any, _together: int) -> dict[str, Any]:
        now[0] += 7.0
        return {}

    found.timed(stopped)(jobs[:1], 1)
    assert found.slower == 1.0
    assert found.allows(jobs[1:2]) and not found.allows(jobs[1:])  # 93 s are left
