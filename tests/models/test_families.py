"""Every method on every family, as the table in docs/families.md has it: it works, and rightly, or says why not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
from family_trials import FAMILIES, trials

RESULT = json.loads((Path(__file__).parents[2] / "results" / "families.json").read_text("utf-8"))
TABLE, BUILT_AS = RESULT["families"], RESULT["built_as"]
# What people use is tried whatever it is built as.
USED = [
    "mistral",
    "qwen2",
    "qwen3",
    "opt",
    "gpt_neox",
    "roberta",
    "mbart",
    "gemma3_text",
    "gemma4_text",
    "phi3",
    "phi",
    "olmo2",
    "granite",
    "smollm3",
    "glm4",
    "cohere2",
    "starcoder2",
    "stablelm",
    "nemotron",
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "deepseek_v3",
    "gpt_oss",
    "llama4_text",
    "jamba",
    "falcon",
    "bloom",
    "gptj",
    "gpt_neo",
    "mamba",
    "electra",
    "albert",
    "modernbert",
    "deberta-v2",
    "xlm-roberta",
    "mpnet",
    "pegasus",
    "marian",
    "longt5",
    "mt5",
    "led",
    "whisper",
    "vit",
    "clip_text_model",
    "clip_vision_model",
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What people use, one family of each other row of the table, and, slow, one of each other build.

    With --families all, of which it takes its own.
    """
    if "family" in metafunc.fixturenames:
        asked = metafunc.config.getoption("--families")
        now, late = first_of(works), first_of(BUILT_AS.__getitem__)
        metafunc.parametrize(
            "family",
            FAMILIES
            if asked
            else [*now, *(pytest.param(name, marks=pytest.mark.slow) for name in late if name not in now)],
        )


def works(name: str) -> Any:
    """Which methods work on the family."""
    return tuple(not reason for reason in TABLE[name].values())


def first_of(alike: Callable[[str], Any]) -> list[str]:
    """What people use, and the first of others that are not like one of them; those with a file of ours last."""
    chosen: dict[Any, str] = {}
    own = tiny.configs()
    for name in sorted(FAMILIES, key=lambda name: (name not in USED, name in own)):
        chosen.setdefault(alike(name), name)
    return [name for name in FAMILIES if name in USED or chosen[alike(name)] == name]


def test_each_method_does_what_the_table_says(family: str) -> None:
    assert trials(family) == TABLE[family]


def test_the_table_has_the_families_that_are_tried() -> None:
    assert set(TABLE) == set(BUILT_AS) == set(FAMILIES) >= set(USED)
