"""Contexts at the entry of a stack: keys and values are put in place, positions shifted, embeddings joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.attention.context import Told
from tunescope.attachment.attention.function import NAME, STATE, LayerState
from tunescope.attachment.attention.reach import reached, switched
from tunescope.attachment.context_keys import check_in_force, check_read_alone, extras_of, tuned_embedder
from tunescope.attachment.embeddings import embeddings_joined
from tunescope.attachment.family_positions import FamilyPositions
from tunescope.attachment.guards.changes import Watch
from tunescope.attachment.guards.checkpointing import running
from tunescope.attachment.guards.compiled import uncompiled
from tunescope.attachment.guards.continuous import one_batch_at_a_time
from tunescope.attachment.guards.marks import told_start, wants_output_start
from tunescope.attachment.guards.output_start import START, check_output_start
from tunescope.attachment.guards.single import Single
from tunescope.attachment.site_hooks import are_tuned, computed_in
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact, AttentionDelta, Context, Params, TokenContext
from tunescope.models.anatomy import anatomy, argument_names
from tunescope.models.positions import (
    check_chunk,
    check_rescaled,
    counted_by_mask,
    seen_by,
    seen_by_last,
    shifted,
    text_of,
    told_mask,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@contextmanager
def placed(model: PreTrainedModel, artifacts: Sequence[Artifact]) -> Iterator[None]:
    """The contexts stand before the text of every forward pass, as the module docstring of each says.

    artifacts: the contexts, and the deltas that a token context's keys and values are made under.
    """
    if not any(isinstance(artifact.spec, Context) for artifact in artifacts):
        yield
        return
    which = anatomy(model).kind
    with ExitStack() as stack:
        stack.enter_context(switched(model))
        stack.enter_context(one_batch_at_a_time(model, "the context", "model.generate(...)"))
        for name, module in anatomy(model).entries.items():
            places = {found.name: found.module for found in reached(model) if found.name.startswith(f"{name}.")}
            stack.enter_context(_keys_placed(model, artifacts, name, module, places))
        tokens = [(a.spec, a.tensors) for a in artifacts if isinstance(a.spec, TokenContext)]
        if tokens and which != "decoder":
            stack.enter_context(embeddings_joined(model, lambda: (token_rows(model, tokens)[None], None)))
        yield


@contextmanager
def _keys_placed(
    model: PreTrainedModel, artifacts: Sequence[Artifact], stack: str, entry: nn.Module, places: dict[str, nn.Module]
) -> Iterator[None]:
    """Before each pass of the stack the contexts' keys and values are made, once for all rows."""
    if anatomy(model).kind != "decoder":
        artifacts = [artifact for artifact in artifacts if not isinstance(artifact.spec, TokenContext)]
    has_contexts = any(isinstance(artifact.spec, Context) for artifact in artifacts)
    names = argument_names(entry)
    made: dict[str, Any] = {"for": None, "used": 0, "checked": None}
    device = anatomy(model).device.type
    reads_base = any(isinstance(one.spec, Context) and one.spec.reads_base for one in artifacts)
    is_bound = anatomy(model).kind == "decoder" and any(one.in_force is not None for one in artifacts)
    watch, single = Watch(entry if reads_base or is_bound else None), Single(entry)
    own = FamilyPositions(model, entry)
    groups = [a.tensors for a in artifacts if not isinstance(a.spec, AttentionDelta)]  # no key hangs on those

    def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[()], dict[str, Any]]:
        refuse_reentrant(model)
        single.begin()
        given = dict(zip(names, args, strict=False)) | kwargs
        check_read_alone(model, artifacts, given)
        beside, trace, begins = [value for group in groups for value in group.values()], None, not seen_by(given)
        if not (are_tuned(*groups) or entry.training):  # dropout draws anew
            trace = watch.trace(beside, begins=begins)
        now = None if trace is None else (torch.is_inference_mode_enabled(), computed_in(device), trace)
        if is_bound and (begins if trace is None else trace != made["checked"]):
            check_in_force(model, artifacts)
            made["checked"] = trace
        if now is None or now != made["for"]:
            extras, made["used"] = extras_of(model, artifacts, stack, places)
            for name, module in places.items():
                module.__dict__[STATE].extras = extras[name]
            made["for"] = now
        given = moved(model, own.counted(given), made["used"], names) if has_contexts else given
        tell_call(model, given, [module.__dict__[STATE] for module in places.values()])
        if wants_output_start(model):
            check_output_start(model, given, trains=are_tuned(*(artifact.tensors for artifact in artifacts)))
        return (), given

    with own.noted(), entered(entry, uncompiled(enter), places), single.ending():
        yield


