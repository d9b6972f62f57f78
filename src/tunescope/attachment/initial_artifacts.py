"""Specs made into tensors for a given model, and artifacts checked against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tunescope.attachment.attention.deltas import readers
from tunescope.attachment.attention.function import STATE, LayerState
from tunescope.attachment.attention.reach import reached, resting, switched
from tunescope.attachment.attention.trial_inputs import takes_tokens, trial_inputs, tried
from tunescope.attachment.context_keys import embedder, in_force, key_maps
from tunescope.attachment.exactness import check_seen
from tunescope.attachment.guards.checkpointing import unwrapped
from tunescope.attachment.guards.processes import check_in_one_piece
from tunescope.attachment.head_hooks import EVERY, TOKENS, classifier
from tunescope.attachment.made_for import check_base
from tunescope.attachment.own_head import check_head
from tunescope.attachment.site_hooks import SiteUse
from tunescope.attachment.sites.choice import check_places, sites_for
from tunescope.attachment.weights import chosen_parameters
from tunescope.attachment.whole import through
from tunescope.errors import UserError
from tunescope.methods.artifact import (
    Artifact,
    AttentionDelta,
    Base,
    Context,
    KeysValues,
    Params,
    PatchDelta,
    SiteDelta,
    SiteShape,
    Spec,
    TokenContext,
)
from tunescope.methods.text_form import check_fields, with_tuples
from tunescope.models.anatomy import anatomy
from tunescope.models.positions import is_rotary
from tunescope.models.quantised import check_readable, is_quantised
from tunescope.system.machine import seeded
from tunescope.system.own_modes import own_modes

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def initialised(
    model: PreTrainedModel, artifacts: Sequence[Spec | Artifact], tokenizer: PreTrainedTokenizerBase, seed: int
) -> list[Artifact]:
    """Specs made into artifacts with fresh tensors; artifacts checked against the model and passed on.

    These forget the head that they were saved on, for it may be trained from now on: saving looks at it anew.
    """
    check_readable(model)
    ready = []
    with own_modes(), seeded(seed):  # tensors count their versions, whoever asked
        for given in artifacts:
            spec = given.spec if isinstance(given, Artifact) else given
            if isinstance(spec, Context):
                check_seen(model, spec)
            if isinstance(given, Artifact):
                given = given if with_tuples(spec) is spec else replace(given, spec=with_tuples(spec))
                check_fits(model, given, tokenizer)
                ready.append(_moved(model, given if given.head is None else replace(given, head=None)))
            elif isinstance(given, Spec):
                check_fields(given)
                given = with_tuples(given)
                given = given.settled(base_of(model)) if isinstance(given, Context) else given
                made = Artifact(given, _placed_like(model, fresh(model, given, tokenizer)))
                ready.append(replace(made, in_force=in_force(model, [made], 0)) if given.bound else made)
            else:
                raise UserError(f"attach takes methods and artifacts, not {type(given).__name__}: LoRA(rank=8), say.")
    check_head(model, artifacts)
    return ready


def _moved(model: PreTrainedModel, artifact: Artifact) -> Artifact:
    """The artifact on the model's device, in leaves that can be tuned there; itself, where it is there already."""
    device = anatomy(model).device
    if all(value.device == device and not value.is_inference() for value in artifact.tensors.values()):
        return artifact
    moved = {name: value.clone() if value.is_inference() else value for name, value in artifact.tensors.items()}
    return replace(artifact, tensors={name: value.detach().to(device) for name, value in moved.items()})


def fresh(model: PreTrainedModel, spec: Spec, tokenizer: PreTrainedTokenizerBase | None = None) -> Params:
    """Untrained tensors of a spec for a model, by name, drawn from torch's global generator."""
    if isinstance(spec, Context):
        return spec.init(base_of(model, tokenizer))
    if isinstance(spec, PatchDelta):
        check_in_one_piece(model, f"{spec} changes them")
        selected = {name: at[0][0]._parameters[at[0][1]] for name, at in chosen_parameters(model, spec).items()}
        for name, value in selected.items():
            if value is not None and is_quantised(value):
                raise UserError(f"{spec} would change {name!r}, which is quantised: use lora, or a model in bfloat16.")
        return spec.init({name: value for name, value in selected.items() if value is not None})
    if isinstance(spec, AttentionDelta):
        return {
            f"{found.name}.{key}": value
            for found in readers(model, spec)
            for key, value in spec.init(found.n_heads).items()
        }
    assert isinstance(spec, SiteDelta)
    return {
        f"{name}:{key}": value
        for name, shape in site_shapes(model, spec).items()
        for key, value in spec.init(shape).items()
    }


def site_shapes(model: PreTrainedModel, spec: SiteDelta) -> dict[str, SiteShape]:
    """The sites that a delta asks for, and the widths it meets there."""
    if spec.sites == ("pooled",):
        kind = anatomy(model).kind
        if kind != "encoder" and not (kind == "decoder" and spec.reads in TOKENS):
            last = ", or Head(token='last')" if kind == "decoder" else ""
            raise UserError(f"{spec} reads an encoder; this model is a {kind}: use label words instead{last}.")
        _check_classifier(model, spec)
        if spec.reads == "pooler" and getattr(model.base_model, "pooler", None) is None:
            raise UserError(
                f"{spec} reads the model's pooler, which this one does not have. Load it with AutoModel, from a "
                "checkpoint that has one."
            )
        config = model.config.get_text_config()
        width = getattr(config, "word_embed_proj_dim", None) or getattr(
            config, "hidden_size", None
        )  # OPT's last states
        if width is None:
            raise UserError(
                f"{spec}: the config of family {config.model_type!r} does not tell how wide its states are."
            )
        return {"pooled": SiteShape(int(width), int(width), 1)}
    return {site.name: site.shape(spec.reads) for site in sites_for(model, spec)}


