"""How answers are looked for: greedily, or by a beam search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tunescope.errors import UserError


@dataclass(frozen=True)
class BeamSearch:
    """The settings of a search without chance, as transformers carries it out; of one beam it is greedy.

    length_penalty: of beams, the power of an answer's length (its end counted) that its log-probability is divided
        by; above 0 longer answers gain. None: 1.
    no_repeat_ngram: no run of so many tokens is written twice in an answer; what stands in the input may be repeated,
        also where the input and the answer are one sequence. 0: any may.
    """

    beams: int = 1
    length_penalty: float | None = None
    min_new_tokens: int = 0
    no_repeat_ngram: int = 0

    def __post_init__(self) -> None:
        if self.beams < 1:
            raise UserError(f"Generation(beams={self.beams}) must be at least 1; 1 is greedy.")
        if self.min_new_tokens < 0 or self.no_repeat_ngram < 0:
            raise UserError(
                f"Generation(min_new_tokens={self.min_new_tokens}, no_repeat_ngram={self.no_repeat_ngram}): neither "
                "may be below 0, which sets no such limit."
            )
        if self.length_penalty is not None and not math.isfinite(self.length_penalty):
            raise UserError(f"Generation(length_penalty={self.length_penalty}) is no number; type: --length-penalty 1")
        if self.length_penalty is not None and self.beams == 1:
            raise UserError(
                f"Generation(length_penalty={self.length_penalty:g}) has no effect on one beam; type: --beams 5"
            )

    def check(self, longest: int, has_end: bool) -> None:
        """UserError where the shortest answer is longer than the longest, or nothing could end one sooner."""
        if self.min_new_tokens and not has_end:
            raise UserError(
                f"Generation(min_new_tokens={self.min_new_tokens}) has no effect: the tokenizer has no "
                "end-of-sequence token, so every answer has max_new_tokens tokens."
            )
        if self.min_new_tokens > longest:
            raise UserError(
                f"Generation(min_new_tokens={self.min_new_tokens}) is more than max_new_tokens={longest}; type: "
                f"--max-new-tokens {self.min_new_tokens}"
            )

    def keywords(self) -> dict[str, Any]:
        """For transformers' GenerationConfig; repetition is not among them, since there it counts the input too."""
        found: dict[str, Any] = {"num_beams": self.beams, "do_sample": False}
        if self.beams > 1:
            found["length_penalty"] = self._penalty()
        if self.min_new_tokens:
            found["min_new_tokens"] = self.min_new_tokens
        return found

    def note(self, longest: int) -> str:
        """A sentence for the results."""
        how = "Greedy decoding" if self.beams == 1 else f"Beam search, {self.beams} beams, length penalty "
        how += "" if self.beams == 1 else f"{self._penalty():g},"
        shortest = f"at least {self.min_new_tokens} and " if self.min_new_tokens else ""
        runs = f"; no {self.no_repeat_ngram} tokens in a row twice" if self.no_repeat_ngram else ""
        return f"{how} of {shortest}at most {longest} tokens{runs}."

    def _penalty(self) -> float:
        return 1.0 if self.length_penalty is None else self.length_penalty
