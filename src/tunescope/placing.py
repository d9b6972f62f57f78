"""Contexts at the entry of a stack: keys and values are put in place, positions shifted, embeddings joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tunescope.artifact import Artifact, AttentionDelta, Context, Params, TokenContext
from tunescope.attention import STATE, LayerState
from tunescope.errors import UserError
from tunescope.hooks import argument_names, entries, trains
from tunescope.lowered import embedder, extras_of
from tunescope.reach import reached, switched
from tunescope.sites import kind


@contextmanager
def placed(model: Any, artifacts: Sequence[Artifact]) -> Iterator[None]:
    """The contexts stand before the text of every forward pass, as the module docstring of each says.

    artifacts: the contexts, and the deltas that a token context's keys and values are made under.
    """
    if not any(isinstance(artifact.spec, Context) for artifact in artifacts):
        yield
        return
    which = kind(model)
    with ExitStack() as stack:
        stack.enter_context(switched(model))
        for name, module in entries(model).items():
            places = {found.name: found.module for found in reached(model) if found.name.startswith(f"{name}.")}
            stack.enter_context(_keys_placed(model, artifacts, name, module, places))
        tokens = [(a.spec, a.tensors) for a in artifacts if isinstance(a.spec, TokenContext)]
        if tokens and which != "decoder":
            stack.enter_context(_embeddings_joined(model, tokens))
        yield


@contextmanager
def _keys_placed(
    model: Any, artifacts: Sequence[Artifact], stack: str, entry: nn.Module, places: dict[str, nn.Module]
) -> Iterator[None]:
    """Before each pass of the stack the contexts' keys and values are made, once for all rows."""
    if kind(model) != "decoder":
        artifacts = [artifact for artifact in artifacts if not isinstance(artifact.spec, TokenContext)]
    names = argument_names(entry)
    made: dict[str, Any] = {"for": None, "used": 0}

    def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[()], dict[str, Any]]:
        _refuse_reentrant(model)
        groups = [a.tensors for a in artifacts if not isinstance(a.spec, AttentionDelta)]  # no key hangs on those
        versions = tuple(value._version for group in groups for value in group.values())
        kept_for = (torch.is_inference_mode_enabled(), versions)
        now = None if trains(*groups) or entry.training else kept_for  # dropout draws anew
        if now is None or now != made["for"]:
            extras, made["used"] = extras_of(model, artifacts, stack, places)
            for name, module in places.items():
                module.__dict__[STATE].extras = extras[name]
            made["for"] = now
        given = dict(zip(names, args, strict=False)) | kwargs
        asked = given.get("output_attentions")
        for module in places.values():
            module.__dict__[STATE].asked = bool(model.config.output_attentions if asked is None else asked)
        if model.__dict__["_tunescope_wants_output_start"] and given.get("use_cache") is False:
            _check_output_start(given)
        if made["used"] and "position_ids" not in names:
            raise UserError(f"Family {model.config.model_type!r} takes no positions: use Prefix(positions='same').")
        return (), (_shifted(given, made["used"], model) if made["used"] else given)

    handle = entry.register_forward_pre_hook(enter, with_kwargs=True)
    try:
        for module in places.values():
            module.__dict__[STATE] = LayerState()
        yield
    finally:
        handle.remove()
        for module in places.values():
            module.__dict__.pop(STATE, None)


def _check_output_start(given: dict[str, Any]) -> None:
    """Without a cache every step of decoding reads the whole text again, and cannot tell where the output began."""
    if given.get("output_start") is None:
        raise UserError(
            "An infix without a cache needs output_start=(batch,), the index of each row's last input token, and so "
            "does a reweight; in generate() leave use_cache on."
        )


def _shifted(given: dict[str, Any], used: int, model: Any) -> dict[str, Any]:
    """The text's positions, `used` further on; derived from the mask where none are given, so padding is no text."""
    text = given.get("inputs_embeds") if given.get("input_ids") is None else given["input_ids"]
    assert text is not None
    past = given.get("past_key_values")
    seen = int(past.get_seq_length()) if past is not None else 0
    positions = given.get("position_ids")
    first = first_position(model) if kind(model) == "encoder" else 0
    if positions is None:
        positions = text_positions(given.get("attention_mask"), seen, text.shape[1], text.device) + first
    limit = _most_positions(model)
    if limit is not None and seen + text.shape[1] + used > limit and int(positions.max()) + used >= limit + first:
        raise UserError(_too_long(model, seen + text.shape[1], used, limit, "or cut the context"))
    return {**given, "position_ids": positions + used}


def text_positions(mask: Tensor | None, seen: int, length: int, device: torch.device) -> Tensor:
    """(batch or 1, length): 0, 1, 2, ... over real tokens, whichever side is padded."""
    if mask is None or mask.dim() != 2:
        return torch.arange(seen, seen + length, device=device)[None]
    return (mask.long().cumsum(1) - 1).clamp(min=0)[:, -length:]


