"""Contexts as keys and values: token contexts are run through the model once, for the whole batch.

That is exact in causal attention, where the context's keys do not depend on what follows; elsewhere `lower` refuses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.attention.context import Extra, Told
from tunescope.attachment.attention.function import STATE, LayerState
from tunescope.attachment.attention.reach import reached
from tunescope.attachment.embed_scale import embed_scale
from tunescope.attachment.guards.changes import ADAPTERS, adapters_of
from tunescope.attachment.guards.checkpointing import unwrapped
from tunescope.attachment.guards.four_bit import unpacked
from tunescope.attachment.sites.site_map import sites_of
from tunescope.attachment.whole import called, kept_whole, through
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact, Context, KeysValues, KVContext, LayerShape, Project, TokenContext
from tunescope.models.anatomy import anatomy
from tunescope.models.fingerprint import fingerprint, hash_tensors
from tunescope.models.positions import first_position
from tunescope.models.quantised import is_quantised
from tunescope.models.sites import Site

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

Extras = dict[str, tuple[Extra, ...]]
OF_ENCODERS = ("encoder_hidden_states", "cross_attention_states")  # what a decoder may be told of one


def embedder(model: PreTrainedModel) -> Callable[[Tensor], Tensor]:
    """ids (n,) -> embeddings (n, width), as the model's first layer sees them, detached."""
    table, factor = anatomy(model).table, embed_scale(model)

    def embed(ids: Tensor) -> Tensor:
        with torch.no_grad():
            rows = _looked_up(table, ids, factor)
        return rows.detach()  # a hook may have asked for gradients of them: `enable_input_require_grads` has one

    return embed


def tuned_embedder(model: PreTrainedModel) -> Callable[[Tensor], Tensor]:
    """The same with gradients, where the table that stands in the model is being tuned."""
    table, fixed, factor = anatomy(model).table, embedder(model), embed_scale(model)

    def embed(ids: Tensor) -> Tensor:
        return _looked_up(table, ids, factor) if table.weight.requires_grad else fixed(ids)

    return embed


def _looked_up(table: nn.Embedding, ids: Tensor, factor: float) -> Tensor:
    """As at rest: what training does to a text's embeddings (NEFTune's noise) is not done to those of a context."""
    was, table.training = table.training, False
    try:
        rows = called(table, ids.to(table.weight.device))
        return rows if factor == 1 else rows * factor
    finally:
        table.training = was


def projector(model: PreTrainedModel) -> Project:
    """module name, (n, width) -> key (kv_heads, n, d_key) and value (kv_heads, n, d_value), by the maps in force."""

    about = anatomy(model)

    def mapped(site: Site, x: Tensor, n_heads: int) -> Tensor:
        weight = site.h.module.weight
        assert isinstance(weight, Tensor)
        dtype = about.table.weight.dtype if is_quantised(weight) else weight.dtype
        device = x.device if weight.is_meta else weight.device  # accelerate brings what it keeps elsewhere to its input
        with unpacked(site.h.module):
            out = site.h.read(called(site.h.module, x.to(device, dtype)))
        return out.view(len(x), n_heads, -1).transpose(0, 1)

    def project(name: str, x: Tensor) -> tuple[Tensor, Tensor]:
        key, value, shape = key_maps(model, name)
        return mapped(key, x, shape.kv_heads), mapped(value, x, shape.kv_heads)

    return project


def key_maps(model: PreTrainedModel, name: str) -> tuple[Site, Site, LayerShape]:
    """The maps of an attention module ("decoder.0.self") that give its keys and values, and the shape of these.

    Raises UserError where they are not one linear map each.
    """
    sites, shape = sites_of(model), next(found.shape for found in reached(model) if found.name == name)
    key, value = sites.get(f"{name}.k"), sites.get(f"{name}.v")
    widths = (shape.kv_heads * shape.d_key, shape.kv_heads * shape.d_value)
    if key is None or value is None or (key.h.width, value.h.width) != widths:
        raise UserError(
            f"In family {model.config.model_type!r} keys and values of {name} are not one linear map each of the "
            "layer's input, so layer inputs have nothing to go through. Use a prefix."
        )
    return key, value, shape


def extras_of(
    model: PreTrainedModel, artifacts: Sequence[Artifact], stack: str, places: Mapping[str, nn.Module]
) -> tuple[Extras, int]:
    """What the contexts put before the text in every attention module of a stack, and the positions they use up.

    places: attention modules by name ("decoder.0.self"). Token contexts are run here, gradients and all.
    """
    extras: Extras = dict.fromkeys(places, ())
    used, device = 0, anatomy(model).device
    for artifact in artifacts:
        spec = artifact.spec
        if isinstance(spec, KVContext):
            made = spec.keys_values(artifact.tensors, stack, projector(model))
            n_keys = next((key.shape[1] for key, _ in made.values()), 0)
            at = used + spec.standing(n_keys).to(device) if artifact.in_force else None
            for name, (key, value) in made.items():
                extras[name] += (Extra(key, value, at, spec.infix),)
            used += spec.reach(n_keys)
        elif isinstance(spec, TokenContext):
            rows = spec.embeddings(artifact.tensors, tuned_embedder(model))
            at = torch.arange(used, used + len(rows), device=device)
            for name, (key, value) in run_tokens(model, rows, used, extras, places).items():
                extras[name] += (Extra(key, value, at),)
            used += len(rows)
    return extras, used


