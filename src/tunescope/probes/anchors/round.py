"""Queries behind demonstrations: what every section of a study looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tunescope.attachment.attention.edit import editing
from tunescope.attachment.attention.function import Edit
from tunescope.attachment.attention.reach import reached, resting
from tunescope.attachment.resumed_pass import Passes, plain_layers
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact
from tunescope.models.anatomy import anatomy
from tunescope.probes.anchors.compression import read
from tunescope.probes.anchors.loyalty import Queries
from tunescope.probes.anchors.prompts import Batch, Choices, Prompt, batch, cut
from tunescope.probes.anchors.saliency import answers
from tunescope.tasks.prompts.spans import Spans

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SHARED = 4  # queries behind the same demonstrations: with fewer it is quicker to read every prompt as a whole


@dataclass(frozen=True)
class Round:
    """One draw of demonstrations in front of many queries, or of as many demonstrations in front of each.

    labels: the classes, in the order of `choices.tokens`. seed: of the draw. at_once: prompts in one batch.
    begun_at: layers at which passes behind changed demonstrations are to begin, where the model allows it.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    choices: Choices
    labels: Sequence[str]
    prompts: Sequence[Prompt]
    seed: int
    at_once: int = 8
    begun_at: tuple[int, ...] = ()

    @cached_property
    def cut(self) -> list[list[int]]:
        """The numbers of each batch's prompts."""
        return cut(self.model, self.prompts, self.choices.lead, self.at_once)

    def batches(self) -> Iterator[Batch]:
        """The prompts, cut so; `in_order` puts what is made of each batch in the prompts' own order."""
        for numbers in self.cut:
            prompts = [self.prompts[number] for number in numbers]
            yield batch(self.model, self.tokenizer, prompts, self.choices.lead)

    def in_order(self, parts: Sequence[Tensor]) -> Tensor:
        """(prompts, ...), of what was made of each batch."""
        return torch.cat(list(parts))[torch.tensor([number for some in self.cut for number in some]).argsort()]

    @cached_property
    def gold(self) -> Tensor:
        """(prompts,), the true classes."""
        return torch.tensor([prompt.query.label for prompt in self.prompts])

    @cached_property
    def classes(self) -> Tensor:
        """(prompts, demonstrations), the class of each."""
        return torch.tensor([[self.labels.index(name) for name in prompt.spans.names] for prompt in self.prompts])

    @property
    def shown(self) -> int:
        """How many demonstrations stand in front of a query."""
        return len(self.prompts[0].spans.names)

    @property
    def tokens(self) -> Tensor:
        """(classes,), the token that tells each class from the others."""
        return torch.tensor(self.choices.tokens, device=self.model.device)

    @cached_property
    def groups(self) -> list[tuple[Spans, list[int]]]:
        """Demonstrations, and which prompts have them."""
        found: dict[tuple[int, ...], tuple[Spans, list[int]]] = {}
        for number, prompt in enumerate(self.prompts):
            found.setdefault(prompt.spans.ids, (prompt.spans, []))[1].append(number)
        return list(found.values())

    @cached_property
    def read(self) -> list[Artifact] | None:
        """The keys and values of each group's demonstrations, read once.

        None where few queries share them, in an encoder-decoder, and in a family whose keys and values cannot be kept:
        there every prompt is read as a whole.
        """
        if anatomy(self.model).kind != "decoder" or len(self.groups) * SHARED > len(self.prompts):
            return None
        try:
            return [read(self.model, self.tokenizer, spans.ids) for spans, _ in self.groups]
        except UserError:
            return None

    @cached_property
    def _asked(self) -> list[Queries]:
        """The queries behind each group's demonstrations."""
        layers = plain_layers(self.model) if self.begun_at else None
        return [
            Queries(
                self.model,
                self.tokenizer,
                [self.prompts[number].query for number in numbers],
                self.choices,
                at_once=self.at_once,
                passes=None if layers is None else Passes(layers, self.begun_at),
            )
            for _, numbers in self.groups
        ]

    def behind(self, made: Callable[[Artifact, Spans], Artifact], begun_at: int | None = None) -> Tensor:
        """(prompts, vocabulary), on the CPU: every query behind what `made` makes of its demonstrations, as read.

        begun_at: a layer below which that is the demonstrations as they are; `can_begin` must hold.
        """
        assert self.read is not None
        found = dict[int, Tensor]()
        for whole, (spans, numbers), asked in zip(self.read, self.groups, self._asked, strict=True):
            found |= dict(zip(numbers, asked.logits(made(whole, spans), begun_at=begun_at), strict=True))
        return torch.stack([found[number] for number in range(len(self.prompts))])

    @cached_property
    def can_begin(self) -> bool:
        """Whether a pass may begin at the layers of `begun_at`: it is tried at the last of them, on these prompts.

        A layer that takes more than states from those below fails: Gemma 4's may take their keys and values.
        """
        if self.read is None or any(asked.passes is None for asked in self._asked):
            return False
        whole = self.logits
        try:
            begun = self.behind(lambda one, _: one, max(self.begun_at))
        except Exception:
            return False
        return torch.allclose(begun, whole, rtol=1e-4, atol=1e-4)

    @cached_property
    def logits(self) -> Tensor:
        """(prompts, vocabulary), of the model as it is, on the CPU."""
        if self.read is not None:
            return self.behind(lambda whole, _: whole)
        with resting(self.model), torch.no_grad():
            return self.in_order([answers(self.model, one).cpu() for one in self.batches()])

    @cached_property
    def predicted(self) -> Tensor:
        """(prompts,), the class with the highest logit."""
        return self.chosen(self.logits)

    def by_class(self, logits: Tensor) -> Tensor:
        """(prompts, vocabulary) -> (prompts, classes)."""
        return logits[:, self.tokens.cpu()]

    def chosen(self, logits: Tensor) -> Tensor:
        return self.by_class(logits).argmax(-1)

    @property
    def last(self) -> tuple[str, ...]:
        """The attention modules that see the demonstrations from where the answer is read, by depth."""
        which = "cross" if anatomy(self.model).kind == "encoder-decoder" else "self"
        return tuple(f.name for f in reached(self.model) if f.name.startswith("decoder.") and f.name.endswith(which))

    @property
    def reading(self) -> tuple[str, ...]:
        """The attention modules in which the demonstrations read one another, by depth."""
        stack = "encoder" if anatomy(self.model).kind == "encoder-decoder" else "decoder"
        return tuple(f.name for f in reached(self.model) if f.name.startswith(stack) and f.name.endswith("self"))

    def attended(self) -> dict[str, Tensor]:
        """ "decoder.0.self" -> (prompts, heads, demonstrations): attention from the answer's position to label words.

        A word of several tokens has the sum of its tokens' attention.
        """
        found: dict[str, list[Tensor]] = {name: [] for name in self.last}
        for one in self.batches():
            words = one.words(self.shown)

            def keep(name: str, one: Batch = one, words: Sequence[Tensor] = words) -> Edit:
                def look(weights: Tensor, _kwargs: Mapping[str, Any]) -> Tensor:
                    row = weights[:, :, one.answer, -one.real.shape[1] :]
                    parts = [(row * word[:, None]).sum(-1) for word in words]
                    found[name].append(torch.stack(parts, -1).cpu().double())
                    return weights

                return Edit(weights=look)

            with editing(self.model, {name: keep(name) for name in self.last}), resting(self.model), torch.no_grad():
                answers(self.model, one)
        return {name: self.in_order(parts) for name, parts in found.items()}
