"""A kind of task is one file: its name, its options and what it can do are found in it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tinyrun

from tunescope.errors import UserError
from tunescope.tasks import kinds, make
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.kinds.reasoning import Reasoning

ECHO = '''
"""Echo: a text, to be written again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from tunescope.system.option import Option
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.options import INPUT, TEMPLATE
from tunescope.tasks.task import Encoded, Prediction, Task


@dataclass(frozen=True, kw_only=True)
class Echo(Task):
    about: ClassVar[str] = "a text, written again"
    writes: ClassVar[bool] = True
    metric = "exact_match"

    input: Annotated[str, INPUT] = "input"
    template: Annotated[str, TEMPLATE] = "{input} again:"
    times: Annotated[int, Option("for {kinds}, how often it is written.", ("--echo-times",))] = 1
    max_new_tokens: int = 4

    needs_head = None

    @classmethod
    def usual(cls, given, model_kind):
        return {"template": f"{{{given.get('input', 'input')}}} again:"}

    def _written(self):
        return Generation(input=self.input, target="echo", template=self.template, max_new_tokens=self.max_new_tokens)

    def _rows(self, rows):
        return [{**row, "echo": " ".join([row[self.input]] * self.times)} for row in rows]

    def fields(self):
        return (self.input,)

    def prepare(self, splits, tokenizer, *, model_kind):
        return self

    def encode(self, rows, tokenizer, **how):
        return self._written().encode(self._rows(rows), tokenizer, **how)

    def loss(self, model, batch, tokenizer):
        return self._written().loss(model, batch, tokenizer)

    def row_losses(self, model, batch, tokenizer):
        return self._written().row_losses(model, batch, tokenizer)

    def predict(self, model, rows, tokenizer, *, batch_size=32):
        return self._written().predict(model, rows, tokenizer, batch_size=batch_size)

    def demonstrations(self, rows, k, seed):
        return self._written().demonstrations(self._rows(rows), k, seed)

    def describe(self):
        return {**self._written().describe(), "kind": "echo", "times": self.times}
'''
COMMAND = """
import sys
from tunescope.tasks import kinds
kinds.__path__.append(sys.argv.pop(1))
from tunescope.cli.app import main
main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "more"
    place.mkdir()
    (place / "echo.py").write_text(ECHO)
    return place


def tunescope(folder: Path, *words: object) -> tuple[str, str]:
    """(stdout, stderr) of a command, with the folder's kinds."""
    command = [sys.executable, "-c", COMMAND, str(folder), *map(str, words)]
    wide = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=wide)
    return done.stdout, done.stderr


def test_a_file_in_the_folder_is_a_kind_of_task_everywhere(folder: Path, tmp_path: Path) -> None:
    model, data = tinyrun.write(tmp_path)
    short = ["--arms", "zero-shot", "lora:rank=2", "--steps", "2", "--trials", "1", "--seeds", "1", "--workers", "1"]
    parts = [data["train"], "--dev", data["dev"], "--test", data["test"], "--out", tmp_path / "run"]
    asked = ["--task", "echo", "--input-field", "text", "--echo-times", "2"]
    out, err = tunescope(folder, "compare", model, *parts, *asked, *short)
    assert "Verdict: " in out, err
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert (results["task"]["kind"], results["task"]["times"]) == ("echo", 2)
    assert "--task echo --input-field text --echo-times 2 --arms" in results["command"]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["task"]["times"] == 2
    assert [arm["status"] for arm in results["arms"]] == ["done", "done"]


def test_its_options_are_told_and_are_no_other_kind_s(folder: Path) -> None:
    out, _ = tunescope(folder, "compare", "--help")
    told = " ".join(out.replace("│", " ").split())
    assert "--task STR classification, echo (a text, written again), generation, or reasoning (an answer that" in told
    assert "--echo-times INT for echo, how often it is written." in told
    assert "--input-field --input STR for echo, generation and reasoning, the field with the input" in told
    for words, said in [
        (("--echo-times", "2"), "--echo-times is for --task echo, and this is --task classification."),
        (("--task", "echo", "--beams", "2"), "--beams is for --task generation, and this is --task echo."),
        (("--task", "ehco"), "--task 'ehco' is not known. Did you mean 'echo'? It is one of: classification, echo, "),
    ]:
        _, err = tunescope(folder, "compare", "model", "rows.jsonl", *words)
        assert f"error: {said}" in err


def test_without_its_file_there_is_none() -> None:
    with pytest.raises(UserError, match=r"--task 'echo' is not known\. It is one of: classification, generation, rea"):
        make.make_task({"kind": "echo"}, "decoder")


def test_a_task_is_made_of_what_is_told_of_it_and_of_a_class_of_one_s_own_the_name_is_told() -> None:
    for task in (
        Classification(words={"neg": "bad", "pos": "good"}),
        Generation(metric="bleu", also=("nist",), beams=3),
        Reasoning(steps="how"),
    ):
        assert make.make_task(json.loads(json.dumps(make.task_json(task))), "decoder") == task

    class Mine(Generation):
        pass

    assert make.task_json(Mine()) == {"own": "Mine"}
    assert make.name_of(Mine()) is None


def test_no_file_outside_the_folder_asks_which_kind_a_task_is() -> None:
    package = Path(kinds.__path__[0]).parents[1]
    names = ("Classification", "Generation", "Reasoning")
    for path in package.rglob("*.py"):
        text = path.read_text("utf-8")
        asks = [
            line for line in text.splitlines() if "isinstance(" in line and any(f" {name}" in line for name in names)
        ]
        assert not asks, (path, asks)
