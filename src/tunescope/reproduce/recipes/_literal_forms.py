"""A model with methods as their forms say, formula by formula, beside the same model with them attached.

Shared with `attach` are the places alone (`tunescope.models.sites`) and, of a prefix made of layer inputs, the frozen
maps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from tunescope.attachment.attached import attach
from tunescope.attachment.attention.reach import reached, switched
from tunescope.attachment.context_keys import projector
from tunescope.attachment.initial_artifacts import at_site, initialised
from tunescope.attachment.sites.site_map import sites_of
from tunescope.attachment.weights import named_parameters
from tunescope.methods.artifact import Artifact, KVContext, PatchDelta, SiteDelta, Spec, TokenContext
from tunescope.methods.form import Form
from tunescope.models.sites import Site, Tap
from tunescope.reproduce.recipes._formula import Names, computed
from tunescope.reproduce.recipes._literal_attention import Added, written_out

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Given = dict[str, Tensor]
OUTPUT = "output"


class Compared(NamedTuple):
    """The largest difference at a place between attached and formula, and between attached and bare."""

    deviation: float
    change: float


def moved(model: PreTrainedModel, specs: Sequence[Spec]) -> list[Artifact]:
    """Artifacts of the specs, every tensor away from its start, where much is zero."""
    artifacts = initialised(model, specs, None, 0)
    g = torch.Generator().manual_seed(0)
    for artifact in artifacts:
        for name, value in artifact.tensors.items():
            artifact.tensors[name] = value + 0.2 * torch.randn(value.shape, generator=g, dtype=value.dtype)
    return artifacts


def compared(model: PreTrainedModel, artifacts: Sequence[Artifact], given: Given) -> dict[str, Compared]:
    """Every site of the model ("decoder.0.self.heads", ...) and its OUTPUT, over all entries of the text."""
    with torch.no_grad(), written_out(model, {}):
        bare = _run(model, given)
    with torch.no_grad(), attach(model, *artifacts), switched(model):  # some families' own softmax is float32
        attached = _run(model, given)
    plain = {name: value for name, value in given.items() if name != "output_start"}
    with torch.no_grad(), _formulas(model, artifacts, given):
        literal = _run(model, _joined(model, artifacts, plain))
    found = {}
    for name, value in attached.items():
        length = value.shape[1]
        deviation = (value - literal[name][:, -length:]).abs().max()
        change = (value[:, -bare[name].shape[1] :] - bare[name]).abs().max()
        found[name] = Compared(float(deviation), float(change))
    return found


def _form(artifact: Artifact) -> Form:
    form = artifact.spec.formula
    if form is None:
        raise ValueError(f"{artifact.spec} states no form.")
    return form


def _run(model: PreTrainedModel, given: Given) -> dict[str, Tensor]:
    """What leaves every site, after all that acts there, and the model's output: (batch, length, width) each."""
    kept: dict[str, Tensor] = {}
    with ExitStack() as stack:
        for name, site in sites_of(model).items():
            stack.enter_context(_kept(site.h, kept, name))
        out = model(**given)
    kept[OUTPUT] = out.logits if "logits" in out else out.last_hidden_state
    rows = len(kept[OUTPUT])
    return {name: value.reshape(rows, -1, value.shape[-1]) for name, value in kept.items()}  # OPT flattens the rows


