"""results.json -> an answer with its sentences: which of contexts and deltas is enough, or what to run to know.

The rule in plain words, in the order in which it is asked. MARGIN is 0.02 of the metric's scale. "Not worse" means
that the whole interval of the paired difference is above -MARGIN, "behind" that all of it is below. The best arm of a
kind is the one with the best dev score, never the best test score. docs/verdict.md says more.

0. A pilot is not asked these: it has a forecast (`forecast.py`).
1. No delta arm finished: no verdict. Fewer than three seeds: no verdict; nor where 2, 3, 5 or 6 would answer by an arm
   that has fewer. What trains nothing and draws nothing has all of them with one run.
2. Full tuning is above its floor, and ahead of the best context and of the best delta by more than MARGIN, and of the
   run that dev chooses of one whose seeds scatter: neither, at this budget.
3. A zero-shot or text arm is above its floor and not worse than the best trained arm: context suffices. But not where
   that arm's seeds scatter and the run that dev chooses is ahead by more than MARGIN; nor does 6 hold there.
4. No context arm finished: no verdict.
5. Neither the best context nor the best delta is above its floor, nor is the run that dev chooses of one whose seeds
   scatter. If another context or delta of the budget is: no verdict, dev did not choose it. If an arm of other kind is
   (full tuning, both at once, a head, words, a size above the budget) and is ahead of both, and of such a run, by more
   than MARGIN: neither, at this budget. Else no verdict. An arm is above its floor when it is clear of chance (of
   accuracy: or the share of the commonest label) and ahead of zero-shot; what trains nothing need only be clear of
   chance, or of zero-shot where the task has no chance level.
6. A head on frozen features is not worse than the best trained arm: no verdict, the head did it.
7. The best context is above its floor and not worse than the best delta: context suffices; or, if the delta is not
   worse than the context either, alike. But where the delta's seeds scatter, and the one that dev chooses is ahead of
   the context's: no verdict.
8. The best context's seeds scatter, and the one that dev chooses is above its floor and not worse than the delta's mean
   on the test rows: context suffices, unstable. A context that does it exists, was found, and dev told which it is. But
   not where the delta's seeds scatter too, and the one that dev chooses is ahead of the context's: like is held against
   like.
9. The best context is behind, and the delta above its floor: weights needed.
10. Otherwise: no verdict.

What 2, 3, 5, 7 and 9 found is withdrawn where the arm that came out behind, or was matched, was still learning when it
stopped (`curve.py`): its dev score rose over the last half of its steps by more than chance, and as many steps again
would at that pace, but no further than the scale goes, close the gap; or it is not above its floor, and its training
loss would come near the other's.

A difference is over the seeds that both arms have. Looks give seeds to the two that decide alone, so of an arm beside
them 2, 3 and 6 ask also that the difference of the scores, each over all of its arm's seeds, says the same.

With looks at more seeds to come (`interim_looks.py`) each look has a stricter interval, so that all together are wrong
in 5 of 100 cases at most. Best contexts and deltas are of the (largest) budget's size at most, give or take 5 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tunescope.report.verdict import advice, forecast, words
from tunescope.report.verdict.advice import Advice
from tunescope.report.verdict.curve import reaches
from tunescope.report.verdict.edges import choice_in_doubt
from tunescope.report.verdict.evidence import Arm, Evidence, Pair
from tunescope.report.verdict.interim_looks import LEAST
from tunescope.report.verdict.reader import gather

MARGIN = 0.02
SUFFICES, NEEDED, ALIKE = "context suffices", "weights needed", "alike"
NEITHER, OPEN = "neither, at this budget", "no verdict"
# Reasons why a context suffices in which a delta is the other side.
AGAINST_DELTA = ("context not worse", "unstable", "alike")
ANSWERS = (SUFFICES, ALIKE, NEEDED, NEITHER, OPEN)


@dataclass(frozen=True)
class Answer:
    """The answer, the reason in two words, the first sentence, and what to run where there is no verdict."""

    answer: str
    reason: str
    why: str
    advice: Advice | None = None


def decide(results: dict[str, Any], margin: float | None = None) -> dict[str, Any]:
    """The verdict on a results.json dict.

    {"answer", "reason", "sentences", "run": what to run or None, "more_seeds", "forecast": of a pilot, "evidence"};
    more_seeds: whether the comparison's next look may decide.

    Args:
        margin: what counts as no worse, as a share of the metric's scale: 0.02 is 2 points of BLEU. By default the
            protocol's own, or MARGIN.
    """
    protocol = results.get("protocol") or {}
    if margin is None:
        margin = MARGIN if protocol.get("margin") is None else float(protocol["margin"])
    evidence, is_pilot = gather(results, margin), bool(protocol.get("pilot_of"))
    seen = forecast.of(evidence) if is_pilot else None
    found = _foreseen(evidence, seen) if is_pilot else _answer(evidence, protocol)
    run = words.out_of_time(protocol, found.advice.text if found.advice else None)
    outside = seen is not None and forecast.Shares(**seen["shares"]).is_outside
    rivals = _rivals(evidence, found.reason) if found.reason in AGAINST_DELTA else []
    said = [found.why, *rivals, *([run] if run else []), words.support(evidence)]
    said += [*choice_in_doubt(results.get("arms") or ()), words.limits(evidence, protocol, results.get("arms") or ())]
    return {
        "answer": found.answer,
        "reason": found.reason,
        "sentences": said + ([words.outlook(results, found.answer, outside=outside)] if is_pilot else []),
        "run": run,
        "more_seeds": bool(found.advice and found.advice.more_seeds) and _looks_left(protocol, evidence.seeds),
        "forecast": seen,
        "evidence": {"reason": found.reason, **evidence.describe()},
    }


def untold(evidence: dict[str, Any], reason: str) -> Any:
    """Of evidence as results.json has it: the pairs of which it is not shown that a context is no worse."""
    return evidence["chosen_untold" if reason == "unstable" else "untold"]


def _rivals(e: Evidence, reason: str) -> list[str]:
    """Of a context that is enough beside one delta: what is to be said of the others."""
    pairs = untold(vars(e), reason)
    return [*([words.ahead(e)] if e.ahead else []), *([words.untold(e, pairs)] if pairs else [])]


def _looks_left(protocol: dict[str, Any], seeds: int) -> bool:
    looks = protocol.get("looks")
    return looks is not None and (looks.get("at") or seeds) < max(looks["planned"])


def _foreseen(e: Evidence, seen: dict[str, Any] | None) -> Answer:
    """Of a pilot: what the whole comparison would find."""
    if seen is None:
        return Answer(OPEN, "missing arms", f"A pilot needs a context arm and a delta arm that finished{e.losses}.")
    found = forecast.answer(forecast.Shares(**seen["shares"]))
    if e.head and found != OPEN and e.trained and e.head.score >= e.trained.score - forecast.AS_GOOD * e.scale:
        why = f"A head on the frozen features, {e.head.shown}, does as well as the best trained arm of the pilot"
        return Answer(OPEN, "head alone", f"{why}, so neither contexts nor deltas are put to the test.")
    if found == OPEN:
        return Answer(OPEN, "forecast undecided", f"From the pilot it cannot be told: {seen['reasons']}.")
    return Answer(found, "forecast", f"The pilot's forecast, from one seed and short runs: {seen['reasons']}.")


def _answer(e: Evidence, protocol: dict[str, Any]) -> Answer:
    """Rules 1 to 6."""
    if e.delta is None:
        why = f"No delta arm finished{e.losses}: contexts have nothing to be held against."
        fitting = "; `tunescope arms` lists them" if e.losses else ", such as `--arms lora`"  # which may be what failed
        return Answer(OPEN, "missing arms", why, Advice(f"Run it with a delta that fits{fitting}."))
    if e.seeds < LEAST:
        why = f"With {e.sample} it cannot be told how far another seed would come out: no verdict is given."
        return Answer(OPEN, "few seeds", why, advice.few_seeds(e.seeds))
    if e.full and e.full.learnt and _is_ahead_of_both(e, e.full):
        return _few(e.full) or _full_ahead(e, protocol, e.full)
    trained, untrained, over_trained = e.trained, e.untrained, e.untrained_pair
    does = _is_as_good(e, untrained, trained, over_trained) and not _ahead(e, e.chosen_over_untrained)
    if trained and untrained and over_trained and untrained.learnt and does:
        return _few(untrained) or _prompt_alone(e, protocol, (untrained, trained), over_trained)
    if e.context is None:
        why = f"No context arm finished{e.losses}: deltas have nothing to be held against."
        fitting = "; `tunescope arms` lists them" if e.losses else ", such as `--arms prefix`"
        return Answer(OPEN, "missing arms", why, Advice(f"Run it with a context that fits{fitting}."))
    if not (e.context.shows_it or e.delta.shows_it):
        return _nothing_learnt(e, protocol, e.context, e.delta)
    if e.head and e.head_pair and _is_as_good(e, e.head, e.trained, e.head_pair) and not _ahead(e, e.chosen_over_head):
        why = f"A head on the frozen features, {e.head.shown}, does as well as the best trained arm "
        why += f"({e.head_pair.other}; {e.head_pair.told}), so neither contexts nor deltas were put to the test."
        more = Advice("Only rows that the frozen features do not solve can tell: give harder ones, with `--test`.")
        return _few(e.head) or Answer(OPEN, "head alone", why, more)
    if e.pair is None:
        why = f"{e.context.shown} and {e.delta.shown} share no seed to be compared on."
        return Answer(OPEN, "missing arms", why, advice.few_seeds(e.seeds))
    return _gap(e, protocol, (e.context, e.delta), e.pair)


def _is_ahead_of_both(e: Evidence, full: Arm) -> bool:
    """Whether full tuning is, of context and delta: in the mean, and of the chosen run of one that scatters."""
    means = [pair.low > e.margin for pair in e.full_pairs]
    means += [full.score - arm.score > e.margin for arm in (e.context, e.delta) if arm]
    both = len(e.full_pairs) == len(words.PAIR)
    return both and all(means) and all(pair.high < -e.margin for pair in e.chosen_over_full)


def _is_as_good(e: Evidence, arm: Arm | None, other: Arm | None, pair: Pair | None) -> bool:
    """Whether an arm is not worse than another, on the seeds of both and by what each has of all of its own."""
    if arm is None or other is None or pair is None:
        return False
    return pair.low > -e.margin and arm.score - other.score > -e.margin


def _ahead(e: Evidence, chosen: Pair | None) -> bool:
    """Whether the run that dev chooses of an arm whose seeds scatter is ahead of another arm."""
    return chosen is not None and chosen.low > e.margin


def _few(arm: Arm) -> Answer | None:
    """Of an arm that would decide, and has fewer seeds than tell anything; more of the two others are no help to it."""
    if arm.seeds is None or arm.seeds >= LEAST:
        return None
    had = f"{arm.seeds} seed{'s' * (arm.seeds != 1)}"
    why = f"It turns on {arm.shown}, and with its {had} it cannot be told how far another would come out: "
    return Answer(OPEN, "few seeds", f"{why}no verdict is given.", Advice(advice.few_seeds(arm.seeds).text))


def _full_ahead(e: Evidence, protocol: dict[str, Any], full: Arm) -> Answer:
    """Rule 2."""
    for pair in e.full_pairs:
        arm = next(one for one in (e.context, e.delta) if one and one.name == pair.other)
        if _still_learning(e, arm, full, pair.difference - e.margin):
            return _undertrained(e, protocol, arm)
    behind = " and ".join(arm.shown for arm in (e.context, e.delta) if arm)
    told = "; ".join(f"to {pair.other} {pair.told}" for pair in e.full_pairs)
    why = f"Full tuning, {full.shown}, is more than {e.number(e.margin)} ahead of {behind}: {told}."
    return Answer(NEITHER, "full tuning ahead", why)


def _prompt_alone(e: Evidence, protocol: dict[str, Any], arms: tuple[Arm, Arm], pair: Pair) -> Answer:
    """Rule 3."""
    untrained, trained = arms
    if _still_learning(e, trained, untrained, pair.difference + e.margin):
        return _undertrained(e, protocol, trained)
    why = f"A prompt alone does it: {untrained.shown} trains nothing and is not worse than the best trained arm, "
    return Answer(SUFFICES, "prompt alone", f"{why}{trained.shown}, by more than {e.number(e.margin)}; {pair.told}.")


def _nothing_learnt(e: Evidence, protocol: dict[str, Any], context: Arm, delta: Arm) -> Answer:
    """Rule 5."""
    why = f"neither {context.shown} nor {delta.shown} is clearly above {e.floor}"
    if e.passed_over:
        why = f"{e.passed_over.shown} is clearly above its floor, but dev did not choose it: {why}."
        return Answer(OPEN, "passed over", why, advice.more_seeds(protocol, e.seeds))
    if e.able is None:
        more = advice.longer(e, protocol, context, delta)
        return Answer(OPEN, "nothing learnt", f"Nothing was learnt: {why}.", more)
    if few := _few(e.able):
        return few
    for arm in (context, delta):
        if _still_learning(e, arm, e.able, e.able.score - arm.score - e.margin):
            return _undertrained(e, protocol, arm)
    if _is_behind(e, e.able):
        return Answer(NEITHER, "learnt elsewhere", f"It can be learnt, as {e.able.shown} shows, but {why}.")
    why = f"It can be learnt, as {e.able.shown} shows; {why}, nor shown to be more than {e.number(e.margin)} behind."
    return Answer(OPEN, "learnt elsewhere", why, advice.seeds_or_steps(e, protocol, context, delta))


def _is_behind(e: Evidence, able: Arm) -> bool:
    """Whether context and delta are both, of an arm that can do it: in the mean, and by a chosen run."""
    means = [pair.low > e.margin for pair in e.able_pairs]
    means += [able.score - arm.score > e.margin for arm in (e.context, e.delta) if arm]
    return len(e.able_pairs) == len(words.PAIR) and all(means) and all(p.high < -e.margin for p in e.chosen_over_able)


def _gap(e: Evidence, protocol: dict[str, Any], arms: tuple[Arm, Arm], pair: Pair) -> Answer:
    """Rules 7 to 10."""
    context, delta = arms
    margin = e.number(e.margin)
    if pair.low > -e.margin and context.learnt:
        return _suffices(e, protocol, arms, pair)
    outdone = e.chosen_delta is not None and e.chosen_delta.high < -e.margin
    if e.chosen_context and e.chosen_context.low > -e.margin and context.chosen_learnt and not outdone:
        return Answer(SUFFICES, "unstable", words.unstable_context(e, context, delta, pair))
    if pair.high < -e.margin and delta.learnt:
        if _still_learning(e, context, delta, -pair.difference - e.margin):
            return _undertrained(e, protocol, context)
        why = f"{context.shown} stays more than {margin} behind {delta.shown}: {pair.told}."
        return Answer(NEEDED, "context worse", why)
    if pair.low > -e.margin or pair.high < -e.margin:
        low = context if pair.low > -e.margin else delta
        though = ", though its chosen run is" * low.chosen_learnt
        why = f"{low.shown} is not clearly above {e.floor}{though}; {pair.told}."
        return Answer(OPEN, "nothing learnt", why, advice.seeds_or_steps(e, protocol, low))
    why = (
        f"{context.shown} against {delta.shown} is undecided: {pair.told}, on both sides of -{margin}, with {e.sample}."
    )
    return Answer(OPEN, "wide interval", why, advice.wide(e, protocol, pair, arms))


def _suffices(e: Evidence, protocol: dict[str, Any], arms: tuple[Arm, Arm], pair: Pair) -> Answer:
    """Rule 7."""
    context, delta = arms
    if _still_learning(e, delta, context, pair.difference + e.margin):
        return _undertrained(e, protocol, delta)
    if e.chosen_delta and e.chosen_delta.high < -e.margin:
        why = words.unstable_delta(e, context, delta)
        return Answer(OPEN, "unstable delta", why, advice.steadier(protocol, delta))
    margin = e.number(e.margin)
    if pair.high < e.margin:
        why = f"{context.shown} and {delta.shown} are alike: a context suffices, and weights do as well; {pair.told}, "
        return Answer(ALIKE, "alike", f"{why}within {margin} either way.")
    why = f"{context.shown} is not worse than {delta.shown} by more than {margin}: {pair.told}."
    return Answer(SUFFICES, "context not worse", why)


def _still_learning(e: Evidence, arm: Arm, other: Arm, needed: float) -> bool:
    """Whether as many steps again would bring the arm the gain that is needed, as far as its curves tell."""
    gain = e.gain(arm)
    if gain > 0 and gain >= needed:
        return True
    same = arm.steps == other.steps  # else the losses are of different texts
    return same and not arm.learnt and reaches(arm.last_loss, arm.fall, other.last_loss)


def _undertrained(e: Evidence, protocol: dict[str, Any], arm: Arm) -> Answer:
    dev = f"its dev score {e.gain(arm):+.3g}" if e.gain(arm) else ""
    loss = f"its training loss {-arm.fall.gain:+.3g}" if arm.fall and arm.fall.certain else ""
    why = f"{arm.name} was still learning when it stopped: as many steps again would, at the pace of its last half, "
    why += f"change {' and '.join(filter(None, (dev, loss)))}."
    return Answer(OPEN, "undertrained", why, advice.longer(e, protocol, arm))
