"""Demonstrations compressed: which positions to keep, and the keys and values of these, from one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Literal

import torch

from tunescope.attachment.attached import attach
from tunescope.attachment.attention.reach import resting
from tunescope.attachment.context_keys import in_force
from tunescope.attachment.lower import lower
from tunescope.attachment.made_for import tokenizer_hash
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact, KVContext
from tunescope.methods.contexts.anchors import Anchors, Positions, at_positions, check_causal, check_keep, check_room
from tunescope.methods.contexts.text import Text
from tunescope.models.anatomy import anatomy
from tunescope.tasks.prompts.demonstrations import PARTS
from tunescope.tasks.prompts.spans import Spans

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Rule = Literal["anchors", "labels", "random"]
SETS = 20  # random ones, of which "random-top" is the best


def compress(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    spans: Spans,
    keep: Rule | Sequence[int] = "anchors",
    *,
    positions: Positions = "original",
    under: Sequence[Artifact] = (),
) -> Artifact:
    """The demonstrations as the keys and values of a few positions, for `attach(model, *under, artifact)`.

    Args:
        keep: a rule of `positions_of`, or positions in `spans.ids`.
        positions: where the text that follows begins, as `Anchors` has it.
        under: deltas that are in force and contexts that stand before, as they will be attached. What comes out is
            bound to these and to the weights, and refused under others.

    Raises UserError for a model that is no decoder, demonstrations longer than the model, no position, and one outside.
    """
    chosen = positions_of(spans, keep) if isinstance(keep, str) else tuple(keep)
    check_causal(anatomy(model).kind)
    check_keep(chosen, len(spans.ids))
    return kept(read(model, tokenizer, spans.ids, under), chosen, positions)


def read(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], under: Sequence[Artifact] = ()
) -> Artifact:
    """A text as the keys and values of all its positions, from one pass of the frozen model behind what is `under`."""
    check_causal(anatomy(model).kind)
    limit = getattr(model.config, "max_position_embeddings", None)
    if under:
        with attach(model, *under) as tuned:
            limit = None if limit is None else limit - tuned.positions
    check_room(len(ids), limit)
    words = Artifact(Text(text=tokenizer.decode(ids)), {"ids": torch.tensor(ids)})
    with resting(model):
        whole = lower(model, *under, words)[-1]
    bound = in_force(model, [*under, whole], len(under))  # `lower` has lowered what is under it too
    return replace(whole, tokenizer=tokenizer_hash(tokenizer), in_force=bound)


def kept(whole: Artifact, keep: Sequence[int], positions: Positions = "original") -> Artifact:
    """Some positions of what `read` gave; no pass of the model."""
    assert isinstance(whole.spec, KVContext)
    n_keys = next(iter(whole.tensors.values())).shape[1]
    check_keep(keep, n_keys)
    spec = Anchors(keep=tuple(keep), length=n_keys, positions=positions)
    return replace(whole, spec=spec, tensors=at_positions(whole.tensors, keep))


def positions_of(spans: Spans, rule: Rule, seed: int = 0) -> tuple[int, ...]:
    """The positions that a rule keeps, ascending.

    "anchors": all but the inputs' own text, which leaves label words and formatting (prefix, separator, end), as
    published. "labels": label words alone. "random": formatting and, for every token of a label word, another token
    drawn from the text of its own demonstration (all of it, where it is shorter than the label word), which is the
    published control. The first position of all is formatting whatever stands there: attention rests on it, so a model
    that has lost it answers nothing as before. In the published templates, which begin with a word, it is so anyway.
    """
    labels, text = set(spans.of("label")), set(spans.of("text")) - {0}
    formatting = set(range(len(spans.ids))) - labels - text
    if rule == "labels":
        return tuple(sorted(labels))
    if rule == "anchors":
        return tuple(sorted(formatting | labels))
    if rule != "random":
        raise UserError(f"keep={rule!r}: allowed are 'anchors', 'labels', 'random', and positions.")
    random = Random(seed)
    drawn = {
        at
        for place in spans.places
        for own in (sorted(text.intersection(place["text"])),)
        for at in random.sample(own, min(len(place["label"]), len(own)))
    }
    return tuple(sorted(formatting | drawn))


def random_sets(spans: Spans, seed: int, count: int = SETS) -> list[tuple[int, ...]]:
    """Independent draws of the rule "random". The released code adds each to those before, so its sets grow."""
    return [positions_of(spans, "random", count * seed + number) for number in range(count)]


def text_anchor(tokenizer: PreTrainedTokenizerBase, spans: Spans) -> Artifact:
    """The tokens that the rule "anchors" keeps as a plain text: read on its own, nothing of the inputs is in it."""
    ids = [spans.ids[at] for at in positions_of(spans, "anchors")]
    return Artifact(Text(text=tokenizer.decode(ids)), {"ids": torch.tensor(ids)}, None, tokenizer_hash(tokenizer))


def start_of(spans: Spans) -> tuple[int, ...]:
    """The tokens that the tokenizer puts in front of any text, and that no part of a demonstration has."""
    first = min(spans.of(*PARTS))
    return spans.ids[:first]
