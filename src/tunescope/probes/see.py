"""Run a model in the states that probes look at: bare, with everything attached, and the one on the other's inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tunescope.attachment.attached import Attached, attach
from tunescope.attachment.attention.reach import reached, resting
from tunescope.attachment.attention.record import Call, record, record_calls, replay
from tunescope.attachment.context_keys import embedder
from tunescope.attachment.guards.marks import attached_to
from tunescope.attachment.guards.processes import check_in_one_piece
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact, Context, Spec, TokenContext
from tunescope.methods.text_form import show
from tunescope.models.anatomy import anatomy, argument_names
from tunescope.models.positions import counted_by_mask, first_position, text_positions
from tunescope.probes.maps import maps, vocabulary, with_float64
from tunescope.probes.seen import Layer, Seen

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

What = Attached | Sequence[Artifact | Spec]
Tensors = dict[str, Tensor]
NAMES = ("value", "scores", "weights", "sink", "output", "context_value")


def see(
    model: PreTrainedModel,
    what: What,
    batch: Mapping[str, Any] | None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Seen:
    """Everything that probes look at, for the rows of `batch`, without gradients and dropout; no model is in it.

    The bare run has the text at the positions that it has behind the contexts, so that no difference comes from
    positions. "Held" means the inputs of the attention module: a changed norm before it counts with depth, and so
    does T5's position bias, which its first layer makes and the others are handed.

    Args:
        what: artifacts, attached here; or what `attach` returned, attached now or not, and left as it was.
        batch: the model's inputs, as keywords; None runs nothing.
        tokenizer: names the tokens; without one they have their numbers.

    Raises UserError for a family whose attention is not reached, for artifacts that do not fit the model, for a mask
    that is not (batch, text), and for left-padded rows of an encoder with a context among its tokens.
    """
    check_in_one_piece(model)
    reached(model)
    with resting(model), torch.no_grad(), _tuned(model, what, tokenizer) as tuned:
        artifacts = tuned.artifacts if tuned is not None else ()
        runs = {} if batch is None else _runs(model, tuned, batch)
        virtual = _virtual(model, artifacts)
        return Seen(
            attached=show([artifact.spec for artifact in artifacts]) or "nothing",
            **runs,
            maps=maps(model),
            tokens={} if batch is None else _tokens(model, batch, tokenizer),
            virtual=virtual,
            table=_table(model, scaled=bool(virtual)),
            vocabulary={} if tokenizer is None else vocabulary(tokenizer),
        )


def _runs(model: PreTrainedModel, tuned: Attached | None, batch: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of Seen that take running the model."""
    real = _real(model, batch)
    used = tuned.positions if tuned is not None else 0
    joined = 0 if anatomy(model).kind == "decoder" or tuned is None else tuned.tokens
    if joined:
        _check_right_padded(batch.get("attention_mask"))
    counts = tuned is not None and any(isinstance(artifact.spec, Context) for artifact in tuned.artifacts)
    given = _bare_inputs(model, used, batch, counts=counts)
    calls: dict[str, Call] = {}
    bare: Tensors = {}
    if isinstance(given, dict):
        with tuned.paused() if tuned is not None else nullcontext():
            calls = record_calls(model, given)
            bare = replay(model, calls, *NAMES)
    along = record(model, batch, *NAMES)  # before `held`: contexts stand as they did in the last run
    if joined and calls:
        calls = _text_behind_context(calls, record_calls(model, batch), joined)
    held = replay(model, calls, *NAMES) if calls else {}
    return {
        "along": _layers(along, joined, real),
        "bare": _layers(bare, 0, real),
        "held": _layers(held, joined, real),
        "real": {stack: with_float64(mask).bool() for stack, mask in real.items() if mask is not None},
        "no_bare": given if isinstance(given, str) else "",
    }


def _check_right_padded(mask: Tensor | None) -> None:
    if mask is not None and bool((mask[:, 0] == 0).any()):
        raise UserError(
            "In an encoder a context of tokens stands behind a row's padding, so the columns of context and text are "
            "others in each left-padded row. Pad the text on the right (padding_side='right')."
        )


