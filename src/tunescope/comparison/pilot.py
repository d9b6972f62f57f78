"""A pilot: an eighth of a comparison's steps, to say what the rest would find and whether it is worth it."""

from dataclasses import replace

from tunescope.errors import UserError
from tunescope.trial.plan import Plan, Whole

SHARE = 0.12  # of the comparison's steps, all of a pilot's
TRIAL = 0.05  # of the steps of a run
EVALUATIONS = 6


def piloted(question: Plan) -> Plan:
    """The same question at its first seed: every learning rate for a few steps, then one shorter run an arm.

    With t rates and s seeds a comparison takes t + s - 1 runs an arm, and up to 3 more past the ends of its grid. A
    pilot has SHARE of t + s: trials of a few steps that are never scored, and what is left for the run. So few steps
    tell a rate that is far off, and not the best: the grid's middle is taken unless it is (`rates.unless_far_off`).
    Trials past an end come only where an end was taken, and are not counted ahead; composed methods are not tried
    apart, of which a few steps say too little. The run is never stopped early.
    """
    if question.halving:
        raise UserError("--halving has no effect in a pilot, whose trials are short already. Leave one of them out.")
    old = question.settings
    rates = len(question.rates) or question.trials
    trials = rates if rates > 1 else 0
    budget = old.steps * SHARE * (rates + len(question.seeds) - (rates == 1))
    trial = max(1, round(min(TRIAL * old.steps, budget / 2 / max(trials, 1)))) if trials else 0
    steps = max(1, round(min(budget - trials * trial, old.steps)))
    settings = replace(old, steps=steps, eval_every=max(1, -(-steps // EVALUATIONS)), patience=EVALUATIONS + 1)
    whole = Whole(
        old.steps,
        question.seeds,
        old.eval_every,
        old.patience,
        question.trials,
        question.rates,
        question.max_seeds,
    )
    return replace(
        question,
        seeds=question.seeds[:1],
        settings=settings,
        pilot_of=whole,
        trial_steps=trial or None,
        max_seeds=None,
        apart=False,
    )
