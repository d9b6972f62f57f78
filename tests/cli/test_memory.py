"""What `tunescope check` advises for a model's memory is the first way that the cost model has room for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import commands
import pytest
import tinyrun
import torch
import transformers as tf

from tunescope.cli import memory
from tunescope.theory.costs.methods import Method
from tunescope.theory.costs.shapes import Shape
from tunescope.theory.costs.training import Batch
from tunescope.trial.plan import Plan

LARGE = Shape("llama", 80, 8192, 64, 8, 128, 28_672, 128_256)  # Llama 3.1 70B
SMALL = Shape("llama", 32, 4096, 32, 8, 128, 14_336, 128_256)  # and 8B
LORA = Method("lora", 8, ("attn.q", "attn.v"))
BATCH = Batch(8, 512, 8 * 128)
SAVING = {"gradient_checkpointing": True}


@pytest.mark.parametrize(
    ("shape", "room", "devices", "way"),
    [
        (SMALL, 80e9, 1, {}),
        (SMALL, 22e9, 1, SAVING),
        (SMALL, 14e9, 1, {"load": "8bit", **SAVING}),
        (SMALL, 11e9, 1, {"load": "4bit", **SAVING}),
        (SMALL, 4e9, 1, None),
        (LARGE, 72e9, 8, {"processes": 8}),
        (LARGE, 30e9, 8, {"processes": 8, **SAVING}),
        (LARGE, 72e9, 1, {"load": "4bit", **SAVING}),
    ],
)
def test_the_first_way_that_has_room_is_advised(
    shape: Shape, room: float, devices: int, way: dict[str, Any] | None
) -> None:
    assert memory.first_way(LORA, shape, BATCH, room, devices) == way


def test_a_model_in_float32_is_tried_in_bfloat16_before_quantised() -> None:
    whole = replace(SMALL, bytes=4)
    assert memory.first_way(LORA, whole, BATCH, 22e9, 1) == {"load": "bfloat16", **SAVING}
    assert memory.taken({"load": "bfloat16"}, LORA, whole, BATCH, 1) == memory.taken({}, LORA, SMALL, BATCH, 1)


def test_full_tuning_is_neither_sharded_nor_quantised() -> None:
    assert memory.first_way(Method("full"), SMALL, BATCH, 72e9, 8) is None


def test_weights_of_a_device_are_what_they_weigh() -> None:
    """70 billion in bfloat16 are 141 GB: an eighth on each, two whole layers and the tables."""
    bare = replace(BATCH, rows=8, tokens=1, labelled=8)
    on_each = memory.taken({"processes": 8}, LORA, LARGE, bare, 8)
    assert on_each == pytest.approx(141.1e9 / 8 + 2 * 1.71e9 + 4.2e9, rel=0.02)
    whole, quarter = (memory.taken(way, LORA, LARGE, bare, 1) for way in ({}, {"load": "4bit"}))
    assert whole == pytest.approx(141.1e9, rel=0.01) and quarter == pytest.approx(4.2e9 + 68.5e9 * 0.5625, rel=0.03)


def test_the_command_is_printed_and_asks_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "here", lambda device: (22e9, 1, "an L4"))
    config = tf.LlamaConfig(
        **{"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8},
        **{"intermediate_size": 14_336, "vocab_size": 128_256, "dtype": "bfloat16"},
    )
    plan = Plan(model="base", data={"train": "rows.jsonl"}, arms=("zero-shot", "lora"), forgetting="none")
    (line,) = memory.lines(replace(plan, settings=replace(plan.settings, batch_size=8)), config)
    assert line.startswith("memory on paper: at most ") and "for a step of lora, were it 8 rows of 512 tokens; " in line
    assert "an L4 has 22 GB to spare" in line
    assert "type: tunescope compare base rows.jsonl" in line and " --gradient-checkpointing " in line
    (line,) = memory.lines(plan, config, 2000)
    assert "were it 16 rows of 2000 tokens; " in line
    assert list(memory.lines(plan, tf.T5Config(), 2000)) == []
    (line,) = memory.lines(plan, tf.T5Config())
    assert line == "memory on paper: not known for models of type 't5'; what a step takes is measured below"


def test_full_tuning_that_nobody_named_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "here", lambda device: (22e9, 1, "an L4"))
    config = tf.LlamaConfig(
        **{"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8},
        **{
            "intermediate_size": 14_336,
            "vocab_size": 128_256,
            "dtype": "bfloat16",
            "architectures": ["LlamaForCausalLM"],
        },
    )
    small, full = memory.lines(Plan(model="base", data={"train": "rows.jsonl"}), config)
    assert " for a step of full" not in small and " --gradient-checkpointing" in small
    assert " for a step of full" in full and "no way that is known has room in" in full
    assert full.endswith("--arms without full needs less.")


def test_room_is_what_the_named_gpu_has_free_and_what_is_ours_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    free, ours = [50e9, 20e9], [7e9, 2e9]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[device.index or 0], 80e9))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: ours[device.index or 0])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index or 0}")
    assert memory.here("cuda") == (pytest.approx(0.9 * 57e9), 2, "GPU 0")
    assert memory.here("cuda:1") == (pytest.approx(0.9 * 22e9), 1, "GPU 1")


def test_check_says_it_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = tinyrun.write(tmp_path)  # type: ignore[no-untyped-call]
    words = ["check", data["train"], "--model", model, "--arms", "lora:rank=2", "--steps", 2, "--forgetting", "none"]
    code, out, err = commands.call(monkeypatch, capsys, *words)  # type: ignore[no-untyped-call]
    assert code == 0, err
    assert "GB for a step of lora, were it 16 rows of 64 tokens; " in out.splitlines()[0] and "no option" in out


def test_check_says_it_again_of_rows_that_are_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = tinyrun.write(tmp_path)  # type: ignore[no-untyped-call]
    monkeypatch.setattr(memory, "TOKENS", 1)
    words = ["check", data["train"], "--model", model, "--arms", "zero-shot", "--forgetting", "none"]
    code, out, err = commands.call(monkeypatch, capsys, *words)  # type: ignore[no-untyped-call]
    assert code == 0, err
    first, again = (line for line in out.splitlines() if line.startswith("memory on paper"))
    assert "were it 16 rows of 1 tokens; " in first != again and " tokens; " in again
