"""SuperGLUE's mean by hand, of arms that have all eight tasks, and why there is none of others."""

from __future__ import annotations

import json
from statistics import fmean

import numpy as np
import pytest
from report_example import example

from tunescope.report import index, superglue

WORDS = {"boolq": 0.8, "copa": 0.6, "rte": 0.7, "wic": 0.5, "wsc": 0.4}  # task: share right


def run(task, scores, *, seeds=(0, 1), arm="full", **told):
    """What compare would have written of a task; a score a metric, a hundredth more for each further seed."""
    runs = [{"seed": seed, "test": {name: one + seed / 100 for name, one in scores.items()}} for seed in seeds]
    return {
        "data": {"test": {"path": f"{task}:{task.upper()}#test"}},
        "model": {"name": "t5", "fingerprint": "f"},
        "task": {"kind": "generation", "labels": None} | told,
        "arms": [{"name": arm, "status": "done", "runs": runs}],
    }


def eight(**of):
    found = {task: run(task, {"exact_match": share}) for task, share in WORDS.items()}
    found["cb"] = run("cb", {"exact_match": 0.9, "f1_cb": 0.7})
    found["multirc"] = run("multirc", {"f1_true": 0.6})
    found["record"] = run("record", {"squad_f1": 0.5, "squad_em": 0.3})
    return found | of


def means(runs):
    return superglue.means([superglue.scores(one) | {"run": name} for name, one in runs.items()])


def test_a_task_of_two_metrics_counts_by_their_mean_and_each_task_alike():
    (row,) = means(eight())
    by_hand = (0.8 + (0.9 + 0.7) / 2 + 0.6 + 0.6 + (0.5 + 0.3) / 2 + 0.7 + 0.5 + 0.4) / 8
    assert row["score"] == pytest.approx(fmean([by_hand, by_hand + 0.01]))
    assert dict(row["tasks"])["cb"] == "0.805" and dict(row["tasks"])["record"] == "0.405"
    assert [task for task, _ in row["tasks"]] == list(superglue.TASKS)
    assert (row["arm"], row["model"], row["why"]) == ("full", "t5", "")


def test_where_labels_are_chosen_multirc_counts_by_the_f1_of_true():
    g = np.random.default_rng(0)
    meant, said = g.integers(2, size=(2, 50))
    chosen = run("multirc", {"accuracy": 0.5}, seeds=(0,), kind="classification", labels=["True", "False"])
    chosen["arms"][0]["runs"][0]["stats"] = np.stack([meant == said, meant, said], 1).astype(float).tolist()
    found = superglue.scores(chosen)["arms"]["full"]["seeds"]
    right = ((meant == 0) & (said == 0)).sum()
    precision, recall = right / (said == 0).sum(), right / (meant == 0).sum()
    assert found == {0: pytest.approx(2 * precision * recall / (precision + recall))}


@pytest.mark.parametrize(
    ("of", "why"),
    [
        ({"cb": run("cb", {"exact_match": 0.9})}, "cb was not scored by macro_f1 or f1_cb"),
        ({"record": run("record", {"squad_f1": 0.9})}, "record was not scored by squad_em"),
        ({"wsc": run("wsc", {"accuracy": 0.9}, seeds=(7,))}, "the tasks have no seed in common"),
        ({"again": run("rte", {"accuracy": 0.9})}, "rte is there twice (rte, again)"),
    ],
)
def test_why_there_is_no_mean_is_told(of, why):
    (row,) = means(eight(**of))
    assert (row["why"], row["score"]) == (why, None)


def test_of_fewer_tasks_other_arms_and_other_parts_there_is_no_row():
    seven = {task: one for task, one in eight().items() if task != "wic"}
    assert means(seven) == []
    assert means(seven | {"wic": run("wic", {"accuracy": 0.5}, arm="soft")}) == []
    dev = run("wic", {"accuracy": 0.5})
    dev["data"]["test"]["path"] = "wic:WiC#dev32"
    assert superglue.scores(dev) == {} and means(seven) == []
    dev["data"]["test"]["path"] = "wic:val.jsonl"
    assert superglue.task_of(dev) == "wic"
    dev["data"]["test"]["path"] = "test.jsonl"
    assert superglue.task_of(dev) == ""


def test_the_index_of_eight_comparisons_has_their_mean(tmp_path):
    for number, task in enumerate(superglue.TASKS):
        made = example(seed=number)
        made["data"]["test"]["path"] = f"{task}:folder#test"
        for arm in made["arms"]:
            for one in arm["runs"]:
                one["test"] |= {"macro_f1": 0.5, "f1_true": 0.5, "squad_f1": 0.5, "squad_em": 0.5}
        (tmp_path / task).mkdir()
        (tmp_path / task / "results.json").write_text(json.dumps(made))
    found = index.entries(tmp_path)
    (row,) = [one for one in index._superglue(found) if one["arm"] == "full"]
    told = [line for line in index.lines(found) if line.startswith("SuperGLUE, full (")]
    assert told == [f"SuperGLUE, full (openai-community/gpt2): {row['shown']}{row['span']}"]
    html = index.write(tmp_path).read_text("utf-8")
    assert '<h2 id="superglue">' in html and f"<b>{row['shown']}</b>" in html and superglue.SAYS[:30] in html
    (tmp_path / "wic" / "results.json").unlink()
    assert "superglue" not in index.write(tmp_path).read_text("utf-8")
