"""The rule by which answers are read, case by case, and the vote."""

import pytest

import tunescope as ts
from tunescope.tasks.answers.extract import Extraction, vote


@pytest.mark.parametrize(
    ("read", "text", "answer"),
    [
        ("line", "so. The answer is 12.\nNext", "12"),
        ("line", "The answer is one. No, the answer is: two thirds", "two thirds"),
        ("line", "THE ANSWER IS yes", "yes"),
        ("line", "12", None),
        ("line", "The answer is \nmore", None),
        ("line", "The answer is .", None),
        ("line", "The answer is 4\n\nQ: next?\nA: The answer is 5", "4"),
        ("number", "2 and 3 make 5. The answer is 5 apples, not 6.", "5"),
        ("number", "first 2, then 3.5.", "3.5"),
        ("number", "The answer is 1,234,567.", "1234567"),
        ("number", "it falls to -4", "-4"),
        ("number", "The answer is $18.00.", "18"),
        ("number", "The answer is 7.0", "7"),
        ("number", "The answer is .50", "0.5"),
        ("number", "The answer is -.5", "-0.5"),
        ("number", "The answer is 007", "7"),
        ("number", "The answer is -0.0", "0"),
        ("number", "The answer is 1,200.50", "1200.5"),
        ("number", "The answer is none of 3", "3"),
        ("number", "4 and the answer is unknown", None),
        ("number", "no digits", None),
        ("number", "The answer is \u22125.", "-5"),
        ("number", "so 10-4", "4"),
        ("number", "The answer is (-4)", "-4"),
        ("number", "The answer is (1,2)", "1"),
        ("number", "The answer is 1,080 eggs", "1080"),
        ("number", "The answer is 1,00,000 rupees", "100000"),
        ("number", "The answer is -$4", "-4"),
        ("number", "The answer is: - 4", "-4"),
        ("number", "The answer is \u2212 $1,200.50.", "-1200.5"),
        ("number", "The answer is (- 4)", "-4"),
        ("number", "it loses 7, so -\u20ac.50", "-0.5"),
        ("number", "3 - 7 = - 4", "-4"),
        ("number", "7 - 4", "4"),
        ("number", "3-4", "4"),
        ("number", "$7 - $4", "4"),
        ("number", "$7 -$4", "4"),
        ("number", "$7-$4", "4"),
        ("number", "(3 + 4) -$4", "4"),
        ("number", "two -$4", "-4"),
        ("number", "cost:\n- 3 eggs\n- 4 apples", "4"),
        ("number", "5 apples - 4 apples", "4"),
        ("number", "The answer is 1e5", "100000"),
        ("number", "The answer is 6.0e3 m", "6000"),
        ("number", "The answer is -2.50E-3", "-0.0025"),
        ("number", "The answer is 2eggs", "2"),
        ("number", "The answer is \uff11\uff0c\uff12\uff13\uff14\uff0e\uff15", "1234.5"),
        ("number", "The answer is \uff0d\uff04\uff14", "-4"),
        ("number", "The answer is \u0663", "3"),
        ("number", "12 m\u00b2", "12"),
        ("number", "The answer is 3\u00bd", "3"),
        ("number", f"The answer is {'9' * 40}.0", "9" * 40),
        ("yes,no", "The answer is No, since yes is wrong", "no"),
        ("yes,no", "yes or no? no, YES", "yes"),
        ("yes,no", "The answer is nothing", None),
        ("a,a b", "The answer is a b", "a b"),
        ("a+,b", "The answer is a+", "a+"),
        ("number", "İİİİ so. The answer is 1234", "1234"),
        ("line", "İİİİ THE ANSWER İS 1234", "1234"),
        ("yes,no", "The answer is yeſ", "yes"),
    ],
)
def test_what_is_read(read, text, answer):
    assert Extraction(read).answer(text) == answer


@pytest.mark.parametrize(
    ("read", "text", "answer"),
    [
        ("line", " 12.\nThe answer is 13", "12"),
        ("number", "12, then The answer is 13", "12"),
        ("number", "\n\n12", None),
        ("yes,no", "well, no. The answer is yes", "no"),
    ],
)
def test_behind_the_marker_of_the_prompt_a_later_one_counts_for_nothing(read, text, answer):
    assert Extraction(read).answer_behind(text) == answer


@pytest.mark.parametrize("blank", ["\n\n", "\n \n", "\r\n\r\n", "\n\t\n"])
def test_an_answer_ends_at_a_blank_line_whatever_white_space_is_in_it(blank):
    text = f"3 and 4 are 7. The answer is 7.{blank}Q: 5 and 5?\nA: The answer is 10."
    assert Extraction("number").answer(text) == "7"
    assert Extraction("number").answer_behind(f" 7.{blank}8") == "7"
    assert Extraction("number", blank_ends=False).answer(text) == "10"


@pytest.mark.parametrize("read", ["words", "yes,", "yes,yes", ""])
def test_a_rule_that_is_none_is_refused(read):
    with pytest.raises(ts.UserError, match="it is line, number, or different choices, as in --read yes,no"):
        Extraction(read)


def test_a_marker_must_have_words():
    with pytest.raises(ts.UserError, match=r"The words in front of an answer are empty; type --lead"):
        Extraction("line", " ")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["a", "b", "b", None], ("b", 0.5)),
        (["b", "a", "a", "b"], ("b", 0.5)),
        ([None, None, "c", None], ("c", 0.25)),
        ([None, None], (None, 0.0)),
        (["a"], ("a", 1.0)),
    ],
)
def test_the_commonest_answer_wins_and_of_equals_the_first(answers, expected):
    assert vote(answers) == expected


@pytest.mark.parametrize(
    ("answers", "lowercase", "expected"),
    [
        (["Rome", "Paris", "paris", "PARIS", "Rome"], True, ("Paris", 0.6)),
        (["Rome", "Paris", "paris", "PARIS", "Rome"], False, ("Rome", 0.4)),
        (["b", "a  film", "a film", "a\tfilm", None], False, ("a  film", 0.6)),
        (["b", "B", "a", "A"], True, ("b", 0.5)),
    ],
)
def test_answers_that_exact_match_takes_for_one_vote_together_and_the_first_spelling_is_given(
    answers, lowercase, expected
):
    assert vote(answers, lowercase) == expected


def test_right_answers_of_several_numbers_are_told_with_what_helps():
    targets = ["3/4", "10:30", "1e5", "1,080", "-2.5", "5 apples"]
    (note,) = Extraction("number").several(targets)
    assert note.startswith("2 of 6 right answers hold more than one number, as '3/4' does") and "--read line" in note
    assert Extraction("number").several(targets[3:]) == Extraction().several(targets) == ()
