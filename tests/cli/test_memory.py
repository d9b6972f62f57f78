"""What `tunescope check` advises for a model's memory is the first way that the cost model has room for."""

import re
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
    assert memory.taken({"load": "bfloat16"}, LORA, whole, BATCH) == memory.taken({}, LORA, SMALL, BATCH)


def test_full_tuning_is_neither_sharded_nor_quantised() -> None:
    assert memory.first_way(Method("full"), SMALL, BATCH, 72e9, 8) is None


def test_weights_of_a_device_are_what_they_weigh() -> None:
    """70 billion in bfloat16 are 141 GB: an eighth on each, two whole layers and the tables."""
    bare = replace(BATCH, rows=8, tokens=1, labelled=8)
    on_each = memory.taken({"processes": 8}, LORA, LARGE, bare)
    assert on_each == pytest.approx(141.1e9 / 8 + 2 * 1.71e9 + 4.2e9, rel=0.02)
    whole, quarter = (memory.taken(way, LORA, LARGE, bare) for way in ({}, {"load": "4bit"}))
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


def said(plan: Plan, longest: int | None = None) -> list[str]:
    """What is said of a Llama of 8 billion in bfloat16 that takes 1,024 tokens."""
    config = tf.LlamaConfig(
        **{"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8},
        **{"intermediate_size": 14_336, "vocab_size": 128_256, "dtype": "bfloat16", "max_position_embeddings": 1024},
    )
    return list(memory.lines(plan, config, longest))


def figures(line: str) -> list[float]:
    return [float(one) for one in re.findall(r"(?:at most|With) ([\d.]+) GB", line)]


ASKED = Plan(model="base", data={"train": "rows.jsonl"}, arms=("lora",), forgetting="none")


@pytest.mark.parametrize("room", [30e9, 14.5e9, 12.5e9])
def test_the_command_that_is_advised_has_the_figure_that_was_told_and_no_other_advice(
    room: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "here", lambda device: (room, 1, "a GPU"))
    (first,) = said(ASKED)
    load = re.search(r" --load (\S+)", first)
    typed = replace(ASKED, gradient_checkpointing=" --gradient-checkpointing" in first, load=load[1] if load else "")
    assert typed != ASKED
    (again,) = said(typed)
    assert figures(again) == figures(first)[1:] and again.endswith(
        f"a GPU has {room / 1e9:.3g} GB to spare: no other option is needed"
    )


def test_what_was_typed_is_counted_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "here", lambda device: (12e9, 1, "a GPU"))
    maps = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14_336)  # of Llama's layers
    plain, fewer = (figures(said(replace(ASKED, load=load))[0])[0] for load in ("", "4bit"))
    assert plain - fewer == pytest.approx(maps * (2 - 4.5 / 8) / 1e9, abs=0.15)  # three digits are said
    (added,) = said(replace(ASKED, load="4bit"))
    assert " --load 4bit" in added and " --gradient-checkpointing" in added
    (kept,) = said(replace(ASKED, load="8bit"))  # 4 bits would do, and are not what was typed
    assert "which no way that is known has room in, with what was typed." in kept and "type:" not in kept


def test_processes_that_were_typed_are_counted_and_share_a_machine_without_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "here", lambda device: (64e9, 4 if device else 1, "a GPU"))
    whole, copies = (said(replace(ASKED, device="cuda", processes=n, parallel="ddp"))[0] for n in (1, 4))
    (sharded,) = said(replace(ASKED, device="cuda", processes=4))
    assert figures(copies)[0] > 16 and figures(sharded)[0] < figures(copies)[0] < figures(whole)[0]
    (shared,) = said(replace(ASKED, device="cpu", processes=4, parallel="ddp"))
    assert "each of 4 processes on a GPU has 16 GB to spare" in shared


def test_nothing_is_said_of_full_tuning_where_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "here", lambda device: (64e9, 1, "a GPU"))
    assert len(said(replace(ASKED, arms=()))) == 2
    for typed in ({"load": "4bit"}, {"device": "cuda", "processes": 2}):
        (line,) = said(replace(ASKED, arms=(), **typed))
        assert "for a step of full" not in line
        assert said(replace(ASKED, arms=("full",), **typed)) == []


def test_no_row_is_counted_longer_than_the_model_can_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "here", lambda device: (64e9, 1, "a GPU"))
    assert [line.split("; ")[0].rpartition(" rows of ")[2] for line in said(ASKED, 5000)] == ["1024 tokens"]
    assert said(ASKED, 500) == []  # said already, of 512
    monkeypatch.setattr(memory, "TOKENS", 2000)
    assert said(ASKED, 5000) == []


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