@contextmanager
def _kept(tap: Tap, kept: dict[str, Tensor], name: str) -> Iterator[None]:
    """What passes the tap, under that name, while within."""

    def before(_module: nn.Module, args: tuple[Any, ...]) -> None:
        kept[name] = tap.read(args[0])

    def after(_module: nn.Module, _args: object, output: Tensor) -> None:
        kept[name] = tap.read(output)

    module = tap.module
    handle = module.register_forward_pre_hook(before) if tap.end == "in" else module.register_forward_hook(after)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _formulas(model: PreTrainedModel, artifacts: Sequence[Artifact], given: Given) -> Iterator[None]:
    """Contexts in the written-out attention, deltas as hooks that compute their formulas."""
    added: dict[nn.Module, Added] = {}
    sites = sites_of(model)
    with ExitStack() as stack:
        for artifact in artifacts:
            if isinstance(artifact.spec, KVContext):
                added |= _contexts(model, artifact, given.get("output_start"))
            elif isinstance(artifact.spec, SiteDelta):
                for name in dict.fromkeys(key.partition(":")[0] for key in artifact.tensors):
                    stack.enter_context(_at_site(artifact, sites[name]))
            elif isinstance(artifact.spec, PatchDelta):
                stack.enter_context(_at_parameters(model, artifact))
        stack.enter_context(written_out(model, added))
        yield


def _contexts(model: PreTrainedModel, artifact: Artifact, start: Tensor | None) -> dict[nn.Module, Added]:
    spec = artifact.spec
    assert isinstance(spec, KVContext)
    modules = {found.name: found.module for found in reached(model)}
    made: dict[nn.Module, Added] = {}
    for stack in dict.fromkeys(name.partition(".")[0] for name in modules):
        for name, (key, value) in spec.keys_values(artifact.tensors, stack, projector(model)).items():
            made[modules[name]] = Added(_form(artifact), key, value, start if spec.infix else None)
    return made


@contextmanager
def _at_site(artifact: Artifact, site: Site) -> Iterator[None]:
    form, tensors = _form(artifact), at_site(artifact, site.name)
    seen: dict[str, Tensor] = {}

    def changed(whole: Tensor) -> Tensor:
        return site.h.write(whole, _applied(form, seen | {"h": site.h.read(whole)}, tensors, site.n_heads))

    def before(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (changed(args[0]), *args[1:])

    def after(_module: nn.Module, _args: object, output: Tensor) -> Tensor:
        return changed(output)

    with ExitStack() as stack:
        stack.enter_context(_kept(site.x, seen, "x"))
        if site.query is not None:
            stack.enter_context(_kept(site.query, seen, "q"))
        module, is_entry = site.h.module, site.h.end == "in"
        handle = module.register_forward_pre_hook(before) if is_entry else module.register_forward_hook(after)
        stack.callback(handle.remove)
        yield


@contextmanager
def _at_parameters(model: PreTrainedModel, artifact: Artifact) -> Iterator[None]:
    """Every module that has a changed parameter, its output as the form says."""
    form, places = _form(artifact), named_parameters(model)
    changes: dict[nn.Module, dict[str, Tensor]] = {}
    for name, value in artifact.tensors.items():
        for module, attribute in places[name]:
            changes.setdefault(module, {})[attribute] = value
    with ExitStack() as stack:
        for module, tensors in changes.items():

            def after(
                _: nn.Module, args: tuple[Tensor, ...], output: Tensor, tensors: dict[str, Tensor] = tensors
            ) -> Tensor:
                return _applied(form, {"x": args[0], "h": output}, tensors, 1)

            stack.callback(module.register_forward_hook(after).remove)
        yield


def _applied(form: Form, seen: Mapping[str, Tensor], tensors: Mapping[str, Tensor], n_heads: int) -> Tensor:
    change = computed(form.change, Names(seen, tensors, n_heads))
    return computed(form.composition, Names({**seen, "change": change}, tensors, n_heads))


def _joined(model: PreTrainedModel, artifacts: Sequence[Artifact], given: Given) -> Given:
    """The inputs with token contexts among the embeddings, as their forms say."""
    for artifact in artifacts:
        if isinstance(artifact.spec, TokenContext):
            text = model.get_input_embeddings()(given["input_ids"])
            rows = _applied(_form(artifact), {"text": text}, artifact.tensors, 1)
            given = {name: value for name, value in given.items() if name != "input_ids"} | {"inputs_embeds": rows}
    return given
