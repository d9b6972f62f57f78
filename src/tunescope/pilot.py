"""A pilot: a tenth of a comparison's steps, to say what the rest would find and whether it is worth it."""

from dataclasses import replace

from tunescope.plan import Plan, Whole

TENTH = 10  # all steps of a pilot, of all steps of the comparison
LONGEST = 5  # one of its runs, of one of the comparison's: no longer than a fifth
TRIALS = 2
EVALUATIONS = 4


def piloted(question: Plan) -> Plan:
    """The same question at its first seed and at two learning rates, every run shorter and never stopped early.

    With t trials and s seeds a comparison takes t + s - 1 runs an arm. A pilot takes two of a fifth of the steps, or
    less where two such runs would be more than a tenth of those.
    """
    old = question.settings
    rates = question.rates[:: max(1, len(question.rates) - 1)][:TRIALS]  # the ends, as of a method's own grid
    trials = min(TRIALS, question.trials)
    whole_runs = (len(question.rates) or question.trials) + len(question.seeds) - 1
    steps = min(old.steps // LONGEST, old.steps * whole_runs // (TENTH * (len(rates) or trials)))
    steps = max(1, steps)
    settings = replace(old, steps=steps, eval_every=max(1, -(-steps // EVALUATIONS)), patience=EVALUATIONS + 1)
    whole = Whole(old.steps, question.seeds, old.eval_every, old.patience, question.trials, question.rates)
    return replace(question, seeds=question.seeds[:1], trials=trials, rates=rates, settings=settings, pilot_of=whole)
