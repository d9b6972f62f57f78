"""A bank: artifacts of one base model by name, of which each row of a batch takes its own.

with attach(model, Bank({"anna": prefix, "ben": "artifacts/ben"})):
    model(**batch, rows=["anna", "ben", None])
    model.generate(**batch, rows=["anna", "ben", None])
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact, AttentionDelta, Spec
from tunescope.system import files

Given = Spec | Artifact | Sequence[Spec | Artifact] | str | Path
HOT = 2**30


@dataclass(frozen=True, eq=False)
class Entry:
    """One name's artifacts, or the folder that they are read from when a batch first asks for them."""

    name: str
    given: tuple[Spec | Artifact, ...] | Path


class Bank:
    """Artifacts by name; each value is what `attach` takes, several in a list, or the folder of a saved artifact.

    Folders are read when a batch first needs them, their tensors mapped from the file rather than copied, and checked
    against their sha256. What was read stays at hand up to `hot` bytes, least recently used out first; what is being
    used is never put out. `add` and `remove` may be called from other threads, also while a batch runs: it goes on
    with what it began with.

    members: name -> its artifacts. hot: bytes (default: 1 GiB).

    Raises UserError for an artifact of another base than the others, and for what no row can have to itself: full
    tuning, and a reweight.
    """

    def __init__(self, members: Mapping[str, Given] | None = None, *, hot: int = HOT) -> None:
        self.hot = hot
        self._lock = threading.RLock()
        self._entries: dict[str, Entry] = {}
        self._base: tuple[str, str] | None = None
        self.removals = 0  # how often a name was taken out
        for name, given in (members or {}).items():
            self.add(name, given)

    @classmethod
    def folder(cls, path: str | Path, *, hot: int = HOT) -> Bank:
        """All saved artifacts that lie in a folder, by the names of their folders. Raises UserError for none.

        Hidden folders are none of them, nor is one that a save is at work on, or was killed at.
        """
        from tunescope.attachment.manifest import MANIFEST

        places = [place.parent for place in sorted(Path(path).glob(f"*/{MANIFEST}"))]
        found = {one.name: one for one in places if not one.name.startswith(".") and not files.BESIDE.search(one.name)}
        if not found:
            raise UserError(f"Bank.folder({str(path)!r}): no folder in it holds a {MANIFEST}.")
        return cls(found, hot=hot)

    def add(self, name: str, given: Given) -> None:
        """Put an artifact under a new name. Raises UserError where the name is taken: `remove` it first; or is none."""
        if not isinstance(name, str) or not name.strip():
            raise UserError(f"Bank: {name!r} is no name: give text, as in Bank({{'anna': artifact}}).")
        entry = Entry(name, Path(given).absolute() if isinstance(given, str | Path) else _listed(name, given))
        base = _base_of(entry)
        with self._lock:
            if name in self._entries:
                raise UserError(f"Bank: {name!r} is there already. Type bank.remove({name!r}) first.")
            if base is not None and self._base is not None and base != self._base[1]:
                raise UserError(
                    f"Bank: {name!r} was made for another base model (weights {base[:12]}) than {self._base[0]!r} "
                    f"({self._base[1][:12]}). A bank stands on one model: keep a bank for each."
                )
            if base is not None and self._base is None:
                self._base = (name, base)
            self._entries[name] = entry

    def remove(self, name: str) -> None:
        """Take a name out; a batch that runs with it goes on."""
        with self._lock:
            del self._entries[self.entry(name).name]
            self.removals += 1
            if self._base is not None and self._base[0] == name:
                bases = ((other, _base_of(entry)) for other, entry in self._entries.items())
                self._base = next(((other, base) for other, base in bases if base is not None), None)

    def entry(self, name: str) -> Entry:
        """What stands under a name. Raises UserError for one that is not there."""
        import difflib

        if not isinstance(name, str):
            raise UserError(f"Bank: a row takes a name or None, and not {str(name)[:80]!r}: rows=['anna', None].")
        with self._lock:
            found = self._entries.get(name)
            known = list(self._entries)
        if found is None:
            near = difflib.get_close_matches(name[:80], known, n=1)
            some = ", ".join(map(repr, known[:5])) + (f" and {len(known) - 5:,} more" if len(known) > 5 else "")
            raise UserError(
                f"Bank: no artifact is named {name!r}."
                + (f" Did you mean {near[0]!r}?" if near else "")
                + f" It has: {some or 'none'}."
            )
        return found

    def holds(self, entry: Entry) -> bool:
        """Whether it is still what stands under its name."""
        with self._lock:
            return self._entries.get(entry.name) is entry

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            return iter(list(self._entries))


def check_member(name: str, spec: Spec) -> None:
    """Refuse what no single row of a batch can have."""
    if isinstance(spec, AttentionDelta):
        raise UserError(f"Bank: {name!r} holds {spec}, which changes attention itself: attach it alone.")
    if spec.whole_model:
        raise UserError(
            f"Bank: {name!r} holds a full tuning, which is a model of its own: merge it, and serve that model."
        )


def _listed(name: str, given: Any) -> tuple[Spec | Artifact, ...]:
    several = isinstance(given, Iterable) and not isinstance(given, Mapping)
    listed = tuple(given) if several else (given,)
    for one in listed:
        if not isinstance(one, Spec | Artifact):
            raise UserError(
                f"Bank: {name!r} is given a {type(one).__name__}: give an artifact, a list of them, or a folder."
            )
        check_member(name, one if isinstance(one, Spec) else one.spec)
    if not listed:
        raise UserError(f"Bank: {name!r} is given nothing. A row that takes nothing is None in rows=[...].")
    return listed


def _base_of(entry: Entry) -> str | None:
    """The fingerprint of the base that an entry was made for, where it says one; of a folder, by its manifest alone."""
    if isinstance(entry.given, Path):
        from tunescope.attachment.manifest import read_manifest

        return str(read_manifest(entry.given)["base"]["fingerprint"])
    return next((one.base for one in entry.given if isinstance(one, Artifact) and one.base is not None), None)
