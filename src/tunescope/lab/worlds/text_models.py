"""Small language models pretrained on given texts, cached by content: a decoder, a masked one, a T5 with its ways on.

They are for comparisons at home, where every method meets the same base model. What one of a few million parameters
has read on a laptop is little: its held-out loss is kept beside it.

    python -m tunescope.lab.worlds.text_models TEXTS --kind decoder --out DIR

The same command goes on with what was cut off, from its last minute.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.utils import logging

from tunescope.errors import UserError
from tunescope.lab.worlds import texts
from tunescope.lab.worlds.manifest import NAME as MANIFEST
from tunescope.lab.worlds.manifest import read_manifest, write_manifest
from tunescope.lab.worlds.text_files import digest, read
from tunescope.lab.worlds.text_networks import HEAD, Kind, Size, fresh
from tunescope.lab.worlds.world_cache import cache
from tunescope.system import files, machine, run_folder
from tunescope.system.lock import locked
from tunescope.system.package_version import package_version
from tunescope.trial.train.loop import Problem, Progress, Saving, train
from tunescope.trial.train.settings import Settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

MASKED = "masked words"
TOGETHER = 64  # rows of one evaluation pass
RATES = {
    "decoder": 2e-3,
    "masked": 1e-3,
    "t5": 2e-2,
}  # at the width of `Size`; of a T5 it is times the root mean square of each tensor, as Adafactor's is
EVERY = 100  # steps between two lines about how far it is
SAVE_EVERY = 60.0  # seconds
Pairs = tuple[Tensor, Tensor]
Report = Callable[[Progress], None]
Loss = Callable[["PreTrainedModel", Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class TextModel:
    """All that a model depends on but the texts themselves, whose digest is `sha256`.

    kind: "decoder" learns to go on with a text; "masked", a BERT, to tell the words that are masked in it; "t5" learns
    span corruption, then for `adapted` steps to write a row's second half from its first (LM adaptation, Lester et al.
    2021).
    """

    kind: Kind
    sha256: str
    settings: Settings
    size: Size = field(default_factory=Size)
    adapted: int = 0
    seed: int = 0

    @property
    def rate(self) -> float:
        """Of the optimizer. Past `Size`'s width it falls as that grows (Yang et al. 2022: Adam's of a hidden matrix).

        A T5's does not: it is relative to each tensor, and these become smaller with the width.
        """
        return RATES[self.kind] * (1 if self.kind == "t5" else min(1, Size.width / self.size.width))

    @property
    def identity(self) -> str:
        """16 hex digits: equal for equal texts, sizes and software."""
        versions = {name: package_version(name) for name in ("torch", "tokenizers", "tunescope")}
        drawn = {} if self.kind == "decoder" else {"drawn": "at every look"}
        return run_folder.identity(asdict(self) | {"rate": self.rate} | drawn | versions)


def pretrained(
    model: TextModel,
    read: Callable[[], list[str]],
    report: Report = lambda progress: None,
    *,
    saving: bool = False,
) -> Path:
    """A folder with the model, its tokenizer and a manifest: from the cache, or made now from what `read` gives.

    The manifest holds "losses": the nats a token on held-out rows by objective, and "characters_a_token".

    saving: how far it is is kept while it is made, and gone on from. One process at a time makes a model that way.

    Raises:
        UserError: another process makes the model, and saves how far it is.
    """
    folder = cache().with_name("texts") / model.identity
    if not folder.exists():
        base = None if not model.adapted else pretrained(replace(model, adapted=0), read, report, saving=saving)
        beside = folder.with_name(f"{folder.name}.tmp-{os.getpid()}")
        begun = folder.with_name(f"{folder.name}.begun")
        with locked(begun) if saving else nullcontext():
            _make(model, read(), base, beside, report, Saving(begun, SAVE_EVERY) if saving else None)
            files.put_first(beside, folder)
        if saving:
            files.remove(begun)
    return folder


def _make(
    model: TextModel, given: list[str], base: Path | None, out: Path, report: Report, saving: Saving | None
) -> None:
    words = texts.tokenizer(given, model.size.vocabulary)
    words = texts.with_mask(words, model.size.length) if model.kind == "masked" else words
    found = texts.corpus(given, words, model.size.length, model.seed)
    with machine.seeded(model.seed):
        made = fresh(model.kind, model.size, words) if base is None else _load(base)
        made.to(machine.default_device())
        _learn(made, model, found, words, report, saving)
    made.eval()
    losses = {name: held_out_loss(made, *pairs) for name, pairs in _objectives(model, found.held_out, words).items()}
    made.save_pretrained(out)
    words.save_pretrained(out)
    facts: dict[str, Any] = {
        "recipe": asdict(model) | {"rate": model.rate},
        "parameters": made.num_parameters(),
        "losses": losses,
    }
    facts |= {"characters_a_token": found.characters_a_token, "tokens": found.train.numel()}
    write_manifest(out, facts)


def _load(folder: Path) -> PreTrainedModel:
    from transformers import T5ForConditionalGeneration

    return T5ForConditionalGeneration.from_pretrained(folder)


def _objectives(model: TextModel, rows: Tensor, words: PreTrainedTokenizerFast) -> dict[str, Pairs]:
    """Objective -> inputs and targets; a decoder's are the same rows."""
    if model.kind == "decoder":
        return {"language model": (rows, rows)}
    if model.kind == "masked":
        return {MASKED: texts.masked(rows, words, model.seed)}
    return {
        "span corruption": texts.corrupted(rows, words, model.seed),
        "second half": texts.halves(rows, words),
    }


