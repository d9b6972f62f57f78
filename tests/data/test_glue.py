"""GLUE tasks as text: the published TSV, JSONL copies, labels that are none."""

import made
import pytest

from tunescope.data.corpus import corpus
from tunescope.errors import UserError


def test_sst2_of_glue_is_read_with_its_dev_part_as_test(tmp_path):
    made.put(tmp_path / "train.tsv", 'sentence\tlabel\nit "sings \t1\ndull\t0\n')
    made.put(tmp_path / "dev.tsv", "sentence\tlabel\nbright\t1\n")
    made.put(tmp_path / "test.tsv", "index\tsentence\n0\tno label\n")
    found = corpus(f"sst2:{tmp_path}")
    assert {part: len(rows) for part, rows in found.items()} == {"train": 2, "test": 1}
    assert found["train"][0] == {
        "input": 'sst2 sentence: it "sings',
        "target": "positive",
        "text": 'it "sings',
        "label": "positive",
    }


def test_a_copy_of_sst2_in_jsonl_has_its_own_dev_and_test(tmp_path):
    for name in ("train", "validation", "test"):
        made.jsonl(tmp_path / f"{name}.jsonl", {"text": name, "label": 0})
    found = corpus(f"sst2:{tmp_path}")
    assert {part: rows[0]["text"] for part, rows in found.items()} == {
        "train": "train",
        "dev": "validation",
        "test": "test",
    }
    with pytest.raises(UserError, match=r"x\.jsonl line 1: label 2 is none of 0, 1"):
        corpus(f"sst2:{made.jsonl(tmp_path / 'x.jsonl', {'text': 'a', 'label': 2})}")


def test_mnli_of_glue_and_of_a_copy_come_to_the_same_text(tmp_path):
    glue = made.put(tmp_path / "train.tsv", "sentence1\tsentence2\tgold_label\nIt may rain.\tit rains\tneutral\n")
    copy = made.jsonl(
        tmp_path / "copy" / "a.jsonl", {"premise": "It may rain.", "hypothesis": "it rains", "label": "neutral"}
    )
    one, other = (next(iter(corpus(f"mnli:{path}").values()))[0] for path in (glue, copy))
    assert (
        one
        == other
        == {
            "input": "mnli hypothesis: it rains premise: It may rain.",
            "premise": "It may rain.",
            "hypothesis": "it rains",
            "target": "neutral",
            "text": "mnli hypothesis: it rains premise: It may rain.",
            "label": "neutral",
        }
    )
    with pytest.raises(UserError, match="label - is none of entailment, neutral, contradiction"):
        corpus(f"mnli:{made.jsonl(tmp_path / 'b.jsonl', {'premise': 'a', 'hypothesis': 'b', 'label': '-'})}")


def test_snli_of_its_authors_and_of_a_copy_come_to_the_same_text_without_rows_that_have_no_label(tmp_path):
    said = {"sentence1": "A dog runs. ", "sentence2": "It sleeps", "captionID": "1"}
    for part in ("train", "dev", "test"):
        made.jsonl(
            tmp_path / f"snli_1.0_{part}.jsonl",
            said | {"gold_label": "-"},
            said | {"gold_label": "contradiction"},
        )
    found = corpus(f"snli:{tmp_path}")
    assert {part: len(rows) for part, rows in found.items()} == {"train": 1, "dev": 1, "test": 1}
    told = "1 rows on whose label the annotators did not agree left out"
    assert found.notes == tuple(f"snli:{tmp_path.name}#{part}: {told}." for part in ("train", "dev", "test"))
    text = "snli hypothesis: It sleeps premise: A dog runs."
    assert found["test"][0] == {
        "input": text,
        "premise": "A dog runs.",
        "hypothesis": "It sleeps",
        "target": "contradiction",
        "text": text,
        "label": "contradiction",
    }
    assert found["test"][0].line == 2
    copy = {"premise": "A dog runs.", "hypothesis": "It sleeps", "label": "contradiction"}
    (other,) = corpus(f"snli:{made.jsonl(tmp_path / 'copy' / 'test.jsonl', copy).parent}")["test"]
    assert other == found["test"][0]
    with pytest.raises(UserError, match=r"b\.jsonl line 1: label 2 is none of entailment, neutral, contradiction"):
        corpus(f"snli:{made.jsonl(tmp_path / 'b.jsonl', {'premise': 'a', 'hypothesis': 'b', 'label': 2})}")


def test_trec_is_read_in_its_authors_files_and_in_a_copy(tmp_path):
    (tmp_path / "train_5500.label").write_bytes(
        "DESC:manner How did it end ?\nHUM:ind Who is Ren\xe9 ?\n".encode("latin-1")
    )
    made.put(tmp_path / "TREC_10.label", "NUM:dist How far is it ?\n")
    found = corpus(f"trec:{tmp_path}")
    assert [(row["input"], row["label"]) for row in found["train"]] == [
        ("trec question: How did it end ?", "description"),
        ("trec question: Who is Ren\xe9 ?", "human"),
    ]
    assert found["test"][0]["text"] == "How far is it ?" and found["test"][0]["target"] == "number"
    copy = made.jsonl(tmp_path / "copy" / "a.jsonl", {"coarse": "NUM", "text": "How far is it ?"})
    assert dict(corpus(f"trec:{copy}")["a"][0]) == dict(found["test"][0])
    with pytest.raises(UserError, match=r"b\.jsonl line 1: class XYZ is none of ABBR, DESC"):
        corpus(f"trec:{made.jsonl(tmp_path / 'b.jsonl', {'coarse': 'XYZ', 'text': 'a'})}")


