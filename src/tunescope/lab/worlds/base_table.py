"""The models of the lab's worlds and what each is asked for: 38 of six architectures, one to twelve layers deep.

Of a generation's mix two skills are asked for that are known, one that is two known ones in a row, one near and one
far; of a classification's a known concept, the same under other labels (a second known one where a head answers, to
which labels are nothing), a related one and an unrelated one. Lists of two are taken in turn from model to model.

A T5 of this size tells places apart only after many times the steps, so its subjects ask for few of them, and for two
near skills in place of a composed one.
"""

from dataclasses import dataclass

from tunescope.lab.worlds.architectures import Body
from tunescope.lab.worlds.bases import Base
from tunescope.lab.worlds.curriculum import Curriculum, Task

Pair = tuple[str, str]


@dataclass(frozen=True)
class Subject:
    """What a model learns, and what it can be asked for."""

    task: Task
    mix: tuple[str, str, str, str]
    known: Pair
    near: Pair
    far: Pair
    composed: Pair | tuple[()] = ()


def _skills(
    mix: tuple[str, str, str, str], known: Pair, near: Pair, far: Pair, composed: Pair | tuple[()] = ()
) -> Subject:
    return Subject("generation", mix, known, near, far, composed)


def _concepts(mix: tuple[str, str, str, str], near: Pair, far: Pair) -> Subject:
    return Subject("classification", mix, (mix[0], mix[1]), near, far)


SUBJECTS: dict[str, Subject] = {
    "orders": _skills(
        ("ascending", "add1", "reverse", "rotate"),
        known=("ascending", "reverse"),
        composed=("ascending then add1", "reverse then rotate"),
        near=("descending", "rotate_two"),
        far=("double_histogram", "minimum"),
    ),
    "least": _skills(
        ("descending", "add2", "swap_pairs", "minimum"),
        known=("minimum", "swap_pairs"),
        composed=("descending then add2", "swap_pairs then add2"),
        near=("maximum", "ascending"),
        far=("occurrence", "reverse"),
    ),
    "running": _skills(
        ("reverse", "add1", "running_maximum", "copy_first"),
        known=("running_maximum", "reverse"),
        composed=("running_maximum then add1", "reverse then add1"),
        near=("running_minimum", "copy_last"),
        far=("double_histogram", "ascending"),
    ),
    "counts": _skills(
        ("ascending", "rotate", "double_histogram", "add2"),
        known=("double_histogram", "rotate"),
        composed=("rotate then add2", "ascending then add2"),
        near=("rotate_back", "occurrence"),
        far=("larger_of_two", "copy_first"),
    ),
    "ranks": _skills(
        ("swap_pairs", "rank", "add1", "copy_first"),
        known=("rank", "swap_pairs"),
        composed=("swap_pairs then add1", "rank then add1"),
        near=("rank_from_above", "copy_last"),
        far=("reverse", "running_maximum"),
    ),
    "larger": _skills(
        ("larger_of_two", "reverse", "add2", "minimum"),
        known=("larger_of_two", "minimum"),
        composed=("larger_of_two then add2", "reverse then add2"),
        near=("smaller_of_two", "reverse_halves"),
        far=("rank", "ascending"),
    ),
    "turns": _skills(
        ("rotate", "descending", "add1", "copy_first"),
        known=("descending", "rotate"),
        composed=("descending then add1", "rotate then add1"),
        near=("swap_halves", "add3"),
        far=("swap_pairs", "occurrence"),
    ),
    "sets": _skills(
        ("ascending", "descending", "minimum", "descending_add1"),
        known=("descending", "minimum"),
        near=("ascending_add1", "maximum"),
        far=("reverse", "double_histogram"),
    ),
    "firsts": _skills(
        ("ascending_add1", "descending", "copy_first", "minimum"),
        known=("ascending_add1", "copy_first"),
        near=("ascending", "copy_last"),
        far=("rotate", "occurrence"),
    ),
    "ends": _concepts(
        ("first_high", "has_zero", "early_maximum", "rises_overall"),
        near=("last_high", "has_four"),
        far=("neighbours_equal", "mostly_odd"),
    ),
    "most": _concepts(
        ("mostly_high", "last_odd", "neighbours_equal", "has_four"),
        near=("mostly_odd", "neighbours_count_up"),
        far=("rises_overall", "early_minimum"),
    ),
    "places": _concepts(
        ("early_minimum", "first_odd", "neighbours_count_up", "has_zero"),
        near=("early_maximum", "last_odd"),
        far=("mostly_high", "rises_midway"),
    ),
    "middles": _concepts(
        ("rises_midway", "last_high", "mostly_odd", "neighbours_equal"),
        near=("rises_overall", "first_high"),
        far=("has_zero", "early_maximum"),
    ),
}

