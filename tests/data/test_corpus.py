"""NAME:PATH#PART: what it names, what it does not, and what is said where it cannot be used."""

import hashlib

import made
import pytest

from tunescope.data.corpus import Corpus, corpus
from tunescope.data.corpus_name import Spec, names, parsed, shown
from tunescope.data.read import read, sha256
from tunescope.errors import UserError
from tunescope.trial.plan_fields import data_paths

ROW = {"table": "name : Ox", "text": "Ox ."}


@pytest.fixture
def folder(tmp_path):
    for part in ("train", "validation", "test", "test_new"):
        made.jsonl(tmp_path / "own" / f"{part}.jsonl", ROW)
    return tmp_path / "own"


@pytest.mark.parametrize(
    "path",
    ["C:\\data\\train.csv", "c:/data", "https://a.b/c", "s3://bucket/train.jsonl", "hf://e2e", "a/b:c", "e2e", ":x"],
)
def test_a_drive_a_url_and_a_plain_path_are_no_corpus(path):
    assert parsed(path) is None


def test_a_path_that_exists_wins_over_a_corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made.jsonl(tmp_path / "e2e:own.jsonl", {"input": "a", "target": "b"})
    assert parsed("e2e:own.jsonl") is None
    assert read("e2e:own.jsonl") == [{"input": "a", "target": "b"}]


def test_a_part_stands_behind_the_last_mark_unless_a_path_has_it(tmp_path, folder):
    assert parsed("e2e:a/b#test") == Spec("e2e", folder.__class__("a/b"), "test")
    marked = tmp_path / "own#1"
    folder.rename(marked)
    assert parsed(f"e2e:{marked}") == Spec("e2e", marked)
    assert parsed(f"e2e:{marked}#test") == Spec("e2e", marked, "test")
    assert str(parsed(f"e2e:{marked}#test")) == f"e2e:{marked}#test"


def test_a_name_that_is_no_corpus_gets_the_nearest():
    with pytest.raises(
        UserError, match=r"there is no file of that name and no corpus 'e2'. Did you mean 'e2e'\? Corpora"
    ):
        parsed("e2:own")


def test_every_reader_is_one_file_that_has_what_a_reader_has():
    import importlib

    assert {"e2e", "webnlg", "dart", "xsum", "dialogsum", "multi30k", "wmt"} < set(names())
    for name in names():
        module = importlib.import_module(f"tunescope.data.corpora.{name}")
        assert module.__doc__ and module.SOURCE and callable(module.splits) and callable(module.rows)


def test_a_whole_folder_brings_its_parts_and_what_is_given_wins(folder, tmp_path):
    own = {part: f"e2e:{folder}#{part}" for part in ("train", "dev", "test")}
    assert data_paths(f"e2e:{folder}") == own
    assert data_paths({"train": f"e2e:{folder}", "test": f"e2e:{folder}#test_new"}) == own | {
        "test": f"e2e:{folder}#test_new"
    }
    other = str(made.jsonl(tmp_path / "x.jsonl", ROW))
    assert data_paths({"train": other, "dev": f"e2e:{folder}"}) == {"train": other, "dev": own["dev"]}
    assert data_paths({"train": f"e2e:{folder}", "dev": other}) == own | {"dev": other}


def test_one_part_or_one_file_brings_nothing_else(folder, monkeypatch):
    assert data_paths(f"e2e:{folder}#train") == {"train": f"e2e:{folder}#train"}
    monkeypatch.chdir(folder)
    assert data_paths("e2e:train.jsonl") == {"train": f"e2e:{folder}/train.jsonl"}
    assert list(corpus("e2e:train.jsonl")) == ["train"]
    assert list(corpus(f"e2e:{folder}#test_new")) == ["test_new"]
    assert list(corpus(f"e2e:{folder}")) == ["train", "dev", "test", "test_new"]


def test_names_in_results_have_no_folders(folder):
    assert shown(f"e2e:{folder}#test") == "e2e:own#test"
    assert shown(folder / "train.jsonl") == "train.jsonl"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "e2e:{folder}#tests",
            r"#tests: .* has no part 'tests'\. Parts: train, dev, test, test_new\. Type e2e:FOLDER#train",
        ),
        ("e2e:{folder}#test_unseen", r"e2e has no domains, so it has no seen and unseen parts\. Parts: train, dev"),
        ("webnlg:{folder}/train.jsonl#test", r"a file has no parts but seen and unseen\. Leave '#test' out"),
        ("e2e:{folder}/none", r"there is no folder or file .*none\. Check the path"),
        ("e2e:{folder}/empty", r"empty has no files that e2e knows\. It holds: a\.txt\. See: tunescope data"),
    ],
)
def test_a_part_that_is_not_there_is_named_with_those_that_are(folder, text, message):
    made.put(folder / "empty/a.txt", "text")
    text = text.format(folder=folder)
    with pytest.raises(UserError, match=message):
        corpus(text)
    with pytest.raises(UserError, match=message):
        read(text)
    with pytest.raises(UserError, match=message):
        sha256(text)


