"""`cot` as an arm of a comparison: what it is refused, and what its results tell."""

import json
from dataclasses import replace

import pytest
import tinyrun

import tunescope as ts
from tunescope.comparison import arms, comparison, job
from tunescope.comparison.problem import attached, specs_of
from tunescope.report import terminal
from tunescope.report.verdict.remarks import remarks
from tunescope.tasks.prompts.chain import Chain
from tunescope.trial import command, plan, plan_check, questions
from tunescope.trial.arm import Arm
from tunescope.trial.open import open_bench
from tunescope.trial.specs import specs_at
from tunescope.trial.train.settings import Settings

ARMS = (
    "zero-shot",
    "cot:tokens=4",
    "demos:k=2",
    "demos:k=2+cot",
    "demos:k=2,order=best,orders=2+cot",
    "demos:k=2,choose=nearest+cot",
    "cot:tokens=4,samples=3,temperature=0.7",
    "lora",
    "cot+lora",
    "demos:k=2+cot+soft:length=2",
)


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    folder = tmp_path_factory.mktemp("material")
    model, data = tinyrun.write(folder)
    for path in data.values():
        with open(path) as file:
            rows = [json.loads(line) for line in file]
        with open(path, "w") as file:
            file.writelines(json.dumps({**row, "why": "the film was"}) + "\n" for row in rows)
    return model, data


@pytest.fixture(scope="module")
def bench(material):
    return open_bench(question(material))


def question(material, kind="reasoning"):
    model, data = material
    task = {"kind": kind, "input": "text", "target": "label", "template": "{text} Label:", "max_new_tokens": 2}
    task |= {"steps": "why", "lead": "a", "read": "neg,pos"} if kind == "reasoning" else {}
    settings = Settings(steps=4, batch_size=8, eval_every=2, patience=3)
    return plan_check.check(
        plan.Plan(model=model, data=data, task=task, arms=ARMS, seeds=(0, 1), trials=1, settings=settings)
    )


def test_every_way_of_asking_is_an_arm_and_tells_what_could_not_be_read(bench, material, tmp_path):
    found = comparison.run(question(material), tmp_path / "run", tinyrun.opened(bench), by_name=True, quiet=True)
    by_name = {arm["name"]: arm for arm in found.results["arms"]}
    assert {name: arm["status"] for name, arm in by_name.items()} == dict.fromkeys(ARMS, "done")
    assert {name: arm["group"] for name, arm in by_name.items()} == {
        **dict.fromkeys(ARMS, "text"),
        "zero-shot": "none",
        "lora": "delta",
        "cot+lora": "delta",
        "demos:k=2+cot+soft:length=2": "context",
    }
    assert [len(by_name[name]["runs"]) for name in ARMS] == [1, 1, 2, 2, 2, 1, 2, 2, 2, 2]  # one where no seed matters
    for arm in by_name.values():
        for run in arm["runs"]:
            reading = run["reading"]
            assert reading["rows"] == len(run["stats"])
            assert sum(stats[0] for stats in run["stats"]) <= reading["rows"] * (1 - reading["unread"]) + 1e-9
            assert ("vote" in reading) == ("samples" in arm["name"])
    lost = [arm for arm in by_name.values() if any(run["reading"]["unread"] for run in arm["runs"])]
    assert lost and all("No answer could be read in " in " ".join(arm["remarks"]) for arm in lost)
    assert "No answer could be read in " in " ".join(terminal.table(found.results).split())


def test_failures_and_votes_are_told_in_counts():
    runs = [{"seed": 2, "reading": {"unread": 0.25, "vote": 0.5, "rows": 8}}]
    assert remarks(runs) == [
        "No answer could be read in 2 of 8 (seed 2) test rows, which count as wrong.",
        "The answer taken had this share of the samples, on average: 0.500 (seed 2); ties go to the answer that was "
        "sampled first, and samples without an answer count against it.",
    ]
    assert remarks([{"seed": 0, "reading": {"unread": 0.0, "rows": 8}}]) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cot+text:text=film", "or trains it on steps, as in cot.lora; what stands beside it here trains nothing"),
        ("cot:then=so+lora", "cot:then=so: think and then have no effect where the steps are trained on; drop them"),
        ("demos:k=1+cot:think=hm", "cot:think=hm: think and then have no effect behind demonstrations"),
        ("cot:tokens=2+lora", "the steps that are trained on take up to 3 tokens, so that answers would be cut off"),
        ("cot:steps=3", "'cot' has no field 'steps'. Its fields: samples, temperature, tokens, think, then"),
        ("cot:samples=4", "at temperature 0 all samples are the same"),
    ],
)
def test_an_option_without_effect_is_refused(bench, text, message):
    with pytest.raises(ts.UserError, match=message) as refused:
        arms.ready(Arm(text, text), bench)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["text:text=film+cot+lora", "lora+cot", "cot+demos:k=2+lora", "lora+demos:k=2"])
