"""`attach(model, *artifacts)`: the same transformers model, adapted for the time being. It leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from tunescope.artifact import (
    Artifact,
    Base,
    Context,
    KeysValues,
    KVContext,
    Params,
    PatchDelta,
    SiteDelta,
    SiteShape,
    Spec,
    TokenContext,
    fingerprint,
)
from tunescope.attention import STATE, LayerState
from tunescope.errors import UserError
from tunescope.hooks import SiteUse, acting, frozen, logits_at, named_parameters, patched, pooled
from tunescope.lowered import check_in_force, embedder, in_force, run_tokens
from tunescope.placing import placed
from tunescope.reach import reached, switched
from tunescope.sites import is_transposed, kind, resolve, select

__all__ = ["Attached", "attach", "logits_at", "lower", "merge"]


class Attached:
    """A model with artifacts attached: use `.model` as before, `.detach()` to have it back, or a `with` block.

    While attached, the base asks for no gradients; `parameters()` do, after `train()`.
    """

    def __init__(self, model: Any, artifacts: Sequence[Artifact]) -> None:
        self.model = model
        self.artifacts = tuple(artifacts)
        self.training = False
        contexts = [artifact for artifact in artifacts if isinstance(artifact.spec, Context)]
        self.wants_output_start = any(isinstance(c.spec, KVContext) and c.spec.infix for c in contexts)
        self.positions = sum(_positions(artifact) for artifact in contexts)
        self._stack = ExitStack()
        try:
            self._enter(contexts)
        except BaseException:
            self._stack.close()
            raise

    def _enter(self, contexts: list[Artifact]) -> None:
        if "_tunescope_attached" in self.model.__dict__:
            raise UserError("This model has artifacts attached already: detach() first, or attach all in one call.")
        check_in_force(self.model, self.artifacts)
        enter = self._stack.enter_context
        enter(_marked(self.model, self.wants_output_start))
        enter(frozen(self.model))
        enter(patched(self.model, [(a.spec, a.tensors) for a in self.artifacts if isinstance(a.spec, PatchDelta)]))
        enter(acting(site_uses(self.model, self.artifacts), lambda: self.training))
        enter(placed(self.model, contexts))
        for artifact in self.artifacts:
            if isinstance(artifact.spec, SiteDelta) and artifact.spec.sites == ("pooled",):
                enter(pooled(self.model, artifact.spec, artifact.tensors))

    def named_parameters(self) -> dict[str, Tensor]:
        """The tensors to optimise, by "INDEX.NAME": float leaves, the same objects that the artifacts hold."""
        return {
            f"{index}.{name}": value
            for index, artifact in enumerate(self.artifacts)
            for name, value in artifact.tensors.items()
            if value.is_floating_point()
        }

    def parameters(self) -> list[Tensor]:
        return list(self.named_parameters().values())

    def train(self, mode: bool = True) -> Attached:
        """Gradients on and dropout of the deltas on (or off); the base model's own mode is not touched."""
        if mode and any(artifact.in_force for artifact in self.artifacts):
            raise UserError("Lowered keys and values go stale in training: attach the context itself instead.")
        self.training = mode
        for value in self.parameters():
            value.requires_grad_(mode)
        return self

    def eval(self) -> Attached:
        return self.train(False)

    def detach(self) -> None:
        """Give the model back, bit-identical to before; the artifacts keep their tensors."""
        self.training = False
        self._stack.close()

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()


def attach(model: Any, *artifacts: Spec | Artifact, tokenizer: Any = None, seed: int = 0) -> Attached:
    """The model with the artifacts in force, in the order given; specs are initialised, with torch seeded by `seed`.

    Contexts stand before the text in that order. At a site, deltas of linear maps act first, then those of whole
    blocks, each in that order. Trainable tensors are float32 where the model is in half precision, else in its type.

    Raises UserError for a family or site that is not reached, an artifact made for another base, tokenizer or shape,
    and a model that has something attached already.
    """
    if not artifacts:
        raise UserError("attach(model) was given nothing to attach: attach(model, LoRA(rank=8)), for example.")
    return Attached(model, initialised(model, artifacts, tokenizer, seed))


def initialised(model: Any, artifacts: Sequence[Spec | Artifact], tokenizer: Any, seed: int) -> list[Artifact]:
    """Specs made into artifacts with fresh tensors; artifacts checked against the model and passed on."""
    ready = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for given in artifacts:
            if isinstance(given, Artifact):
                check_fits(model, given, tokenizer)
                ready.append(given)
            elif isinstance(given, Spec):
                ready.append(Artifact(given, _placed_like(model, fresh(model, given, tokenizer))))
            else:
                raise UserError(f"attach takes methods and artifacts, not {type(given).__name__}: LoRA(rank=8), say.")
    return ready


