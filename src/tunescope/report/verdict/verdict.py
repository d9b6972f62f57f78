"""results.json -> "context suffices" | "weights needed" | "no verdict", with three sentences (a pilot's has four).

The rule, in the order in which it is asked. MARGIN is 0.02 of the metric's scale; "clear of" means that the
whole 95 % interval is; "best" is by the dev score, never by the test score.

1. No delta arm finished: no verdict.
2. A zero-shot or text arm is above its floor, and its paired difference to the best trained arm is clear of
   -MARGIN: context suffices, a prompt alone does it.
3. No context arm finished: no verdict.
4. Neither the best context nor the best delta is above its floor: no verdict, nothing was learnt. An arm is
   above its floor when it is clear of chance and its paired difference to the zero-shot arm is clear of 0.
   Chance is one label in so many, or of accuracy the share of the commonest label, whichever is more.
   What trains nothing need only be clear of chance, or of zero-shot where the task has no chance level.
5. A head on frozen features is as good as the best trained arm (as in 2): no verdict, the head did it.
6. Best context minus best delta. All above -MARGIN and the context above its floor: context suffices. All
   below -MARGIN and the delta above its floor: weights needed. Otherwise: no verdict.
   Of a pilot none of these is asked, but the calibrated forecast (`forecast.py`): context suffices, or
   weights needed, at a probability of 0.8 or more, else no verdict.
7. What 2 or 6 found is withdrawn if the trained arm that came out behind, or was matched, was still learning
   when it stopped: from the third quarter of its steps to the last its dev score grew by more than MARGIN, or
   it is not above its floor but its training loss fell by more than a tenth.

The best context and the best delta are of the (largest) budget's size at most, give or take 5 %, where there
is one. Full tuning, a head alone, and a context with a delta are yardsticks: they decide nothing but rule 5.
"""

from __future__ import annotations

from typing import Any

from tunescope.report.verdict import forecast
from tunescope.report.verdict.evidence import Arm, Evidence, Pair, gather

MARGIN = 0.02
ROUNDING = 1e-5  # of an attention weight in float32

Answer = tuple[str, str, str]  # the answer, the reason in two words, the first sentence


def decide(results: dict[str, Any], margin: float = MARGIN) -> dict[str, Any]:
    """The verdict on a results.json dict: {"answer", "sentences": [3, of a pilot 4], "forecast", "evidence"}.

    Args:
        margin: what counts as no worse, as a share of the metric's scale: 0.02 is 2 points of BLEU.
    """
    evidence, protocol = gather(results, margin), results.get("protocol") or {}
    chance = forecast.of(evidence)
    answer, reason, why = _foreseen(evidence, chance) if protocol.get("pilot_of") else _answer(evidence)
    outlook = [_outlook(results, answer)] if protocol.get("pilot_of") else []
    return {
        "answer": answer,
        "sentences": [why, _support(evidence, chance), _limits(evidence, protocol), *outlook],
        "forecast": chance,
        "evidence": {"reason": reason, **evidence.describe()},
    }


def _foreseen(e: Evidence, chance: dict[str, Any] | None) -> Answer:
    """Of a pilot: what the whole comparison would find."""
    if chance is None:
        return _none("missing arms", f"A pilot needs a context arm and a delta arm that finished{e.losses}.")
    chances = chance["probabilities"]
    parts = ", ".join(f"{name} {p:.2f}" for name, p in chances.items())
    told = f"the probabilities for the full comparison are: {parts} ({chance['reasons']})"
    answer = forecast.answer(chances)
    if answer == "no verdict":
        return _none("forecast undecided", f"From the pilot it cannot be told: {told}.")
    return answer, "forecast", f"From the pilot, {told}."


def _answer(e: Evidence) -> Answer:
    """Rules 1 to 5."""
    if e.delta is None:
        return _none("missing arms", f"No delta arm finished{e.losses}: contexts have nothing to be held against.")
    trained, untrained, over_trained = e.trained, e.untrained, e.untrained_pair
    if trained and untrained and over_trained and untrained.learnt and over_trained.low > -e.margin:
        return _prompt_alone(e, untrained, trained, over_trained)
    if e.context is None:
        return _none("missing arms", f"No context arm finished{e.losses}: deltas have nothing to be held against.")
    if not (e.context.learnt or e.delta.learnt):
        return _none(
            "nothing learnt",
            f"Nothing was learnt: neither {e.context.shown} nor {e.delta.shown} is clearly above {e.floor}.",
        )
    if e.head and e.head_pair and e.head_pair.low > -e.margin:
        return _none(
            "head alone",
            f"A head on the frozen features, {e.head.shown}, does as well as the best trained arm, "
            "so neither contexts nor deltas were put to the test.",
        )
    if e.pair is None:
        return _none("missing arms", f"{e.context.shown} and {e.delta.shown} share no seed to be compared on.")
    return _gap(e, e.context, e.delta, e.pair)


