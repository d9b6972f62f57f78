"""The loss of a prompt on rows of the training part: its gradient at the prompt's embeddings, and many at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tunescope.attachment.attached import Attached, attach
from tunescope.attachment.context_keys import embedder
from tunescope.attachment.site_hooks import frozen
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact
from tunescope.methods.contexts.soft import Soft
from tunescope.models.anatomy import anatomy
from tunescope.search.vocabulary import Vocabulary
from tunescope.tasks.answers.batches import exact, in_batches
from tunescope.tasks.task import Encoded, with_front
from tunescope.trial.bench import Bench, room

AT_ONCE = (32, 128)  # rows of several candidates in one forward pass, on a CPU and elsewhere
LOST = "prompts whose loss was no number"
GRADIENT = 3  # passes of one row forward and backward, in passes of one row forward


class Slope(NamedTuple):
    """The loss of a prompt and its gradient at the prompt's embeddings (length, width)."""

    loss: float
    gradient: Tensor


@dataclass
class Objective:
    """What searches minimise, on a model that the prompt stands in front of; a prompt is rows of `table`.

    (1 - fluency) times the task's loss, plus fluency times the mean cross-entropy of the prompt's tokens from the
    second on, each given those before it (Wen et al. 2023, equation 2).

    table: (allowed, width), the embeddings of the allowed tokens, as the model's first layer sees them.
    passes: rows that went forward so far; a gradient counts as three.
    counts: what was dropped on the way.
    """

    bench: Bench
    words: Vocabulary
    table: Tensor
    length: int
    fluency: float
    rows: Sequence[Encoded]
    tuned: Attached
    passes: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def batch(self, size: int, generator: torch.Generator) -> list[Encoded]:
        """Different rows, drawn by the generator; all where there are fewer."""
        chosen = torch.randperm(len(self.rows), generator=generator)[:size]
        return [self.rows[int(index)] for index in chosen]

    def slope(self, prompt: Tensor, batch: Sequence[Encoded]) -> Slope:
        """At the prompt (length,); one pass over the prompt for the whole batch in a decoder.

        Raises UserError for a gradient that is no number: no step follows from it, and projected it is the first token.
        """
        own, (leaf,) = self._own(), self.tuned.parameters()
        with torch.no_grad():
            leaf[own] = self.table[prompt]
        leaf.grad = None
        loss = self.bench.task.loss(self.bench.model, batch, self.bench.tokenizer)
        self.passes += GRADIENT * len(batch)
        if self.fluency:
            loss = (1 - self.fluency) * loss + self.fluency * self._told_by_itself(leaf, prompt)
            self.passes += GRADIENT
        loss.backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        found = Slope(float(loss.detach()), leaf.grad[own].clone())
        if not found.gradient.isfinite().all():
            raise UserError(
                f"The gradient of a prompt's loss is no number (NaN or infinite), the loss {found.loss:g}: the model's "
                "weights may hold some, or its precision overflow. Load it in float32."
            )
        return found

    def losses(self, prompts: Tensor, batch: Sequence[Encoded]) -> Tensor:
        """(n,) losses of prompts (n, length) on the same rows, rows of like length in a forward pass.

        The prompt's tokens stand in front of each row, which is what attaching the text does, as one sequence. A loss
        that is no number is infinite, so that it is never the least, and counted.
        """
        assert not self.fluency
        rows = [with_front(self.front(prompt), row) for prompt in prompts for row in batch]
        model, tokenizer = self.bench.model, self.bench.tokenizer

        def work(some: list[int]) -> Tensor:
            return self.bench.task.row_losses(model, [rows[index] for index in some], tokenizer)

        with self.tuned.paused():
            lengths = [len(row.input_ids) for row in rows]
            each = torch.stack(in_batches(model, lengths, AT_ONCE[model.device.type != "cpu"], work, deal=False))
        self.passes += len(rows)
        found = each.view(len(prompts), len(batch)).sum(-1) / sum(max(1, len(row.target_ids)) for row in batch)
        self.counts[LOST] += int(found.isnan().sum())
        return found.masked_fill(found.isnan(), torch.inf)

    def ids(self, prompt: Tensor) -> list[int]:
        """The tokens of a prompt, without the start token."""
        return [self.words.ids[int(place)] for place in prompt]

    def front(self, prompt: Tensor) -> tuple[int, ...]:
        return self.words.whole(self.ids(prompt))

    def _own(self) -> slice:
        """The places of the prompt among all that stands in front of a row."""
        return slice(len(self.words.start), len(self.words.start) + self.length)

    def _told_by_itself(self, leaf: Tensor, prompt: Tensor) -> Tensor:
        """The mean cross-entropy of the prompt's tokens 2 to M, on a model with nothing in front of them."""
        model = self.bench.model
        with self.tuned.paused(), frozen(model):
            rows = leaf.to(anatomy(model).table.weight.dtype)[None, : self._own().stop - 1].clone()  # CTRL scales it
            logits = model(inputs_embeds=rows, use_cache=False).logits[0, self._own().start :]
        return F.cross_entropy(exact(logits), torch.tensor(self.ids(prompt)[1:], device=logits.device))


@contextmanager
def objective(bench: Bench, words: Vocabulary, length: int, fluency: float = 0.0) -> Iterator[Objective]:
    """Within it, a prompt of `length` tokens stands in front of the bench's model.

    Raises:
        UserError: an encoder, whose head would have to be trained; a length below 1, or longer than the model takes;
            a fluency that is no share, or is asked of a model or a prompt that has none.
    """
    _check(bench, length, fluency)
    embed, device = embedder(bench.model), anatomy(bench.model).device
    taken = len(words.whole(())) + length
    rows = bench.encoded("train", behind=words.frame.behind, room=room(bench, taken))
    table = embed(torch.tensor(words.ids))
    start, end = (embed(torch.tensor(ids, dtype=torch.long)) for ids in (words.start, words.end))
    leaf = torch.cat([start, table[:1].expand(length, -1), end])
    leaf = leaf.to(device, torch.promote_types(leaf.dtype, torch.float32)).clone()
    prompt = Artifact(Soft(length=taken), {"embeddings": leaf})
    with attach(bench.model, prompt, tokenizer=bench.tokenizer) as tuned:
        yield Objective(bench, words, table.to(leaf.dtype), length, fluency, rows, tuned.train())


def _check(bench: Bench, length: int, fluency: float) -> None:
    check_answers(bench)
    if length < 1:
        raise UserError(f"length={length}: a prompt has at least one token.")
    if not 0 <= fluency < 1:
        raise UserError(f"fluency={fluency:g} is a share of the loss; give 0 or more and less than 1.")
    if fluency and bench.kind != "decoder":
        raise UserError(
            f"fluency={fluency:g} asks how likely the prompt is as text, and an {bench.kind} does not say; leave it "
            "out, or give a decoder."
        )
    if fluency and length < 2:
        raise UserError("fluency is of each token given those before it; give length=2 or more.")


def check_answers(bench: Bench) -> None:
    """Raises UserError where the model has no answers that a prompt could change."""
    if bench.task.needs_head is not None:
        raise UserError(
            "A search trains nothing, and an encoder has no answer before its head is trained: give a decoder or an "
            "encoder-decoder; or a masked model that answers in words, with --by words and {mask} in the --template."
        )
