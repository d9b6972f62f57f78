"""Deltas of attention in force: how strongly the output attends to single tokens of the context in front of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.attention.context import output
from tunescope.attachment.attention.function import STATE, Edit, LayerState
from tunescope.attachment.attention.reach import Reached, reached
from tunescope.attachment.context_keys import embedder, projector
from tunescope.attachment.guards.changes import Watch
from tunescope.attachment.guards.compiled import uncompiled
from tunescope.attachment.site_hooks import trains
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact, AttentionDelta, Context, KVContext, Params, TokenContext
from tunescope.models.anatomy import anatomy, argument_names
from tunescope.models.positions import seen_by

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass
class _Use:
    """One delta in one attention module. `rests`: whether it changes nothing; it is known for what `watch` told."""

    spec: AttentionDelta
    tensors: Params
    module: nn.Module
    edit: Edit
    watch: Watch = field(default_factory=lambda: Watch(None))
    known: int | None = None
    rests: bool = False

    def acts(self, begins: bool) -> bool:
        """begins: a text does, so that what was written through `.data` is looked for."""
        if trains(self.tensors):
            return True
        trace = self.watch.trace(list(self.tensors.values()), begins=begins)
        if trace is None or trace != self.known:
            self.known, self.rests = trace, self.spec.rests(self.tensors)
        return not self.rests


def readers(model: PreTrainedModel, asked: AttentionDelta) -> list[Reached]:
    """The attention modules through which the output reads the tokens in front of the text.

    In an encoder-decoder those stand on the encoder's side, and the decoder reads them by cross attention. Raises
    UserError for an encoder, which makes no output.
    """
    which = anatomy(model).kind
    if which == "encoder":
        raise UserError(
            f"{asked} acts where an output is made from demonstrations, and an encoder makes none: take a "
            "decoder or an encoder-decoder, or adapt the encoder with lora."
        )
    suffix = ".self" if which == "decoder" else ".cross"
    return [found for found in reached(model) if found.name.startswith("decoder.") and found.name.endswith(suffix)]


@contextmanager
def attending(model: PreTrainedModel, artifacts: Sequence[Artifact]) -> Iterator[None]:
    """Each delta of attention acts on the context listed right before it, for queries from the input's last token on.

    While a module's tensors change nothing and do not train, its attention is computed as if there were none, so that
    not even a last bit is different. The context's own tokens are run without it.

    Raises UserError where no text stands right before a delta, or one that is too short for its positions.
    """
    uses = [
        use
        for index, artifact in enumerate(artifacts)
        if isinstance(artifact.spec, AttentionDelta)
        for use in _uses(model, artifacts, index)
    ]
    if not uses:
        yield
        return
    own = {id(use.edit) for use in uses}

    names = argument_names(anatomy(model).entries["decoder"])

    def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = dict(zip(names, args, strict=False)) | kwargs
        begins = not seen_by(given)
        acting = {module: [one.edit for one in uses if one.module is module and one.acts(begins)] for module in modules}
        if begins and any(acting.values()):
            _check_columns(given.get("encoder_attention_mask"))
        for module, edits in acting.items():
            state: LayerState = module.__dict__[STATE]
            state.edits = (*edits, *(edit for edit in state.edits if id(edit) not in own))

    modules = list(dict.fromkeys(use.module for use in uses))
    entry = anatomy(model).entries["decoder"]
    handle = entry.register_forward_pre_hook(
        uncompiled(enter), with_kwargs=True
    )  # after the one that puts contexts in place
    try:
        yield
    finally:
        handle.remove()


def _check_columns(mask: Tensor | None) -> None:
    """UserError for a text padded on the left that a decoder reads: what stands in front is further on there."""
    if mask is not None and mask.dim() == 2 and bool((mask[:, 0] == 0).any()):
        raise UserError(
            "A delta of attention acts on fixed positions of what stands in front of a text, and padding on the left "
            "moves it. Pad the text on the right (tokenizer.padding_side = 'right')."
        )


def _uses(model: PreTrainedModel, artifacts: Sequence[Artifact], index: int) -> list[_Use]:
    """The delta at `index`, in every attention module that it acts in."""
    artifact = artifacts[index]
    spec = artifact.spec
    assert isinstance(spec, AttentionDelta)
    target = _target(spec, artifacts[:index])
    places = readers(model, spec)
    is_decoder = anatomy(model).kind == "decoder"
    order = [one for one in artifacts if isinstance(one.spec, Context)]
    if not is_decoder:  # free keys stand before all tokens, which are the encoder's
        order.sort(key=lambda one: isinstance(one.spec, TokenContext))
    widths = [_widths(model, one, [place.name for place in places]) for one in order]
    at = next(number for number, one in enumerate(order) if one is target)
    uses = []
    for place in places:
        wide = [width[place.name] for width in widths]
        _check_reach(spec, wide[at])
        tensors = {
            key.rpartition(".")[2]: value for key, value in artifact.tensors.items() if key.startswith(f"{place.name}.")
        }
        columns = torch.tensor([sum(wide[:at]) + column for column in spec.columns()])
        edit = _edit(spec, tensors, columns, in_decoder=is_decoder)
        uses.append(_Use(spec, tensors, place.module, edit))
    return uses


def _target(spec: AttentionDelta, before: Sequence[Artifact]) -> Artifact:
    """The context right before a delta, which is a text, as tokens or lowered."""
    target = next((one for one in reversed(before) if isinstance(one.spec, Context)), None)
    if target is not None and ("ids" in target.tensors or target.in_force is not None):
        return target
    name, found = type(spec).__name__, "none" if target is None else type(target.spec).__name__
    raise UserError(
        f"{name} acts on the text right before it, and the context there is: {found}. Put demonstrations there, as in "
        f"attach(model, Text(text=...), {name}(anchors=...)) or --arms demos:k=1+reweight, and other contexts behind."
    )


def _check_reach(spec: AttentionDelta, length: int) -> None:
    last = max(spec.columns())
    if last >= length:
        raise UserError(
            f"{spec} acts on position {last} (from 0), and the text right before it has {length} tokens: attach it "
            "behind the demonstrations that its anchors were read from."
        )


def _widths(model: PreTrainedModel, artifact: Artifact, names: Sequence[str]) -> Mapping[str, int]:
    """How many columns a context has in each attention module named."""
    spec = artifact.spec
    with torch.no_grad():
        if isinstance(spec, TokenContext):
            return dict.fromkeys(names, len(spec.embeddings(artifact.tensors, embedder(model))))
        assert isinstance(spec, KVContext)
        made = spec.keys_values(artifact.tensors, "decoder", projector(model))
    return {name: made[name][0].shape[1] if name in made else 0 for name in names}


def _edit(spec: AttentionDelta, tensors: Params, columns: Tensor, *, in_decoder: bool) -> Edit:
    """The delta as a change of one module's attention; of a decoder that reads an encoder every query is output."""

    def changed(attention: Tensor, keywords: dict[str, Any]) -> Tensor:
        at = columns.to(attention.device)
        before = attention[..., at]
        here = {name: value.to(attention.device) for name, value in tensors.items()}
        after = spec.apply(here, before).to(attention.dtype)
        acts = output(attention.shape[2], keywords, attention.device) if in_decoder else None
        if acts is not None:
            after = torch.where(acts[:, None, :, None], after, before)
        return attention.index_copy(-1, at, after)

    return Edit(scores=changed) if spec.changes == "scores" else Edit(weights=changed)
