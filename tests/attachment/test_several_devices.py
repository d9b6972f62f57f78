"""A model split over GPUs, moved or copied to them: torch's fake tensors lie on what is not here, and refuse to mix."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from traces import assert_no_trace, trace
from transformers.activations import NewGELUActivation

import tunescope as ts
from tunescope.attachment import share
from tunescope.attachment.attention import reach
from tunescope.attachment.attention.context import Extra, context_keys, context_visible
from tunescope.attachment.attention.deltas import _edit
from tunescope.attachment.attention.reach import reached, switched
from tunescope.attachment.attention.record import _contexts
from tunescope.attachment.bank.keys import by_row
from tunescope.attachment.bank.rowwise import Rowwise, _gathered
from tunescope.attachment.context_keys import projector, run_tokens
from tunescope.attachment.contexts import token_rows
from tunescope.attachment.embeddings import _joined
from tunescope.attachment.guards.activations import ROWS, lean_activations
from tunescope.attachment.initial_artifacts import initialised
from tunescope.attachment.sites.site_map import sites_of
from tunescope.attachment.weights import added
from tunescope.methods.deltas.lora import LoRA
from tunescope.probes import see
from tunescope.tasks.answers import row_vectors

FIRST = "cuda:0"  # where the embeddings are, and what was made beside them; the layer is on the CPU


@contextmanager
def split() -> Iterator[None]:
    with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True), torch.no_grad():
        yield


def test_fake_tensors_of_two_devices_are_refused_as_real_ones_are() -> None:
    with split(), pytest.raises(RuntimeError, match="two devices"):
        torch.ones(2) + torch.ones(2, device=FIRST)


def test_the_attention_modules_are_found_where_the_last_states_are_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.make("bert")
    with split():
        mask = torch.ones(1, 3, dtype=torch.long, device=FIRST)
        monkeypatch.setattr(reach, "trial_inputs", lambda model: {"attention_mask": mask})
        monkeypatch.setattr(reach, "through", lambda model, call: (torch.ones(1, 3, 4),))
        assert reach.run_tiny(model).device.type == "cpu"


@pytest.mark.parametrize("spec", [ts.Bias(), ts.Full(), ts.Full(rows=(0, 2))])
def test_a_change_is_added_where_its_parameter_is(spec: Any) -> None:
    with split():
        change = torch.ones(2 if spec.rows else 4, 3, device=FIRST)
        assert added(spec, torch.ones(4, 3), change).device.type == "cpu"


def test_contexts_of_two_devices_are_joined_at_the_layer_and_seen_in_its_window() -> None:
    with split():
        query = torch.ones(1, 2, 3, 4)
        extras = tuple(
            Extra(torch.ones(2, 5, 4, device=one), torch.ones(2, 5, 4, device=one), torch.arange(5, device=one))
            for one in (FIRST, "cpu")
        )
        told = {"sliding_window": 4, "position_ids": torch.arange(3, device=FIRST).view(1, 3)}
        visible = context_visible(extras, query, told)
        assert visible is not None and visible.device.type == "cpu"
        assert {one.device.type for one in context_keys(extras, query)} == {"cpu"}
        kept = _contexts(extras, {"key": query, "value": query})
        assert {one.device.type for one in kept.values()} == {"cpu"}
        (joined,) = by_row([extras[1:], extras], [0, 1])
        assert joined.key.shape == (2, 2, 10, 4)


def test_a_reweight_and_a_row_s_delta_act_where_their_module_is() -> None:
    with split():
        delta = _edit(
            ts.Reweight(anchors=("1", "2")),
            {"beta": torch.ones(2, 2, device=FIRST)},
            torch.tensor([1, 2]),
            in_decoder=False,
        )
        assert delta.weights is not None
        assert delta.weights(torch.ones(1, 2, 3, 4), {}).device.type == "cpu"
        rows = torch.arange(2, device=FIRST)
        one = Rowwise(LoRA(rank=2), 3, rows, shared=True, drops=False, dropout=0.0)
        assert one.apply(
            {"a": torch.ones(2, 4), "b": torch.ones(4, 2)}, torch.ones(3, 5, 4), torch.ones(3, 5, 4)
        ).shape == (3, 5, 4)

        gathered = _gathered(
            [{"a": torch.ones(2, device=one)} for one in (FIRST, "cpu")], [0, 1, 0], torch.device("cpu")
        )
        assert gathered["a"].device.type == "cpu"


def test_layer_inputs_go_through_maps_where_these_are() -> None:
    model = tiny.make("gpt2")
    sites_of(model)  # found by running it, before
    reached(model)
    with split():
        for made in projector(model)("decoder.1.self", torch.ones(2, model.config.hidden_size, device=FIRST)):
            assert made.device.type == "cpu"


def test_a_soft_prompt_goes_where_the_model_was_moved() -> None:
    bert, gpt2 = (tiny.make(family) for family in ("bert", "gpt2"))
    reached(gpt2)
    with split():
        rows = torch.ones(2, bert.config.hidden_size, device=FIRST)
        given, _ = _joined({"inputs_embeds": torch.ones(1, 3, bert.config.hidden_size)}, rows, None, bert, [])
        assert given["inputs_embeds"].device.type == "cpu"
        assert token_rows(bert, [(ts.Soft(length=2), {"embeddings": rows})]).device.type == "cpu"
        places = {found.name: found.module for found in reached(gpt2)}
        rows = torch.ones(2, gpt2.config.hidden_size, device=FIRST)
        with switched(gpt2):
            made = run_tokens(gpt2, rows, 0, dict.fromkeys(places, ()), places)
        assert {value.device.type for pair in made.values() for value in pair} == {"cpu"}


def test_what_is_real_is_asked_where_the_states_are(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.make("bert")
    with split():
        mask = torch.ones(1, 3, dtype=torch.long, device=FIRST)
        states, scores = torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 3)
        kept = [states, scores, scores, torch.ones(2), states, torch.ones(2, 0, 4)]
        names = [f"encoder.0.self.{name}" for name in see.NAMES]
        (layer,) = see._layers(dict(zip(names, kept, strict=True)), 0, {"encoder": mask}).values()
        assert layer.at_real(layer.share).device.type == "cpu"
        monkeypatch.setattr(row_vectors, "padded", lambda *_, **__: (mask, mask))
        monkeypatch.setattr(row_vectors, "_last", lambda *_: torch.ones(1, 3, 4))
        assert row_vectors.mean_states(model, [[1, 2, 3]], tiny.tokenizer()).device.type == "cpu"


def test_the_copies_of_data_parallel_are_refused_by_every_part_that_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["torch.nn.parallel.replicate"]
    monkeypatch.setattr(module, "_get_device_index", lambda device, _: device)
    monkeypatch.setattr(module, "_broadcast_coalesced_reshape", lambda tensors, devices, detach=False: [tensors] * 2)
    model = tiny.make("gpt2")
    before = trace(model)
    for what in (ts.Bias(), ts.Bank({"one": ts.LoRA(rank=2)})):
        with ts.attach(model, what):
            for part in (model, model.base_model, torch.nn.Sequential(model)):
                with pytest.raises(ts.UserError, match=r"DataParallel copies this GPT2LMHeadModel.*torchrun --nproc"):
                    torch.nn.parallel.replicate(part, [0, 1])
    assert_no_trace(model, before)
    assert len(torch.nn.parallel.replicate(model, [0, 1])) == 2


def test_on_a_gpu_an_activation_is_computed_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    forward = NewGELUActivation.forward
    monkeypatch.setattr(NewGELUActivation, "forward", lambda self, x: calls.append(x.shape) or forward(self, x))
    module = NewGELUActivation()
    with lean_activations(module):
        for device, pieces in (("cpu", 2), ("meta", 1)):
            module(torch.ones(2, ROWS, 4, device=device, requires_grad=True)).sum().backward()
            assert len(calls) == pieces
            calls.clear()


@pytest.mark.parametrize(("family", "init_from"), [("t5", "demos"), ("bert", "text")])
def test_what_processes_send_to_one_another_is_contiguous(family: str, init_from: Any) -> None:
    spec = ts.Prefix(length=2, init_from=init_from, text="one two three four five six")
    (artifact,) = initialised(tiny.make(family), [spec], tiny.tokenizer(), 0)
    assert all(value.is_contiguous() for value in artifact.tensors.values())


def test_attaching_beside_two_gpus_is_silent_and_leaves_their_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    put_back: list[tuple[object, object]] = []
    monkeypatch.setattr(torch.random, "_fork_rng_warned_already", False)
    for place in (torch.cuda, torch.accelerator):
        monkeypatch.setattr(place, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: f"state {device}")
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda *given: put_back.append(given))
    model = tiny.make("gpt2")
    initialised(model, [ts.Prefix(length=2)], tiny.tokenizer(), 0)
    assert set(put_back) == {("state 0", 0), ("state 1", 1)}


@pytest.mark.parametrize(("backend", "device"), [("nccl", "cuda"), ("gloo", "cpu"), ("cpu:gloo,cuda:nccl", "cpu")])
def test_a_sum_over_processes_lies_where_their_group_sends(
    backend: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_reduce(value: Tensor) -> None:
        raise InterruptedError(value.device.type)

    config = str(torch.distributed.distributed_c10d.BackendConfig(torch.distributed.Backend(backend)))
    monkeypatch.setattr(torch.distributed, "get_backend_config", lambda: config)
    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    with split(), pytest.raises(InterruptedError, match=f"^{device}$"):
        share.total(1.0)
