"""A model with artifacts attached, as lm-evaluation-harness asks one: its own `hf` model, told of what it cannot ask.

Imported by `entry` alone, where the harness is installed.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval.models.huggingface import HFLM
from torch import Tensor

from tunescope.attachment.artifact_folder import load
from tunescope.attachment.attached import Attached, attach
from tunescope.attachment.manifest import MANIFEST, read_manifest
from tunescope.errors import Note, UserError
from tunescope.exchange.serving.embeddings import line_notes
from tunescope.methods.artifact import Artifact, Context
from tunescope.methods.contexts.anchors import Anchors
from tunescope.methods.contexts.text import Text
from tunescope.models.anatomy import anatomy
from tunescope.system.hub_name import parted
from tunescope.tasks.prompts.templates import edges

REFUSED = ("pretrained", "peft", "delta", "autogptq", "gptqmodel", "tp_plan")  # of hf, which bring other weights


class _LastWord(int):
    """The id of the last of the words, where the harness puts it in front of a text; one within a text is an int."""


class TunedLM(HFLM):
    """lm_eval's `hf` with artifacts attached: prompts, padding, batches and stop words are its own.

    base: a folder or a name on the hub. artifact: folders of saved artifacts, joined by "+"; they stand in that order.
    more: as `hf` takes it (dtype, device, batch_size, max_length, which counts what contexts take, and so on).

    Contexts add no tokens to a text. One of words has begun the sequence, so that no start token follows it.

    Raises UserError for other weights than the artifact's, an encoder, and what acts from where an answer begins, which
    the harness does not tell.
    """

    add_bos_token: bool | None
    custom_prefix_token_id: int | None

    def __init__(self, base: str = "", artifact: str = "", **more: Any) -> None:
        other = next((name for name in REFUSED if more.get(name)), None)
        if other is not None or not base:
            given = f"{other}= brings weights that no artifact was made for. " if other else ""
            raise UserError(f"{given}Type: --model_args base=MODEL,artifact=FOLDER")
        self._folders, self._taken = folders(str(artifact)), 0  # which the harness may have read as a number
        self._tuned: Attached | None = None
        self._fewer: list[Artifact] | None = None  # without the last of the words, while whole texts are read
        name, revision = parted(str(base))
        at = {"revision": revision} if revision else {}
        super().__init__(pretrained=name, **{"use_safetensors": True, **at, **more})
        kind = anatomy(self.model).kind
        if kind == "encoder":
            raise UserError(f"{base} is an encoder, which writes no text: the harness asks decoders.")
        self._artifacts = [one for folder in self._folders for one in load(folder)]
        self._begun = any(isinstance(one.spec, Text | Anchors) for one in self._artifacts)
        for told in line_notes(self._artifacts, self.tokenizer):
            warnings.warn(Note(told), stacklevel=2)
        self._attach(self._artifacts)
        if self._begun and kind == "decoder":
            if self.add_bos_token:
                raise UserError("add_bos_token=True: the words in front have begun the sequence. Leave it out.")
            self.add_bos_token = False
        if self.max_length < 1:
            raise UserError(f"{artifact} takes {self._taken} positions, which is all that {base} has.")

    def _attach(self, artifacts: Sequence[Artifact]) -> None:
        """In the place of what is attached."""
        if self._tuned is not None:
            self._tuned.detach()
        self._tuned, self._taken = None, 0
        if not artifacts:
            return
        tuned = self._tuned = attach(self.model, *artifacts, tokenizer=self.tokenizer).eval()
        self._taken = tuned.positions
        if tuned.wants_output_start:
            raise UserError(
                f"{self._named} acts from where the answer begins, which the harness does not tell the model. "
                "Score it with tunescope compare."
            )
        if self._begun and self.backend == "seq2seq" and edges(self.tokenizer)[0]:
            raise UserError(f"{self._named} has begun the text, and this tokenizer begins each one anew.")

    @property
    def _named(self) -> str:
        return "+".join(self._folders)

    @property
    def max_length(self) -> int:
        """What is left for a text."""
        return int(super().max_length) - self._taken

    def tok_batch_encode(self, strings: list[str], *given: Any, **more: Any) -> tuple[Tensor, Tensor]:
        """Ids and mask, both (rows, longest); of an encoder padded on the right, which hf does on the left."""
        ids, mask = super().tok_batch_encode(strings, *given, **more)
        if self.backend != "seq2seq":
            return ids, mask
        order = mask.argsort(dim=1, descending=True, stable=True)
        return ids.gather(1, order), mask.gather(1, order)

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        if any(one.args[0] == "" for one in requests):
            self._check_start("a text without a context")
        found: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm)
        return found

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Of whole texts. Behind words their first token is predicted from the last of these, as within one text.

        One longer than the model reads is cut into windows, and the words stand in front of each.
        """
        if not self._begun:
            return list(super().loglikelihood_rolling(requests, disable_tqdm))
        last = max(index for index, one in enumerate(self._artifacts) if isinstance(one.spec, Context))
        words = self._artifacts[last]
        if not isinstance(words.spec, Text) or self.backend == "seq2seq":
            self._check_start("a whole text")
        ids, before = words.tensors["ids"], self.custom_prefix_token_id
        fewer = [replace(words, tensors={"ids": ids[:-1]})] if len(ids) > 1 else []
        try:
            self._fewer = [*self._artifacts[:last], *fewer, *self._artifacts[last + 1 :]]
            self.custom_prefix_token_id = _LastWord(ids[-1])
            return list(super().loglikelihood_rolling(requests, disable_tqdm))
        finally:
            self.custom_prefix_token_id, self._fewer = before, None

    def _loglikelihood_tokens(
        self, requests: list[Any], disable_tqdm: bool = False, override_bs: int | None = None
    ) -> list[tuple[float, bool]]:
        """What begins with the last of the words is read behind the others of them; all else behind all."""
        begins = [self._fewer is not None and isinstance(next(iter(one[1]), 0), _LastWord) for one in requests]
        found: dict[int, tuple[float, bool]] = {}
        for artifacts, which in ((self._artifacts, False), (self._fewer, True)):
            places = [place for place, begun in enumerate(begins) if begun == which]
            if artifacts is not None and places:
                with self._behind(artifacts):
                    some = super()._loglikelihood_tokens(
                        [requests[place] for place in places], disable_tqdm, override_bs
                    )
                found |= zip(places, some, strict=True)
        return [found[place] for place in range(len(requests))]

    @contextmanager
    def _behind(self, artifacts: Sequence[Artifact]) -> Iterator[None]:
        """These attached; `max_length` stays that of all."""
        if artifacts is self._artifacts:
            yield
            return
        taken = self._taken
        try:
            self._attach(artifacts)
            self._taken = taken
            yield
        finally:
            self._attach(self._artifacts)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        text = str(super().apply_chat_template(chat_history, add_generation_prompt))
        if text.startswith(self.tokenizer.bos_token or "\0"):
            self._check_start("a chat")
        return text

    def _check_start(self, what: str) -> None:
        """UserError where the harness puts a start token of its own behind words that have begun the sequence."""
        if self._begun:
            raise UserError(
                f"The harness begins {what} with a start token, and the words of {self._named} stand in "
                "front of it already. Put the words into the task's own text instead (description: in its YAML)."
            )

    def get_model_info(self) -> dict[str, Any]:
        """What the harness writes into its results, with the hash of each artifact's manifest."""
        short = len({Path(folder).name for folder in self._folders}) == len(set(self._folders))
        names = {Path(one).name if short else one: str(read_manifest(Path(one))["sha256"]) for one in self._folders}
        info: dict[str, Any] = super().get_model_info()
        return info | {"artifact": json.dumps(names)}


def folders(text: str) -> list[str]:
    """The folders of "A+B"; a folder with a plus in its name is one. Raises UserError for one that is no artifact."""
    found = [text] if (Path(text) / MANIFEST).exists() else text.split("+") if text else []
    for folder in found:
        read_manifest(Path(folder))
    return found
