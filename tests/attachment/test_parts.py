"""A part of a model that has something attached is not copied, pickled or saved as if it were a part of a bare one."""

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from torch import nn
from traces import assert_no_trace, trace

import tunescope as ts
from tunescope.methods.text_form import parse

TAKEN: dict[str, Callable[[nn.Module], Any]] = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": pickle.dumps,
    "torch.save": lambda part: torch.save(part, io.BytesIO()),
}


def parts(model: Any) -> dict[str, nn.Module]:
    return {
        "model": model,
        "body": model.base_model,
        "layer": model.model.layers[1],
        "embeddings": model.get_input_embeddings(),
        "output embeddings": model.lm_head,
    }


@pytest.mark.parametrize("arm", ["lora:rank=2", "prefix:length=2", "full", "bank"])
def test_no_part_is_copied_or_pickled_with_something_attached(arm: str) -> None:
    """A copy ran the original's weights for ever, for the `forward` that stands in was that of the original."""
    model = tiny.make("llama")
    before = trace(model)
    tuned: Any = ts.attach(model, *([ts.Bank({"anna": ts.LoRA(rank=2)})] if arm == "bank" else parse(arm)))
    for take in TAKEN.values():
        for name, part in parts(model).items():
            asked = "LlamaForCausalLM has" if name == "model" else rf"{type(part).__name__} is of a Llama\w+ that has"
            with pytest.raises(
                ts.UserError, match=rf"^This {asked} artifacts attached and cannot be copied or pickled"
            ):
                take(part)
    with pytest.raises(ts.UserError, match="This Linear is of"):
        copy.deepcopy(nn.Sequential(nn.Tanh(), model.lm_head))
    tuned.detach()
    assert_no_trace(model, before)


def test_a_whole_model_that_is_saved_while_its_base_has_something_attached_is_told_of() -> None:
    """Its file would hold the base alone, and it has no way to know."""
    model = tiny.make("llama")
    with ts.attach(model.model, ts.LoRA(rank=2)), pytest.warns(UserWarning, match=r"this LlamaModel.*Attach to the wh"):
        model.state_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.state_dict()
        with ts.attach(model.model, ts.LoRA(rank=2)) as tuned:
            model.model.state_dict()
            tuned.train()
            with tuned.registered():
                assert any("tunescope" in name for name in model.state_dict())
        around = nn.Module()
        around.model = model
        with ts.attach(model, ts.LoRA(rank=2)):
            around.state_dict()
        with ts.attach(model, ts.LoRA(rank=2)):
            model.state_dict()


def test_detached_every_part_is_copied_and_pickled_as_ever() -> None:
    model = tiny.make("llama")
    ts.attach(model, ts.LoRA(rank=2), ts.Prefix(length=2)).detach()
    states = torch.ones(1, 24, dtype=torch.float64)
    wanted = model.lm_head(states)
    again = pickle.loads(pickle.dumps(model.lm_head))
    copied = copy.deepcopy(model.lm_head)
    with torch.no_grad():
        assert torch.equal(again(states), wanted)
        copied.weight.zero_()
        assert not copied(states).any() and torch.equal(model.lm_head(states), wanted)


@pytest.mark.parametrize(("family", "names"), [("llama", ["model"]), ("t5", ["encoder", "decoder"])])
def test_a_body_is_not_saved_without_what_is_attached(family: str, names: list[str], tmp_path: Path) -> None:
    model = tiny.make(family)
    for artifacts in (parse("lora:rank=2"), parse("prefix:length=2"), [ts.Bank({"anna": ts.LoRA(rank=2)})]):
        with ts.attach(model, *artifacts):
            for body in (model.get_submodule(name) for name in names):
                with pytest.raises(ts.UserError, match=rf"this {type(body).__name__} without what is attached to it"):
                    body.save_pretrained(tmp_path)
    assert not any(tmp_path.iterdir())
    model.get_submodule(names[0]).save_pretrained(tmp_path)
    assert (tmp_path / "config.json").exists()


def test_a_body_is_saved_with_what_is_tuned_in_its_own_parameters(tmp_path: Path) -> None:
    model: Any = tiny.make("llama")
    given = tiny.batch(model)
    bare = model.base_model(**given).last_hidden_state
    with ts.attach(model, *tiny.away(model, "full")):
        wanted = model.base_model(**given).last_hidden_state
        model.base_model.save_pretrained(tmp_path)
    saved = type(model.base_model).from_pretrained(tmp_path, dtype=torch.float64)
    torch.testing.assert_close(saved(**given).last_hidden_state, wanted, rtol=0, atol=1e-12)
    assert not torch.allclose(wanted, bare, rtol=0, atol=1e-3)