def fresh(model: Any, spec: Spec, tokenizer: Any = None) -> Params:
    """Untrained tensors of a spec for a model, by name, drawn from torch's global generator."""
    if isinstance(spec, Context):
        return spec.init(base_of(model, tokenizer))
    if isinstance(spec, PatchDelta):
        places = named_parameters(model)
        selected = {name: at[0][0]._parameters[at[0][1]] for name, at in places.items() if spec.selects(name)}
        if not selected:
            raise UserError(f"{spec}: family {model.config.model_type!r} has no such parameter to change.")
        return spec.init({name: value for name, value in selected.items() if value is not None})
    assert isinstance(spec, SiteDelta)
    return {
        f"{name}:{key}": value
        for name, shape in site_shapes(model, spec).items()
        for key, value in spec.init(shape).items()
    }


def site_shapes(model: Any, spec: SiteDelta) -> dict[str, SiteShape]:
    """The sites that a delta asks for, and the widths it meets there."""
    if spec.sites == ("pooled",):
        if kind(model) != "encoder":
            raise UserError(f"{spec} reads an encoder; this model is a {kind(model)}: use label words instead.")
        width = int(model.config.hidden_size)
        return {"pooled": SiteShape(width, width, 1)}
    chosen = select(resolve(model), spec.sites, str(spec), model.config.model_type)
    return {site.name: site.shape(spec.reads) for site in chosen}


def site_uses(model: Any, artifacts: Sequence[Artifact]) -> list[SiteUse]:
    """Every delta at every one of its sites, with its tensors there, in the order given."""
    uses = []
    for artifact in artifacts:
        if isinstance(artifact.spec, SiteDelta) and artifact.spec.sites != ("pooled",):
            sites = resolve(model)
            for name in site_shapes(model, artifact.spec):
                own = {key.partition(":")[2]: value for key, value in artifact.tensors.items() if key.startswith(f"{name}:")}
                uses.append(SiteUse(artifact.spec, sites[name], own))
    return uses


def base_of(model: Any, tokenizer: Any = None) -> Base:
    """What a context may know of the model."""
    table = model.get_input_embeddings()
    return Base(
        kind=kind(model),
        width=int(table.weight.shape[1]),
        layers={found.name: found.shape for found in reached(model)},
        embed=embedder(model),
        keys_values=lambda ids: own_keys_values(model, ids),
        vocabulary=int(model.config.vocab_size),
        tokenizer=tokenizer,
    )


def own_keys_values(model: Any, ids: Tensor) -> KeysValues:
    """The keys and values that every attention module makes of a text (n,), from position 0, detached."""
    found = reached(model)
    kept: KeysValues = {}

    def keep(module: Any, seen: dict[str, Tensor | None]) -> None:
        name = next(place.name for place in found if place.module is module)
        key, value = seen["key"], seen["value"]
        assert key is not None and value is not None
        kept[name] = (key[0].clone(), value[0].clone())

    row = ids.to(model.get_input_embeddings().weight.device)[None]
    try:
        for place in found:
            place.module.__dict__[STATE] = LayerState(keep=keep)
        with switched(model), torch.no_grad():
            if kind(model) == "encoder-decoder":
                model.base_model(input_ids=row, decoder_input_ids=row, use_cache=False)
            else:
                model.base_model(input_ids=row)
    finally:
        for place in found:
            place.module.__dict__.pop(STATE, None)
    return kept


def check_fits(model: Any, artifact: Artifact, tokenizer: Any = None) -> None:
    """UserError for an artifact made for another base, tokenizer or shape."""
    if artifact.base is not None and artifact.base != fingerprint(model):
        raise UserError(
            f"{artifact.spec} was made for another base model (weights {artifact.base[:12]}, these are "
            f"{fingerprint(model)[:12]}): load the model it was tuned on."
        )
    if artifact.tokenizer is not None and tokenizer is not None:
        from tunescope.saving import tokenizer_hash

        if artifact.tokenizer != tokenizer_hash(tokenizer):
            raise UserError(f"{artifact.spec} was made with another tokenizer (other vocabulary): load that one.")
    expected = expected_shapes(model, artifact.spec, artifact.tensors)
    given = {name: tuple(value.shape) for name, value in artifact.tensors.items()}
    for name in sorted(expected.keys() | given.keys()):
        if expected.get(name) != given.get(name):
            raise UserError(
                f"{artifact.spec} does not fit this model: {name!r} is {given.get(name, 'absent')} and should be "
                f"{expected.get(name, 'absent')}. It was made for a model of another shape."
            )


