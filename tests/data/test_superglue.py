"""SuperGLUE as text: the published rows, T5's forms written out, the stored copies."""

import json
import re

import made
import pytest

from tunescope.data.corpus import corpus
from tunescope.errors import UserError

WSC = {
    "text": "The dogs saw Ann , but they ran.",
    "target": {"span1_text": "the dogs", "span1_index": 0, "span2_text": "they", "span2_index": 5},
    "label": True,
    "idx": 3,
}
TASKS = [
    (
        "boolq",
        {"question": "is tea hot", "passage": "Tea -- Tea is hot. ", "label": True, "idx": 1},
        "boolq passage: Tea -- Tea is hot. question: is tea hot",
        "True",
    ),
    (
        "cb",
        {"premise": "It may rain.", "hypothesis": "it rains", "label": "neutral", "idx": 1},
        "cb hypothesis: it rains premise: It may rain.",
        "neutral",
    ),
    (
        "copa",
        {"premise": "It fell.", "choice1": "A.", "choice2": "B.", "question": "cause", "label": 1, "idx": 1},
        "copa choice1: A. choice2: B. premise: It fell. question: cause",
        "choice2",
    ),
    (
        "rte",
        {"premise": "It rains.", "hypothesis": "it is wet", "label": "not_entailment", "idx": 1},
        "rte hypothesis: it is wet premise: It rains.",
        "not_entailment",
    ),
    (
        "wic",
        {"word": "tap", "sentence1": "A tap.", "sentence2": "Tap it.", "label": False, "start1": 2, "end1": 5},
        "wic sentence1: A tap. sentence2: Tap it. word: tap",
        "False",
    ),
    ("wsc", WSC, "wsc text: * The dogs * saw Ann , but # they # ran.", "True"),
]


@pytest.mark.parametrize(("name", "row", "text", "label"), TASKS)
def test_a_row_is_text_for_generation_and_for_classification(tmp_path, name, row, text, label):
    path = made.jsonl(tmp_path / "train.jsonl", row)
    (found,) = corpus(f"{name}:{path}")["train"]
    if name == "wsc":
        more = {"pronoun": "wsc: The dogs saw Ann , but *they* ran.", "referent": "the dogs"}
    else:
        more = {key: one.strip() for key, one in row.items() if isinstance(one, str) and key != "label"}
    assert found == {"input": text, "target": label, "text": text, "label": label, **more}


@pytest.mark.parametrize(("name", "row", "text", "label"), TASKS)
def test_a_row_without_a_label_or_with_a_strange_one_is_named(tmp_path, name, row, text, label):
    path = made.jsonl(tmp_path / "a.jsonl", {key: row[key] for key in row if key != "label"})
    with pytest.raises(
        UserError, match=r"a\.jsonl line 1 has no label; those of SuperGLUE's test\.jsonl are not public"
    ):
        corpus(f"{name}:{path}")
    path = made.jsonl(tmp_path / "b.jsonl", row, {**row, "label": "maybe"})
    with pytest.raises(UserError, match=r"b\.jsonl line 2: label maybe is none of (true|entailment|0), "):
        corpus(f"{name}:{path}")


def test_the_published_folder_is_trained_on_and_tested_by_its_val(tmp_path):
    row = TASKS[0][1]
    made.jsonl(tmp_path / "train.jsonl", row)
    made.jsonl(tmp_path / "val.jsonl", row)
    made.jsonl(tmp_path / "test.jsonl", {key: row[key] for key in row if key != "label"})
    found = corpus(f"boolq:{tmp_path}")
    assert list(found) == ["train", "test"]
    told = "the rows of val.jsonl: those of test.jsonl have no public labels."
    assert found.notes == (f"boolq:{tmp_path.name}#test: {told}",)
    (tmp_path / "val.jsonl").unlink()
    assert list(corpus(f"boolq:{tmp_path}")) == ["train"]


def test_the_32_rows_of_fewglue_are_trained_on_where_there_are_no_others(tmp_path):
    row = TASKS[0][1]
    for name in ("train32", "dev32", "val"):
        made.jsonl(tmp_path / f"{name}.jsonl", row)
    assert list(corpus(f"boolq:{tmp_path}")) == ["train", "dev", "test"]
    made.jsonl(tmp_path / "train.jsonl", row, row)
    found = corpus(f"boolq:{tmp_path}")
    assert (list(found), len(found["train"])) == (["train", "dev", "test", "train32"], 2)


