"""Every method on every family, as the table in docs/families.md has it: it works, and rightly, or says why not."""

import json
from pathlib import Path

import pytest
import tiny
from family_trials import FAMILIES, trials

RESULT = json.loads((Path(__file__).parents[2] / "results" / "families.json").read_text("utf-8"))
TABLE, BUILT_AS = RESULT["families"], RESULT["built_as"]
# What people use is tried whatever it is built as.
USED = [
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
    """What people use, and one family of each other build; with --families all, of which it takes its own."""
    if "family" in metafunc.fixturenames:
        asked = metafunc.config.getoption("--families")
        metafunc.parametrize("family", FAMILIES if asked else some())


def some() -> list[str]:
    """Those with a file of ours last: the contract's tests are theirs."""
    chosen: dict[str, str] = {}
    for name in sorted(FAMILIES, key=lambda name: (name not in USED, name in tiny.configs())):
        chosen.setdefault(BUILT_AS[name], name)
    return [name for name in FAMILIES if name in USED or chosen[BUILT_AS[name]] == name]


def test_each_method_does_what_the_table_says(family: str) -> None:
    assert trials(family) == TABLE[family]


def test_the_table_has_the_families_that_are_tried() -> None:
    assert set(TABLE) == set(BUILT_AS) == set(FAMILIES) >= set(USED)
