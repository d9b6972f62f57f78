from metric_tools import score


def test_exact_match_knows_any_reference_and_ignores_runs_of_space():
    assert score("exact_match", ["a  b\n"], [["x", " a b"]]) == 1.0
    assert score("exact_match", ["A b"], [["a b"]]) == 0.0
    assert score("exact_match", ["A b"], [["a B"]], lowercase=True) == 1.0
    assert score("exact_match", [""], [["a"]]) == 0.0
    assert score("exact_match", ["a", "b", "c", "d"], [["a"], ["x"], ["x"], ["d", "e"]]) == 0.5