def _prompt_alone(e: Evidence, untrained: Arm, trained: Arm, pair: Pair) -> Answer:
    if trained.unfinished(e.margin):
        return _undertrained(trained)
    return (
        "context suffices",
        "prompt alone",
        f"A prompt alone does it: {untrained.shown} trains nothing and is not worse than the best "
        f"trained arm, {trained.shown}, by more than {e.number(e.margin)}; {pair.told}.",
    )


def _gap(e: Evidence, context: Arm, delta: Arm, pair: Pair) -> Answer:
    """Rule 6."""
    margin = e.number(e.margin)
    if pair.low > -e.margin and context.learnt:
        if delta.unfinished(e.margin):
            return _undertrained(delta)
        why = f"{context.shown} is not worse than {delta.shown} by more than {margin}: {pair.told}."
        return "context suffices", "context not worse", why
    if pair.high < -e.margin and delta.learnt:
        if context.unfinished(e.margin):
            return _undertrained(context)
        why = f"{context.shown} stays more than {margin} behind {delta.shown}: {pair.told}."
        return "weights needed", "context worse", why
    if pair.low > -e.margin or pair.high < -e.margin:
        low = context if pair.low > -e.margin else delta
        return _none("nothing learnt", f"{low.shown} is not clearly above {e.floor}; {pair.told}.")
    return _none(
        "wide interval",
        f"{context.shown} against {delta.shown} is undecided: {pair.told}, on both sides of -{margin}. "
        f"With {e.sample}, a true difference of about {e.number(pair.detectable)} is found 4 times in 5.",
    )


def _undertrained(arm: Arm) -> Answer:
    dev = f"its dev score {arm.rise:+.3g}" if arm.rise is not None else ""
    loss = f"its training loss {-100 * arm.fall:+.0f}%" if arm.fall is not None else ""
    return _none(
        "undertrained",
        f"{arm.name} was still learning when it stopped ({' and '.join(filter(None, (dev, loss)))} over the last "
        "quarter of its steps): train longer, or with other learning rates, before asking again.",
    )


def _outlook(results: dict[str, Any], answer: str) -> str:
    """What the whole comparison would take, by the pilot's own runs, and whether it is worth it."""
    protocol = results["protocol"]
    whole, seeds = protocol["pilot_of"], len(protocol["pilot_of"]["seeds"])
    longer, tries = whole["steps"] / protocol["steps"], len(whole["rates"]) or whole["trials"]
    seconds = 0.0
    for arm in results["arms"]:
        own = sum(run.get("seconds") or 0.0 for run in arm.get("runs") or ())
        seconds += own * (longer * (tries + seeds - 1) if arm.get("trials") else seeds)
    worth = (
        "it is worth it, for the pilot does not tell"
        if answer == "no verdict"
        else "for the answer alone it is not needed; it would give scores with intervals, and an artifact to keep"
    )
    return (
        f"The whole comparison, {whole['steps']} steps and {seeds} seed{'s' * (seeds != 1)}, would take about "
        f"{seconds / 60:.1f} minutes of one worker; {worth}."
    )


def _none(reason: str, why: str) -> Answer:
    return "no verdict", reason, why


def _support(e: Evidence, chance: dict[str, Any] | None) -> str:
    """What else bears on it: whether the skill is latent, the yardsticks, the mechanism, the forecast."""
    parts = [e.latency]
    if e.yardsticks:
        parts.append("yardsticks: " + ", ".join(arm.shown for arm in e.yardsticks))
    if e.full_pair and e.full_pair.low > e.margin:
        parts.append(f"full tuning is clearly ahead of both kinds at this budget ({e.full_pair.told})")
    if any(shift > ROUNDING for shift in e.shifts.values()):
        moved = " and ".join(f"{shift if shift > ROUNDING else 0:.2g} in {name}" for name, shift in e.shifts.items())
        parts.append(f"attention over the content moved by {moved}, which a prefix cannot do in its own layer")
    if chance is not None:
        told = ", ".join(f"{name} {p:.2f}" for name, p in chance["probabilities"].items())
        parts.append(f"a forecast for more steps, fitted on small lab worlds alone: {told}")
    text = "; ".join(parts) + "."
    return text[0].upper() + text[1:]


def _limits(e: Evidence, protocol: dict[str, Any]) -> str:
    budgets = protocol.get("budgets") or [protocol.get("budget")]
    at = f"{max(budgets):,} stored parameters" if any(budgets) else "the sizes given"
    at = f"up to {at}" if len(budgets) > 1 else at
    over = "seeds and test rows" if e.seeds > 1 else "test rows only, for there is one seed"
    return (
        f"This holds for this model, these data, {at}, {protocol.get('steps', 'these')} steps and the "
        f"learning rates tried, with intervals over {over}; "
        "it says nothing of other methods, sizes, models or data."
    )
