"""What the arm runs of one process share: the model, the data, the task."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from tunescope.data.splits import Splits
from tunescope.errors import Note, UserError
from tunescope.models.fingerprint import fingerprint
from tunescope.models.load import load_model
from tunescope.models.load_options import is_placed
from tunescope.tasks.facts import Facts
from tunescope.tasks.prompts.templates import line_end
from tunescope.tasks.task import Encoded, Task
from tunescope.tasks.windows import Windows
from tunescope.trial.demos.spec import Kept
from tunescope.trial.plan import PARTS, Plan

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MANY = 1000  # rows to be read, which takes minutes on a CPU: told before


@dataclass
class Bench:
    """A model and data that arms are tried on.

    draws: with --k-shot, the parts that each seed draws. rows: tokenised, as a task asks them, which most arms share.
    means: states of rows that say which are alike, by part and encoder. encoders: fingerprints of other models that say
    so. asked_with: hashes of what an answer depends on beside the weights, once `identity.asked_with` has made them.
    other: what `--forgetting` names -> the windows of that text, and the losses that the model as it is has on them.
    facts: about the rows of all parts, once `facts.facts_of` has found them.
    """

    plan: Plan
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    kind: str
    task: Task
    splits: Splits
    sha256: Mapping[str, str]
    fingerprint: str
    device: torch.device
    draws: Mapping[int, Splits] = field(default_factory=dict)
    rows: dict[tuple[str, str, str | None, int | None], list[Encoded]] = field(default_factory=dict)
    means: dict[tuple[str, str], torch.Tensor] = field(default_factory=dict)
    demos: Kept = field(default_factory=Kept)
    encoders: dict[str, str] = field(default_factory=dict)
    asked_with: dict[str, str] = field(default_factory=dict)
    other: dict[str, tuple[Windows, list[float]]] = field(default_factory=dict)
    facts: Facts | None = None
    by_seed: dict[int, Bench] = field(default_factory=dict)

    @property
    def devices(self) -> list[torch.device]:
        """Those that the model is on, which are several where its layers are spread."""
        return list(dict.fromkeys(value.device for value in self.model.parameters())) or [self.device]

    @property
    def is_placed(self) -> bool:
        """Whether the model stays where it was loaded."""
        return is_placed(self.model)

    def at(self, seed: int) -> Bench:
        """What a run of that seed sees: this bench, or with --k-shot one with the rows that the seed draws."""
        if seed not in self.draws:
            return self
        if seed not in self.by_seed:
            tested = {key: found for key, found in self.means.items() if key[0] == "test"}  # the same for every seed
            self.by_seed[seed] = replace(
                self, splits=self.draws[seed], draws={}, rows={}, means=tested, demos=Kept(), by_seed={}, facts=None
            )
        return self.by_seed[seed]

    def cut_to(self, plan: Plan) -> None:
        """The plan from here on, of every seed."""
        for one in (self, *self.by_seed.values()):
            one.plan = plan

    def encoded(
        self, part: str, *, behind: str | None = None, room: int | None, task: Task | None = None
    ) -> list[Encoded]:
        """The rows of a part, as the bench's task or another one asks them; behind: as in `Task.encode`."""
        task, behind = task or self.task, behind and line_end(behind)
        key = (repr(task), part, behind, room)
        if key not in self.rows:
            own = self.splits.parts()[part]
            self.rows[key] = task.encode(
                own, self.tokenizer, model_kind=self.kind, behind=behind, train=part == "train", room=room
            )
        return self.rows[key]

    def states(self, part: str, encoder: str = "") -> torch.Tensor:
        """(rows, width): mean states of the encoded rows by the frozen model, to which nothing may be attached.

        encoder: the folder or name of another model that reads the rows' fields instead, without the template.
        """
        from tunescope.tasks.answers.row_vectors import mean_states, text_states

        if (part, encoder) in self.means:
            return self.means[part, encoder]
        if (count := len(self.splits.parts()[part])) > MANY:
            which = encoder or "the model"
            warnings.warn(Note(f"demonstrations by likeness: {which} reads {count:,} {part} rows"), stacklevel=2)
        left = room(self, 0)
        if not encoder:
            rows = [row.input_ids for row in self.encoded(part, room=left)]
            self.means[part, ""] = mean_states(self.model, rows, self.tokenizer)
            return self.means[part, ""]
        model, tokenizer = load_model(encoder)
        self._check_encoder(encoder, fingerprint(model))
        for name in PARTS:
            if (name, encoder) in self.means:
                continue
            texts = [row.source.replace("\t", " ") for row in self.encoded(name, room=left)]
            self.means[name, encoder] = text_states(model.to(self.device).eval(), texts, tokenizer)
        return self.means[part, encoder]

    def _check_encoder(self, encoder: str, found: str) -> None:
        """UserError where another encoder has other weights than those that runs were named by."""
        known = self.encoders.setdefault(encoder, found)
        if found != known:
            raise UserError(
                f"{encoder} was changed while the run reads it: its weights had the hash {known[:12]} and have "
                f"{found[:12]}. Put it back and go on, with tunescope resume."
            )


def room(bench: Bench, taken: int) -> int | None:
    """How many positions a row may use beside a context that takes `taken`; None where the model has no limit.

    Raises:
        UserError: the context alone fills the model.
    """
    from tunescope.tasks.facts import positions

    limit = positions(bench.model.config, bench.tokenizer)
    if limit is not None and taken >= limit:
        raise UserError(f"the context takes {taken} positions and the model has {limit}; make it shorter.")
    return None if limit is None else limit - taken
