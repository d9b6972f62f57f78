"""docs/formats.md: its commands and its Python run as they stand, in a folder with MODEL and a peft folder `theirs`."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import masked
import peftly
import pytest
import tiny
import tinyrun
import torch
import transformers as tf
from safetensors.torch import load_file

import tunescope as ts
from tunescope.attachment.initial_artifacts import initialised
from tunescope.cli import app
from tunescope.exchange.format import format_names
from tunescope.methods.artifact import Artifact

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
SERVING = (Path(__file__).resolve().parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")


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
        app.main()
    out = capsys.readouterr().out
    assert "read: lora:rank=3,alpha=" in out
    assert "note: vLLM: --enable-lora --max-lora-rank 8" in out
    assert float(re.search(r"differs from the attached model by (\S+) of", out)[1]) < 1e-4  # type: ignore[index]
    assert Path("for-vllm/adapter_config.json").exists()


def test_what_answers_in_words_is_written_for_the_model_that_has_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model, words = tiny.make("bert", dtype=torch.float32), masked.word_piece()
    headed = tf.BertForMaskedLM(model.config).eval()
    headed.save_pretrained("BERT")
    words.save_pretrained("BERT")
    (made,) = initialised(headed, [ts.LoRA(rank=2)], None, 0)
    artifact = Artifact(made.spec, {name: torch.randn(value.shape) for name, value in made.tensors.items()})
    given = tiny.batch(model)
    with ts.attach(headed, artifact):
        expected = peftly.outputs(headed, given)
    for by in ("words", "head"):
        ts.save(by, artifact, model=headed, tokenizer=words, about={"task": {"by": by}})
        command = f"tunescope export {by} --to peft --model BERT --out {by}-out"
        monkeypatch.setattr(sys, "argv", command.split())
        app.main()
    assert "base_model.model.encoder.layer.0" in next(iter(load_file("head-out/adapter_model.safetensors")))
    got = peftly.outputs(peftly.loaded(headed, Path("words-out")), given)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-4)


def test_the_python_runs() -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(block, names)
    assert names["done"].difference < 1e-4


def test_the_pages_have_every_format() -> None:
    for name in format_names():
        found = re.search(rf"^## .*{name}", PAGE + SERVING, re.M | re.I)
        assert found, f"neither docs/formats.md nor docs/serving.md has a section on {name}"
