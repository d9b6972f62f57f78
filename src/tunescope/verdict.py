"""results.json -> "context suffices" | "weights needed" | "no verdict", with three sentences.

The rule, in the order in which it is asked. MARGIN is 0.02 of the metric's scale; "clear of" means that the
whole 95 % interval is; "best" is by the dev score, never by the test score.

1. No delta arm finished: no verdict.
2. A zero-shot or text arm is above its floor, and its paired difference to the best trained arm is clear of
   -MARGIN: context suffices, a prompt alone does it.
3. No context arm finished: no verdict.
4. Neither the best context nor the best delta is above its floor: no verdict, nothing was learnt. An arm is
   above its floor when it is clear of chance and its paired difference to the zero-shot arm is clear of 0.
   What trains nothing need only be clear of chance, or of zero-shot where the task has no chance level.
5. A head on frozen features is as good as the best trained arm (as in 2): no verdict, the head did it.
6. Best context minus best delta. All above -MARGIN and the context above its floor: context suffices. All
   below -MARGIN and the delta above its floor: weights needed. Otherwise: no verdict.
7. What 2 or 6 found is withdrawn if the trained arm that came out behind, or was matched, was still learning
   when it stopped: from the third quarter of its steps to the last its dev score grew by more than MARGIN, or
   it is not above its floor but its training loss fell by more than a tenth.

The best context and the best delta are of the (largest) budget's size at most, give or take 5 %, where there
is one. Full tuning, a head alone, and a context with a delta are yardsticks: they decide nothing but rule 5.
"""

from __future__ import annotations

from typing import Any

from tunescope.evidence import Arm, Evidence, Pair, gather

MARGIN = 0.02

Answer = tuple[str, str, str]  # the answer, the reason in two words, the first sentence


def decide(results: dict[str, Any], margin: float = MARGIN) -> dict[str, Any]:
    """The verdict on a results.json dict: {"answer", "sentences": [3], "evidence"}.

    Args:
        margin: what counts as no worse, as a share of the metric's scale: 0.02 is 2 points of BLEU.
    """
    evidence = gather(results, margin)
    answer, reason, why = _answer(evidence)
    return {
        "answer": answer,
        "sentences": [why, _support(evidence), _limits(evidence, results.get("protocol") or {})],
        "evidence": {"reason": reason, **evidence.describe()},
    }


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


def _none(reason: str, why: str) -> Answer:
    return "no verdict", reason, why


def _support(e: Evidence) -> str:
    """What else bears on it: whether the skill is latent, the yardsticks, the mechanism."""
    parts = [e.latency]
    if e.yardsticks:
        parts.append("yardsticks: " + ", ".join(arm.shown for arm in e.yardsticks))
    if e.full_pair and e.full_pair.low > e.margin:
        parts.append(f"full tuning is clearly ahead of both kinds at this budget ({e.full_pair.told})")
    if e.shifts:
        moved = " and ".join(f"{shift:.2g} in {name}" for name, shift in e.shifts.items())
        parts.append(f"attention over the content moved by {moved}, which a prefix cannot do in its own layer")
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
