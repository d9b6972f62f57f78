"""What is known of a model is found once, is that of the model as it is now, and keeps no model from going."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import tiny
import torch
from torch import nn
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

import tunescope as ts
from tunescope.attachment.attention.reach import reached
from tunescope.attachment.sites.site_map import sites_of
from tunescope.models.anatomy import Anatomy, anatomy
from tunescope.models.fingerprint import REGISTERED


def test_it_is_the_same_object_while_the_model_is_the_same() -> None:
    model = tiny.make("gpt2")
    found = anatomy(model)
    sites = sites_of(model)
    with ts.attach(model, ts.LoRA(rank=2), ts.Prefix(length=3)) as tuned, tuned.registered():
        assert REGISTERED in model._modules and anatomy(model) is found
        model(tiny.ids(2, 7))
        assert anatomy(model) is found and sites_of(model) is sites
    model.train().requires_grad_(False)
    model.load_state_dict(tiny.make("gpt2", seed=1).state_dict())
    assert anatomy(model) is found
    assert anatomy(tiny.make("gpt2")) is not found


@pytest.mark.parametrize(
    ("family", "kind", "entries"),
    [
        ("gpt2", "decoder", {"decoder": "transformer"}),
        ("bert", "encoder", {"encoder": ""}),
        ("t5", "encoder-decoder", {"encoder": "encoder", "decoder": "decoder"}),
    ],
)
def test_it_says_what_the_model_says(family: str, kind: str, entries: dict[str, str]) -> None:
    model = tiny.make(family)
    found = anatomy(model)
    assert found.kind == kind and found.table is model.get_input_embeddings()
    root = model.base_model if family == "bert" else model
    assert found.entries == {name: root.get_submodule(path) for name, path in entries.items()}
    assert found.device == model.device and sites_of(model)


def _block(model: Any, index: int) -> Any:
    """A new one for that place, of another seed."""
    torch.manual_seed(index + 7)
    return GPT2Block(model.config, layer_idx=index).double().eval()


def _another_map(model: Any) -> None:
    model.transformer.h[1].mlp.c_fc = _block(model, 1).mlp.c_fc


def _another_block(model: Any) -> None:
    model.transformer.h[0] = _block(model, 0)


def _one_block_less(model: Any) -> None:
    del model.transformer.h[-1]


def _narrower(model: Any) -> None:
    into, out = model.transformer.h[0].mlp.c_fc, model.transformer.h[0].mlp.c_proj
    into.weight, into.bias, into.nf = nn.Parameter(into.weight[:, :3]), nn.Parameter(into.bias[:3]), 3
    out.weight = nn.Parameter(out.weight[:3])


@pytest.mark.parametrize("change", [_another_map, _another_block, _one_block_less, _narrower])
def test_its_sites_are_those_of_the_modules_that_the_model_has_now(change: Callable[[Any], None]) -> None:
    model = tiny.make("gpt2")
    before = anatomy(model)
    assert sites_of(model) and reached(model)
    change(model)
    found = anatomy(model)
    assert found is not before
    blocks = model.transformer.h
    assert {name.split(".")[1] for name in sites_of(model)} == {str(index) for index in range(len(blocks))}
    for index, block in enumerate(blocks):
        site = sites_of(model)[f"decoder.{index}.ffn.in"]
        assert site.x.module is block.mlp.c_fc and site.h.width == block.mlp.c_fc.weight.shape[1]
    assert [one.module for one in reached(model)] == [block.attn for block in blocks]


def test_a_context_stands_in_an_attention_module_that_was_put_in_after_it_was_first_looked_for() -> None:
    """Before, the modules that were found first were kept, and the context was put where nothing runs any more."""
    model, given = tiny.make("gpt2"), {"input_ids": tiny.ids(2, 7)}
    prefix = tiny.away(model, "prefix:length=3", 0)
    with ts.attach(model, *prefix):
        pass
    fresh = tiny.make("gpt2")
    for one in (model, fresh):
        one.transformer.h[0] = _block(one, 0)
    with ts.attach(model, *prefix), ts.attach(fresh, *prefix), torch.no_grad():
        assert torch.equal(model(**given).logits, fresh(**given).logits)


def test_it_sees_a_resized_and_a_moved_embedding_and_another_config() -> None:
    model = tiny.make("gpt2")
    assert anatomy(model).device.type == "cpu" and anatomy(model).table is model.transformer.wte
    model.resize_token_embeddings(tiny.VOCAB + 4)
    assert anatomy(model).table is model.get_input_embeddings() and len(anatomy(model).table.weight) == tiny.VOCAB + 4
    model.set_input_embeddings(nn.Embedding(9, model.config.n_embd, dtype=torch.float64))
    assert anatomy(model).table is model.transformer.wte and len(anatomy(model).table.weight) == 9
    model.to("meta")
    assert anatomy(model).device.type == "meta"
    half = tiny.make("bart").get_encoder()
    half.config.is_encoder_decoder, half.config.is_decoder = False, False
    assert anatomy(half).kind == "encoder"
    half.config.is_decoder = True
    assert anatomy(half).kind == "decoder"


def test_what_is_attached_stays_where_it_stands_when_the_model_gets_another_part() -> None:
    model, given = tiny.make("gpt2"), {"input_ids": tiny.ids(2, 7)}
    with ts.attach(model, *tiny.away(model, "prefix:length=3", 0)), torch.no_grad():
        plain = model(**given).logits
        model.of_mine = nn.Dropout()
        assert [one.module for one in reached(model)] == [block.attn for block in model.transformer.h]
        assert torch.equal(model(**given).logits, plain)


@pytest.mark.parametrize("specs", [(ts.LoRA(rank=2),), (ts.LoRA(rank=2), ts.Prefix(length=3)), (ts.Soft(length=2),)])
@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_a_model_that_is_known_and_was_never_detached_goes_with_its_last_name(family: str, specs: Any) -> None:
    model = tiny.make(family)
    gone = weakref.ref(model)
    ts.attach(model, *specs)
    known: Anatomy = anatomy(model)
    assert sites_of(model) and known.entries and known.table is not None
    del model
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("within", [lambda: torch.device("meta"), torch.inference_mode], ids=["meta", "inference"])
def test_sites_that_are_first_asked_for_within_another_context_are_real_and_can_be_trained(within):
    """Columns of a fused map are kept, and read whenever the model runs."""
    model = tiny.make("gpt_neox")
    with within():
        found = sites_of(model)["decoder.0.self.k"]
    x = torch.randn(2, 5, found.h.module.weight.shape[0], dtype=torch.float64, requires_grad=True)
    heads = x.detach().view(2, 5, -1, 3, found.h.width // found.n_heads)  # of each head: query, key, value
    assert torch.equal(found.h.read(x), heads[..., 1, :].flatten(-2))
    found.h.write(x, found.h.read(x) * 2).sum().backward()
    assert x.grad is not None
