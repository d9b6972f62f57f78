"""A pilot: a tenth of a comparison's steps, to say what the rest would find and whether it is worth it."""

from dataclasses import replace

from tunescope.errors import UserError
from tunescope.trial.plan import Plan, Whole

TENTH = 10  # all steps of a pilot, of all steps of the comparison
TRYING = 5  # of those, a fifth goes to the learning rates
LONGEST = (2, 5)  # of the comparison's run: the forecast was fitted on runs of two fifths
EVALUATIONS = 4


def piloted(question: Plan) -> Plan:
    """The same question at its first seed: every learning rate for a few steps, then one shorter run an arm.

    With t rates and s seeds a comparison takes t + s - 1 runs an arm, and a pilot a tenth of their steps. A run of a
    pilot is never stopped early.
    """
    if question.halving:
        raise UserError("--halving has no effect in a pilot, whose trials are short already. Leave one of them out.")
    if question.beyond:
        raise UserError("--beyond has no effect in a pilot, whose steps are counted. Leave one of them out.")
    old = question.settings
    rates = len(question.rates) or question.trials
    budget = max(2, old.steps * (rates + len(question.seeds) - 1) // TENTH)
    trial = max(1, budget // (TRYING * rates)) if rates > 1 else 0
    steps = max(1, min(budget - rates * trial, old.steps * LONGEST[0] // LONGEST[1]))
    settings = replace(old, steps=steps, eval_every=max(1, -(-steps // EVALUATIONS)), patience=EVALUATIONS + 1)
    whole = Whole(old.steps, question.seeds, old.eval_every, old.patience, question.trials, question.rates)
    return replace(
        question, seeds=question.seeds[:1], settings=settings, pilot_of=whole, trial_steps=trial or None, max_seeds=None
    )