@contextmanager
def _tuned(model: PreTrainedModel, what: What, tokenizer: PreTrainedTokenizerBase) -> Iterator[Attached | None]:
    """The model with it attached, its dropout at rest; None where there is nothing to attach."""
    if isinstance(what, Attached) and attached_to(model) is what:
        training, what.training = what.training, False
        try:
            yield what
        finally:
            what.training = training
        return
    artifacts = what.artifacts if isinstance(what, Attached) else tuple(what)
    if not artifacts:
        yield None
        return
    with attach(model, *artifacts, tokenizer=tokenizer) as tuned:
        yield tuned


def _bare_inputs(
    model: PreTrainedModel, used: int, batch: Mapping[str, Any], *, counts: bool = False
) -> dict[str, Any] | str:
    """The inputs under which the bare model has the text at the same positions, or why there are none.

    used: positions of contexts in front of it. counts: something is attached that counts a row's own by its mask.
    """
    given = {name: value for name, value in batch.items() if name != "output_start"}
    names = argument_names(next(iter(anatomy(model).entries.values())))
    if not used:
        return counted_by_mask(given, model, names) if counts else given
    if "position_ids" not in names:
        if getattr(model.config, "max_position_embeddings", None) is None:  # relative ones alone
            return given
        return (
            f"family {model.config.model_type!r} counts its own positions, so the bare model cannot be run with the "
            "text where it stands behind the context, and shift and pattern could not be told apart"
        )
    text = given["input_ids"] if given.get("input_ids") is not None else given["inputs_embeds"]
    positions = given.get("position_ids")
    first = first_position(model)
    if positions is None:
        mask = given.get("attention_mask")
        mask = torch.ones(text.shape[:2], dtype=torch.long, device=text.device) if mask is None else mask
        positions = counted_by_mask(given | {"attention_mask": mask}, model, names).get("position_ids")
    if positions is None:  # the mask is one for pairs of tokens
        positions = text_positions(given.get("attention_mask"), 0, text.shape[1], text.device) + first
    return {**given, "position_ids": torch.where(positions < first, positions, positions + used)}


def _text_behind_context(bare: Mapping[str, Call], along: Mapping[str, Call], joined: int) -> dict[str, Call]:
    """The calls of the attached run, with the text's states of the bare run behind the context's own.

    In an encoder a token context stands among the tokens: states (batch, joined + text, width), and masks, position
    biases and rotary angles that are as wide.
    """

    def one(before: object, after: object) -> object:
        if isinstance(before, tuple) and isinstance(after, tuple):  # angles: cosine and sine at every place
            return before if _shapes(before) == _shapes(after) else after
        if not isinstance(before, Tensor) or not isinstance(after, Tensor) or before.shape == after.shape:
            return before
        if before.dim() == 3 and after.shape[1] == before.shape[1] + joined:
            return torch.cat([after[:, :joined], before], 1)
        return after

    return {
        name: Call(
            tuple(map(one, call.args, along[name].args)),
            {key: one(value, along[name].kwargs.get(key)) for key, value in call.kwargs.items()},
        )
        for name, call in bare.items()
    }


def _shapes(given: tuple[object, ...]) -> list[torch.Size]:
    return [part.shape for part in given if isinstance(part, Tensor)]


def _real(model: PreTrainedModel, batch: Mapping[str, Any]) -> dict[str, Tensor | None]:
    """Stack -> mask of its real tokens (batch, text), None where all are. UserError for a mask of another shape."""
    found: dict[str, Tensor | None] = {}
    for stack, prefix in _prefixes(model).items():
        mask = found[stack] = batch.get(f"{prefix}attention_mask")
        given = [batch.get(f"{prefix}{name}") for name in ("input_ids", "inputs_embeds")]
        text = next((one.shape[:2] for one in given if one is not None), None)  # None: the model makes it of others
        if mask is not None and not (isinstance(mask, Tensor) and mask.dim() == 2 and text in (None, mask.shape)):
            shape = tuple(mask.shape) if isinstance(mask, Tensor) else f"a {type(mask).__name__}"
            raise UserError(
                f"A probe looks at what is no padding, and {prefix}attention_mask is {shape}, which does not say what "
                f"is: give one of shape {'(batch, text)' if text is None else tuple(text)}, 1 at text and 0 at padding."
            )
    return found


