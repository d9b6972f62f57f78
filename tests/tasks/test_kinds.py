"""A kind of task is one file: its name, its options and what it can do are found in it."""

import json
from pathlib import Path

import pytest
import warm
from echo_task import ECHO

from tunescope.errors import UserError
from tunescope.tasks import kinds, make
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.kinds.reasoning import Reasoning

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
    done = warm.run(["-c", COMMAND, folder, *words], env={"COLUMNS": "200"}, ours=False)
    return done.stdout, done.stderr


def test_its_options_are_told_and_are_no_other_kind_s(folder: Path) -> None:
    out, _ = tunescope(folder, "compare", "--help")
    told = " ".join(out.replace("│", " ").split())
    assert (
        "--task STR choice (one of the choices that a row brings along), classification, echo (a text, written" in told
    )
    assert "--echo-times INT for echo, how often it is written." in told
    assert "--input-field --input STR for choice, echo, generation and reasoning, the field with the input" in told
    for words, said in [
        (("--echo-times", "2"), "--echo-times is for --task echo, and this is --task classification."),
        (("--task", "echo", "--beams", "2"), "--beams is for --task generation, and this is --task echo."),
        (("--task", "ehco"), "--task 'ehco' is not known. Did you mean 'echo'? It is one of: choice, classificat"),
    ]:
        _, err = tunescope(folder, "compare", "model", "rows.jsonl", *words)
        assert f"error: {said}" in err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"text": "review", "template": "{text} It was"},
            r"--text-field review has no use: the template, '\{text\} It",
        ),
        ({"kind": "generation", "input": "table", "template": "{a}: {b}"}, "--input-field table has no use"),
        ({"by": "head", "template": "{text}", "words": {"a": "x", "b": "y"}}, "--words have no use: an encoder's head"),
    ],
)
def test_what_is_given_and_has_no_use_is_refused(given: dict[str, object], message: str) -> None:
    task = make.make_task({"kind": "classification"} | given, "encoder" if "by" in given else "decoder")  # as stored
    with pytest.raises(UserError, match=message):
        make.check_used(task)


def test_fields_that_the_template_names_and_a_head_s_own_labels_have_their_use() -> None:
    for given in (
        {"text": "review"},
        {"text": "a", "template": "{a} and {b}"},
        {"template": "{premise} {hypothesis}"},
        {"by": "head", "words": {"a": "a"}},
    ):
        make.check_used(make.make_task({"kind": "classification"} | given, "encoder" if "by" in given else "decoder"))


def test_without_its_file_there_is_none() -> None:
    with pytest.raises(UserError, match=r"--task 'echo' is not known\. Did you mean 'choice'\? It is one of: choice, "):
        make.make_task({"kind": "echo"}, "decoder")


def test_a_field_that_the_kind_has_not_is_refused_and_the_nearest_named() -> None:
    with pytest.raises(UserError, match=r"^task classification has no field 'tempalte'\. Did you mean 'template'\?$"):
        make.make_task({"kind": "classification", "tempalte": "{text} It was"}, "decoder")
    with pytest.raises(UserError, match=r"^task choice has no field 'zzz'\. It has: .*choices"):
        make.make_task({"kind": "choice", "zzz": 1}, "decoder")


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
    names = ("Choice", "Classification", "Generation", "Reasoning")
    for path in package.rglob("*.py"):
        text = path.read_text("utf-8")
        asks = [
            line for line in text.splitlines() if "isinstance(" in line and any(f" {name}" in line for name in names)
        ]
        assert not asks, (path, asks)
