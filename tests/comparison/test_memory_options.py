"""Options for models that are large for their memory: the same numbers, or a line on what is missing."""

from pathlib import Path
from typing import Any

import commands
import pytest
import tiny
import tinyrun
import torch
from safetensors.torch import load_file

import tunescope as ts
from tunescope.attachment.guards.checkpointing import checkpointed
from tunescope.cli import side_by_side
from tunescope.comparison import comparison
from tunescope.models import load_options
from tunescope.models.load import load_model
from tunescope.system import machine, run_folder
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan
from tunescope.trial.plan_fields import planned
from tunescope.trial.plan_json import to_json

FEW = ["--steps", 2, "--batch-size", 4, "--trials", 1, "--seeds", 1, "--beyond", 0, "--arms", "lora:rank=2", "soft"]
FEW += ["--workers", 1, "--together", 1, "--forgetting", "none"]


@pytest.fixture(scope="module")
def model_and_data(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    return tinyrun.write(tmp_path_factory.mktemp("tiny"))  # type: ignore[no-untyped-call, no-any-return]


def plan_of(data: dict[str, str], **given: Any) -> Plan:
    return planned("m", data["train"], {"kind": "classification"}, given)


def test_a_comparison_with_checkpointing_has_the_same_numbers(
    model_and_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = model_and_data
    for name, more in (("plain", []), ("saving", ["--gradient-checkpointing", "--device-map", "auto"])):
        words = ["compare", model, data["train"], "--test", data["test"], *FEW, *more, "--out", tmp_path / name]
        code, _, err = commands.call(monkeypatch, capsys, *words)
        assert code == 0, err
    one, two = (run_folder.read_results(tmp_path / name)["arms"] for name in ("plain", "saving"))
    for plain, saving in zip(one, two, strict=True):
        assert plain["status"] == saving["status"] == "done"
        for before, after in zip(plain["runs"], saving["runs"], strict=True):
            assert before["curve"] == after["curve"] and before["stats"] == after["stats"]


def test_runs_that_share_passes_checkpoint_too(
    model_and_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers.modeling_layers import GradientCheckpointingLayer

    from tunescope.tasks.kinds.classification import Classification

    row_losses, held = Classification.row_losses, set[bool]()

    def watched(self: Any, model: Any, rows: Any, tokenizer: Any) -> Any:
        held.update(one.training for one in model.modules() if isinstance(one, GradientCheckpointingLayer))
        return row_losses(self, model, rows, tokenizer)

    monkeypatch.setattr(Classification, "row_losses", watched)
    model, data = model_and_data
    words = ["compare", model, data["train"], *FEW, "--words", "neg=bad,pos=good", "--gradient-checkpointing"]
    words[words.index("--together") + 1] = 2
    words[words.index("soft")] = "lora:rank=3"
    code, out, err = commands.call(monkeypatch, capsys, *words, "--out", tmp_path / "run")
    assert code == 0, out + err
    assert held == {True}  # which is what layers are checkpointed by


@pytest.mark.parametrize("family", ["gpt2", "llama", "t5", "bart"])
def test_layers_in_eval_mode_are_checkpointed_and_drop_nothing(family: str) -> None:
    model = tiny.make(family)
    for module in model.modules():  # a layer that took itself for training would drop half of its states
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.5
        elif isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    kept: list[int] = []
    grads = []
    for within in (False, True):
        with ts.attach(model, *tiny.away(model, "lora:rank=2+prefix:length=2")) as tuned:
            tuned.train()
            kept.append(0)
            with (
                torch.autograd.graph.saved_tensors_hooks(lambda value: _counted(kept, value), lambda value: value),
                checkpointed(model) if within else torch.enable_grad(),
            ):
                out = tiny.output(model, {**tiny.batch(model), "use_cache": False} if family != "bert" else {})
            assert not any(module.training for module in model.modules())
            out.square().sum().backward()
            grads.append([value.grad for value in tuned.parameters()])
    assert kept[1] < 0.6 * kept[0]
    for before, after in zip(*grads, strict=True):
        assert torch.equal(before, after)


def _counted(kept: list[int], value: torch.Tensor) -> torch.Tensor:
    kept[-1] += value.numel()
    return value


def test_a_batch_size_of_auto_is_the_usual_one_in_parts(model_and_data: Any) -> None:
    _, data = model_and_data
    plan = plan_of(data, batch_size="auto")
    assert plan.halve_batches and plan.settings.batch_size == 16
    assert not plan_of(data, batch_size=16).halve_batches


def test_where_memory_ends_a_run_goes_on_and_says_so(
    model_and_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tunescope.tasks.kinds.classification import Classification

    model, data = model_and_data
    words = ["compare", model, data["train"], *FEW[:2], *FEW[4:], "--batch-size", "auto", "--out", tmp_path / "run"]
    loss = Classification.loss

    def limited(self: Any, model: Any, rows: Any, tokenizer: Any) -> Any:
        if len(rows) > 8:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return loss(self, model, rows, tokenizer)

    monkeypatch.setattr(Classification, "loss", limited)
    code, out, err = commands.call(monkeypatch, capsys, *words)
    assert code == 0 and "lora:rank=2: a batch of 16 rows goes through in 2 parts from here on" in err
    assert " done " in out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--load", "2bit"], "--load"),
        (["--load", "4bit", "--device-map", "auto"], "give one"),
        (["--processes", 2, "--device-map", "auto"], "--parallel fsdp shards"),
        (["--processes", 2, "--device", "cuda:1"], "--device cuda:1 is one GPU, and with --processes"),
        (["--processes", 2, "--load", "4bit"], "Type: --parallel ddp"),
        (["--processes", 2, "--batch-size", "auto"], "--batch-size 16 --accumulate 4, or --parallel ddp"),
        (["--parallel", "tp"], "--parallel"),
    ],
)
def test_what_does_not_go_together_is_told(
    words: list[Any],
    line: str,
    model_and_data: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, data = model_and_data
    code, _, err = commands.call(monkeypatch, capsys, "compare", model, data["train"], *words)
    assert code == 2 and line in err


def test_a_model_that_is_spread_over_all_gpus_has_one_worker(
    model_and_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(*given: Any, workers: int, **named: Any) -> Any:
        raise ts.UserError(f"workers: {workers}")

    model, data = model_and_data
    monkeypatch.setattr(machine, "default_workers", lambda *given: 4)
    monkeypatch.setattr(comparison, "ask", asked)
    monkeypatch.setattr(comparison, "resume", asked)
    for more, found in ((["--device-map", "auto"], 1), ([], 4)):
        plan = plan_of(data, device_map="auto" if more else "")
        assert side_by_side.place(plan, 0, "local", "json").workers == found
        (tmp_path / str(found)).mkdir()
        run_folder.write_config(tmp_path / str(found), {"version": run_folder.VERSION, **to_json(plan), "model": model})
        for words in (["compare", model, data["train"], *more], ["resume", tmp_path / str(found)]):
            code, _, err = commands.call(monkeypatch, capsys, *words)
            assert code == 2 and f"workers: {found}" in err


def test_a_model_is_on_the_devices_of_its_weights(model_and_data: Any) -> None:
    model, data = model_and_data
    bench = open_bench(planned(model, data["train"], {"kind": "classification"}, {}))
    assert bench.devices == [torch.device("cpu")]
    bench.model.transformer.ln_f.to("meta")
    assert bench.devices == [torch.device("cpu"), torch.device("meta")]


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_options, "find_spec", lambda name: None if name in ("bitsandbytes", "torchao") else name)
    with pytest.raises(ts.UserError, match=r"--load 4bit needs a library .* Type: pip install bitsandbytes"):
        load_options.loading("4bit", "", "cpu")
    monkeypatch.setattr(load_options, "find_spec", lambda name: None)
    with pytest.raises(ts.UserError, match=r"--device-map needs accelerate"):
        load_options.loading("", "auto", "cpu")


def test_a_model_of_which_a_part_is_elsewhere_is_refused() -> None:
    class Spread:
        def __init__(self, **places: object) -> None:
            self.hf_device_map = places

    load_options.check_here(Spread(a=0, b=1))
    load_options.check_here(Spread(a="cpu"))
    for places in ({"a": 0, "b": "cpu"}, {"a": "cpu", "b": "disk"}):
        with pytest.raises(ts.UserError, match="a part of this model was put on"):
            load_options.check_here(Spread(**places))


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("library", ["bitsandbytes", "torchao"])
def test_weights_in_eight_bits_are_compared(
    library: str,
    model_and_data: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip(library)
    model, data = model_and_data
    find = load_options.find_spec
    others = {"bitsandbytes", "torchao"} - {library}
    monkeypatch.setattr(load_options, "find_spec", lambda name: None if name in others else find(name))
    words = ["compare", model, data["train"], *FEW, "--load", "8bit", "--out", tmp_path / "run"]
    code, out, err = commands.call(monkeypatch, capsys, *words)
    assert code == 0 and " done " in out, err


def test_weights_in_bfloat16_train_what_stays_in_float32(
    model_and_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = model_and_data
    assert load_model(model, given=load_options.loading("bfloat16", "", "cpu"))[0].dtype == torch.bfloat16
    words = ["compare", model, data["train"], *FEW, "--load", "bfloat16", "--out", tmp_path / "run"]
    code, out, err = commands.call(monkeypatch, capsys, *words)
    assert code == 0 and " done " in out, err
    saved = load_file(next((tmp_path / "run").glob("best/**/*.safetensors")))
    assert {value.dtype for value in saved.values()} == {torch.float32}


def test_a_model_that_is_loaded_is_not_loaded_in_other_bits(model_and_data: Any) -> None:
    name, data = model_and_data
    model, tokenizer = load_model(name)
    with pytest.raises(ts.UserError, match="load='bfloat16' is for a model that is named: this one is loaded already"):
        ts.compare(model, data["train"], tokenizer=tokenizer, load="bfloat16")
