"""docs/formats.md: its commands and its Python run as they stand, in a folder with MODEL and a peft folder `theirs`."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import tinyrun

peftly = pytest.importorskip("peftly", reason="peft is not installed")

from tunescope import cli, formats  # noqa: E402

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tinyrun.model().save_pretrained("MODEL")
    tinyrun.tokenizer().save_pretrained("MODEL")
    model = tinyrun.model()
    config = peftly.lora(model, r=3, use_rslora=True, fan_in_fan_out=True, target_modules=["c_attn"])
    peftly.written(peftly.wrapped(model, config), Path("theirs"))


def test_the_commands_run_in_their_order(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"^    (tunescope (?:import|export) .*)$", PAGE, re.M)
    assert len(commands) == 2
    for command in commands:
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        cli.main()
    out = capsys.readouterr().out
    assert "read: lora:rank=3,alpha=" in out
    assert "note: vLLM: --enable-lora --max-lora-rank 8" in out
    assert float(re.search(r"differs from the attached model by (\S+) of", out)[1]) < 1e-4  # type: ignore[index]
    assert Path("for-vllm/adapter_config.json").exists()


def test_the_python_runs() -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(block, names)
    assert names["done"].difference < 1e-4


def test_the_page_has_every_format() -> None:
    for name in formats.names():
        assert re.search(rf"^## .*{name}", PAGE, re.M | re.I), f"docs/formats.md has no section on {name}"