def wsc(tmp_path, **target):
    return made.jsonl(tmp_path / "train.jsonl", {**WSC, "target": {**WSC["target"], **target}})


def test_a_span_beside_its_index_is_taken_there_and_counted(tmp_path):
    found = corpus(f"wsc:{wsc(tmp_path, span2_index=4)}")
    assert found["train"][0]["input"] == "wsc text: * The dogs * saw Ann , but # they # ran."
    assert found.notes == ("wsc:train.jsonl: 1 spans stand beside their index and were found.",)


def test_braces_in_a_text_are_left_alone(tmp_path):
    path = made.jsonl(
        tmp_path / "train.jsonl",
        {
            **WSC,
            "text": "The {dogs} saw they",
            "target": {"span1_text": "{dogs}", "span1_index": 1, "span2_text": "they", "span2_index": 3},
        },
    )
    assert corpus(f"wsc:{path}")["train"][0]["input"] == "wsc text: The * {dogs} * saw # they #"


def test_a_pronoun_in_the_noun_is_marked_in_it(tmp_path):
    found = corpus(f"wsc:{wsc(tmp_path, span1_text='they ran', span1_index=5)}")
    assert found["train"][0]["input"] == "wsc text: The dogs saw Ann , but * # they # ran *."


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"span1_text": "cats"}, r"line 1: a span does not stand in the text, and so in no row"),
        ({"span2_index": "4"}, r"line 1 has no span2_text and span2_index"),
        ({"span1_text": ""}, r"line 1 has no span1_text and span1_index"),
    ],
)
def test_a_span_that_is_not_there_is_named(tmp_path, target, message):
    with pytest.raises(UserError, match=message):
        corpus(f"wsc:{wsc(tmp_path, **target)}")


@pytest.mark.parametrize("span", ["The dogs.", "The\ndogs", " the  dogs . "])
def test_a_span_with_other_blanks_or_a_full_stop_is_found_as_in_the_published_rows(tmp_path, span):
    found = corpus(f"wsc:{wsc(tmp_path, span1_text=span)}")
    assert found["train"][0]["input"] == "wsc text: * The dogs * saw Ann , but # they # ran."


def test_a_row_whose_span_is_nowhere_is_left_out_and_counted(tmp_path):
    lost = {**WSC, "target": {**WSC["target"], "span1_text": "Kamenev and Zinoviev"}}
    found = corpus(f"wsc:{made.jsonl(tmp_path / 'train.jsonl', lost, WSC, lost)}")
    assert len(found["train"]) == 1
    assert found.notes[-1] == "wsc:train.jsonl: 2 rows with a span that is not in their text left out."


def test_a_row_without_spans_is_named(tmp_path):
    path = made.jsonl(tmp_path / "a.jsonl", {"text": "a", "target": None, "label": True})
    with pytest.raises(UserError, match="line 1 has no span1_text and span1_index"):
        corpus(f"wsc:{path}")


def literal(row):
    """T5's regular expression for WSC, written out: a word that differs in case stays unmarked there."""
    text, spans = row["text"], row["target"]

    def marked(text, span, index, mark):
        return re.sub(rf"^((?:\S+\s){{{index}}})({re.escape(span)})", rf"\1{mark} \2 {mark}", text)

    text = marked(text, spans["span1_text"], spans["span1_index"], "*")
    after = 2 * (spans["span1_index"] < spans["span2_index"])
    return "wsc text: " + marked(text, spans["span2_text"], spans["span2_index"] + after, "#")


@made.needs_shared
def test_the_stored_wsc_is_marked_as_t5_marks_it_where_case_and_index_are_right():
    rows = made.stored("superglue_few/WSC/validation.jsonl.gz")
    found = corpus(f"wsc:{made.SHARED / 'superglue_few/WSC'}")["test"]
    both = [(mine["input"], literal(row)) for mine, row in zip(found, rows, strict=True)]
    same = [(mine, theirs) for mine, theirs in both if theirs.count("*") == 2 and theirs.count("#") == 2]
    assert len(same) == 94  # 8 differ in case, 1 in its index, and in 1 the pronoun lies in the noun
    assert all(mine == theirs for mine, theirs in same)
    assert all(mine.count("*") == 2 and mine.count("#") == 2 for mine, _ in both)