def _prefixes(model: PreTrainedModel) -> dict[str, str]:
    """Stack -> what the names of its inputs begin with."""
    kind = anatomy(model).kind
    return {"encoder": "", "decoder": "decoder_"} if kind == "encoder-decoder" else {kind: ""}


def _layers(kept: Tensors, joined: int, real: Mapping[str, Tensor | None]) -> dict[str, Layer]:
    """The tensors of one run by module; `joined`: tokens of a context among those of an encoder."""
    layers = {}
    for name in dict.fromkeys(key.rpartition(".")[0] for key in kept):
        value, scores, made, sink, output, extra = (with_float64(kept[f"{name}.{kept_as}"]) for kept_as in NAMES)
        weights = exact_weights(scores, made, sink)
        stack, _, which = name.split(".")
        if stack == "encoder":
            weights, output = weights[:, :, joined:], output[:, :, joined:]
        among = joined if stack == "encoder" or which == "cross" else 0
        values = torch.cat([extra.expand(len(value), *extra.shape), value], 2).double()
        values = values.repeat_interleave(weights.shape[1] // values.shape[1], 1)
        mask = real[stack]
        is_real = torch.ones(len(weights), weights.shape[2], dtype=torch.bool, device=weights.device)
        is_real = is_real if mask is None else with_float64(mask).to(is_real)
        count = extra.shape[1] + among
        layers[name] = Layer(weights, values, output.double(), count, is_real, not among, value.dtype)
    return layers


def exact_weights(scores: Tensor, made: Tensor, sink: Tensor) -> Tensor:
    """The weights in float64, for in float32 what a strong context leaves to the content underflows.

    made: those that the layer made; where they are not the softmax of the scores and the sink, they were changed by
    that factor.
    """
    joined = torch.cat([scores, sink.to(scores.dtype).view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)], -1)
    plain = joined.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(made.dtype)[..., :-1]
    factor = torch.where(plain == made, 1.0, made.double() / plain.double())
    return joined.double().softmax(-1)[..., :-1] * factor


def _tokens(
    model: PreTrainedModel, batch: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase
) -> dict[str, list[list[str]]]:
    """Stack -> the tokens of each row; of embeddings, their places."""
    words = {} if tokenizer is None else vocabulary(tokenizer)
    found = {}
    for stack, name in _prefixes(model).items():
        if (ids := batch.get(f"{name}input_ids")) is not None:
            found[stack] = [[words.get(token, f"token {token}") for token in row] for row in ids.tolist()]
        elif (rows := batch.get(f"{name}inputs_embeds")) is not None:
            found[stack] = [[f"place {place}" for place in range(rows.shape[1])] for _ in rows]
    return found


def _table(model: PreTrainedModel, *, scaled: bool) -> Tensor | None:
    """(vocabulary, width), the embeddings, as the model makes them or at the scale of what enters its layers; None of
    what reads no tokens."""
    weight = getattr(anatomy(model).table, "weight", None)
    if weight is None:
        return None
    return with_float64(embedder(model)(torch.arange(len(weight))) if scaled else weight.detach())


def _virtual(model: PreTrainedModel, artifacts: Sequence[Artifact]) -> dict[str, Tensor]:
    """Method -> the embeddings that it puts in the place of tokens; several of one name are numbered."""
    some = [(artifact.spec, artifact.tensors) for artifact in artifacts if isinstance(artifact.spec, TokenContext)]
    names, found = [show([spec]) for spec, _ in some], {}
    for place, (spec, tensors) in enumerate(some):
        before = names[:place].count(names[place])
        name = f"{names[place]} ({before + 1})" if before else names[place]
        found[name] = with_float64(spec.embeddings(tensors, embedder(model)).detach())
    return found
