"""A comparison of arms that write: several metrics, outputs kept, and refusals before anything is trained."""

import errno
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
import tinyrun
import torch

import tunescope as ts
from tunescope.comparison import comparison, examples, inside_attention
from tunescope.data.metrics import _coco
from tunescope.data.scores import aggregate, statistics
from tunescope.errors import UserError
from tunescope.report.verdict import stats
from tunescope.search.loop import scored
from tunescope.trial import command, plan, plan_check
from tunescope.trial.open import open_bench
from tunescope.trial.train.settings import Settings

TASK = {
    "kind": "generation",
    "input": "text",
    "target": "label",
    "template": "{text} Label:",
    "metric": "chrf",
    "also": ("bleu", "ter"),
    "lowercase": True,
    "max_new_tokens": 3,
    "beams": 2,
}


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    return tinyrun.write(tmp_path_factory.mktemp("material"))


def question(material, **task):
    model, data = material
    settings = Settings(steps=4, batch_size=8, eval_every=2, patience=3)
    asked = {"model": model, "data": data, "task": TASK | task, "seeds": (0, 1), "trials": 1, "settings": settings}
    return plan_check.check(
        plan.Plan(**asked, arms=("zero-shot", "demos:k=1,choose=nearest", "prefix:length=2", "lora:rank=1"))
    )


@pytest.fixture(scope="module")
def done(material, tmp_path_factory):
    asked = question(material)
    bench = open_bench(asked)
    folder = tmp_path_factory.mktemp("done") / "run"
    return bench, comparison.run(asked, folder, tinyrun.opened(bench), by_name=True, quiet=True)


def kept(found, run):
    return json.loads((found.folder / "arms" / run["id"] / "test.json").read_text())


def test_the_folder_keeps_every_output_and_results_tell_the_other_metrics_of_them(done):
    bench, found = done
    references = [row.references for row in examples._rows(bench)]
    arms = found.results["arms"]
    assert {arm["status"] for arm in arms} == {"done"}
    for arm in arms:
        for run in arm["runs"]:
            said = kept(found, run)["outputs"]
            for name in ("chrf", "bleu", "ter"):
                whole = aggregate(name, statistics(name, said, references, lowercase=True))[name]
                assert run["test"][name] == pytest.approx(whole, abs=1e-12)
            assert not {"outputs", "also"} & run.keys()
        means = {name: np.mean([run["test"][name] for run in arm["runs"]]) for name in ("bleu", "ter")}
        assert {name: one["score"] for name, one in arm["also"].items()} == pytest.approx(means, abs=1e-9)
        assert all(one["interval"][0] <= one["score"] <= one["interval"][1] for one in arm["also"].values())


def test_other_metrics_are_compared_on_the_same_seeds_and_rows(done):
    _, found = done
    runs = {arm["name"]: arm["runs"] for arm in found.results["arms"]}
    for pair in found.results["comparisons"]:
        own, best = (
            {run["seed"]: np.array(kept(found, run)["also"]["ter"]) for run in runs[pair[side]]} for side in "ab"
        )
        own = dict.fromkeys(best, own[0]) if len(own) == 1 else own
        best = dict.fromkeys(own, best[0]) if len(best) == 1 else best
        gap = stats.paired(own, best, stats.scorer("ter"))
        assert pair["also"]["ter"] == {"difference": gap.value, "interval": [gap.low, gap.high]}


def test_outputs_stand_side_by_side_in_the_results_and_on_the_page(done):
    bench, found = done
    shown = found.results["examples"]
    rows = examples._rows(bench)
    assert shown["of"] == len(rows) == len(shown["rows"])
    names = [arm["name"] for arm in found.results["arms"]]
    assert (shown["arms"], shown["seeds"]) == (names, [0] * len(names))
    for index, (one, row) in enumerate(zip(shown["rows"], rows, strict=True)):
        assert (one["row"], one["input"], tuple(one["references"])) == (row.row, row.source, row.references)
        assert len(one["outputs"]) == len(one["scores"]) == len(names)
        for place, arm in enumerate(found.results["arms"]):
            said = kept(found, arm["runs"][0])["outputs"][index]
            assert one["outputs"][place] == said
            own = aggregate("chrf", statistics("chrf", [said], [row.references], lowercase=True))["chrf"]
            assert one["scores"][place]["chrf"] == pytest.approx(own, abs=1e-4)
    page = (found.folder / "report.html").read_text()
    assert 'id="outputs-table"' in page and f"All {len(rows)} test rows." in page
    assert re.search(r"chrF2? as in sacrebleu", page) and "Beam search, 2 beams" in page


