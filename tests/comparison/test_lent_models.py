"""A loaded model that is compared on: bare or refused, given back as it was, and asked the same wherever that is."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch
from callers_modes import MODES

import tunescope as ts
from tunescope.errors import UserError

SHORT = {"budget": 256, "seeds": 1, "trials": 1, "steps": 3, "batch_size": 8, "eval_every": 3, "beyond": 0}
Material = tuple[str, dict[str, str]]


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return tinyrun.write(tmp_path_factory.mktemp("material"))


def compared(model: Any, data: Any, folder: Path, **fields: Any) -> Any:
    asked = {"arms": ["lora:rank=2"], "quiet": True, **SHORT, **fields}
    given = {} if isinstance(model, str | Path) else {"tokenizer": tinyrun.tokenizer()}
    return ts.compare(model, data, out=folder, **given, **asked)


def tensors(folder: Path) -> list[str]:
    found = [hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("arms/*/artifact/*.safetensors")]
    assert found
    return sorted(found)


@pytest.mark.parametrize("spec", [ts.Full(), ts.LoRA(rank=2), ts.Prefix(length=2)], ids=str)
def test_what_has_something_attached_is_no_base(spec: Any, material: Material, tmp_path: Path) -> None:
    model = tinyrun.model()
    run = compared(model, material[1], tmp_path / "bare", arms=["zero-shot"])
    with ts.attach(model, spec):
        with pytest.raises(UserError, match=r"has artifacts attached already"):
            compared(model, material[1], tmp_path / "run", arms=["zero-shot"])
        with pytest.raises(UserError, match=r"has artifacts attached already"):
            run.predict(material[1]["test"], model=model, tokenizer=tinyrun.tokenizer())
    assert not (tmp_path / "run" / "arms").exists()
    assert run.predict(material[1]["test"], model=model, tokenizer=tinyrun.tokenizer())


def state(model: Any) -> dict[str, Any]:
    """Of every module its mode, its hooks and the names and flags that it has of its own."""
    kinds = (bool, int, float, str, type(None), list)
    return {
        name: {key: value if isinstance(value, kinds) else id(value) for key, value in vars(one).items()}
        | {"hooks": [id(hook) for hook in one._forward_hooks.values()]}
        for name, one in model.named_modules()
    }


@pytest.mark.parametrize("is_begun", [False, True], ids=["plain", "checkpointing before"])
@pytest.mark.parametrize("checkpoints", [False, True])
def test_it_is_given_back_as_it_was(is_begun: bool, checkpoints: bool, material: Material, tmp_path: Path) -> None:
    model = tinyrun.model()
    model.train()
    model.transformer.h[0].attn.eval()
    if is_begun:
        model.gradient_checkpointing_enable({"use_reentrant": True})
    before = state(model)
    run = compared(model, material[1], tmp_path / "run", gradient_checkpointing=checkpoints)
    assert state(model) == before
    run.predict(material[1]["test"], model=model, tokenizer=tinyrun.tokenizer())
    assert state(model) == before


def test_so_it_is_after_an_interrupt(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tinyrun.model().train()
    before = state(model)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tunescope.comparison.procedure.tried", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compared(model, material[1], tmp_path / "run", gradient_checkpointing=True)
    assert state(model) == before


@pytest.fixture(scope="module")
def plain(material: Material, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("plain") / "run"
    compared(material[0], material[1], folder, arms=["lora:rank=2", "prefix:length=2"])
    return tensors(folder)


@pytest.mark.parametrize("is_loaded", [False, True], ids=["named", "loaded"])
@pytest.mark.parametrize("mode", MODES)
def test_the_modes_around_it_change_no_number(
    mode: str, is_loaded: bool, material: Material, plain: list[str], tmp_path: Path
) -> None:
    model = tinyrun.model() if is_loaded else material[0]
    with MODES[mode]():
        about = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()
        run = compared(model, material[1], tmp_path / "run", arms=["lora:rank=2", "prefix:length=2"])
        given = {"model": model, "tokenizer": tinyrun.tokenizer()} if is_loaded else {}
        answers = run.predict(material[1]["test"], **given)
        assert about == (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype())
        assert torch.is_autocast_enabled("cpu") == (mode == "autocast")
        assert torch.empty(1).device.type == ("meta" if mode == "on meta" else "cpu")
    assert tensors(tmp_path / "run") == plain
    assert answers == run.predict(material[1]["test"], **given)