@made.needs_shared
@pytest.mark.parametrize(
    ("name", "rows"), [("BoolQ", 3270), ("CB", 56), ("COPA", 100), ("WSC", 104), ("WiC", 638), ("RTE", 0)]
)
def test_the_stored_copies_have_the_rows_and_labels_that_they_should(name, rows):
    found = corpus(f"{name.lower()}:{made.SHARED / 'superglue_few' / name}")
    counts = {part: len(there) for part, there in found.items()}
    assert counts == {"train": 32, "dev": 32} | ({"test": rows} if rows else {})
    words = {"true": "True", "false": "False", "0": "choice1", "1": "choice2"}
    for part, file in (("dev", "dev32"), ("test", "validation")):
        if part in found:
            given = [row["label"] for row in made.stored(f"superglue_few/{name}/{file}.jsonl.gz")]
            told = [one if isinstance(one, str) else words[json.dumps(one)] for one in given]
            assert [row["label"] for row in found[part]] == told


@made.needs_shared
def test_the_whole_rte_is_read_too():
    assert {part: len(rows) for part, rows in corpus(f"rte:{made.SHARED / 'rte'}").items()} == {
        "train": 2490,
        "test": 277,
    }


PARAGRAPH = {
    "text": "Tea is hot. ",
    "questions": [
        {"question": "What is it?", "answers": [{"text": "hot", "label": 1}, {"text": "cold ", "label": 0}]},
        {"question": "Who?", "answers": [{"text": "nobody", "label": 0}]},
    ],
}


def test_multirc_is_a_row_an_answer_in_the_order_of_t5_s_fields(tmp_path):
    found = corpus(f"multirc:{made.jsonl(tmp_path / 'train.jsonl', {'passage': PARAGRAPH, 'idx': 0})}")["train"]
    assert [(row["input"], row["label"], row.line) for row in found] == [
        ("multirc question: What is it? answer: hot paragraph: Tea is hot.", "True", 1),
        ("multirc question: What is it? answer: cold paragraph: Tea is hot.", "False", 1),
        ("multirc question: Who? answer: nobody paragraph: Tea is hot.", "False", 1),
    ]
    bare = {**PARAGRAPH, "questions": [{"question": "Who?", "answers": [{"text": "nobody"}]}]}
    with pytest.raises(UserError, match="line 1: an answer has no label that is 0 or 1"):
        corpus(f"multirc:{made.jsonl(tmp_path / 'a.jsonl', {'passage': bare})}")
    with pytest.raises(UserError, match="line 1 needs 'passage' with 'text' and 'questions'"):
        corpus(f"multirc:{made.jsonl(tmp_path / 'b.jsonl', {'passage': {'text': 'x'}})}")
    with pytest.raises(UserError, match=r"line 1 needs 'passage' with .* all of it words"):
        corpus(f"multirc:{made.jsonl(tmp_path / 'c.jsonl', {'passage': {**PARAGRAPH, 'text': 3}})}")


NEWS = 'Ann met Bo.\n@highlight\nBo said "no"\n@highlight\nAnn left\n@highlight\nBo stayed'
SPANS = [{"start": 8, "end": 9}, {"start": 0, "end": 2}, {"start": 23, "end": 24}]


def test_record_is_a_row_an_answer_with_entities_once_and_highlights_as_sentences(tmp_path):
    query = {"query": "@placeholder left", "answers": [{"text": "Bo"}, {"text": "Ann"}, {"text": "Bo"}]}
    line = {"passage": {"text": NEWS, "entities": SPANS}, "qas": [query]}
    found = corpus(f"record:{made.jsonl(tmp_path / 'val.jsonl', line)}")["val"]
    text = 'record query: @placeholder left entities: Ann, Bo passage: Ann met Bo. Bo said "no" Ann left. Bo stayed'
    assert [(row["input"], row["target"]) for row in found] == [(text, "Ann"), (text, "Bo")]
    with pytest.raises(UserError, match="line 1: a query has no answers"):
        corpus(f"record:{made.jsonl(tmp_path / 'a.jsonl', {**line, 'qas': [{'query': 'x'}]})}")
    with pytest.raises(UserError, match="line 1 needs 'passage' with 'text' and 'entities'"):
        corpus(f"record:{made.jsonl(tmp_path / 'b.jsonl', {'passage': NEWS})}")
