"""An arm as typed, and what it becomes on one model: specs of the size that the budget allows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError

if TYPE_CHECKING:
    from tunescope.comparing.bench import Bench

ZERO_SHOT = "zero-shot"
DEFAULT = {
    "decoder": (ZERO_SHOT, "demos:k=4", "soft", "prefix", "lora", "adapter", "bias", "full"),
    "encoder-decoder": (ZERO_SHOT, "soft", "prefix", "lora", "adapter", "bias", "full"),
    "encoder": ("head", "prefix", "lora", "adapter", "bias", "full"),
    "encoder in words": (ZERO_SHOT, "demos:k=1", "soft", "prefix", "lora", "adapter", "bias", "full"),
}
HOW = "Type `tunescope arms` for the methods and their fields."


@dataclass(frozen=True)
class Arm:
    """One line of the table. `text` is "zero-shot" or items joined by "+"; `budget` is in stored parameters."""

    name: str
    text: str
    budget: int | None = None


@dataclass(frozen=True)
class Ready:
    """An arm on a model: its specs in order (demonstrations are made later, a seed at a time)."""

    arm: Arm
    specs: tuple[Any, ...]
    trains: tuple[bool, ...]  # for each spec, whether it has anything to train
    shots: int  # demonstrations per class in front of the specs; 0 for none
    group: str
    note: str
    counts: Mapping[str, int]

    @property
    def trained(self) -> bool:
        return any(self.trains)

    @property
    def label(self) -> str:
        """The canonical text, which the run's id is made of."""
        from tunescope.registry import show

        items = [f"demos:k={self.shots}"] if self.shots else []
        items += [show(self.specs)] if self.specs else []
        return "+".join(items) or ZERO_SHOT


def asked(bench: "Bench") -> list[Arm]:
    """The arms of the bench's plan; UserError as `listed`."""
    in_words = bench.kind == "encoder" and bench.task.needs_head is None
    return listed(bench.plan.arms, bench.plan.budgets, "encoder in words" if in_words else bench.kind)


def listed(texts: Sequence[str], budgets: Sequence[int], kind: str) -> list[Arm]:
    """The arms to run, at every budget; what has no size to set is listed once.

    `NAME=ITEMS` gives an arm a name, as in `mam=prefix:length=30+adapter:placement=parallel`.

    Raises:
        UserError: an arm is empty or names no method or field that there is, or two have one name.
    """
    found: list[Arm] = []
    for text in texts or DEFAULT[kind]:
        match = re.fullmatch(r"\s*([^:+=]+)=(.*)", text, flags=re.DOTALL)
        name, items = (part.strip() for part in (match.groups() if match else (text, text)))
        if not items or not name:
            raise UserError(f"--arms {text!r} is empty. {HOW}")
        _check_spelling(items)
        several = len(budgets) > 1 and _has_free_size(items)
        at: Sequence[int | None] = budgets if several else budgets[:1] or [None]
        for budget in at:
            found.append(Arm(f"{name} @ {budget:,}" if several else name, items, budget))
    names = [arm.name for arm in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"--arms has {twice!r} twice; drop one, or name them: one={twice} two={twice}")
    return found


def _check_spelling(items: str) -> None:
    """A typo ends the run before it begins; what this model or budget does not allow is one arm's matter, later."""
    from tunescope.registry import parse

    _, rest = _shots(items)
    if rest not in ("", "head", ZERO_SHOT):
        parse(rest)


def ready(arm: Arm, bench: "Bench") -> Ready:
    """The arm with its sizes set for this model; a head is added where the task needs one.

    Demonstrations are counted as those of the first seed.

    Raises:
        UserError: the text, the family, a site or the budget does not allow it.
    """
    from tunescope.artifact import AttentionDelta
    from tunescope.budget import count
    from tunescope.deltas.head import Head
    from tunescope.registry import explicit, parse

    model, tokenizer, labels = bench.model, bench.tokenizer, bench.task.needs_head
    shots, rest = _shots(arm.text)
    only_head = rest == "head"
    typed = () if only_head or rest in ("", ZERO_SHOT) else tuple(parse(rest))
    if any(isinstance(spec, Head) for spec in typed) or (labels is None and only_head):
        raise UserError("the head is added to every arm of an encoder's classification, in the size it needs.")
    if labels is not None and not typed and not only_head:
        raise UserError("it trains nothing, and an encoder has no answer before its head is trained.")
    before, standing = _behind(bench, shots, bench.plan.seeds[0], typed)
    placed, note = _sized(arm, standing, explicit(rest) if typed else [], model, tokenizer)
    specs = tuple(own if isinstance(own, AttentionDelta) else one for own, one in zip(typed, placed, strict=True))
    head = () if labels is None else (Head(n_labels=labels),)
    if head and specs:
        note += f"; beside a head of {count(model, head).stored:,}, the same in every arm"
    counts = count(model, (*before, *placed) or head, tokenizer)
    trains = tuple(count(model, (spec,), tokenizer).trained > 0 for spec in (*placed, *head))
    group = "head" if only_head else _group([s for s, t in zip(specs, trains, strict=False) if t], bool(specs or shots))
    return Ready(arm, (*specs, *head), trains, shots, group, note, counts._asdict())