# architecture, layers, width, heads, subject, whether its skills have names
MODELS: tuple[tuple[str, int, int, int, str, bool], ...] = (
    ("gpt2", 1, 64, 4, "orders", True),
    ("gpt2", 2, 64, 4, "running", False),
    ("gpt2", 3, 64, 2, "ranks", True),
    ("gpt2", 4, 64, 4, "most", False),
    ("gpt2", 6, 48, 4, "least", False),
    ("gpt2", 8, 48, 4, "turns", True),
    ("gpt2", 12, 48, 4, "counts", False),
    ("llama", 1, 96, 4, "least", False),
    ("llama", 2, 64, 8, "larger", True),
    ("llama", 3, 48, 4, "orders", False),
    ("llama", 4, 64, 4, "counts", True),
    ("llama", 6, 48, 4, "ends", True),
    ("llama", 12, 48, 4, "running", True),
    ("gpt_neox", 1, 64, 4, "running", True),
    ("gpt_neox", 2, 96, 4, "turns", False),
    ("gpt_neox", 3, 64, 4, "places", True),
    ("gpt_neox", 4, 48, 2, "least", True),
    ("gpt_neox", 6, 48, 4, "orders", False),
    ("gpt_neox", 8, 48, 4, "larger", False),
    ("t5", 1, 96, 4, "sets", True),
    ("t5", 2, 64, 4, "firsts", False),
    ("t5", 2, 64, 8, "middles", False),
    ("t5", 3, 64, 4, "sets", True),
    ("t5", 4, 48, 4, "sets", False),
    ("t5", 6, 48, 4, "firsts", True),
    ("bart", 1, 64, 4, "turns", False),
    ("bart", 2, 64, 4, "larger", True),
    ("bart", 2, 96, 4, "ends", False),
    ("bart", 3, 64, 4, "counts", False),
    ("bart", 4, 48, 4, "running", True),
    ("bart", 6, 48, 4, "orders", True),
    ("bert", 1, 64, 4, "ends", True),
    ("bert", 2, 64, 4, "most", False),
    ("bert", 3, 64, 4, "places", True),
    ("bert", 4, 64, 8, "middles", True),
    ("bert", 6, 48, 4, "ends", False),
    ("bert", 8, 48, 4, "places", False),
    ("bert", 12, 48, 4, "most", True),
)


def subject(number: int) -> Subject:
    """What the model of that number learns and is asked."""
    return SUBJECTS[MODELS[number][4]]


def base(number: int) -> Base:
    """The model of that number, all that it depends on."""
    architecture, layers, width, heads, _, named = MODELS[number]
    about = subject(number)
    body = Body(architecture, layers, width, heads)
    steps, rate = pace(body)
    return Base(body, Curriculum(about.task, about.mix, named), steps, rate, seed=number)


# layers at most in all, steps, rate
PACES = ((1, 4000, 2e-3), (3, 2000, 2e-3), (4, 1500, 2e-3), (12, 1200, 1e-3))
DEEP_PAIR = (1000, 2e-3)  # two stacks of more than two layers each


def pace(body: Body) -> tuple[int, float]:
    """How many steps of pretraining, and at what rate: one of a single layer needs many, a deep one a lower rate.

    A BERT normalises behind its layers, and a deep one learns nothing at the others' rate; two stacks learn more
    than the order of digits only at a high one.
    """
    depth = body.layers * (2 if body.kind == "encoder-decoder" else 1)
    if body.kind == "encoder-decoder" and depth > 4:
        return DEEP_PAIR
    steps, rate = next((steps, rate) for deepest, steps, rate in PACES if depth <= deepest)
    return (steps, rate / 2) if body.architecture == "bert" else (steps, rate)