def test_what_stands_first_is_refused_elsewhere(bench, text):
    late = "cot" if "+cot" in text else "demos"
    with pytest.raises(ts.UserError, match=f"{late} stands first, demos before cot, as in demos:k=4.cot.lora"):
        arms.planned_arms(replace(bench, plan=replace(bench.plan, arms=(text,))))


def test_whether_a_prefix_would_cut_rows_is_asked_of_the_rows_with_their_steps(bench, monkeypatch):
    seen = []

    def lost(bench, taken, task):
        seen.append(task.taught)
        return ("cut rows short", 0.5) if task.taught else ("", 0.0)

    monkeypatch.setattr("tunescope.trial.demos.start.is_rotary", lambda model: True)
    monkeypatch.setattr("tunescope.trial.demos.start._lost", lost)
    found = [
        arms.ready(Arm(text, text), bench).specs[0].init_from for text in ("prefix:length=6", "cot+prefix:length=6")
    ]
    assert found == ["demos", None] and seen == [False, True]


def test_other_tasks_and_other_models_have_no_steps_to_read(bench, material, monkeypatch):
    other = open_bench(question(material, kind="generation"))
    with pytest.raises(ts.UserError, match="reads an answer out of written steps, for which the task is --task reason"):
        arms.ready(Arm("cot", "cot"), other)
    monkeypatch.setattr(bench, "kind", "encoder-decoder")
    with pytest.raises(ts.UserError, match="goes on from what the model wrote, and this is an encoder-decoder: take"):
        arms.ready(Arm("cot", "cot"), bench)


def test_rows_without_steps_cannot_show_them(bench):
    shown = replace(bench.task, chain=Chain(), shown=True)
    with pytest.raises(ts.UserError, match="why"):
        shown.demonstrations([{"text": "a", "label": "neg"}], 1, 0)


def test_a_prefix_of_an_arm_that_writes_steps_begins_as_demonstrations_that_do(bench):
    at_once, with_steps = (
        specs_at(arms.ready(Arm(text, text), bench), bench, (), 0)[0].text
        for text in ("prefix:length=12,init_from=demos", "cot+prefix:length=12,init_from=demos")
    )
    assert "Label: a " in at_once and "the film was" not in at_once
    assert with_steps.count("Label: the film was a ") == with_steps.count("Label:") > 0


def test_what_is_trained_on_steps_learns_them_and_is_asked_without(bench):
    targets = {}
    for text in ("lora", "cot+lora", "demos:k=2+cot+lora"):
        arm = arms.ready(Arm(text, text), bench)
        todo = job.job(bench, arm, (1e-3,), 0)
        with attached(bench, todo, specs_of(bench, todo)) as tuned:
            (row,) = questions.drawn_rows(arm, bench, tuned, 0)([3])
            asked = questions.rows_of(arm, bench, tuned, "dev", 0)[0]
        targets[text] = bench.tokenizer.decode(row.target_ids, skip_special_tokens=True)
        assert bench.tokenizer.decode(asked.input_ids).endswith("Label:" if "cot" in text else "Label: a")
    label = bench.splits.train[3]["label"]
    assert targets == {
        "lora": label,
        "cot+lora": f"the film was a {label}",
        "demos:k=2+cot+lora": f"the film was a {label}",
    }


def test_steps_that_are_not_there_cannot_be_learned(bench, monkeypatch):
    rows = [dict(row, why=" ") if index < 2 else row for index, row in enumerate(bench.splits.train)]
    monkeypatch.setattr(bench, "splits", replace(bench.splits, train=rows))
    with pytest.raises(
        ts.UserError, match=f"cot trains on steps, and 2 of {len(rows)} training rows have none in 'why'"
    ):
        arms.ready(Arm("cot+lora", "cot+lora"), bench)


def test_an_arm_is_written_as_it_is_typed(bench):
    for text in ("cot", "cot:samples=3,temperature=0.7", "demos:k=2+cot:tokens=9", "cot+bias"):
        assert arms.ready(Arm(text, text), bench).label == text


def test_the_command_says_what_was_asked(material):
    said = command.command(question(material))
    assert "--task reasoning --input-field text --target-field label --steps-field why --lead a --read neg,pos" in said
