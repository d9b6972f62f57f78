"""An arm as typed, and what it becomes on one model: specs of the size that the budget allows."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.methods.artifact import AttentionDelta, Context
from tunescope.methods.deltas.full import Full
from tunescope.methods.deltas.head import Head
from tunescope.methods.text_form import explicit, made, parse, show
from tunescope.search import names
from tunescope.search.frame import check_frame
from tunescope.search.objective import check_answers
from tunescope.search.search import Search
from tunescope.system import plugins
from tunescope.tasks.prompts.chain import NAME as COT
from tunescope.tasks.prompts.chain import Chain
from tunescope.trial import questions
from tunescope.trial.arm import ZERO_SHOT, Arm, Ready
from tunescope.trial.budget import count, sized
from tunescope.trial.chats import in_chat
from tunescope.trial.demos import check, draw, start
from tunescope.trial.demos import per_query as own_demos
from tunescope.trial.demos import spec as demonstrations
from tunescope.trial.demos.spec import Demos
from tunescope.trial.specs import with_demonstrations

if TYPE_CHECKING:
    from tunescope.trial.bench import Bench

COUNTS = ("trained", "stored", "live")  # of parameters
DEFAULT = {
    "decoder": (ZERO_SHOT, "demos:k=4", "soft", "prefix", "lora", "adapter", "bias", "full"),
    "encoder-decoder": (ZERO_SHOT, "soft", "prefix", "lora", "adapter", "bias", "full"),
    "encoder": ("head", "prefix", "lora", "adapter", "bias", "full"),
    "encoder in words": (ZERO_SHOT, "demos:k=1", "soft", "prefix", "lora", "adapter", "bias", "full"),
}
SEARCHES = "search.methods"
HOW = "Type `tunescope arms` for the methods and their fields."


def planned_arms(bench: "Bench") -> list[Arm]:
    """The arms of the bench's plan; UserError as `listed`."""
    return listed(typed(bench), bench.plan.budgets, bench.kind)


def typed(bench: "Bench") -> tuple[str, ...]:
    """The arms as they are typed, or those that are usual for the model."""
    in_words = bench.kind == "encoder" and bench.task.needs_head is None
    return bench.plan.arms or DEFAULT["encoder in words" if in_words else bench.kind]


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
    _check_names(found, budgets)
    return found


def _check_names(found: Sequence[Arm], budgets: Sequence[int]) -> None:
    """A budget given twice, one name for two arms, one arm typed twice: each is told as what it is."""
    names = [arm.name for arm in found]
    twice = next((arm for arm in found if names.count(arm.name) > 1), None)
    if twice is None:
        return
    if twice.budget is not None and budgets.count(twice.budget) > 1:
        raise UserError(f"--budget has {twice.budget:,} twice; drop one.")
    name = twice.name.removesuffix(f" @ {twice.budget:,}") if twice.budget is not None else twice.name
    if any(arm.name == twice.name and arm.text != name for arm in found):
        raise UserError(f"--arms gives the name {name!r} to two arms; give one of them another.")
    raise UserError(f"--arms has {name!r} twice; drop one, or name them: one={name} two={name}")


def _check_spelling(items: str) -> None:
    """A typo ends the run before it begins; what this model or budget does not allow is one arm's matter, later."""
    if _search(items) is not None:
        return
    _, _, rest = _front(items)
    if late := FRONT.search(rest):
        raise UserError(
            f"--arms {items!r}: {late[1]} stands first, {demonstrations.NAME} before {COT}, as in "
            f"{demonstrations.NAME}:k=4+{COT}+lora; to have it in a text, type \\+{late[1]}"
        )
    if rest not in ("", "head", ZERO_SHOT):
        parse(rest)


FRONT = re.compile(rf"(?:^|(?<!\\)\+)\s*({demonstrations.NAME}|{COT})\s*(?=[:+]|$)")  # where it may not stand


