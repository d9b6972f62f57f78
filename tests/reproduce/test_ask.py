"""What a recipe was asked for stands in its command, and asks the same again."""

import shlex
from pathlib import Path
from random import Random
from typing import Any

import pytest
from commands import call

import tunescope as ts
from tunescope.reproduce import run as running
from tunescope.reproduce.ask import Ask, given
from tunescope.reproduce.recipe import check, find

VALUES: dict[str, list[Any]] = {
    "protocol": ["paper"],
    "quick": [True],
    "seeds": [3],
    "model": ["here/model"],
    "data": ["sst2:here/rows", "rows.jsonl"],
    "others": [("second",), ("second", "third")],
    "steps": [40],
    "precision": ["bfloat16"],
    "accumulate": [2],
    "batch_size": [8],
    "inputs": [100],
    "load": ["4bit"],
    "device_map": ["auto"],
    "gradient_checkpointing": [True],
    "lines": [("prefix", "a 'line'")],
    "template": ["Is it?\n{text}", "-- {text}", 'a "b"'],
    "words": [("neg=bad,pos=great",)],
    "k": [2],
    "test": ["test.jsonl"],
}


@pytest.mark.parametrize("seed", range(12))
def test_the_command_asks_the_same(seed: int, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> None:
    random = Random(seed)
    fields = {name: random.choice(some) for name, some in VALUES.items() if random.random() < 0.5}
    if "model" not in fields:
        fields.pop("others", None)
    monkeypatch.setattr(running, "model_name", str)
    monkeypatch.setattr(running, "shown", str)
    ask, asked = Ask("pez", **fields), list[Ask]()
    assert {one.field for one in given(ask)} == {*fields} - {"others"}
    monkeypatch.setattr(running, "reproduce", lambda found, *_: asked.append(found))
    _, _, *words = shlex.split(running.command(ask))
    code, _, err = call(monkeypatch, capsys, "reproduce", *words, "--out", tmp_path)
    assert code == 0, err
    assert asked == [ask]


def test_options_without_a_recipe_are_refused_and_nothing_lists_the_recipes(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    code, _, err = call(monkeypatch, capsys, "reproduce", "--quick")
    assert code != 0 and "--quick is asked of a recipe, and none is named. Type: tunescope reproduce" in err
    code, out, _ = call(monkeypatch, capsys, "reproduce")
    assert code == 0 and "unified-main" in out


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"template": ""}, "--template is empty: give what a row is asked as"),
        ({"lines": ("--quick",)}, "'--quick' is no line and no label word"),
        ({"words": ("-a=b",)}, "'-a=b' is no line and no label word"),
        ({"k": 2}, "pez has no use for --k; it takes --protocol, --quick"),
        ({"seeds": 0}, "--seeds 0: at least one"),
    ],
)
def test_what_cannot_be_asked_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ts.UserError, match=message):
        check(Ask("pez", **fields), find("pez"))