def _refuse_reentrant(model: Any) -> None:
    if not model.training:  # transformers checkpoints only then
        return
    for module in model.modules():
        function = getattr(module, "_gradient_checkpointing_func", None)
        if getattr(function, "keywords", {}).get("use_reentrant"):
            raise UserError(
                "Reentrant gradient checkpointing loses the gradients of a context. Use "
                "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})."
            )
        if function is not None:
            return


@contextmanager
def _embeddings_joined(model: Any, contexts: list[tuple[TokenContext, Params]]) -> Iterator[None]:
    """In an encoder a token context runs as tokens, for its keys look at the text.

    An encoder alone gives states of the text's length, context cut off; in an encoder-decoder the decoder attends to
    the context's states too, as in prompt tuning (Lester et al. 2021).
    """
    is_alone = kind(model) == "encoder"
    entry = entries(model)["encoder"]
    names = argument_names(entry)
    length = [0]

    def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[()], dict[str, Any]]:
        made = [spec.embeddings(tensors, embedder(model)) for spec, tensors in contexts]
        rows = torch.cat(made)
        length[0] = len(rows)
        return (), _joined(dict(zip(names, args, strict=False)) | kwargs, rows, model, takes=names)

    def leave(_module: nn.Module, _args: Any, output: Any) -> Any:
        output["last_hidden_state"] = output.last_hidden_state[:, length[0] :]
        if output.get("hidden_states") is not None:
            output["hidden_states"] = tuple(states[:, length[0] :] for states in output.hidden_states)
        return output

    def pool(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (args[0][:, length[0] :], *args[1:])

    def cross(
        _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        mask, states = kwargs.get("encoder_attention_mask"), kwargs.get("encoder_hidden_states")
        if mask is not None and states is not None and mask.shape[1] < states.shape[1]:
            kwargs["encoder_attention_mask"] = widened(mask, states.shape[1] - mask.shape[1])
        return args, kwargs

    handles = [entry.register_forward_pre_hook(enter, with_kwargs=True)]
    if is_alone:
        handles.append(entry.register_forward_hook(leave))
        if isinstance(getattr(entry, "pooler", None), nn.Module):
            handles.append(entry.pooler.register_forward_pre_hook(pool))
    else:
        handles.append(entries(model)["decoder"].register_forward_pre_hook(cross, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def widened(mask: Tensor, by: int) -> Tensor:
    """A (batch, length) mask with `by` ones on the left."""
    return torch.cat([mask.new_ones(len(mask), by), mask], 1)


def _joined(given: dict[str, Any], rows: Tensor, model: Any, takes: list[str]) -> dict[str, Any]:
    ids = given.pop("input_ids", None)
    text = given.get("inputs_embeds")
    if text is None:
        text = model.get_input_embeddings()(ids)
    batch, n_tokens = text.shape[:2]
    _check_room(model, n_tokens, len(rows))
    mask = given.get("attention_mask")
    given["inputs_embeds"] = torch.cat([rows.to(text.dtype).expand(batch, -1, -1), text], 1)
    if mask is not None:
        given["attention_mask"] = widened(mask, len(rows))
        if given.get("position_ids") is None and bool((mask[:, 0] == 0).any()):
            if "position_ids" not in takes:
                raise UserError(
                    f"Family {model.config.model_type!r} counts positions through padding, so a context in front of "
                    "left-padded text would stand too far off. Pad the text on the right (padding_side='right')."
                )
            at = text_positions(given["attention_mask"], 0, len(rows) + n_tokens, text.device)
            given["position_ids"] = at + first_position(model)
    if given.get("token_type_ids") is not None:
        types = given["token_type_ids"]
        given["token_type_ids"] = torch.cat([types.new_zeros(batch, len(rows)), types], 1)
    return given


def first_position(model: Any) -> int:
    """RoBERTa and its kin count positions from after the padding index."""
    padding = getattr(getattr(model.base_model, "embeddings", None), "padding_idx", None)
    return 0 if padding is None else int(padding) + 1


def _check_room(model: Any, n_tokens: int, used: int) -> None:
    limit = _most_positions(model)
    if limit is not None and n_tokens + used > limit:
        raise UserError(_too_long(model, n_tokens, used, limit, "or the context"))


def _most_positions(model: Any) -> int | None:
    limit = getattr(model.config, "max_position_embeddings", None)
    return None if limit is None else int(limit) - (first_position(model) if kind(model) != "decoder" else 0)


def _too_long(model: Any, n_tokens: int, used: int, limit: int, end: str) -> str:
    return (
        f"The text has {n_tokens} tokens and the context in front of it {used}: together more than the {limit} "
        f"positions of {model.config.model_type!r}. Shorten the text to {limit - used} tokens, {end}."
    )
