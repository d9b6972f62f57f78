"""The examples run, scripts and notebooks, on a tiny model in place of the one that they name."""

import json
import re
import sys
from pathlib import Path

import pytest
import transformers as tf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
SHORT = {"steps=20": 'steps=2, forgetting="none"', "budget=60_000": "budget=4_000"}  # of a comparison
LEAST = (
    12 * 2 * (768 + 768)
)  # stored parameters of GPT-2's smallest LoRA: rank 1 at the queries and values of 12 layers


def by_byte():
    """A tokenizer as GPT-2's, without its merges: any text, a token a byte."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: index for index, letter in enumerate([*letters, "<|end|>"])}, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return tf.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    config = tf.GPT2Config(
        vocab_size=257, n_positions=128, n_embd=32, n_layer=2, n_head=2, bos_token_id=256, eos_token_id=256
    )
    tf.GPT2LMHeadModel(config).save_pretrained(folder)
    by_byte().save_pretrained(folder)
    return str(folder)


def shortened(source):
    for long, short in SHORT.items():
        source = source.replace(long, short)
    return source


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_script_runs(path, model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path), model])
    exec(compile(shortened(path.read_text("utf-8")), str(path), "exec"), {"__name__": "__main__"})
    said = capsys.readouterr().out
    assert said and "refused" not in said


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs(path, model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]  # nobody's numbers
            exec(shortened("".join(cell["source"])).replace("openai-community/gpt2", model), names)
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", [*SCRIPTS, *NOTEBOOKS], ids=lambda path: path.name)
def test_the_budget_of_a_comparison_has_room_in_the_model_that_it_names(path):
    source = path.read_text("utf-8")
    for budget in re.findall(r"budget=([\d_]+)", source):
        assert "openai-community/gpt2" in source and int(budget) >= LEAST


def test_the_readme_of_the_examples_names_them_all():
    text = (EXAMPLES / "README.md").read_text("utf-8")
    assert len(SCRIPTS) == 5 and len(NOTEBOOKS) == 2
    assert all(f"`{path.name}`" in text for path in (*SCRIPTS, *NOTEBOOKS))
