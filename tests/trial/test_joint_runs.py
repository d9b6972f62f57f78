"""Runs that share passes of the model: the numbers are those of each alone, and what goes wrong in one stays there."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch
import transformers
import warm
from safetensors.torch import load_file

import tunescope as ts
from tunescope.comparison import shared_passes
from tunescope.comparison.comparison import compare
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.trial.train.settings import Settings

ARMS = (
    "prefix:length=3",
    "prefix:length=5,mlp=4,init_from=noise",
    "soft:length=2",
    "lora:rank=2",
    "lora:rank=3",
    "bias",
    "zero-shot",
)
SETTINGS = Settings(steps=12, batch_size=8, eval_every=4, patience=2)


def ran(folder: Path, together: int, arms: tuple[str, ...] = ARMS, workers: int = 1, **options: Any) -> Any:
    model, data = tinyrun.write(folder / "material") if not (folder / "material").exists() else material(folder)
    given: dict[str, Any] = {
        "task": Classification(words={"neg": "bad", "pos": "good"}),
        "settings": SETTINGS,
        "beyond": 0,
        "trials": 2,
    }
    return compare(
        model,
        data,
        arms=arms,
        seeds=2,
        out=folder / f"run{together}-{workers}",
        together=together,
        workers=workers,
        quiet=True,
        **(given | options),
    )


def material(folder: Path) -> tuple[str, dict[str, str]]:
    inside = folder / "material"
    return str(inside / "model"), {part: str(inside / f"{part}.jsonl") for part in ("train", "dev", "test")}


def runs(found: Any) -> dict[str, dict[str, Any]]:
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(found.folder.glob("arms/*/result.json"))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("together")
    (made / "material").mkdir()
    tinyrun.write(made / "material")
    return made


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_runs_together_have_the_numbers_of_each_alone(folder: Path, workers: int) -> None:
    alone, together = ran(folder, 1), ran(folder, 4, workers=workers)
    one, other = runs(alone), runs(together)
    assert one.keys() == other.keys() and len(one) == 6 * 3 + 1  # two rates at one seed, one of them at another
    assert {run.get("together") for run in other.values()} >= {4}
    for name, run in one.items():
        for mine, theirs in zip(run["curve"], other[name]["curve"], strict=True):
            assert mine["step"] == theirs["step"] and mine["dev"] == theirs["dev"]
            assert abs(mine["loss"] - theirs["loss"]) < 1e-5
        path = Path("arms") / name / "artifact" / "tensors.safetensors"
        if (alone.folder / path).exists():
            tensors, shared = load_file(alone.folder / path), load_file(together.folder / path)
            assert tensors.keys() == shared.keys()
            for key, value in tensors.items():
                torch.testing.assert_close(shared[key], value, rtol=0, atol=2e-5)
    assert [arm["score"] for arm in alone.results["arms"]] == [arm["score"] for arm in together.results["arms"]]


def test_a_head_on_an_encoder_and_written_answers_too(tmp_path: Path) -> None:
    model, data = tinyrun.write(tmp_path)
    config = transformers.BertConfig(
        vocab_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    tinyrun.tokenizer().save_pretrained(tmp_path / "bert")
    written = Generation(template="{text}", target="label")
    for base, task in ((tmp_path / "bert", "classification"), (model, written)):
        found = [
            compare(
                str(base),
                data,
                arms=("prefix:length=2", "lora:rank=2"),
                task=task,
                seeds=2,
                settings=SETTINGS,
                beyond=0,
                out=tmp_path / f"{Path(base).name}-{together}",
                together=together,
                quiet=True,
            )
            for together in (1, 8)
        ]
        one, other = map(runs, found)
        assert one.keys() == other.keys()
        for name, run in one.items():
            assert [point["step"] for point in run["curve"]] == [point["step"] for point in other[name]["curve"]]
            for mine, theirs in zip(run["curve"], other[name]["curve"], strict=True):
                assert abs(mine["loss"] - theirs["loss"]) < 1e-5


def test_one_that_diverges_is_told_and_the_others_of_its_group_go_on(folder: Path, tmp_path: Path) -> None:
    model, data = material(folder)
    task = Classification(words={"neg": "bad", "pos": "good"})
    found = compare(
        model,
        data,
        arms=("lora:rank=2", "prefix:length=3"),
        task=task,
        seeds=2,
        settings=SETTINGS,
        beyond=0,
        learning_rates=(1e-3, 1e30),
        out=tmp_path / "run",
        together=4,
        quiet=True,
    )
    statuses = {run["learning_rate"]: run["status"] for run in runs(found).values()}
    assert statuses == {1e-3: "done", 1e30: "diverged"}


def test_what_goes_wrong_in_a_group_is_done_again_one_by_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("tunescope.comparison.shared_passes.train_together", fails)
    model, data = material(folder)
    task = Classification(words={"neg": "bad", "pos": "good"})
    options: dict[str, Any] = {"task": task, "seeds": 1, "trials": 1, "settings": SETTINGS, "beyond": 0, "quiet": True}
    found = compare(model, data, arms=ARMS[:2], out=tmp_path / "run", together=2, **options)
    assert [arm["status"] for arm in found.results["arms"]] == ["done", "done"]
    assert all("together" not in run for run in runs(found).values())


def test_a_group_that_is_cut_off_as_it_ends_goes_on_as_one_to_the_same_bits(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "material").symlink_to(folder / "material")
    concluded, done = shared_passes.run_arm.concluded, list[int]()

    def cut(*given: Any) -> Any:
        done.append(1)
        if len(done) == 2:
            raise KeyboardInterrupt
        return concluded(*given)

    with monkeypatch.context() as once:
        once.setattr(shared_passes.run_arm, "concluded", cut)
        with pytest.raises(KeyboardInterrupt):
            ran(tmp_path, 2, ARMS[:1])
    gone_on, whole = runs(ran(tmp_path, 2, ARMS[:1])), runs(ran(folder, 2, ARMS[:1]))
    told = ("together", "curve")
    mine, theirs = ({name: [run.get(key) for key in told] for name, run in some.items()} for some in (gone_on, whole))
    assert mine == theirs
    assert [run.get("together") for run in whole.values()].count(2) == 2


def test_what_a_bank_refuses_is_done_again_one_by_one_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """MobileBERT's head takes the weights of its map and does not call it, so that its bias is of no row alone."""
    _, data = tinyrun.write(tmp_path)
    config = transformers.MobileBertConfig(
        vocab_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        embedding_size=8, true_hidden_size=8, intra_bottleneck_size=8, normalization_type="layer_norm",
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.MobileBertForMaskedLM(config).save_pretrained(tmp_path / "bert")
    tokenizer = tinyrun.tokenizer()
    tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    tokenizer.save_pretrained(tmp_path / "bert")
    task = Classification(words={"neg": "bad", "pos": "good"}, template="{text} {mask}")
    options: dict[str, Any] = {"task": task, "seeds": 1, "trials": 2, "settings": SETTINGS, "beyond": 0}
    for together in (0, 4):
        out = tmp_path / f"run{together}"
        found = compare(str(tmp_path / "bert"), data, arms=("bias", "lora"), out=out, together=together, **options)
        told = capsys.readouterr().err
        assert [arm["status"] for arm in found.results["arms"]] == ["done", "done"]
        assert "no bias that a row can have to itself" in told
        assert all("together" not in run for run in runs(found).values())


def test_what_cannot_share_has_its_own_passes(folder: Path, tmp_path: Path) -> None:
    arms = ("full", "demos:k=1+lora:rank=2", "lora:rank=2,dropout=0.5", "lora:rank=2")
    model, data = material(folder)
    task = Classification(words={"neg": "bad", "pos": "good"})
    options: dict[str, Any] = {"task": task, "seeds": 2, "trials": 2, "settings": SETTINGS, "beyond": 0, "quiet": True}
    found = compare(model, data, arms=arms, out=tmp_path / "run", together=8, **options)
    shared = {run["spec"] for run in runs(found).values() if "together" in run}
    assert len(shared) == 1 and next(iter(shared)).startswith("lora") and len(runs(found)) == 12
    assert "dropout=0.5" not in next(iter(shared))


def test_the_size_is_measured_and_told_where_it_is_asked_for(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []

    def seconds(bench: Any, jobs: Any) -> float:
        asked.append(len(jobs))
        return {1: 1.0, 2: 1.2, 4: 1.6, 8: 8.0}[len(jobs)]

    monkeypatch.setattr(shared_passes, "_seconds", seconds)
    model, data = material(folder)
    task = Classification(words={"neg": "bad", "pos": "good"})
    options: dict[str, Any] = {"task": task, "seeds": 1, "trials": 3, "settings": SETTINGS, "beyond": 0}
    found = compare(model, data, arms=ARMS[:3], out=tmp_path / "run", together=0, **options)
    said = capsys.readouterr()
    assert asked == [1, 2, 4, 8]
    assert "4 runs share each pass: a step took, against alone, 2 together 0.60, 4 together 0.40, 8 together 1.00" in (
        said.out + said.err
    ).replace("\n", " ")
    assert {run.get("together") for run in runs(found).values()} == {4, None}


def test_steps_are_really_timed(folder: Path) -> None:
    from tunescope.comparison.entry import entered
    from tunescope.tasks.make import task_json
    from tunescope.trial.open import open_bench
    from tunescope.trial.plan import Plan

    model, data = material(folder)
    task = task_json(Classification(words={"neg": "bad", "pos": "good"}))
    bench = open_bench(Plan(model=model, data=data, task=task, arms=ARMS[:3], settings=SETTINGS, beyond=0))
    jobs = [todo for entry in entered(bench) for todo in entry.trials]
    size, told = shared_passes.best_size(bench, jobs)
    assert size in (1, 2, 4, 8) and "2 together" in told and "8 together" in told
    assert shared_passes.best_size(bench, jobs[:1])[0] == 1
    assert not hasattr(bench.model, "_tunescope_attached")


def test_less_than_none_together_is_refused(folder: Path) -> None:
    with pytest.raises(ts.UserError, match="together"):
        ran(folder, -1)


KILLED = """
import os, signal, sys
from tunescope.comparison import run
from tunescope.comparison.comparison import compare
from tunescope.tasks.kinds.classification import Classification
from tunescope.trial.train import loop
from tunescope.trial.train.settings import Settings
run.SAVE_EVERY = 0.0
plain, left = loop.update, 20
def update(*given):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(*given)
loop.update = update
model, train_file, dev, test, out = sys.argv[1:]
compare(
    model, {"train": train_file, "dev": dev, "test": test}, arms=("prefix:length=3", "lora:rank=2"), seeds=2,
    task=Classification(words={"neg": "bad", "pos": "good"}), together=4, out=out, quiet=True,
    settings=Settings(steps=12, batch_size=8, eval_every=4, patience=2),
    beyond=0,
)
"""


def test_a_group_that_was_killed_goes_on_where_each_of_its_runs_was(folder: Path, tmp_path: Path) -> None:
    model, data = material(folder)
    killed = warm.run(["-c", KILLED, model, data["train"], data["dev"], data["test"], tmp_path / "run"])
    assert killed.returncode == -signal.SIGKILL
    states = sorted((tmp_path / "run").glob("arms/*.tmp-*/state.json"))
    assert len(states) == 4 and all(json.loads(path.read_text())["state"]["step"] > 2 for path in states)
    task = Classification(words={"neg": "bad", "pos": "good"})
    options: dict[str, Any] = {"task": task, "seeds": 2, "settings": SETTINGS, "beyond": 0, "quiet": True}
    arms = ("prefix:length=3", "lora:rank=2")
    found = compare(model, data, arms=arms, together=4, out=tmp_path / "run", **options)
    alone = compare(model, data, arms=arms, out=tmp_path / "alone", **options)
    one, other = runs(alone), runs(found)
    assert one.keys() == other.keys()
    for name, run in one.items():
        for mine, theirs in zip(run["curve"], other[name]["curve"], strict=True):
            assert mine["dev"] == theirs["dev"] and abs(mine["loss"] - theirs["loss"]) < 1e-5