def test_a_folder_without_training_rows_says_which_parts_it_has(folder):
    (folder / "train.jsonl").unlink()
    with pytest.raises(UserError, match=r"has no part 'train'\. Parts: dev, test, test_new\. Type e2e:FOLDER#dev"):
        data_paths(f"e2e:{folder}")


def test_a_folder_is_several_parts_and_no_one_of_them(folder):
    with pytest.raises(UserError, match=r"is several parts: train, dev, test, test_new\. Name one: e2e:FOLDER#train"):
        read(f"e2e:{folder}")


def test_two_files_that_could_be_one_part_are_refused(folder):
    made.jsonl(folder / "test.jsonl.gz", ROW)
    with pytest.raises(UserError, match=r"own has test\.jsonl and test\.jsonl\.gz, and each could be test\."):
        corpus(f"e2e:{folder}")


def test_a_path_is_no_corpus(folder):
    with pytest.raises(UserError, match=r"names no corpus\. Type NAME:PATH, such as e2e:FOLDER\. Corpora: "):
        corpus(folder)


def test_a_part_of_nothing_but_what_is_left_out_is_refused(tmp_path):
    made.jsonl(tmp_path / "test.jsonl", {"triples": [["a", "b", "c"]], "references": [" "]})
    with pytest.raises(UserError, match=r"#test has no rows\. Give a part with at least one"):
        corpus(f"dart:{tmp_path}")


def test_a_character_that_breaks_tokenizers_is_named_with_its_line(tmp_path):
    path = made.put(tmp_path / "a.json", '[\n{"tripleset": [["a", "b", "c"]], "annotations": [{"text": "x\\u0000"}]}]')
    with pytest.raises(UserError, match=r"a\.json line 2: 'target' holds a NUL character"):
        corpus(f"dart:{path}")


def test_a_long_field_of_a_corpus_is_read_where_it_is_allowed(tmp_path):
    made.jsonl(tmp_path / "own" / "train.jsonl", {"text": "word " * 210_000, "label": 0}, {"text": "fine", "label": 1})
    path = f"sst2:{tmp_path / 'own'}#train"
    assert len(read(path, 2_000_000)) == 2
    with pytest.raises(UserError, match="--longest-field"):
        read(path)


def test_the_hash_is_that_of_the_one_file_read(folder):
    expected = hashlib.sha256((folder / "test.jsonl").read_bytes()).hexdigest()
    assert sha256(f"e2e:{folder}#test") == sha256(f"e2e:{folder}/test.jsonl") == expected


def test_the_hash_of_several_files_is_that_of_their_hashes_and_names(tmp_path):
    one, other = made.put(tmp_path / "train.en", "a\n"), made.put(tmp_path / "train.de", "b\n")
    lines = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in (one, other))
    assert sha256(f"multi30k:{tmp_path}#train") == hashlib.sha256(lines.encode()).hexdigest()


def test_the_hash_of_rows_told_seen_from_unseen_counts_the_training_files(tmp_path):
    row = {"triples": [["a", "b", "c"]], "references": ["d"], "category": "Food"}
    made.jsonl(tmp_path / "train.jsonl", row)
    made.jsonl(tmp_path / "test.jsonl", row)
    before = sha256(f"webnlg:{tmp_path}#test_seen")
    made.jsonl(tmp_path / "train.jsonl", row, row)
    assert sha256(f"webnlg:{tmp_path}#test_seen") != before


def test_notes_of_all_parts_are_told_together(folder):
    found = corpus(f"e2e:{folder}")
    assert isinstance(found, Corpus)
    assert [note.partition(":")[2].partition(": ")[0] for note in found.notes] == [
        "own#train",
        "own#dev",
        "own#test",
        "own#test_new",
    ]


READER = '''"""Lines: one text a line."""
from tunescope.data.corpus_rows import Found
from tunescope.data.rows_of_file import Row, text_of

SOURCE = "made up"


def splits(folder):
    return {path.stem: (path,) for path in folder.glob("*.txt")}


def rows(files):
    return Found([Row({"input": line, "target": line}, files[0].name, 1) for line in text_of(files[0]).splitlines()])
'''


def test_a_corpus_is_one_file(tmp_path, monkeypatch):
    from tunescope.data import corpora

    made.put(tmp_path / "readers/lines_only.py", READER)
    made.put(tmp_path / "mine/train.txt", "a\nb\n")
    monkeypatch.setattr(corpora, "__path__", [*corpora.__path__, str(tmp_path / "readers")])
    assert "lines_only" in names()
    assert corpus(f"lines_only:{tmp_path / 'mine'}") == {"train": [{"input": one, "target": one} for one in "ab"]}


def test_a_path_that_no_disk_could_hold_is_refused_in_one_line():
    with pytest.raises(UserError, match="there is no folder or file"):
        read("e2e:" + "x" * 6000)
