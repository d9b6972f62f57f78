"""docs/serving.md runs as it stands, and its table has every method."""

import re
from pathlib import Path

import pytest
import serving_tools as tools
import torch

from tunescope.methods.text_form import methods

PAGE = (Path(__file__).parent.parent.parent / "docs" / "serving.md").read_text("utf-8")


def test_the_snippets_run_one_after_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = tools.byte_level(start=True)
    model = tools.loaded("llama", tmp_path / "model", vocabulary=len(tokenizer)).to(torch.float32)
    with tools.quiet():
        model.save_pretrained(tmp_path / "model")
        tokenizer.save_pretrained(tmp_path / "model")
        names = {"MODEL": tmp_path / "model", "OUT": tmp_path, "TEXT": "A bad film."}
        snippets = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
        for snippet in snippets:
            exec(compile(snippet, "docs/serving.md", "exec"), names)
    assert len(snippets) == 6
    assert all((tmp_path / name).is_dir() for name in ("merged", "tokens", "embeds", "gguf", "slot", "messages"))
    out = capsys.readouterr().out
    assert "<ts_0><ts_1><ts_2><s>" in out and "whatever serves the base model" in out


def test_every_method_has_a_row() -> None:
    table = PAGE.partition("## Where can I serve this?")[2].partition("\n\nSeveral")[0]
    named = set(re.findall(r"`([a-z]+)`", "".join(line.split("|")[1] for line in table.splitlines() if "|" in line)))
    assert named == set(methods())
