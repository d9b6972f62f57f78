"""What an arm is made of and where it can be served, as results.json and the page say; and that it is so."""

import re
from pathlib import Path

import pytest
import tinyrun
import torch

from tunescope.comparison import comparison
from tunescope.exchange.export_import import exported
from tunescope.methods import text_form
from tunescope.report.use import use
from tunescope.report.view import view
from tunescope.system import plugins
from tunescope.trial import plan, plan_check
from tunescope.trial.train.settings import Settings

ARMS = {
    "zero-shot": ([], ""),
    "demos:k=1": (["demos"], "messages"),
    "demos:k=1+lora:rank=1": (["demos", "lora"], ""),
    "soft:length=2": (["soft"], "soft_token"),
    "soft:length=1+lora:rank=1": (["soft", "lora"], "soft_token"),
    "prefix:length=2": (["prefix"], ""),
    "lora:rank=2": (["lora"], "merged"),
    "lora:rank=1,sites=ffn": (["lora"], ""),
    "soft:length=2+lora:rank=1,sites=attn": (["soft", "lora"], ""),
    "full": (["full"], "merged"),
}
SERVING = Path(__file__).parents[2] / "docs" / "serving.md"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    root = tmp_path_factory.mktemp("made_of")
    model, data = tinyrun.write(root)
    settings = Settings(steps=2, batch_size=8, eval_every=2, patience=3)
    fields = {"task": {"kind": "classification"}, "seeds": (0,), "trials": 1, "beyond": 0, "settings": settings}
    asked = plan_check.check(plan.Plan(model=model, data=data, arms=tuple(ARMS), **fields))
    return model, comparison.ask(asked, root / "run", quiet=True)


def test_every_arm_says_its_methods_and_the_format_that_servers_take(done):
    _, found = done
    assert {arm["name"]: (arm["methods"], arm["served_as"]) for arm in found.results["arms"]} == ARMS


def test_the_lines_of_the_page_run(done):
    model, found = done
    shown = use(found.results, view(found.results).arms)
    for arm in shown["arms"]:
        lines = shown["python"].replace("RUN/best", arm["place"])
        lines = re.sub(r"load\('[^']*'\)", f"load('{arm['place']}')", lines).replace("RUN", str(found.folder))
        lines = lines.replace("'model'", repr(model)).replace(
            ": ...", ": out = model(**tokenizer('a', return_tensors='pt'))"
        )
        space = {}
        exec(lines, space)
        assert torch.isfinite(space["out"].logits).all()


def test_a_form_that_is_named_writes_the_artifact(done, tmp_path):
    model, found = done
    for number, arm in enumerate(use(found.results, view(found.results).arms)["arms"]):
        if arm["served_as"]:
            place = arm["place"].replace("RUN", str(found.folder))
            assert list(exported(place, arm["served_as"], model, str(tmp_path / str(number))))


def test_a_method_s_own_form_is_that_of_the_table_of_servers():
    rows = dict(re.findall(r"^\| `(\w+)`[^|]*\|.*\| ([^|]*) \|$", SERVING.read_text("utf-8"), flags=re.MULTILINE))
    for name, method in text_form.methods().items():
        if method.served_as:
            assert method.served_as in plugins.names("exchange.formats")
            assert f"`{method.served_as}`" in rows[name]
        else:
            assert name not in rows or not re.match(r"`(messages|soft_token|merged)`", rows[name])