def test_only_some_rows_are_embedded_spread_over_the_test_set(done, monkeypatch):
    bench, found = done
    rows = examples._rows(bench)
    monkeypatch.setattr(examples, "SHOWN", 3)
    one = next(arm for arm in found.results["arms"] if arm["name"] == "zero-shot")
    run = one["runs"][0] | {key: kept(found, one["runs"][0])[key] for key in ("also", "outputs")}
    standing = type("S", (), {"status": "done", "runs": [run], "name": "zero-shot"})
    shown = examples.side_by_side(bench, [standing])
    places = [0, len(rows) // 3, 2 * len(rows) // 3]
    assert [row["row"] for row in shown["rows"]] == [rows[at].row for at in places]
    assert shown["of"] == len(rows)


def test_a_metric_that_is_not_there_or_cannot_run_is_told_before_anything_is_trained(material, monkeypatch):
    with pytest.raises(UserError, match=r"^There is no metric 'blue'\. Did you mean 'bleu'\?"):
        open_bench(question(material, metric="blue"))
    monkeypatch.setattr(_coco, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"Type: pip install 'tunescope\[metrics\]'$"):
        open_bench(question(material, also=("cider",)))


def test_a_row_without_references_is_named(material, tmp_path):
    model, data = material
    lines = [json.loads(line) for line in Path(data["test"]).read_text().splitlines()]
    del lines[4]["label"]
    test = tmp_path / "test.jsonl"
    test.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(
        UserError, match=r"^test\.jsonl line 5 has no field 'label'\. It has: text\. .* --target-field FIELD$"
    ):
        open_bench(question((model, data | {"test": str(test)})))


def test_the_command_names_all_metrics_and_how_answers_are_looked_for(material):
    words = command.command(question(material, no_repeat_ngram=3, label_smoothing=0.1, z_loss=1e-4))
    assert "--metric chrf bleu ter" in words
    assert "--beams 2 --no-repeat-ngram 3 --label-smoothing 0.1 --z-loss 0.0001" in words


def test_one_seed_that_the_command_line_has_no_word_for_is_told(material):
    asked = question(material)
    for seeds, typed, told in (((0,), "1", ""), ((5,), "1", "  # in Python: seeds=[5]"), ((5, 6), "5 6", "")):
        words = command.command(replace(asked, seeds=seeds))
        assert f"--seeds {typed} --" in words and words.endswith(told or words[-5:]) and ("#" in words) == bool(told)


def test_what_happens_inside_is_told_of_rows_that_have_room_and_never_costs_an_arm(tmp_path):
    """Inputs are cut for answers of max_new_tokens; with a longer answer behind them not every row has positions."""
    model, _ = tinyrun.write(tmp_path)
    rows = [{"text": "film " * 80 + str(n), "label": "good " * (9 if n % 2 else 2)} for n in range(12)]
    path = tmp_path / "long.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = Settings(steps=2, batch_size=4, eval_every=1)
    asked = plan.Plan(
        model=model, data={part: str(path) for part in ("train", "dev", "test")}, task=TASK, seeds=(0,), trials=1,
        settings=settings, arms=("lora:rank=1", "soft:length=2"),
    )  # fmt: skip
    found = comparison.run(asked, tmp_path / "run", open_bench, by_name=True, quiet=True)
    assert [arm["status"] for arm in found.results["arms"]] == ["done", "done"]
    looked = [arm["runs"][0]["mechanism"] for arm in found.results["arms"]]
    assert all(one["reason"] == "" and one["content_pattern_shift"] is not None for one in looked), looked
    bench = open_bench(asked)
    assert np.isfinite(scored(bench, "film", (5,), [0, 1]).loss)


def test_of_an_encoder_decoder_padding_behind_an_answer_is_not_looked_at(tmp_path):
    """What is told of two rows with answers of other lengths is the mean of what is told of each, by real places."""
    model = tiny.make("bart", dtype=torch.float32)
    model.save_pretrained(tmp_path / "model")
    tinyrun.tokenizer().save_pretrained(tmp_path / "model")
    rows = [{"text": "film", "target": "bad"}, {"text": "the film", "target": "the plot was dull, the film bad"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 4))
    data = {part: str(tmp_path / "rows.jsonl") for part in ("train", "dev", "test")}
    bench = open_bench(
        plan.Plan(model=str(tmp_path / "model"), data=data, task={"kind": "generation", "input": "text"}, seeds=(0,))
    )
    some = bench.encoded("dev", room=None)[:2]
    given = inside_attention._inputs(bench, some, with_target=True)
    lengths = [1 + len(row.lead) + len(row.target_ids) - 1 for row in some]
    assert given["decoder_attention_mask"].sum(1).tolist() == lengths and lengths[0] < lengths[1]


def test_rows_whose_attention_would_take_too_much_memory_are_not_looked_at(material, monkeypatch):
    bench = open_bench(question(material))
    rows = bench.encoded("dev", room=None)
    with ts.attach(bench.model, ts.LoRA(rank=1)) as tuned:
        assert inside_attention.mechanism(bench, rows, tuned)["reason"] == ""
        monkeypatch.setattr(inside_attention, "LARGEST", 0)
        found = inside_attention.mechanism(bench, rows, tuned)
    assert found["content_pattern_shift"] is None
    assert found["reason"] == "every development row has more than 0 GB of attention to look at"


@pytest.mark.parametrize(
    "problem", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling")]
)
def test_where_there_is_no_memory_to_look_inside_that_is_the_reason(material, monkeypatch, problem):
    def short(*given):
        raise problem

    bench = open_bench(question(material))
    rows = bench.encoded("dev", room=None)
    monkeypatch.setattr("tunescope.probes.mechanism.see", short)
    with ts.attach(bench.model, ts.LoRA(rank=1)) as tuned:
        found = inside_attention.mechanism(bench, rows, tuned)
    assert found["content_pattern_shift"] is None and found["context_share"] is None
    assert found["reason"] == f"out of memory: the device ran out of memory: {problem}"


def test_a_fault_of_a_look_is_told_with_its_type_and_the_arms_are_kept(material, tmp_path, monkeypatch):
    def faulty(*given, **more):
        raise KeyError("encoder.0.self")

    monkeypatch.setattr("tunescope.probes.mechanism.see", faulty)
    monkeypatch.setattr("tunescope.probes.see.see", faulty)
    asked = replace(question(material), arms=("lora:rank=1",), seeds=(0,), trials=1, settings=Settings(steps=1))
    found = comparison.run(asked, tmp_path / "run", open_bench, by_name=True, quiet=True)
    (arm,) = found.results["arms"]
    assert arm["status"] == "done" and arm["runs"][0]["mechanism"]["content_pattern_shift"] is None
    assert arm["runs"][0]["mechanism"]["reason"] == found.results["inside"]["reason"] == "KeyError: 'encoder.0.self'"


def test_a_disk_that_is_full_is_no_fault_of_a_look(material, monkeypatch):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    bench = open_bench(question(material))
    monkeypatch.setattr("tunescope.probes.mechanism.see", full)
    with ts.attach(bench.model, ts.LoRA(rank=1)) as tuned, pytest.raises(OSError, match="No space left"):
        inside_attention.mechanism(bench, bench.encoded("dev", room=None), tuned)


def test_a_field_that_the_rows_lack_is_named_before_they_are_cut(material):
    model, data = material
    asked = plan.Plan(model=model, data={"train": data["train"]}, task=TASK | {"template": "{txt} Label:"})
    with pytest.raises(UserError, match=r"train\.jsonl line 1 has no field 'txt'\. Did you mean 'text'\?"):
        open_bench(asked)