@made.needs_shared
def test_the_stored_copies_come_out_whole():
    questions = {part: len(rows) for part, rows in corpus(f"trec:{made.SHARED / 'trec'}").items()}
    assert questions == {"train": 5452, "test": 500}
    counts = {part: len(rows) for part, rows in corpus(f"sst2:{made.SHARED / 'sst2'}").items()}
    assert counts == {"train": 6920, "dev": 872, "test": 1821, "train_phrases": 67349}
    labels = {
        row["label"]
        for row in corpus(f"mnli:{made.SHARED / 'mnli_subset'}#validation_matched_1k")["validation_matched_1k"]
    }
    assert labels == {"entailment", "neutral", "contradiction"}
    pairs = corpus(f"snli:{made.SHARED / 'snli_subset'}#test_1k")["test_1k"]
    counts = {label: sum(row["label"] == label for row in pairs) for label in labels}
    assert counts == {"entailment": 367, "neutral": 322, "contradiction": 311}


def test_ag_news_is_read_in_its_authors_files_and_in_a_copy(tmp_path):
    lines = '"3","Bears ""claw"" back","Short-sellers, again."\n"1","Talks","held\nin Rome"\n'
    made.put(tmp_path / "train.csv", lines)
    made.put(tmp_path / "test.csv", '"4","A","chip"\n')
    found = corpus(f"ag_news:{tmp_path}")
    assert [(row["text"], row["label"]) for row in found["train"]] == [
        ('Bears "claw" back Short-sellers, again.', "business"),
        ("Talks held\nin Rome", "world"),
    ]
    copy = made.jsonl(tmp_path / "copy" / "test.jsonl", {"text": "A chip", "label": 3})
    assert dict(corpus(f"ag_news:{copy.parent}")["test"][0]) == dict(found["test"][0])
    assert found["test"][0]["input"] == "ag_news text: A chip" and found["test"][0]["target"] == "technology"
    five, two = made.put(tmp_path / "five.csv", '"5","A","b"'), made.put(tmp_path / "two.csv", '"1","A"')
    with pytest.raises(UserError, match="label 4 is none of 0, 1, 2, 3"):
        corpus(f"ag_news:{five}")
    with pytest.raises(UserError, match=r'two\.csv line 1 is no "CLASS","TITLE","DESCRIPTION"'):
        corpus(f"ag_news:{two}")
    torn = made.put(tmp_path / "torn.csv", '"1","A","b"\n"2","A" B,"c"\n')
    with pytest.raises(UserError, match=r"torn\.csv line 2 is not CSV \(.*\)\. Take it anew"):
        corpus(f"ag_news:{torn}")


def test_emotion_is_read_in_its_authors_files_and_in_a_copy(tmp_path):
    made.put(tmp_path / "val_text.txt", "So glad!\nmeh\u2028ok\n")
    made.put(tmp_path / "val_labels.txt", "1\n3\n")
    found = corpus(f"emotion:{tmp_path}")
    assert [(row["text"], row["label"]) for row in found["dev"]] == [("So glad!", "joy"), ("meh\u2028ok", "sadness")]
    copy = made.jsonl(tmp_path / "copy" / "validation.jsonl", {"text": "So glad!", "label": 1})
    assert dict(corpus(f"emotion:{copy.parent}")["dev"][0]) == dict(found["dev"][0])
    for texts, labels, told in (
        ("a\n\nb\nc\n", "0\n3\n\n2\n", r"val_text\.txt, line 2: it is empty"),
        ("a\nb\nc\n", "0\n \n2\n", r"val_labels\.txt, line 2: it is empty"),
    ):
        made.put(tmp_path / "val_text.txt", texts)
        made.put(tmp_path / "val_labels.txt", labels)
        with pytest.raises(UserError, match=told):
            corpus(f"emotion:{tmp_path}")
    made.put(tmp_path / "val_text.txt", "So glad!\nmeh\n\n")
    made.put(tmp_path / "val_labels.txt", "1\n")
    with pytest.raises(UserError, match=r"val_text\.txt has 2 lines and val_labels\.txt 1"):
        corpus(f"emotion:{tmp_path}")


@made.needs_shared
def test_the_stored_copies_of_ag_news_and_emotion_are_whole():
    news = {part: len(rows) for part, rows in corpus(f"ag_news:{made.SHARED / 'ag_news'}").items()}
    assert news == {"train": 5000, "test": 7600, "train_10k_description_only": 10001}
    tweets = {part: len(rows) for part, rows in corpus(f"emotion:{made.SHARED / 'tweeteval_emotion'}").items()}
    assert tweets == {"train": 3257, "dev": 374, "test": 1421}
