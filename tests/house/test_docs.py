"""The pages of the documentation do what they say: their Python is run, in order, on small models."""

import importlib.util
import os
import re
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers as tf

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("bank.md", "howto/many_customers.md", "howto/serve_a_prefix.md", "start.md", "using.md")
PRETRAINED = os.environ.get("TUNESCOPE_PRETRAINED")
DECODERS = ("openai-community/gpt2", "meta-llama/Llama-3.2-1B")
NEEDS = {"BitsAndBytesConfig": "bitsandbytes", "TorchAoConfig": "torchao"}  # a block with the one needs the other


def widened() -> Any:
    """Widths that the blocks of a quantiser divide."""
    return tf.LlamaConfig(**tiny.LLAMA_LIKE | {"hidden_size": 64, "intermediate_size": 64, "head_dim": 16})


SMALL = {
    "openai-community/gpt2": lambda: tiny.configs()["gpt2"],
    "google-bert/bert-base-uncased": lambda: tiny.configs()["bert"],
    "meta-llama/Llama-3.2-1B": widened,
}


def blocks(page: str) -> list[tuple[int, str]]:
    """The Python of a page, each block with the line on which it begins."""
    text = (DOCS / page).read_text("utf-8")
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start(1)].count("\n"), match[1]) for match in found]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Name on the hub -> the folder of a small model of that family, with a tokenizer."""
    made = {}
    for name, config in SMALL.items():
        folder = tmp_path_factory.mktemp("model")
        tiny.build(tiny.auto_class(config()), config(), dtype=torch.float32).save_pretrained(folder)
        tiny.tokenizer().save_pretrained(folder)
        made[name] = str(folder)
    return made


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(
    page: str, folders: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, folders)


@pytest.mark.skipif(not PRETRAINED, reason="TUNESCOPE_PRETRAINED names no folder of a pretrained decoder")
@pytest.mark.filterwarnings("ignore")
def test_the_python_for_trainer_pipeline_accelerate_and_compile_runs_on_a_pretrained_decoder(
    folders: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("using.md", folders | dict.fromkeys(DECODERS, str(PRETRAINED)))


def run(page: str, folders: dict[str, str]) -> None:
    """Every block, in order, with these folders for the models that it names."""
    names: dict[str, Any] = {"__name__": page}
    for line, block in blocks(page):
        if any(word in block and importlib.util.find_spec(package) is None for word, package in NEEDS.items()):
            continue
        for name, folder in folders.items():
            block = block.replace(f'"{name}"', repr(folder))
        exec(compile("\n" * line + block, str(DOCS / page), "exec"), names)


@pytest.mark.parametrize("page", PAGES)
def test_every_model_that_a_page_loads_has_a_small_one_here(page: str) -> None:
    assert blocks(page)
    for _, block in blocks(page):
        assert set(re.findall(r'from_pretrained\(\s*"([^"]*)"', block)) <= set(SMALL)