def grid(state: Ready, trials: int, rates: Sequence[float]) -> list[tuple[float, ...]]:
    """For each trial the rate of every spec: the grids of composed methods are walked together.

    One trial takes the middle of the grids, two their ends.
    """
    if rates:
        return [(rate,) * len(state.specs) for rate in sorted(rates)]
    grids = [sorted(spec.learning_rates) for spec in state.specs]
    size = min(map(len, grids))
    if trials > size:
        raise UserError(f"--trials {trials}: the methods' own grids have {size} learning rates; name more with --lr.")
    chosen = {1: [size // 2], 2: [0, size - 1]}.get(trials, range(trials))
    return [tuple(rates[index] for rates in grids) for index in chosen]


def _shots(text: str) -> tuple[int, str]:
    """("demos:k=4+lora") -> 4, "lora"."""
    first, _, rest = text.partition("+")
    method, _, fields = first.partition(":")
    if method.strip() != "demos":
        return 0, text
    match = re.fullmatch(r"\s*k\s*=\s*(\d+)\s*", fields) if fields else None
    shots = int(match[1]) if match else 4
    if (fields and not match) or shots < 1:
        raise UserError(f"{first!r}: demos has one field, k, the examples of each class; type demos:k=4")
    return shots, rest


def _has_free_size(text: str) -> bool:
    from tunescope.registry import explicit, parse

    _, rest = _shots(text)
    if rest in ("", ZERO_SHOT, "head"):
        return False
    try:
        pairs = zip(parse(rest), explicit(rest), strict=True)
        return any(spec.size is not None and spec.size not in held for spec, held in pairs)
    except UserError:
        return False  # it is refused later, as an arm, and the others go on


def _sized(
    arm: Arm, typed: tuple[Any, ...], fixed: Sequence[set[str]], model: Any, tokenizer: Any
) -> tuple[tuple[Any, ...], str]:
    """The specs at the budget, and what to say of it."""
    from tunescope.budget import count, solve

    if not typed:
        return typed, "head only" if arm.text == "head" else "nothing to store"
    free = [spec.size is not None and spec.size not in held for spec, held in zip(typed, fixed, strict=True)]
    if arm.budget is None or not any(free):
        stored = count(model, typed, tokenizer).stored
        how = "size as typed" if any(spec.size for spec in typed) else "no size to set"
        return typed, f"{stored:,}, {how}" + (f", whatever the budget of {arm.budget:,}" if arm.budget else "")
    specs, counts = solve(model, typed, arm.budget, fixed)
    left = arm.budget - counts.stored
    return tuple(specs), f"nearest reachable {counts.stored:,}; {left:,} left" if left else f"{counts.stored:,} exactly"


def _group(trained: Sequence[Any], has_text: bool) -> str:
    """What is trained, beside a head: none, text, context, delta, both or full.

    "both" is also what changes how a context is attended to: no weight of the model is changed, so it is no evidence
    that weights are needed; and it is no context of its own. The verdict counts it for neither.
    """
    from tunescope.artifact import AttentionDelta, Context
    from tunescope.deltas.full import Full

    if any(isinstance(spec, AttentionDelta) for spec in trained) and not any(isinstance(s, Full) for s in trained):
        return "both"
    contexts = sum(isinstance(spec, Context) for spec in trained)
    if any(isinstance(spec, Full) for spec in trained):
        return "full"
    if not trained:
        return "text" if has_text else "none"
    return "context" if contexts == len(trained) else "both" if contexts else "delta"


def specs_at(state: Ready, bench: "Bench", seed: int) -> tuple[Any, ...]:
    """The specs to attach, with the demonstrations that the seed draws in front."""
    before, specs = _behind(bench, state.shots, seed, state.specs)
    return (*before, *specs)


def _behind(bench: "Bench", shots: int, seed: int, specs: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The demonstrations that the seed draws, and the specs behind them: what acts on label words is told where."""
    from tunescope.artifact import AttentionDelta
    from tunescope.contexts.text import Text

    if not shots:
        return (), specs
    before = (Text(text=bench.task.demonstrations(bench.drawn(seed).train, shots, seed)),)
    if not any(isinstance(spec, AttentionDelta) and not spec.anchors for spec in specs):
        return before, specs
    anchors = _anchors(bench, shots, seed)
    return before, tuple(_with_anchors(spec, anchors) for spec in specs)


def _anchors(bench: "Bench", shots: int, seed: int) -> tuple[str, ...]:
    """Where the label words of the demonstrations are that the seed draws."""
    from tunescope.anchors.spans import spans
    from tunescope.tasks import Classification

    if not isinstance(bench.task, Classification):
        raise UserError("reweight acts on the label words of demonstrations, and only a classification has them.")
    return spans(bench.tokenizer, bench.task.demonstrated(bench.drawn(seed).train, shots, seed)).anchors


def _with_anchors(spec: Any, anchors: tuple[str, ...]) -> Any:
    """A spec that acts on label words, told where they are, unless that was typed."""
    from tunescope.artifact import AttentionDelta

    return replace(spec, anchors=anchors) if isinstance(spec, AttentionDelta) and not spec.anchors else spec  # type: ignore[type-var]
