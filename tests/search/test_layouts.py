"""Fields, answer and spans in order."""

import masked
import pytest

from tunescope.errors import UserError
from tunescope.search.methods._layouts import layouts, spoken, text_tokens
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.prompts.templates import fill


def test_one_text_has_the_answer_behind_it_or_before():
    behind, before = layouts(("text",), ends=False)
    assert behind.asked("great") == "{text} <extra_id_0> great <extra_id_1>"
    assert before.asked("so {so}") == "<extra_id_0> so {{so}} <extra_id_1> {text}"
    assert behind.template([" It was", "."]) == "{text} It was {mask}."
    assert behind.template([". In all", " !"]) == "{text}. In all {mask} !"
    assert before.template([" A", " film:"]) == "A {mask} film: {text}"
    assert (behind.n_spans, before.n_spans) == (2, 2)


def test_two_texts_have_the_answer_between_them():
    (only,) = layouts(("one", "two"), ends=False)
    assert only.asked("Yes") == "{one} <extra_id_0> Yes <extra_id_1> {two}"
    assert only.template(["?", ","]) == "{one}? {mask}, {two}"
    with pytest.raises(
        UserError, match="writes around one field or between two, and the task's template has 3: a, b, c"
    ):
        layouts(("a", "b", "c"), ends=False)


def test_where_the_answer_ends_the_template_there_is_no_mask():
    (only,) = layouts(("a", "b", "c"), ends=True)
    assert only.asked("Yes") == "{a} {b} {c} <extra_id_0> Yes"
    assert only.template([" So"]) == "{a} {b} {c} So"
    assert only.template([""]) == "{a} {b} {c}"


def test_empty_spans_and_braces_make_templates_that_can_be_used():
    behind, before = layouts(("text",), ends=False)
    assert behind.template(["", ""]) == "{text} {mask}"
    assert before.template(["", ""]) == "{mask} {text}"
    odd = behind.template([" {it} was {", "}}."])
    assert Classification(template=odd).fields() == ("text",)
    assert fill(odd, {"text": "T", "mask": "M"}) == "T {it} was { M}}."


@pytest.mark.parametrize("make", [masked.sentence_piece, masked.byte_level])
def test_a_span_is_spoken_with_its_own_leading_space(make):
    tokenizer = make()
    pieces = {"▁it ▁was": " it was", ".": ".", "▁not ▁in .": " not in.", "": "", "▁it ▁": " it"}
    if make is masked.byte_level:
        pieces = {
            "Ġit Ġwas": " it was",
            ".": ".",
            "": "",
            "Ġa Ċ Ċ Ġfilm Ġ Ċ": " a film",
            "{ x }": "{x}",
            "ĉ good": " good",
        }
    for names, expected in pieces.items():
        span = tuple(tokenizer.convert_tokens_to_ids(names.split()))
        assert tokenizer.unk_token_id not in span
        assert spoken(tokenizer, span) == expected


def test_what_a_span_may_hold():
    tokenizer = masked.sentence_piece()
    tokenizer.add_tokens(["__", "  ", "_ _"])
    allowed = text_tokens(tokenizer, ("film", "."))
    names = tokenizer.convert_ids_to_tokens(list(allowed))
    assert {"▁was", "▁great"} <= set(names)
    assert not {"__", "  ", "_ _", "▁", "▁film", ".", "</s>", "<pad>", *masked.SENTINELS} & set(names)
    assert {"▁film", "."} <= set(tokenizer.convert_ids_to_tokens(list(text_tokens(tokenizer, ()))))
