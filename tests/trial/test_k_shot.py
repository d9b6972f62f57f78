"""A comparison on K rows a class: each seed draws its own, and all are tested on the same."""

import json
from collections import Counter
from dataclasses import replace

import pytest
import tinyrun

from tunescope.cli.options import PlanOptions, question
from tunescope.comparison import estimate, job
from tunescope.comparison.comparison import ask
from tunescope.data.corpus import expanded
from tunescope.data.k_shot import k_shot
from tunescope.data.read import read
from tunescope.errors import UserError
from tunescope.trial import command, plan, plan_check, provenance, questions
from tunescope.trial.open import open_bench
from tunescope.trial.train.settings import Settings

SEEDS = (13, 21)


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    model, data = tinyrun.write(tmp_path_factory.mktemp("material"))
    return model, {"train": data["train"], "test": data["test"]}


def asked(material, **changes):
    fields = {
        "model": material[0],
        "data": material[1],
        "task": {"kind": "classification"},
        "arms": ("zero-shot", "demos:k=2", "lora"),
        "seeds": SEEDS,
        "trials": 1,
        "settings": Settings(steps=4, batch_size=4, eval_every=2, patience=3),
        "k_shot": 3,
    }
    return plan_check.check(plan.Plan(**({"beyond": 0} | fields | changes)))


def test_each_seed_trains_and_chooses_on_its_own_rows_and_all_are_tested_on_the_same(material, tmp_path, monkeypatch):
    seen = {}
    plain = questions.sets_of

    def spy(arm, bench, tuned, part, seed):
        (found,) = plain(arm, bench, tuned, part, seed)
        seen.setdefault((seed, part), set()).add(tuple(row.source for row in found))
        return [found]

    monkeypatch.setattr(questions, "sets_of", spy)
    found = ask(asked(material), tmp_path / "run", quiet=True)
    test = read(material[1]["test"])
    for seed in SEEDS:
        drawn = k_shot(read(material[1]["train"]), test, lambda row, _: row["label"], ("text",), k=3, seed=seed)
        for part in ("train", "dev", "test"):
            assert seen[seed, part] == {tuple(row["text"] for row in drawn.parts()[part])}
        assert Counter(row["label"] for row in drawn.train) == {"neg": 3, "pos": 3}
    assert seen[13, "train"] != seen[21, "train"]
    assert found.results["data"]["notes"][0] == (
        "3 rows of each label to train on and 3 others to choose by, drawn from 64 anew by each seed."
    )
    assert "--k-shot 3" in found.results["command"] and found.results["protocol"]["k_shot"] == 3
    assert all(arm["status"] == "done" for arm in found.results["arms"])
    assert [len(run["stats"]) for run in found.results["arms"][2]["runs"]] == [len(test)] * 2


def test_test_rows_that_a_later_seed_is_trained_on_are_told(material, tmp_path):
    first, later = (open_bench(asked(material)).draws[seed].train for seed in SEEDS)
    leaked = next(row for row in later if row["text"] not in {one["text"] for one in first})
    others = [{"text": "good good", "label": "pos"}, {"text": "bad bad", "label": "neg"}]
    test = tmp_path / "test.jsonl"
    test.write_text("".join(f"{json.dumps(dict(row))}\n" for row in (*others, leaked)))
    for seeds, told in ((SEEDS, "have an input that some seed is trained on"), (SEEDS[::-1], "are also in train")):
        bench = open_bench(asked(material, data={**material[1], "test": str(test)}, seeds=seeds))
        (found,) = [note for note in provenance.notes_of(bench) if "1 of 3 test rows" in note]
        assert told in found and found.endswith("(lines 3).")


def test_what_is_cut_to_fit_the_minutes_is_cut_of_every_seed(material):
    bench = open_bench(asked(material))
    estimate.sizes_of(bench)  # has looked at the first seed
    shorter = replace(bench.plan, settings=replace(bench.plan.settings, steps=2))
    bench.cut_to(shorter)
    assert [bench.at(seed).plan for seed in SEEDS] == [shorter] * 2


def test_demonstrations_come_from_the_rows_that_their_seed_drew(material):
    from tunescope.comparison import arms
    from tunescope.trial import specs
    from tunescope.trial.arm import Arm
    from tunescope.trial.demos import draw, spec

    bench = open_bench(asked(material))
    for seed in SEEDS:
        own = bench.at(seed)
        rows = draw.drawn(spec.Demos(k=3), own, seed)
        (text,) = specs.specs_at(arms.ready(Arm("demos:k=3", "demos:k=3"), own), own, rows, 0)
        shown = {one.split("\nLabel:")[0] for one in text.text.removesuffix("\n\n").split("\n\n")}
        assert shown == {row["text"] for row in bench.draws[seed].train}
        assert bench.at(seed) is own


def test_a_comparison_without_it_keeps_its_identity(material):
    bench = open_bench(asked(material, k_shot=None))
    todo = job.job(bench, _lora(bench), (1e-3,), 13)
    bench.plan = asked(material)
    assert job.job(bench, _lora(bench), (1e-3,), 13).id != todo.id
    assert "--k-shot" not in command.command(asked(material, k_shot=None, data={**material[1], "dev": "d.jsonl"}))
    assert bench.draws == {} and bench.at(13) is bench


def _lora(bench):
    from tunescope.comparison import arms
    from tunescope.trial.arm import Arm

    return arms.ready(Arm("lora", "lora"), bench)


def test_of_a_corpus_with_rows_to_choose_by_the_parts_to_type_are_told(material, tmp_path):
    corpus = tinyrun.sst2(tmp_path / "two words")
    for data in ({"train": corpus}, {"train": corpus, "test": f"{corpus}#test"}):
        with pytest.raises(UserError, match=f"the parts alone: '{corpus}#train' --test '{corpus}#test'$"):
            open_bench(asked(material, data=expanded(data)))
    task = {"kind": "classification", "words": {"negative": "neg", "positive": "pos"}}
    open_bench(asked(material, task=task, data={"train": f"{corpus}#train", "test": f"{corpus}#test"}))


def test_what_cannot_be_drawn_is_refused(material):
    with pytest.raises(UserError, match="tests on rows of their own: give --test FILE and no --dev"):
        open_bench(asked(material, data={"train": material[1]["train"]}))
    with pytest.raises(UserError, match="tests on rows of their own: give --test FILE and no --dev"):
        open_bench(asked(material, data={**material[1], "dev": material[1]["test"]}))
    with pytest.raises(UserError, match="this task has none: it is for --task classification"):
        open_bench(asked(material, task={"kind": "generation", "input": "text", "target": "label"}))
    with pytest.raises(UserError, match="40 training and 40 development rows of each label are asked for"):
        open_bench(asked(material, k_shot=40))
    with pytest.raises(UserError, match="--k-shot 0 is too small; give a whole number of 1 or more"):
        question("m", "d.jsonl", PlanOptions(k_shot=0))
    assert question("m", "d.jsonl", PlanOptions(k_shot=16)).k_shot == 16


def test_demonstrations_that_are_looked_up_are_those_of_each_seed_s_rows(material, tmp_path):
    found = ask(replace(asked(material), arms=("demos:k=1,choose=nearest", "zero-shot")), tmp_path / "run", quiet=True)
    runs = {arm["name"]: [run["seed"] for run in arm["runs"]] for arm in found.results["arms"]}
    assert runs == {"demos:k=1,choose=nearest": list(SEEDS), "zero-shot": [SEEDS[0]]}