def run_tokens(
    model: PreTrainedModel, rows: Tensor, used: int, extras: Extras, places: Mapping[str, nn.Module]
) -> KeysValues:
    """One causal pass of (n, width) embeddings from position `used` on, behind what already stands there."""
    kept: dict[nn.Module, tuple[Tensor, Tensor]] = {}
    taken = kept_whole(model)

    def keep(module: nn.Module, seen: dict[str, Tensor | None]) -> None:
        key, value = seen["key"], seen["value"]
        assert key is not None and value is not None
        key, value = taken(module, [key[0], value[0]])
        kept[module] = (key, value)

    weight = anatomy(model).table.weight  # which is not where the rows are, where the model was moved since
    given = rows.to(weight.device, weight.dtype)[None].clone()  # CTRL writes into it
    at = torch.arange(used, used + len(rows), device=given.device)[None] + first_position(model)
    told = Told(len(rows), position_ids=at)
    before = {name: module.__dict__.get(STATE) for name, module in places.items()}
    try:
        for name, module in places.items():
            visible = tuple(extra for extra in extras[name] if not extra.infix)
            module.__dict__[STATE] = LayerState(visible, keep, keeps_weights=False, told=told)
        decoder = anatomy(model).entries["decoder"]  # called past its own hooks, ours among them
        with _no_checkpointing(model), unwrapped(model), _all_layers(decoder.config, decoder, places):
            call = partial(decoder.forward, inputs_embeds=given, position_ids=told.position_ids, use_cache=False)
            through(model, call)
    finally:
        for name, module in places.items():
            module.__dict__[STATE] = before[name]
    if missing := [name for name, module in places.items() if module not in kept]:
        raise UserError(
            f"{missing[0]} was not called: another module stands in its place since attach(). detach(), change the "
            "model, and attach again."
        )
    return {name: kept[module] for name, module in places.items()}


@contextmanager
def _no_checkpointing(model: PreTrainedModel) -> Iterator[None]:
    """The context is one row: nothing to gain, and its keys are read outside of the checkpointed layer."""
    on = [module for module in model.modules() if getattr(module, "gradient_checkpointing", False) is True]
    try:
        for module in on:
            module.gradient_checkpointing = False
        yield
    finally:
        for module in on:
            module.gradient_checkpointing = True


@contextmanager
def _all_layers(config: PreTrainedConfig, decoder: nn.Module, places: Iterable[str]) -> Iterator[None]:
    """`generate(assistant_early_exit=N)` drafts with the first N layers, and tells the model by its config meanwhile;
    and in training some models leave layers out by chance.

    What stands in front is kept for the other layers too, whichever pass comes first.
    """
    told, depth = getattr(config, "num_hidden_layers", None), 1 + max(int(name.split(".")[1]) for name in places)
    is_cut, dropped = told is not None and told < depth, getattr(decoder, "layerdrop", None)
    try:
        if is_cut:
            config.num_hidden_layers = depth
        if dropped:
            decoder.layerdrop = 0.0  # type: ignore[assignment]
        yield
    finally:
        if is_cut:
            config.num_hidden_layers = told
        if dropped:
            decoder.layerdrop = dropped


def in_force(model: PreTrainedModel, artifacts: Sequence[Artifact], index: int) -> str:
    """Fingerprint of what decides the keys of the context at `index`: the base, every delta, what stands before it.

    A head and a delta of attention decide none: the one reads the end of the model, the other acts on the output.
    """
    digest = hashlib.sha256(fingerprint(model).encode())
    for module in model.modules():
        if ADAPTERS in module.__dict__:
            digest.update(str(adapters_of(module.__dict__)).encode())
    for i, artifact in enumerate(artifacts):
        is_context = isinstance(artifact.spec, Context)
        if artifact.spec.decides_keys and (not is_context or i < index):
            folded = artifact.fold()
            digest.update(f"{folded.spec!r}{hash_tensors(folded.tensors)}".encode())
    return digest.hexdigest()


def check_in_force(model: PreTrainedModel, artifacts: Sequence[Artifact]) -> None:
    """UserError for keys and values that were lowered under other weights than are attached now."""
    for index, artifact in enumerate(artifacts):
        if artifact.in_force is not None and artifact.in_force != in_force(model, artifacts, index):
            made, again = "lowered", "Lower again: lower(model, *artifacts)."
            if artifact.spec.bound:
                made, again = "compressed", "Compress again: compress(model, tokenizer, spans, keep, under=...)."
            raise UserError(
                f"{artifact.spec}: these keys and values were {made} under other weights or contexts than are "
                f"attached now, and would be wrong. {again}"
            )


def check_read_alone(model: PreTrainedModel, artifacts: Iterable[Artifact], given: Mapping[str, Any]) -> None:
    """UserError for a call that tells a decoder what an encoder made, where words in front were read without it."""
    told = next((name for name in OF_ENCODERS if given.get(name) is not None), None)
    if told is None or anatomy(model).kind != "decoder":
        return
    if any(isinstance(one.spec, TokenContext) or one.in_force is not None for one in artifacts):
        raise UserError(
            f"What stands in front of the text was read without the {told} that this call has, and words in the row "
            "would be read with them: the answer would be another. Use a prefix, or leave them out."
        )


def positions_of(model: PreTrainedModel, artifact: Artifact) -> int:
    """How many positions of the model's an artifact uses up."""
    if isinstance(artifact.spec, TokenContext):
        with torch.no_grad():
            return len(artifact.spec.embeddings(artifact.tensors, embedder(model)))
    if not isinstance(artifact.spec, KVContext):
        return 0
    with torch.no_grad():
        stack = "encoder" if anatomy(model).kind == "encoder" else "decoder"
        made = artifact.spec.keys_values(artifact.tensors, stack, projector(model))
    return artifact.spec.reach(next((key.shape[1] for key, _ in made.values()), 0))
