"""Models that cannot be used are one line each, whatever is wrong with them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import peftly
import pytest
import tinyrun
from safetensors.torch import load_file, save_file

import tunescope as ts
from tunescope.models.load import load_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tinyrun.write(tmp_path)
    return next(path.parent for path in tmp_path.rglob("config.json"))


def config(folder: Path, **values: Any) -> None:
    held = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(held | values))


def other_shapes(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {name: value[:-1].clone() for name, value in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )


FAULTS: dict[str, Callable[[Path], Any]] = {
    "quantised by what is not installed": lambda at: config(
        at, quantization_config={"quant_method": "gptq", "bits": 4}
    ),
    "attention that is not installed": lambda at: config(at, attn_implementation="flash_attention_2"),
    "weights of another shape": other_shapes,
    "a string for a number": lambda at: config(at, hidden_size="many"),
    "an unknown dtype": lambda at: config(at, dtype="float99"),
    "a tokenizer's configuration that is a list": lambda at: (at / "tokenizer_config.json").write_text("[]"),
    "a tokenizer that is cut off": lambda at: (at / "tokenizer.json").write_text('{"version": "1.0"}'),
    "nested without end": lambda at: (at / "config.json").write_text("[" * 100_000),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_model_that_cannot_be_used_is_one_line(fault: str, folder: Path) -> None:
    load_model(str(folder))
    FAULTS[fault](folder)
    of_tokenizer = r"^the tokenizer in the folder \S+ cannot be read \(\w+: .*\. Save it there anew with"
    told = of_tokenizer if "tokenizer" in fault else "is not a transformers model with safetensors weights"
    with pytest.raises(ts.UserError, match=told) as caught:
        load_model(str(folder))
    assert "\n" not in str(caught.value)


def test_an_empty_name_is_one_line() -> None:
    with pytest.raises(ts.UserError, match="The model's name is empty: give a folder"):
        load_model("")


def test_a_folder_with_an_adapter_of_peft_in_it_is_not_taken_for_the_base(folder: Path) -> None:
    model, _ = load_model(str(folder))
    target = next(name.rpartition(".")[2] for name, _ in model.named_modules() if name.endswith(("c_attn", "q_proj")))
    made = peftly.wrapped(model, peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=[target]))
    peftly.written(made, folder)
    with pytest.raises(ts.UserError, match=r"holds an adapter of peft \(adapter_config.json\), which transformers has"):
        load_model(str(folder))
