"""A chat template that writes the day writes the one on which its run was begun, whenever that is gone on with."""

import json
import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from transformers import AutoTokenizer

import tunescope as ts
from tunescope.comparison.comparison import Comparison, ask, compare
from tunescope.comparison.time_limit import digest
from tunescope.exchange.serving.chat_template import messages
from tunescope.probes.anchors import study as anchors_study
from tunescope.probes.anchors.request import AnchorRequest
from tunescope.search.study import SearchRequest, study
from tunescope.system.say import say
from tunescope.trial.chat_day import on_its_day
from tunescope.trial.identity import default_folder
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan
from tunescope.trial.plan_check import check
from tunescope.trial.train.settings import Settings

TEMPLATE = (
    "{{ 'bright' if strftime_now('%Y') < '2021' else 'dull' }} {% for m in messages %}{% if m.role == 'user' %}film "
    "{{ m.content }} plot {% elif m.role == 'assistant' %}{{ m.content }} dull {% else %}a {{ m.content }} {% endif %}"
    "{% endfor %}"
)
TASK = {"kind": "classification", "words": {"neg": "bad", "pos": "good"}, "chat": True, "template": "{text} :"}
LEAP = "2020-02-29"


def question(folder: Path, **given: Any) -> Plan:
    model, data = tinyrun.write(folder)
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(model)
    settings = Settings(steps=2, batch_size=4, eval_every=2)
    plan = Plan(model=model, data=data, task=TASK, settings=settings, seeds=(0,), trials=1, beyond=0)
    return replace(plan, forgetting="none", **given)


def ids(run: Comparison) -> list[str]:
    return [one["id"] for arm in run.results["arms"] for one in arm["runs"]]


def test_a_comparison_goes_on_with_the_day_of_its_beginning(tmp_path: Path) -> None:
    asked = question(tmp_path, arms=("zero-shot", "demos:k=1", "lora:rank=2"))
    first = ask(replace(asked, day=LEAP), tmp_path / "run", quiet=True)
    assert first.results["task"]["chat"]["head"].startswith("bright ")
    lost = next(one for one in ids(first) if (tmp_path / "run" / "arms" / one / "artifact").exists())
    shutil.rmtree(tmp_path / "run" / "arms" / lost)
    for again in (ask(asked, tmp_path / "run", quiet=True), ts.resume(tmp_path / "run", quiet=True)):
        assert ids(again) == ids(first) and (tmp_path / "run" / "arms" / lost).exists()
        assert again.results["task"] == first.results["task"] and again.results["arms"][0] == first.results["arms"][0]
    today = ask(asked, tmp_path / "today", quiet=True).results["task"]["chat"]
    assert today["day"] == date.today().isoformat() and today["head"].startswith("dull ")
    with pytest.raises(ts.UserError, match=r"holds another comparison \(it differs in: day\)"):
        ask(replace(asked, day="2020-03-01"), tmp_path / "run", quiet=True)


def test_demonstrations_of_another_day_are_messages_again(tmp_path: Path) -> None:
    asked = question(tmp_path, arms=("demos:k=1",), day=LEAP)
    run = ask(asked, tmp_path / "run", quiet=True)
    artifact = tmp_path / "run" / "arms" / ids(run)[0] / "artifact"
    (text,) = ts.load(artifact)
    about = json.loads((artifact / "tunescope.json").read_text())["about"]
    made = messages(text.spec.text, about["task"], AutoTokenizer.from_pretrained(asked.model))
    assert [one["role"] for one in made] == ["user", "assistant"] * 2


def test_a_search_goes_on_with_the_day_of_its_beginning(tmp_path: Path) -> None:
    asked = question(tmp_path)
    request = SearchRequest(replace(asked, day=LEAP), ("random:length=2,candidates=2,batch=4",), 60)
    study(request, tmp_path / "run", say, "search")
    kept = [path.name for path in (tmp_path / "run" / "seeds").iterdir()]
    (tmp_path / "run" / "results.json").unlink()
    found = study(replace(request, plan=asked), tmp_path / "run", say, "search")
    assert [path.name for path in (tmp_path / "run" / "seeds").iterdir()] == kept
    assert found["task"]["chat"]["day"] == LEAP


def test_every_draw_of_anchors_is_of_one_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = []

    def opened(plan: Plan) -> Any:
        days.append(plan.day)
        return open_bench(plan)

    monkeypatch.setattr(anchors_study, "open_bench", opened)
    asked = question(tmp_path)
    found = anchors_study.study(AnchorRequest(asked, k=1, rows=2, only=("flow",)), lambda line: None)
    assert days == [date.today().isoformat()] and "flow" in found.findings


def test_a_day_that_is_named_is_part_of_the_question(tmp_path: Path) -> None:
    asked = question(tmp_path)
    assert default_folder(asked) != default_folder(replace(asked, day=LEAP))
    assert digest(asked) == digest(replace(asked, day=LEAP))
    assert on_its_day(asked).day == on_its_day(asked, tmp_path / "new").day == date.today().isoformat()
    assert on_its_day(replace(asked, task={"own": "Mine"})).day == date.today().isoformat()
    plain = replace(asked, task={"kind": "classification"})
    assert on_its_day(plain, tmp_path / "new") == plain
    (tmp_path / "config.json").write_text(json.dumps({"version": 1}))  # of a version that kept no day
    assert on_its_day(asked, tmp_path) == asked
    for wrong in ("29.2.2020", "20200229", "2020-W09-6", date(2020, 2, 29)):
        with pytest.raises(ts.UserError, match=r"is no day. Type it as \"2026-11-26\""):
            check(replace(asked, day=wrong))  # type: ignore[arg-type]


def test_a_run_that_was_cut_to_its_minutes_is_not_gone_on_with_on_another_day(tmp_path: Path) -> None:
    asked = question(tmp_path, arms=("zero-shot",), minutes=5.0, day=LEAP)
    found = compare(asked.model, asked.data, plan=asked, out=tmp_path / "run", quiet=True)
    assert f'# in Python: day="{LEAP}"' in found.results["command"]
    with pytest.raises(ts.UserError, match=r"holds another comparison \(it differs in: day\)"):
        compare(asked.model, asked.data, plan=replace(asked, day="2020-03-01"), out=tmp_path / "run", quiet=True)


def test_the_command_names_no_day_where_none_is_written(tmp_path: Path) -> None:
    asked = question(tmp_path, arms=("zero-shot",))
    tokenizer = AutoTokenizer.from_pretrained(asked.model)
    tokenizer.chat_template = TEMPLATE.partition("}} ")[2]
    tokenizer.save_pretrained(asked.model)
    assert "in Python" not in ask(asked, tmp_path / "run", quiet=True).results["command"]
