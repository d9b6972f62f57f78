"""The pretrained models of the lab's worlds: a body and what it learns, kept in the cache by content."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tunescope.lab.worlds.architectures import Body, new_model
from tunescope.lab.worlds.curriculum import WORDS, WORLD, Curriculum
from tunescope.lab.worlds.manifest import NAME, write_manifest
from tunescope.lab.worlds.pretrain import train
from tunescope.lab.worlds.sights import Reader, sight_loss, whole_share
from tunescope.lab.worlds.vocabulary import tokenizer_for
from tunescope.lab.worlds.world_cache import cache
from tunescope.system import files, machine, run_folder
from tunescope.system.package_version import package_version

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

TESTED = 300  # test rows of each known skill
RECIPE = 1  # one more whenever a constant of `curriculum` or `architectures` changes what is learnt


@dataclass(frozen=True)
class Base:
    """All that a pretrained model depends on."""

    body: Body
    curriculum: Curriculum
    steps: int
    rate: float
    seed: int

    @property
    def identity(self) -> str:
        """16 hex digits: equal for equal models on the same software."""
        versions = {name: package_version(name) for name in ("torch", "transformers", "tunescope")}
        return run_folder.identity(asdict(self) | {"recipe": RECIPE, "world": asdict(WORLD), "words": WORDS} | versions)

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Of all the lab's words, so that a word has one id in all bases."""
        return tokenizer_for(WORLD, WORDS, encoder=self.body.kind == "encoder")

    def new(self) -> PreTrainedModel:
        """The model before it has learned anything."""
        return new_model(self.body, self.tokenizer(), self.seed)

    def reader(self, model: PreTrainedModel) -> Reader:
        """How this model sees documents."""
        words = self.tokenizer()
        return Reader(
            self.body.kind,
            start=getattr(model.config, "decoder_start_token_id", None) or 0,
            first=words.cls_token_id or 0,
            mask=words.mask_token_id or 0,
        )


def pretrained(base: Base) -> Path:
    """The model's folder with tokenizer and manifest: from the cache, or trained now, on one thread, and put there.

    The manifest holds "known": for each skill of the mix the share of whole answers on test rows behind its name, or
    the words of its topic.
    """
    folder = cache() / base.identity
    if not (folder / NAME).exists():
        beside = folder.with_name(f"{folder.name}.tmp-{os.getpid()}")
        with machine.threads(1), contextlib.redirect_stdout(sys.stderr):
            _make(base, beside)
        if not (folder / NAME).exists():
            files.remove(folder)  # what another version left there
        files.put_first(beside, folder)  # of two processes that make the same model, one keeps its own
    return folder


def _make(base: Base, out: Path) -> None:
    model = base.new()
    reader = base.reader(model)
    model.train()
    train(model, base.curriculum.batches(reader, base.steps, base.seed), sight_loss, base.steps, base.rate)
    model.eval()
    tests = {skill: base.curriculum.test(reader, skill, TESTED) for skill in base.curriculum.mix}
    model.save_pretrained(out)
    base.tokenizer().save_pretrained(out)
    known = {skill: whole_share(model, test) for skill, test in tests.items()}
    write_manifest(out, {"base": asdict(base), "parameters": model.num_parameters(), "known": known})
