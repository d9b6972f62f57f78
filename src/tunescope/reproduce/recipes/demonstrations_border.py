"""What a model answers behind demonstrations that are tokenised with the query, and apart from it.

Many tokenizers split white space by what follows: GPT-2's has one token for the two line ends that end a text, and two
where a word goes on. Ids that are made of the demonstrations and of the query, one behind the other, then have a token
at their border that the text of both together has not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.methods.contexts.text import words_before
from tunescope.probes.anchors.compression import read
from tunescope.probes.anchors.loyalty import Queries
from tunescope.report.cells import Cell, Table
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes import anchors

if TYPE_CHECKING:
    from torch import Tensor

    from tunescope.probes.anchors.round import Round

TITLE = "Demonstrations tokenised with the query, and apart from it: what the border changes"
SOURCE = "a question of this project's own; prompts in papers are one text"
TAKES = ("quick", "seeds", "model", "data", "inputs", "template", "words", "test")

SHOWN = (1, 4)  # demonstrations of each label
WAYS = {"one": "one text with the query", "apart": "by themselves"}


def settings(ask: Ask) -> Settings:
    if ask.model is None or ask.data is None:
        raise UserError(f"{ask.name} asks a given model: give --model and --data.")
    return anchors.settings(ask) | {"k": list(SHOWN[:1] if ask.quick else SHOWN)}


def worlds(_settings: Settings) -> list[Any]:
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    return [{"k": k, "seed": seed} for k in settings["k"] for seed in range(settings["seeds"])]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    """Of each way the tokens in front and the accuracy; and how far the answers of the two lie apart."""
    (round,) = anchors.rounds(settings | {"k": unit["k"]}, [unit["seed"]])
    fronts = {"one": round.prompts[0].spans.ids, "apart": _apart(round)}
    asked = Queries(round.model, round.tokenizer, [prompt.query for prompt in round.prompts], round.choices)
    shares = {
        way: asked.by_class(asked.logits(read(round.model, round.tokenizer, ids))).double().softmax(-1)
        for way, ids in fronts.items()
    }
    one, apart = shares["one"], shares["apart"]
    return {
        "tokens": {way: len(ids) for way, ids in fronts.items()},
        "accuracy": {way: _accuracy(found, round) for way, found in shares.items()},
        "changed": float((one.argmax(-1) != apart.argmax(-1)).double().mean()),
        "moved": float((one - apart).abs().sum(-1).mean() / 2),
    }


def _accuracy(shares: Tensor, round: Round) -> float:
    return float((shares.argmax(-1).cpu() == round.gold.cpu()).double().mean())


def _apart(round: Round) -> tuple[int, ...]:
    """The demonstrations' own ids. UserError where their text cannot be told from their ids."""
    whole, tokenizer = round.prompts[0].spans.ids, round.tokenizer
    for start in range(3):  # of what the tokenizer begins any text with
        text = tokenizer.decode(whole[start:], clean_up_tokenization_spaces=False)
        if tuple(words_before(tokenizer, text)) == whole[start:]:
            return (*whole[:start], *tokenizer(text, add_special_tokens=False)["input_ids"])
    raise UserError("demonstrations-border needs a tokenizer that gives a text back as it was.")


def table(settings: Settings, found: Found) -> Table:
    """A row for each number of demonstrations and each way."""
    rows = []
    for k in settings["k"]:
        draws = [outcome for unit, outcome in found if unit["k"] == k]
        for way, told in WAYS.items():
            name = f"{k} demonstration{'s' * (k > 1)} a label, tokenised {'as ' * (way == 'one')}{told}"
            lengths = Cell(tuple(float(one["tokens"][way]) for one in draws), digits=0)
            apart = [Cell.of(draws, number) if way == "apart" else Cell(text="-") for number in ("changed", "moved")]
            gained = tuple(one["accuracy"]["apart"] - one["accuracy"]["one"] for one in draws)
            more = Cell(gained, bounds=(-1.0, 1.0)) if way == "apart" else Cell(text="-")
            cells = [lengths, Cell.of(draws, "accuracy", way), more, *apart]
            rows.append((name, cells))
    columns = ("tokens in front", "accuracy", "more of it", "answers changed", "probability moved")
    return Table(columns, rows, _notes(settings))


def _notes(settings: Settings) -> list[str]:
    asked = f", asked by {settings['task']['template']!r}" if "template" in settings["task"] else ""
    return [
        f"{settings['rows']:,} test rows at most{asked}; the intervals are over {settings['seeds']} draws of the "
        "demonstrations, which end in an empty line. More of it: by themselves less as one text.",
        "Probability moved: half the sum of the differences of the labels' probabilities, the mean over rows.",
    ]