@contextmanager
def entered(entry: nn.Module, enter: Callable[..., Any], places: Mapping[str, nn.Module]) -> Iterator[None]:
    """`enter` is asked before each pass of a stack, whose attention modules have a state that it can fill."""
    configs = list({id(one): one for one in (getattr(module, "config", None) for module in places.values())}.values())

    def check(*_: object) -> None:
        for config in configs:
            _check_ours(config)

    handles = [
        entry.register_forward_pre_hook(uncompiled(check)),
        entry.register_forward_pre_hook(enter, with_kwargs=True),
    ]
    try:
        for module in places.values():
            module.__dict__[STATE] = LayerState()
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module in places.values():
            module.__dict__.pop(STATE, None)


def _check_ours(config: object) -> None:
    """Another attention would not see the contexts, and say nothing."""
    implementation = getattr(config, "_attn_implementation", NAME)
    if implementation != NAME:
        told = " generate(return_token_timestamps=True) sets it by itself: leave that out, or tune a delta alone."
        told = told if getattr(config, "model_type", "") == "whisper" else ""
        raise UserError(
            f"A context is attached, and attention was set to {implementation!r} since, which does not see it. Set "
            f"that before attach(), or back by model.set_attn_implementation({NAME!r}).{told}"
        )


def moved(
    model: PreTrainedModel,
    given: dict[str, Any],
    used: int | Tensor,
    takes: Sequence[str],
    rows: Sequence[bool] | None = None,
) -> dict[str, Any]:
    """The call with its positions `used` further on, counted by the mask where they are not given.

    rows: those that have a context, None for all of them.
    """
    if isinstance(used, int) and not used:
        return counted_by_mask(given, model, takes, rows)
    return shifted(given, used, model, takes)


def tell_call(model: PreTrainedModel, given: Mapping[str, Any], states: Iterable[LayerState]) -> None:
    """Whether this call asks for attention weights, and where in the text it stands.

    Raises UserError where a context at positions is not seen as tokens there would be.
    """
    asked, every = given.get("output_attentions"), list(states)
    stand = [sum(extra.at.shape[-1] for extra in state.extras if extra.at is not None) for state in every]
    most = max(stand, default=0)
    told = _text_told(model, given, stand=most > 0)
    for state in every:
        state.asked = bool(model.config.output_attentions if asked is None else asked)
        state.told = told
    if told is not None and most:
        check_chunk(model, told.seen + told.columns + most)
        check_rescaled(model, told.seen + told.columns + most, told.position_ids)


def _text_told(model: PreTrainedModel, given: Mapping[str, Any], *, stand: bool) -> Told | None:
    """None for what is no text. stand: whether contexts stand at positions, which a window may hide."""
    text = text_of(given)
    if text is None:
        return None
    start, positions, seen = given.get("output_start"), given.get("position_ids"), seen_by(given)
    start = told_start(model) if start is None else start
    mask = told_mask(given, text.shape[1])
    if start is None and not seen and mask is not None and mask.dim() in (2, 4):
        mask = _of_columns(model, mask, text) if mask.dim() == 4 else mask
        start = (mask.long() * torch.arange(1, mask.shape[1] + 1, device=mask.device)).argmax(1)  # the last real token
    positions = None if positions is None or positions.dim() != 2 else positions
    padded = _padded_within(given, seen, text.shape[1]) if stand and positions is not None else None
    return Told(text.shape[1], seen, start, positions, padded)


def _of_columns(model: PreTrainedModel, mask: Tensor, text: Tensor) -> Tensor:
    """(batch, columns), which are real by a mask for pairs. UserError where it cannot be told and is asked."""
    seen = seen_by_last(mask, text.shape[1]).expand(len(text), -1)
    if wants_output_start(model) and not bool(seen.any(1).all()):
        raise UserError(
            f"An infix needs {START}, and so does a reweight, under an attention_mask for pairs of tokens in which the "
            "last column of a row sees nothing: where the row's text ends is not told."
        )
    return seen


def _padded_within(given: Mapping[str, Any], seen: int, columns: int) -> Tensor | None:
    """(batch, columns), the padding between a row's first real token and each column of this call."""
    mask = told_mask(given, seen + columns)
    if mask is None or mask.dim() != 2 or mask.shape[1] != seen + columns:
        return None
    real, at = mask.long(), torch.arange(seen + columns, device=mask.device)
    padded = at - real.argmax(1, keepdim=True) - (real.cumsum(1) - 1)
    return padded[:, -columns:].clamp(min=0)


def refuse_reentrant(model: PreTrainedModel) -> None:
    """UserError where the layers of a model that something is attached to are checkpointed so."""
    for module, _, function in running(model) if torch.is_grad_enabled() else ():
        if module.training and getattr(function, "keywords", {}).get("use_reentrant"):
            raise UserError(
                "Reentrant gradient checkpointing loses the gradients of a context. Use "
                "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})."
            )


def token_rows(model: PreTrainedModel, contexts: Sequence[tuple[TokenContext, Params]]) -> Tensor:
    """(n, width), the embeddings of all token contexts, one after the other, where the model's inputs are."""
    device = anatomy(model).device  # not that of the tensors, where the model was moved since
    return torch.cat([spec.embeddings(tensors, tuned_embedder(model)).to(device) for spec, tensors in contexts])
