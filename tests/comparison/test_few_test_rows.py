"""The note on how little a verdict can tell with few test rows, against arithmetic by hand."""

from types import SimpleNamespace

from tunescope.comparison.few_test_rows import few_test_rows


def told(rows, *, seeds=3, most=12, margin=0.02, metric="accuracy"):
    plan = SimpleNamespace(seeds=tuple(range(seeds)), max_seeds=most, margin=margin)
    task = SimpleNamespace(metric=metric, fields=lambda: ("text",), question=lambda: ("text",))
    splits = SimpleNamespace(parts=lambda: {"test": [{"text": str(one)} for one in rows]})
    return few_test_rows(SimpleNamespace(plan=plan, task=task, splits=splits))


def test_the_half_width_is_that_of_discordant_pairs_at_the_level_of_a_look():
    """Looks at 3, 6 and 12: z of .9917 is 2.394; 2.394 * sqrt(.1 / 80) = .0846; .1 * (2.394 / .02)^2 = 1,433."""
    (note,) = told(range(80))
    assert note.startswith("80 test rows tell a difference in accuracy to ±0.085 at best")
    assert "within the margin of 0.02 is told from about 1,400 on" in note


def test_one_look_needs_fewer_rows_and_a_wider_margin_too():
    """1.96 * sqrt(.1 / 80) = .0693; .1 * (1.96 / .02)^2 = 960; of a margin of .1: 57 with three looks."""
    assert "±0.069 at best" in told(range(80), most=None)[0] and "about 960 on" in told(range(80), most=None)[0]
    assert told(range(80), margin=0.1) == [] and told(range(50), margin=0.1) != []


def test_enough_rows_and_other_metrics_are_told_nothing_and_repeated_inputs_count_once():
    assert told(range(1434)) == [] and told(range(1432)) != [] and told(range(80), metric="bleu") == []
    assert told([1, 1, 2])[0].startswith("2 test rows")
