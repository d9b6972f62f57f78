"""What a recipe can be asked for: the options of `tunescope reproduce`, said where their fields are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tunescope.system.option import FieldOption, Option, options_of


@dataclass(frozen=True)
class Ask:
    """What the user typed. None: as the recipe has it."""

    name: str
    protocol: Annotated[
        Literal["tuned", "paper"],
        Option("tuned (learning rates tried, early stop) or paper (published steps and rates).", shows_default=True),
    ] = "tuned"
    quick: Annotated[bool, Option("a small size, minutes.")] = False
    seeds: Annotated[int | None, Option("how many.")] = None
    model: Annotated[
        str | None,
        Option(
            "for recipes on a given model: a folder, or a name on the Hugging Face hub; some take several.",
            rest="others",
        ),
    ] = None
    data: Annotated[
        str | None,
        Option("for recipes on given data: a file, or a corpus as CORPUS:FOLDER (`tunescope data` lists them)."),
    ] = None
    others: tuple[str, ...] = ()  # models beside the first, for recipes that take several
    steps: Annotated[
        int | None, Option("for recipes on a given model: updates of every line, instead of the protocol's.")
    ] = None
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Option(
            "for recipes on a given model: auto (bfloat16 on a GPU that has it), float32 or bfloat16.",
            shows_default=True,
        ),
    ] = "auto"
    accumulate: Annotated[
        int | None, Option("for recipes on a given model: parts that each batch goes through in, to save memory.")
    ] = None
    batch_size: Annotated[
        int | None, Option("for recipes on a model and a corpus: rows of a step, instead of the protocol's.")
    ] = None
    inputs: Annotated[
        int | None,
        Option(
            "for the same: score at most so many inputs of dev and of test, the same for every line; of `anchors` on "
            "given data, test rows a draw."
        ),
    ] = None
    load: Annotated[
        Literal["", "bfloat16", "8bit", "4bit"],
        Option("for the same: the model's weights in bfloat16, 8bit or 4bit, as in `compare`."),
    ] = ""
    device_map: Annotated[
        Literal["", "auto"],
        Option("for the same: auto, the model's layers spread over this machine's GPUs, as in `compare`."),
    ] = ""
    gradient_checkpointing: Annotated[
        bool, Option("for the same: keep little of each layer for the backward pass, as in `compare`.")
    ] = False
    lines: Annotated[
        tuple[str, ...],
        Option("for recipes on given data or a given model: only the lines that have one of these in their names."),
    ] = ()
    template: Annotated[
        str | None,
        Option(
            "for recipes on given data of labels (anchors, lm-bff, pez, reweight and others): what a row is asked as, "
            "with {text} in it."
        ),
    ] = None
    words: Annotated[tuple[str, ...], Option("for the same: label words, as neg=bad,pos=great.")] = ()
    k: Annotated[
        int | None,
        Option("for `anchors` and `anchors-speed` on given data: demonstrations of each class (default: 1)."),
    ] = None
    test: Annotated[
        str | None, Option("for recipes of attention on given data: test rows (default: a tenth of DATA).")
    ] = None
    check: bool = False  # nothing is run: what it takes is estimated, without the model's weights

    @property
    def models(self) -> tuple[str, ...]:
        return () if self.model is None else (self.model, *self.others)


def given(ask: Ask) -> list[FieldOption]:
    """The options that are asked otherwise than usual."""
    return [one for one in options_of(Ask) if getattr(ask, one.field) != one.default]