def _learn(
    network: PreTrainedModel,
    model: TextModel,
    found: texts.Corpus,
    words: PreTrainedTokenizerFast,
    report: Report,
    saving: Saving | None,
) -> None:
    alone = {"decoder": "language model", "masked": MASKED, "t5": "span corruption"}[model.kind]
    objective = "second half" if model.adapted else alone

    def pairs(rows: Tensor) -> Pairs:
        """What is masked or dropped is drawn anew at every look (Liu et al. 2019, section 4.1)."""
        seed = model.seed if model.kind == "decoder" else int(torch.randint(2**62, ()))
        return _objectives(replace(model, seed=seed), rows, words)[objective]

    one = pairs(found.train[:1])
    watched = _objectives(model, found.held_out, words)[objective]
    settings = replace(model.settings, steps=model.adapted) if model.adapted else model.settings
    parameters = dict(network.named_parameters())
    network.train()
    train(
        Problem(
            parameters=parameters,
            rates=rates_of(parameters, model),
            loss=lambda rows: loss(network, *pairs(found.train[rows])),
            score=lambda: -held_out_loss(network, *watched),
            lengths=[one[0].shape[1]] * len(found.train),
            labelled=[one[1].shape[1]] * len(found.train),
        ),
        settings,
        model.seed,
        saving=saving,
        report=report,
    )


def rates_of(parameters: Mapping[str, Tensor], model: TextModel) -> dict[str, float]:
    """A rate for each tensor. A T5's begin on scales a hundred times apart, and one rate for all hardly teaches it."""
    if model.kind != "t5":
        return dict.fromkeys(parameters, model.rate)
    return {
        name: model.rate * max(1e-3, one.detach().square().mean().sqrt().item()) for name, one in parameters.items()
    }


def loss(network: PreTrainedModel, inputs: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy of the targets that are not -100; of a decoder, of every token but the first."""
    inputs, targets = inputs.to(network.device), targets.to(network.device)
    if network.config.is_encoder_decoder or network.config.model_type == "bert":
        logits = network(input_ids=inputs, labels=targets).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
    logits = network(input_ids=inputs[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1).float(), targets[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(
    network: PreTrainedModel, inputs: Tensor, targets: Tensor, of: Loss = loss, together: int = TOGETHER
) -> float:
    """The loss over all rows, `together` at a time; the network's mode is left as it was."""
    was = network.training
    network.eval()
    parts = zip(torch.split(inputs, together), torch.split(targets, together), strict=True)
    total = sum(float(of(network, *part)) * len(part[0]) for part in parts)
    network.train(was)
    return total / len(inputs)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tunescope.lab.worlds.text_models", description=__doc__)
    parser.add_argument("texts", help="a file or folder: .txt (one text a line), .jsonl, .csv or .tsv (field text)")
    parser.add_argument("--kind", choices=["decoder", "masked", "t5"], default="decoder")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument("--steps", type=int, default=3000, help="updates of pretraining")
    parser.add_argument("--adapted", type=int, default=0, help="updates of LM adaptation after them, of a t5")
    parser.add_argument("--layers", type=int, default=Size.layers)
    parser.add_argument("--width", type=int, default=Size.width)
    parser.add_argument("--seed", type=int, default=0)
    how = "of the products; a processor without bfloat16 is several times faster in float32"
    parser.add_argument("--precision", choices=["bfloat16", "float32"], default="bfloat16", help=how)
    given = parser.parse_args()
    _check(parser, given)
    try:
        _make_asked(given)
    except UserError as problem:
        parser.error(str(problem))


def _make_asked(given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    size = Size(layers=given.layers, heads=given.width // HEAD, width=given.width)
    training = Settings(steps=given.steps, batch_size=32, schedule="cosine", precision=given.precision, eval_every=500)
    model = TextModel(given.kind, digest(given.texts), training, size, adapted=given.adapted, seed=given.seed)
    folder = pretrained(model, lambda: read(given.texts), _print_progress, saving=True)
    given.out.mkdir(parents=True, exist_ok=True)
    shutil.copy2(folder / MANIFEST, given.out)  # first: by it a copy that was cut off is known, and made whole
    shutil.copytree(folder, given.out, dirs_exist_ok=True)
    facts = read_manifest(given.out)
    losses = ", ".join(f"{name} {value:.3f}" for name, value in facts["losses"].items())
    print(f"{given.out}: {facts['parameters']:,} parameters; nats a token held out: {losses}")


def _check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """What cannot be made ends here, with one line."""
    if given.width < HEAD or given.width % HEAD:
        parser.error(f"--width {given.width}: heads are of {HEAD}, so it is a multiple of that")
    if min(given.steps, given.layers) < 1 or given.adapted < 0:
        parser.error("--steps and --layers are at least 1, and --adapted at least 0")
    if any(one.is_file() for one in (given.out, *given.out.parents)):
        parser.error(f"--out {given.out}: a file stands there; name a folder")
    if given.out.is_dir() and any(given.out.iterdir()) and not (given.out / MANIFEST).is_file():
        parser.error(f"--out {given.out} holds other files, and no model of texts; name another folder")
    if given.adapted and given.kind != "t5":
        parser.error(f"--adapted is of --kind t5: it makes a language model of one, and not of a {given.kind}")


def _print_progress(now: Progress) -> None:
    if now.step % EVERY == 0:
        left = f"{now.seconds_left / 60:.0f} minutes left"
        print(
            f"step {now.step:,} of {now.steps:,}: loss {now.loss:.3f}, {left}",
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    main()
