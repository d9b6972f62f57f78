"""Contexts at the entry of a stack: keys and values are put in place, positions shifted, embeddings joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tunescope.artifact import Artifact, AttentionDelta, Context, Params, TokenContext
from tunescope.attention import NAME, STATE, LayerState
from tunescope.compiling import uncompiled
from tunescope.errors import UserError
from tunescope.hooks import are_tuned, argument_names, computed_in, entries, refuse_tuple
from tunescope.lowered import embedder, extras_of
from tunescope.marking import OUTPUT_START, WANTS_OUTPUT_START
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
            stack.enter_context(embeddings_joined(model, lambda: (token_rows(model, tokens)[None], None)))
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
    device = model.get_input_embeddings().weight.device.type
    runs = any(isinstance(artifact.spec, TokenContext) for artifact in artifacts)  # through the model, for its keys
    own = [value for value in model.parameters() if not value.is_inference()] if runs else []
    can_switch = runs and any(
        hasattr(one, "disable_adapters") and hasattr(one, "base_layer") for one in model.modules()
    )

    def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[()], dict[str, Any]]:
        refuse_reentrant(model)
        groups = [a.tensors for a in artifacts if not isinstance(a.spec, AttentionDelta)]  # no key hangs on those
        versions = tuple(value._version for value in (*own, *(value for group in groups for value in group.values())))
        kept_for = (torch.is_inference_mode_enabled(), computed_in(device), versions)
        is_fixed = not (are_tuned(*groups) or entry.training or can_switch)  # dropout draws anew
        now = kept_for if is_fixed else None
        if now is None or now != made["for"]:
            extras, made["used"] = extras_of(model, artifacts, stack, places)
            for name, module in places.items():
                module.__dict__[STATE].extras = extras[name]
            made["for"] = now
        given = dict(zip(names, args, strict=False)) | kwargs
        tell_call(model, given, [module.__dict__[STATE] for module in places.values()])
        if model.__dict__[WANTS_OUTPUT_START]:
            check_output_start(model, given)
        return (), (shifted(given, made["used"], model, takes=names) if made["used"] else given)

    with entered(entry, uncompiled(enter), places):
        yield


@contextmanager
def entered(entry: nn.Module, enter: Callable[..., Any], places: Mapping[str, nn.Module]) -> Iterator[None]:
    """`enter` is asked before each pass of a stack, whose attention modules have a state that it can fill."""
    configs = list({id(one): one for one in (getattr(module, "config", None) for module in places.values())}.values())

    def check(*_: Any) -> None:
        for config in configs:
            _check_ours(getattr(config, "_attn_implementation", NAME))

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


def _check_ours(implementation: str) -> None:
    """Another attention would not see the contexts, and say nothing."""
    if implementation != NAME:
        raise UserError(
            f"A context is attached, and attention was set to {implementation!r} since, which does not see it. Set "
            f"that before attach(), or back by model.set_attn_implementation({NAME!r})."
        )


def tell_call(model: Any, given: Mapping[str, Any], states: Iterable[LayerState]) -> None:
    """Whether this call asks for attention weights, and where in the text it stands."""
    asked = given.get("output_attentions")
    for state in states:
        state.asked = bool(model.config.output_attentions if asked is None else asked)
        state.seen, state.output_start = _seen(given), model.__dict__.get(OUTPUT_START)


def _seen(given: Mapping[str, Any]) -> int:
    """How many columns of the text lie in the cache."""
    past = given.get("past_key_values")
    return int(past.get_seq_length()) if past is not None else 0


def check_output_start(model: Any, given: Mapping[str, Any]) -> None:
    """Without a cache, which may be a step of decoding that reads the whole text again, the output's start is told.

    Raises UserError where it is not, and for texts packed into one row.
    """
    told = given.get("output_start") is not None or model.__dict__.get(OUTPUT_START) is not None
    if given.get("use_cache") is False and not told:
        raise UserError(
            "An infix without a cache needs output_start=(batch,), the index of each row's last input token, and so "
            "does a reweight; generate() tells it."
        )
    positions = given.get("position_ids")
    if positions is not None and given.get("attention_mask") is None and bool((positions.diff(dim=-1) < 0).any()):
        raise UserError(
            "An infix, and a reweight, act from where a row's output begins, and a row of several texts has more than "
            "one such place. Give each text a row of its own, padded."
        )


def shifted(given: dict[str, Any], used: int | Tensor, model: Any, takes: Sequence[str]) -> dict[str, Any]:
    """The text's positions, `used` further on; derived from the mask where none are given, so padding is no text.

    used: one number for all rows, or (batch,).
    """
    if "position_ids" not in takes:
        raise UserError(f"Family {model.config.model_type!r} takes no positions: use Prefix(positions='same').")
    text = given.get("inputs_embeds") if given.get("input_ids") is None else given["input_ids"]
    assert text is not None
    seen = _seen(given)
    positions = given.get("position_ids")
    first = first_position(model) if kind(model) == "encoder" else 0
    if positions is None:
        positions = text_positions(given.get("attention_mask"), seen, text.shape[1], text.device) + first
    most = used if isinstance(used, int) else int(used.max())
    positions = positions + (used if isinstance(used, int) else used.to(positions.device)[:, None])
    limit = _most_positions(model)
    if limit is not None and seen + text.shape[1] + most > limit and int(positions.max()) >= limit + first:
        raise UserError(_too_long(model, seen + text.shape[1], most, limit, "or cut the context"))
    return {**given, "position_ids": positions}


def text_positions(mask: Tensor | None, seen: int, length: int, device: torch.device) -> Tensor:
    """(batch or 1, length): 0, 1, 2, ... over real tokens, whichever side is padded."""
    if mask is None or mask.dim() != 2:
        return torch.arange(seen, seen + length, device=device)[None]
    return (mask.long().cumsum(1) - 1).clamp(min=0)[:, -length:]


def refuse_reentrant(model: Any) -> None:
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


def token_rows(model: Any, contexts: Sequence[tuple[TokenContext, Params]]) -> Tensor:
    """(n, width), the embeddings of all token contexts, one after the other."""
    return torch.cat([spec.embeddings(tensors, embedder(model)) for spec, tensors in contexts])


Made = tuple[Tensor, Tensor | None]


@contextmanager
def embeddings_joined(model: Any, made: Callable[[], Made | None]) -> Iterator[None]:
    """In an encoder a token context runs as tokens, for its keys look at the text.

    An encoder alone gives states of the text's length, context cut off; in an encoder-decoder the decoder attends to
    the context's states too, as in prompt tuning (Lester et al. 2021).

    made: before each pass, the embeddings to put in front, (1, n, width) or (batch, n, width), and where each row has
    one, (batch, n), or None for everywhere; None for nothing to put there.
    """
    is_alone = kind(model) == "encoder"
    entry = entries(model)["encoder"]
    names = argument_names(entry)
    now: dict[str, Any] = {"length": 0, "filled": None}

    def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[()], dict[str, Any]]:
        given, found = dict(zip(names, args, strict=False)) | kwargs, made()
        now["length"], now["filled"] = (0, None) if found is None else (found[0].shape[1], found[1])
        return (), (given if found is None else _joined(given, *found, model, takes=names))

    def leave(_module: nn.Module, _args: Any, output: Any) -> Any:
        refuse_tuple(output)
        output["last_hidden_state"] = output.last_hidden_state[:, now["length"] :]
        if output.get("hidden_states") is not None:
            output["hidden_states"] = tuple(states[:, now["length"] :] for states in output.hidden_states)
        return output

    def pool(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (args[0][:, now["length"] :], *args[1:])

    def cross(
        _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        mask, states = kwargs.get("encoder_attention_mask"), kwargs.get("encoder_hidden_states")
        if mask is None and states is not None and now["filled"] is not None:
            mask = states.new_ones(len(states), states.shape[1] - now["length"], dtype=torch.long)
        if mask is not None and states is not None and mask.shape[1] < states.shape[1]:
            kwargs["encoder_attention_mask"] = widened(mask, states.shape[1] - mask.shape[1], now["filled"])
        return args, kwargs

    handles = [entry.register_forward_pre_hook(uncompiled(enter), with_kwargs=True)]
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


def widened(mask: Tensor, by: int, filled: Tensor | None = None) -> Tensor:
    """A (batch, length) mask with `by` ones on the left, or with what is filled there, repeated where rows are."""
    if filled is None:
        return torch.cat([mask.new_ones(len(mask), by), mask], 1)
    return torch.cat([filled.to(mask).repeat_interleave(len(mask) // len(filled), 0), mask], 1)


def _joined(given: dict[str, Any], rows: Tensor, filled: Tensor | None, model: Any, takes: list[str]) -> dict[str, Any]:
    ids = given.pop("input_ids", None)
    text = given.get("inputs_embeds")
    if text is None:
        text = model.get_input_embeddings()(ids)
    (batch, n_tokens), n_rows = text.shape[:2], rows.shape[1]
    _check_room(model, n_tokens, n_rows)
    mask = given.get("attention_mask")
    if mask is None and filled is not None:
        mask = torch.ones(batch, n_tokens, dtype=torch.long, device=text.device)
    given["inputs_embeds"] = torch.cat([rows.to(text.dtype).expand(batch, -1, -1), text], 1)
    if mask is not None:
        given["attention_mask"] = widened(mask, n_rows, filled)
        if given.get("position_ids") is None and _needs_positions(model, mask, filled, takes):
            at = text_positions(given["attention_mask"], 0, n_rows + n_tokens, text.device)
            given["position_ids"] = at + first_position(model)
    if given.get("position_ids") is not None and given["position_ids"].shape[-1] == n_tokens:
        front = torch.arange(n_rows, device=text.device) + first_position(model)
        positions = given["position_ids"] + n_rows
        given["position_ids"] = torch.cat([front.expand(len(positions), -1), positions], 1)
    if given.get("token_type_ids") is not None:
        types = given["token_type_ids"]
        given["token_type_ids"] = torch.cat([types.new_zeros(batch, n_rows), types], 1)
    return given


def _needs_positions(model: Any, mask: Tensor, filled: Tensor | None, takes: list[str]) -> bool:
    """Whether positions must be told, for padding stands before or inside what is text; UserError where they cannot."""
    inside = bool((mask[:, 0] == 0).any())
    before = filled is not None and not bool(filled.all())
    if (inside or before) and "position_ids" in takes:
        return True
    family = model.config.model_type
    if inside:
        raise UserError(
            f"Family {family!r} counts positions through padding, so a context in front of left-padded text would "
            "stand too far off. Pad the text on the right (padding_side='right')."
        )
    if before and not hasattr(model.config, "relative_attention_num_buckets"):
        raise UserError(
            f"Family {family!r} counts positions through padding, so contexts of different lengths cannot stand in "
            "one batch. Give all rows of a batch contexts of one length, or prefixes."
        )
    return False


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