def _check_classifier(model: PreTrainedModel, spec: SiteDelta) -> None:
    """UserError for a model whose own output a head could not stand in for."""
    if model.base_model is model:
        return
    name = type(model).__name__
    own = "ForTokenClassification" if spec.reads == EVERY else "ForSequenceClassification"
    if not name.endswith(own) or classifier(model) is None:
        raise UserError(
            f"{spec}: a {name} makes something else of its states than classes: load the model as AutoModel, or as "
            f"AutoModel{own}."
        )
    if model.config.num_labels != getattr(spec, "n_labels", model.config.num_labels):
        raise UserError(
            f"{spec} stands in for the classifier of a model of {model.config.num_labels} labels: load the model with "
            f"num_labels={getattr(spec, 'n_labels', '')}."
        )


def site_uses(model: PreTrainedModel, artifacts: Sequence[Artifact]) -> list[SiteUse[SiteDelta]]:
    """Every delta at every one of its sites, with its tensors there, in the order given."""
    uses = []
    for artifact in artifacts:
        if isinstance(artifact.spec, SiteDelta) and artifact.spec.sites != ("pooled",):
            for site in sites_for(model, artifact.spec):
                uses.append(SiteUse(artifact.spec, site, at_site(artifact, site.name)))
    return uses


def at_site(artifact: Artifact, name: str) -> Params:
    """The tensors that a delta holds for one site, under the names that `apply` knows."""
    return {key.partition(":")[2]: value for key, value in artifact.tensors.items() if key.startswith(f"{name}:")}


def base_of(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None) -> Base:
    """What a context may know of the model."""
    about = anatomy(model)
    return Base(
        kind=about.kind,
        width=int(model.config.hidden_size if about.table is None else about.weight.shape[1]),
        layers={found.name: found.shape for found in reached(model)},
        embed=lambda ids: embedder(model)(ids).cpu(),
        keys_values=lambda ids: own_keys_values(model, ids),
        input_width=lambda name: key_maps(model, name)[0].x.width,
        vocabulary=int(getattr(model.config.get_text_config(), "vocab_size", about.weight.shape[0])),
        positions=getattr(model.config, "max_position_embeddings", None),
        rotary=is_rotary(model),
        tokenizer=tokenizer,
    )


def own_keys_values(model: PreTrainedModel, ids: Tensor) -> KeysValues:
    """The keys and values that every attention module makes of a text (n,), from position 0, detached."""
    found = reached(model)
    kept: KeysValues = {}

    def keep(module: nn.Module, seen: dict[str, Tensor | None]) -> None:
        name = next(place.name for place in found if place.module is module)
        key, value = seen["key"], seen["value"]
        assert key is not None and value is not None
        kept[name] = (key[0].cpu().clone(), value[0].cpu().clone())

    row = ids.to(anatomy(model).device)[None]
    before = [place.module.__dict__.get(STATE) for place in found]
    try:
        for place in found:
            place.module.__dict__[STATE] = LayerState(keep=keep)
        what = "run for the keys and values that it makes of a text"
        with tried(model, what), switched(model), resting(model), unwrapped(model), torch.no_grad():
            given = {"input_ids": row} if takes_tokens(model) else trial_inputs(model)
            if anatomy(model).kind == "encoder-decoder":
                given |= {"decoder_input_ids": row.expand(len(next(iter(given.values()))), -1)}
            cache = {"use_cache": False} if anatomy(model).kind == "encoder-decoder" else {}
            through(model, lambda: model.base_model(**given, **cache))
    finally:
        for place, state in zip(found, before, strict=True):
            place.module.__dict__.pop(STATE, None)
            if state is not None:
                place.module.__dict__[STATE] = state
    return kept


def check_fits(model: PreTrainedModel, artifact: Artifact, tokenizer: PreTrainedTokenizerBase | None = None) -> None:
    """UserError for an artifact made for another base, tokenizer or shape."""
    check_base(model, artifact, tokenizer)
    check_places(model, artifact)
    expected = expected_shapes(model, artifact.spec, artifact.tensors)
    given = {name: tuple(value.shape) for name, value in artifact.tensors.items()}
    for name in sorted(expected.keys() | given.keys()):
        if expected.get(name) != given.get(name):
            raise UserError(
                f"{artifact.spec} does not fit this model: {name!r} is {given.get(name, 'absent')} and should be "
                f"{expected.get(name, 'absent')}. It was made for a model of another shape."
            )


def expected_shapes(model: PreTrainedModel, spec: Spec, tensors: Params) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a spec on a model, without drawing any; a text's ids are taken as they are."""
    if isinstance(spec, TokenContext) and "ids" in tensors:
        return {"ids": tuple(tensors["ids"].shape)}
    if isinstance(spec, Context):
        return spec.shapes(base_of(model))
    with torch.device("meta"):
        return {name: tuple(value.shape) for name, value in fresh(model, spec).items()}


def _placed_like(model: PreTrainedModel, tensors: Params) -> Params:
    """On the model's device; floats in its precision, or in float32 where that is lower."""
    weight = anatomy(model).weight
    dtype = torch.promote_types(weight.dtype, torch.float32)
    return {
        name: value.detach()
        .to(weight.device, dtype if value.is_floating_point() else value.dtype)
        .clone(memory_format=torch.contiguous_format)  # which processes that share it send to one another
        for name, value in tensors.items()
    }