def expected_shapes(model: Any, spec: Spec, tensors: Params) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a spec on a model, without drawing any; a text's ids are taken as they are."""
    if isinstance(spec, TokenContext) and "ids" in tensors:
        return {"ids": tuple(tensors["ids"].shape)}
    if isinstance(spec, Context):
        return spec.shapes(base_of(model))
    with torch.device("meta"):
        return {name: tuple(value.shape) for name, value in fresh(model, spec).items()}


def lower(model: Any, *artifacts: Spec | Artifact, tokenizer: Any = None, seed: int = 0) -> list[Artifact]:
    """The same artifacts with every token context replaced by its keys and values, for inference.

    Exact for decoders; UserError where it is not (encoders, and the encoder side of an encoder-decoder, whose context
    keys look at the text). What comes out is bound to these weights and these artifacts, and refused with others.
    """
    from tunescope.contexts.prefix import Prefix

    if kind(model) != "decoder":
        raise UserError(
            f"A token context cannot be lowered in an {kind(model)}: its keys look at the text that follows. Attach it "
            "as it is, or use a prefix."
        )
    with attach(model, *artifacts, tokenizer=tokenizer, seed=seed) as tuned, torch.no_grad():
        ready = list(tuned.artifacts)
        places = {found.name: found.module for found in reached(model)}
        from tunescope.lowered import extras_of

        for index, artifact in enumerate(ready):
            if isinstance(artifact.spec, TokenContext):
                extras, used = extras_of(model, [a for a in ready[:index] if isinstance(a.spec, Context)], "decoder", places)
                rows = artifact.spec.embeddings(artifact.tensors, embedder(model))
                made = run_tokens(model, rows, used, extras, places)
                pairs = {f"{name}.{which}": t for name, kv in made.items() for which, t in zip(("key", "value"), kv, strict=True)}
                spec = Prefix(length=len(rows), positions="after")
                ready[index] = Artifact(spec, pairs, fingerprint(model), artifact.tokenizer, "")
                ready[index].in_force = in_force(model, ready, index)
    return ready


def merge(model: Any, *artifacts: Artifact) -> Any:
    """The model with the deltas added to its weights, for good: the same outputs, no extra work. Returns the model.

    Raises UserError, before anything is changed, for what is no change of weights: contexts and adapters.
    """
    for artifact in artifacts:
        if not can_merge(artifact.spec):
            raise UserError(f"{artifact.spec} is no change of weights, so it cannot be merged: keep it attached.")
        check_fits(model, artifact)
    uses = site_uses(model, artifacts)
    places = named_parameters(model)
    with torch.no_grad():
        for use in uses:
            change = use.spec.weight_change(use.tensors)
            assert change is not None
            weight = use.site.h.module.weight
            columns = use.site.h.columns
            rows = slice(None) if columns is None else columns
            target = weight.T if is_transposed(use.site.h.module) else weight
            target[rows] = (target[rows] + change.to(weight.device)).to(weight.dtype)  # type: ignore[index, operator]
        for artifact in artifacts:
            if isinstance(artifact.spec, PatchDelta):
                for name, change in artifact.spec.patch(artifact.tensors).items():
                    module, attribute = places[name][0]
                    parameter = module._parameters[attribute]
                    assert parameter is not None
                    parameter.copy_(parameter + change)
    return model


def can_merge(spec: Spec) -> bool:
    """Whether the method is a change of weights."""
    if isinstance(spec, PatchDelta):
        return True
    return isinstance(spec, SiteDelta) and type(spec).weight_change is not SiteDelta.weight_change


def _positions(artifact: Artifact) -> int:
    if isinstance(artifact.spec, TokenContext):
        return len(next(iter(artifact.tensors.values())))
    is_after = isinstance(artifact.spec, KVContext) and artifact.spec.positions == "after"
    return next(iter(artifact.tensors.values())).shape[1] if is_after else 0


def _placed_like(model: Any, tensors: Params) -> Params:
    """On the model's device; floats in its precision, or in float32 where that is lower."""
    weight = model.get_input_embeddings().weight
    dtype = torch.promote_types(weight.dtype, torch.float32)
    return {
        name: value.detach().to(weight.device, dtype if value.is_floating_point() else value.dtype).clone()
        for name, value in tensors.items()
    }


@contextmanager
def _marked(model: Any, wants_output_start: bool) -> Iterator[None]:
    model.__dict__["_tunescope_attached"] = True
    model.__dict__["_tunescope_wants_output_start"] = wants_output_start
    try:
        yield
    finally:
        del model.__dict__["_tunescope_attached"], model.__dict__["_tunescope_wants_output_start"]