def ready(arm: Arm, bench: "Bench") -> Ready:
    """The arm with its sizes set for this model; a head is added where the task needs one.

    Demonstrations are counted as those of the first seed.

    Raises:
        UserError: the text, the family, a site or the budget does not allow it.
    """
    if (search := _search(arm.text)) is not None:
        return _ready_to_search(arm, search, bench)
    model, tokenizer, labels = bench.model, bench.tokenizer, bench.task.needs_head
    demos, chain, rest = _front(arm.text)
    only_head = rest == "head"
    typed = () if only_head or rest in ("", ZERO_SHOT) else in_chat(tuple(parse(rest)), bench, shown=demos is not None)
    _check_head(typed, only_head, needed=labels is not None)
    if demos:
        check.check_demos(demos, bench, typed)
    if chain:
        questions.check(chain, bench)
    first = draw.drawn(demos, bench, bench.plan.seeds[0]) if demos else ()
    before, standing = with_demonstrations(bench, questions.task_as_asked(bench.task, demos, chain), first, typed)
    placed, note = sized(arm, standing, explicit(rest) if typed else [], model, tokenizer)
    placed, told = start.with_usual(placed, bench, questions.task_as_asked(bench.task, demos, chain, taught=True))
    specs = tuple(own if isinstance(own, AttentionDelta) else one for own, one in zip(typed, placed, strict=True))
    head = () if labels is None else (Head(n_labels=labels),)
    if head and specs:
        note += f"; beside a head of {count(model, head).stored:,}, the same in every arm"
    counts = count(model, (*before, *placed) or head, tokenizer)
    trains = tuple(count(model, (spec,), tokenizer).trained > 0 for spec in (*placed, *head))
    if chain:
        questions.check_beside(chain, demos, bench, alone=rest == "", trained=any(trains))
    group = (
        "head"
        if only_head
        else _group([s for s, t in zip(specs, trains, strict=False) if t], bool(specs or demos or chain))
    )
    note += _own_note(demos) if demos and demos.each else ""
    label = _label(demos, chain, (*specs, *head))
    return Ready(arm, (*specs, *head), trains, demos, chain, group, note, counts._asdict(), label, remarks=told)


def _check_head(typed: tuple[Any, ...], only_head: bool, *, needed: bool) -> None:
    if any(isinstance(spec, Head) for spec in typed) or (only_head and not needed):
        raise UserError("the head is added to every arm of an encoder's classification, in the size it needs.")
    if needed and not typed and not only_head:
        raise UserError("it trains nothing, and an encoder has no answer before its head is trained.")


def _label(demos: Demos | None, chain: Chain | None, specs: tuple[Any, ...]) -> str:
    items = [str(item) for item in (demos, chain) if item]
    items += [show(specs)] if specs else []
    return "+".join(items) or ZERO_SHOT


def _own_note(demos: Demos) -> str:
    times = own_demos.passes(demos)
    return "; live is that of the demonstrations of one query" + (f", read {times} times a query" if times > 1 else "")


def passes(bench: "Bench") -> int:
    """What a search may take: as many rows forward, and backward, as a trained arm's one run."""
    return 3 * bench.plan.settings.steps * bench.plan.settings.batch_size


def _search(text: str) -> Any:
    """The search that an arm's text names, or None."""
    return names.parse(text) if text.partition(":")[0].strip() in plugins.names(SEARCHES) else None


def _ready_to_search(arm: Arm, search: Search, bench: "Bench") -> Ready:
    """Words are found by tuning, as a soft prompt is, and so count as a context; they store no parameters."""
    check_answers(bench)
    check_frame(search, bench, names.show(search))
    note, counts = f"words, no parameters; found within {passes(bench):,} passes of a row", dict.fromkeys(COUNTS, 0)
    return Ready(arm, (), (), None, None, "context", note, counts, names.show(search), search)


def _front(text: str) -> tuple[Demos | None, Chain | None, str]:
    """("demos:k=4+cot+lora") -> Demos(k=4), Chain(), "lora"."""
    found: dict[str, Any] = {}
    for name, kind in ((demonstrations.NAME, Demos), (COT, Chain)):
        first, rest = _item(text)
        if first.partition(":")[0].strip() == name:
            found[name], text = made(kind, first), rest
    return found.get(demonstrations.NAME), found.get(COT), text


def _item(text: str) -> tuple[str, str]:
    """What stands before the first "+" that no backslash is before, and what behind it."""
    found = re.match(r"((?:\\.|[^\\+])*)\+?(.*)", text, flags=re.DOTALL)
    assert found is not None
    return found[1], found[2]


def _has_free_size(text: str) -> bool:
    _, _, rest = _front(text)
    if rest in ("", ZERO_SHOT, "head"):
        return False
    try:
        pairs = zip(parse(rest), explicit(rest), strict=True)
        return any(spec.size is not None and spec.size not in held for spec, held in pairs)
    except UserError:
        return False  # it is refused later, as an arm, and the others go on


def _group(trained: Sequence[Any], has_text: bool) -> str:
    """What is trained, beside a head: none, text, context, delta, both or full.

    A change to some parameters by name (full:only=) is a delta of their size; full is all of them.
    "both" is also what changes how a context is attended to: no weight of the model is changed, so it is no evidence
    that weights are needed; and it is no context of its own. The verdict counts it for neither.
    """
    if any(isinstance(spec, Full) and spec.counted for spec in trained):
        return "full"
    if any(isinstance(spec, AttentionDelta) for spec in trained):
        return "both"
    contexts = sum(isinstance(spec, Context) for spec in trained)
    if not trained:
        return "text" if has_text else "none"
    return "context" if contexts == len(trained) else "both" if contexts else "delta"
