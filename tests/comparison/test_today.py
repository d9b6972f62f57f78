"""Whether a prompt will do or weights must change can be asked on the families of today: contexts and deltas finish."""

from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch
from zoo import zoo

from tunescope.comparison.comparison import ask
from tunescope.trial import plan, plan_check
from tunescope.trial.train.settings import Settings


@pytest.mark.parametrize("name", ["gemma3_text", "phi3", "olmo2", "mixtral", "modernbert"])
def test_contexts_and_deltas_are_compared(name: str, tmp_path: Path) -> None:
    _, data = tinyrun.write(tmp_path)
    zoo(name, dtype=torch.float32).save_pretrained(tmp_path / "today")
    tinyrun.tokenizer().save_pretrained(tmp_path / "today")
    arms = ("head", "prefix") if name == "modernbert" else ("zero-shot", "soft", "prefix", "infix")
    arms += ("lora", "adapter", "full")
    asked = plan_check.check(
        plan.Plan(
            model=str(tmp_path / "today"),
            data=data,
            task={"kind": "classification"},
            arms=arms,
            budgets=(512,),
            seeds=(0,),
            trials=1,
            beyond=0,
            forgetting="none",
            settings=Settings(steps=3, batch_size=4, eval_every=3),
        )
    )
    found: dict[str, Any] = ask(asked, tmp_path / "run", quiet=True).results
    assert {arm["name"]: arm["status"] for arm in found["arms"]} == dict.fromkeys(arms, "done")
    assert {arm["group"] for arm in found["arms"]} >= {"context", "delta"}
