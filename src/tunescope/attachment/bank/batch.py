"""What the rows of one batch come to: keys and values, embeddings, deltas, each row its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.bank.bank import Entry
from tunescope.attachment.bank.heads import heads_by_row
from tunescope.attachment.bank.hot import Ready
from tunescope.attachment.bank.keys import by_row
from tunescope.attachment.bank.rowwise import Rowwise, rowwise
from tunescope.attachment.context_keys import Extras, check_in_force, check_read_alone, extras_of
from tunescope.attachment.contexts import token_rows
from tunescope.attachment.site_hooks import SiteUse, acting
from tunescope.methods.artifact import Artifact, Context, TokenContext
from tunescope.models.anatomy import anatomy
from tunescope.models.positions import text_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Batch:
    """entries: of each row, None for the bare model; members: the distinct ones, made ready."""

    entries: tuple[Entry | None, ...]
    members: list[tuple[Entry, Ready]]

    def state(self, *, begins: bool = False) -> object | None:
        """Equal while no artifact has changed that the rows depend on; None while one is being trained."""
        held = [None if one.is_tuned() else one.state(begins=begins) for _, one in self.members]
        return None if None in held else (self.entries, tuple(held))

    def check(self, model: PreTrainedModel, given: Mapping[str, Any]) -> None:
        """UserError for a call that the rows' words in front were read without."""
        check_read_alone(model, (one for _, ready in self.members for one in ready.artifacts), given)

    def reads_base(self) -> bool:
        """Whether the base makes the keys of any member."""
        return any(ready.reads_base() for _, ready in self.members)

    def has_keys(self, stack: str, base: int | None) -> bool:
        """Whether the keys and values of all members are there, as they are now, on a base as it is now."""
        return all(_has_keys(ready, stack, base) for _, ready in self.members)

    def which(self) -> list[int]:
        """(batch,) the member of each row; one more than there are for a row that has none."""
        index = {id(entry): at for at, (entry, _) in enumerate(self.members)}
        return [len(self.members) if entry is None else index[id(entry)] for entry in self.entries]

    def has_contexts(self) -> list[bool]:
        """Of each row, whether it has any context."""
        found = [any(isinstance(one.spec, Context) for one in ready.artifacts) for _, ready in self.members]
        return [[*found, False][member] for member in self.which()]

    def rows(self) -> list[list[int]]:
        """The rows of each member."""
        found: list[list[int]] = [[] for _ in range(len(self.members) + 1)]
        for row, member in enumerate(self.which()):
            found[member].append(row)
        return found[: len(self.members)]


def keys_of(
    model: PreTrainedModel, batch: Batch, stack: str, places: Mapping[str, nn.Module], base: int | None
) -> tuple[Extras, int | Tensor]:
    """Every row's contexts in the attention modules of a stack, and the positions they use up: (batch,), or 0.

    No delta may act while it is called: those of a member act while its own contexts are run.
    """
    made = [_member_keys(model, ready, stack, places, base) for _, ready in batch.members]
    which = batch.which()
    none: tuple[Any, ...] = ()
    extras = {}
    for name in places:
        per_member = [found[name] for found, _ in made] + ([none] if len(made) in which else [])
        extras[name] = by_row(per_member, which)
    device = anatomy(model).device
    used = torch.tensor([used for _, used in made] + [0], device=device)[which]
    return extras, used if bool(used.any()) else 0


def _member_keys(
    model: PreTrainedModel, ready: Ready, stack: str, places: Mapping[str, nn.Module], base: int | None
) -> tuple[Extras, int]:
    if _has_keys(ready, stack, base):
        _, found, used = ready.extras[stack]
        return found, used
    check_in_force(model, ready.artifacts)
    with acting(rowwise([((0,), ready.uses)], 1, anatomy(model).device), lambda: False):
        found, used = extras_of(model, _contexts(model, ready.artifacts), stack, places)
    if (state := ready.state_of_keys(base)) is not None:
        ready.extras[stack] = (state, found, used)
    return found, used


def _has_keys(ready: Ready, stack: str, base: int | None) -> bool:
    known, now = ready.extras.get(stack), ready.state_of_keys(base)
    return known is not None and now is not None and known[0] == now


def _contexts(model: PreTrainedModel, artifacts: tuple[Artifact, ...]) -> list[Artifact]:
    """Those that stand as keys and values: in a decoder, token contexts too."""
    if anatomy(model).kind == "decoder":
        return list(artifacts)
    return [artifact for artifact in artifacts if not isinstance(artifact.spec, TokenContext)]


def embeddings_of(model: PreTrainedModel, batch: Batch) -> tuple[Tensor, Tensor | None] | None:
    """(batch, n, width), every row's token contexts, zeros on the left of shorter ones; and where they are."""
    like = anatomy(model).weight
    made = [
        [(a.spec, a.tensors) for a in ready.artifacts if isinstance(a.spec, TokenContext)] for _, ready in batch.members
    ]
    if not any(made):
        return None
    rows = [token_rows(model, some) if some else like.new_zeros(0, like.shape[1]) for some in [*made, []]]
    most = max(len(one) for one in rows)
    which = batch.which()
    whole = torch.stack([torch.cat([one.new_zeros(most - len(one), like.shape[1]), one]) for one in rows])[which]
    lengths = [len(rows[member]) for member in which]
    if min(lengths) == most:
        return whole, None
    return whole, torch.arange(most, device=like.device) >= most - torch.tensor(lengths, device=like.device)[:, None]


def deltas_of(
    model: PreTrainedModel, batch: Batch, columns: Callable[[], int]
) -> tuple[list[SiteUse[Rowwise]], SiteUse[Rowwise] | None]:
    """Every row's deltas at their sites, and its head. columns: see `Rowwise`."""
    rows, device = batch.rows(), anatomy(model).device
    members = [(own, ready.uses) for own, (_, ready) in zip(rows, batch.members, strict=True)]
    heads = [(own, ready.artifacts) for own, (_, ready) in zip(rows, batch.members, strict=True)]
    return rowwise(members, len(batch.entries), device, columns), heads_by_row(model, heads, len(batch.entries))


def n_given(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
    """How many rows `generate` is given, before beams and samples are more of them; None where nothing tells."""
    states = kwargs.get("encoder_outputs")
    named = (kwargs.get(name) for name in ("inputs", "input_ids", "inputs_embeds", "input_features", "input_values"))
    found = [*args[:1], *named, states[0] if states else None]
    return next((len(one) for one in found if isinstance(one, Tensor)), None)


def n_rows(given: dict[str, Any]) -> int:
    """Of the text, or of what a stack takes instead: an image, sound."""
    text = text_of(given)
    return len(next(value for value in given.values() if isinstance(value, Tensor)) if text is None else text)
