"""What of a bank is at hand on a model: artifacts that were read, and the keys and values that contexts came to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from tunescope.attachment.bank.bank import Bank, Entry, check_member
from tunescope.attachment.bank.biases import bias_uses
from tunescope.attachment.bank.rowwise import check_rows_seen
from tunescope.attachment.context_keys import Extras, check_in_force
from tunescope.attachment.guards.changes import Watch
from tunescope.attachment.guards.same_tensors import SameTensors
from tunescope.attachment.initial_artifacts import initialised, site_uses
from tunescope.attachment.site_hooks import SiteUse, are_tuned, computed_in
from tunescope.methods.artifact import Artifact, Context, PatchDelta, SiteDelta, Spec

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(eq=False)
class Ready:
    """An entry's artifacts on the model, and what they do there.

    is_given: somebody else holds the tensors, and may write into them however they like.
    extras: stack -> for which state of the tensors, its contexts' keys and values, the positions they use up.
    """

    artifacts: tuple[Artifact, ...]
    uses: list[SiteUse[SiteDelta]]
    is_given: bool = False
    extras: dict[str, tuple[object, Extras, int]] = field(default_factory=dict)
    watch: Watch = field(default_factory=lambda: Watch(None))

    def __post_init__(self) -> None:
        self.same = SameTensors(self.artifacts, (SiteDelta, PatchDelta))

    def state(self, *, begins: bool = False) -> tuple[object, ...] | None:
        """Changes whenever a tensor does; None where nothing may be kept.

        begins: a text does, so that what was written through `.data` is told from then on.
        """
        held = [value for artifact in self.artifacts for value in artifact.tensors.values()]
        devices = sorted({value.device.type for value in held})
        mode = (torch.is_inference_mode_enabled(), *map(computed_in, devices))
        if not self.is_given:
            return (*mode, *(value._version for value in held))
        trace = self.watch.trace(held, begins=begins)
        return None if trace is None else (*mode, trace)

    def state_of_keys(self, base: int | None) -> tuple[object, ...] | None:
        """The same with the base's, where keys hang on it; None where they may not be kept."""
        state = None if self.is_tuned() or (self.reads_base() and base is None) else self.state()
        return None if state is None else (state, base if self.reads_base() else None)

    def reads_base(self) -> bool:
        """Whether any keys are made by the base, or were and are right for that alone."""
        return any(
            one.in_force is not None or (isinstance(one.spec, Context) and one.spec.reads_base)
            for one in self.artifacts
        )

    def is_tuned(self) -> bool:
        return are_tuned(*(artifact.tensors for artifact in self.artifacts))

    def bytes(self) -> int:
        made = [extra for _, extras, _ in self.extras.values() for some in extras.values() for extra in some]
        held = [value for artifact in self.artifacts for value in artifact.tensors.values()]
        held += [part for extra in made for part in (extra.key, extra.value)]
        return sum(value.numel() * value.element_size() for value in held)


class Hot:
    """The entries of a bank made ready for one model, the most recently used last."""

    def __init__(self, model: PreTrainedModel, bank: Bank, tokenizer: PreTrainedTokenizerBase, seed: int) -> None:
        self.bank = bank
        self._made = (model, tokenizer, seed)
        self._ready: OrderedDict[Entry, Ready] = OrderedDict()
        self._bytes: dict[Entry, int] = {}  # of what can be read again
        self._held = 0  # their sum, kept as they come, grow and go, for every pass asks for it
        self._lent: set[Entry] = set()  # what was asked for last, which may have grown by keys and values since
        self._removals = 0  # of the bank's, those that were looked for here
        self.making = False  # the model may be run bare then, to measure what a fresh prefix starts from

    def lacks(self, entries: Sequence[Entry]) -> bool:
        """Whether any of them is still to be made ready."""
        return any(entry not in self._ready for entry in entries)

    def get(self, entries: Sequence[Entry]) -> list[Ready]:
        """Each entry ready, read and checked where it was not; what is over the bound and not among them goes."""
        found = []
        for entry in entries:
            if entry not in self._ready:
                self.making = True
                try:
                    with torch.inference_mode(False):  # its tensors count their versions, whoever asked first
                        self._ready[entry] = self._make(entry)
                finally:
                    self.making = False
            self._ready[entry].same.check()
            self._ready.move_to_end(entry)
            found.append(self._ready[entry])
        self._shrink(keep=set(entries))
        return found

    def given(self) -> Iterable[tuple[str, Ready]]:
        """The entries that were handed over as artifacts, by name, made ready: those that can be trained."""
        entries = [self.bank.entry(name) for name in self.bank]
        held = [entry for entry in entries if not isinstance(entry.given, Path)]
        return [(entry.name, ready) for entry, ready in zip(held, self.get(held), strict=True)]

    def _make(self, entry: Entry) -> Ready:
        from tunescope.attachment.artifact_folder import load

        model, tokenizer, seed = self._made
        read: Sequence[Spec | Artifact] = (
            load(entry.given, mapped=True) if isinstance(entry.given, Path) else entry.given
        )
        for one in read:
            check_member(entry.name, one if isinstance(one, Spec) else one.spec)
        artifacts = initialised(model, read, tokenizer, seed)
        check_in_force(model, artifacts)
        uses = [*bias_uses(model, entry.name, artifacts), *site_uses(model, artifacts)]
        for use in uses:
            check_rows_seen(model, entry.name, use)
        return Ready(tuple(artifacts), uses, is_given=not isinstance(entry.given, Path))

    def _shrink(self, keep: set[Entry]) -> None:
        """Out with what was removed from the bank, and with the oldest of what can be read again."""
        for entry in self._lent | keep:
            self._count(entry)
        self._lent = keep
        if self._removals != (removals := self.bank.removals):
            gone = [one for one in self._ready if not self.bank.holds(one)]
            for entry in gone:
                if entry not in keep:
                    self._forget(entry)
            if keep.isdisjoint(gone):  # else they are looked for again in the next pass
                self._removals = removals
        for entry in self._over(keep):
            self._forget(entry)

    def _over(self, keep: set[Entry]) -> list[Entry]:
        """What is to go for the rest to be within the bound, the least recently used first."""
        found: list[Entry] = []
        held = self._held
        for entry in self._ready:
            if held <= self.bank.hot:
                break
            if isinstance(entry.given, Path) and entry not in keep:
                held -= self._bytes[entry]
                found.append(entry)
        return found

    def _count(self, entry: Entry) -> None:
        if isinstance(entry.given, Path) and entry in self._ready:
            size = self._ready[entry].bytes()
            self._held += size - self._bytes.get(entry, 0)
            self._bytes[entry] = size

    def _forget(self, entry: Entry) -> None:
        del self._ready[entry]
        self._held -= self._bytes.pop(entry, 0)
