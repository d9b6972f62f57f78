"""Which run of which arm answers new rows, and what is refused in one line."""

import json

import pytest
import tinyrun

import tunescope as ts
from tunescope.comparison import predict
from tunescope.errors import UserError


def arm(name, *devs, status="done", reason=""):
    runs = [{"id": f"{name}{seed}", "seed": seed, "dev": dev} for seed, dev in enumerate(devs)]
    return {"name": name, "status": status, "reason": reason, "runs": runs}


def test_the_best_seed_on_the_development_rows_answers_and_of_equal_ones_the_first(tmp_path):
    results = {"best": {"arm": "soft"}, "arms": [arm("lora", 0.5, 0.75, 0.75), arm("soft", 0.25, 0.5, 0.375)]}
    assert predict._chosen(tmp_path, results, "") == ("soft", {"id": "soft1", "seed": 1, "dev": 0.5})
    assert predict._chosen(tmp_path, results, "lora")[1]["id"] == "lora1"


def test_an_arm_without_all_of_its_runs_does_not_answer(tmp_path):
    lost = arm("lora", 0.5, status="out of memory", reason="seed 1: no room")
    with pytest.raises(UserError, match=r"^lora was not done in .*: out of memory, seed 1: no room$"):
        predict._chosen(tmp_path, {"best": None, "arms": [lost]}, "lora")
    with pytest.raises(UserError, match=r"no arm finished, so that none can answer\.$"):
        predict._chosen(tmp_path, {"best": None, "arms": [lost]}, "")


def test_a_run_with_a_task_of_its_own_is_not_asked_again(tmp_path):
    model, data = tinyrun.write(tmp_path)
    how = {"arms": ["zero-shot"], "seeds": 1, "steps": 2, "forgetting": "none", "quiet": True}
    run = ts.compare(model, data, out=tmp_path / "run", **how)
    assert run.predict([{"text": "bright film"}])[0]["prediction"] in ("neg", "pos")
    config = json.loads((run.folder / "config.json").read_text())
    del config["task"]["kind"]
    (run.folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"run was begun with a task of its own, which only Python has"):
        run.predict([{"text": "bright film"}])
