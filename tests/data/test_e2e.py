"""E2E: the published CSV and the stored copy."""

import made
import pytest

from tunescope.data.corpora import e2e
from tunescope.data.corpus import corpus
from tunescope.errors import UserError

TRAIN = 'mr,ref\n"name[The Mill], eatType[pub], priceRange[£20-25], near[Tap, Room]","The Mill, a pub, is dear."\n'
DEV = 'mr,ref\n"name[Ox], familyFriendly[yes], customer rating[5 out of 5]","Ox is for ""children""."\n'
TEST = DEV + '"name[Ox], familyFriendly[yes], customer rating[5 out of 5]",Families like Ox.\n'


@pytest.fixture
def folder(tmp_path):
    made.put(tmp_path / "trainset.csv", TRAIN)
    made.put(tmp_path / "devset.csv.gz", DEV)
    made.put(tmp_path / "testset_w_refs.csv", TEST)
    made.put(tmp_path / "testset.csv", "MR\nname[Ox]\n")
    return tmp_path


def test_the_published_files_are_the_three_parts(folder):
    found = corpus(f"e2e:{folder}")
    assert list(found) == ["train", "dev", "test"]
    assert found["train"] == [
        {
            "input": "name : The Mill | Type : pub | price : £ 20 - 25 | near : Tap, Room",
            "target": "The Mill, a pub, is dear.",
            "mr": "name[The Mill], eatType[pub], priceRange[£20-25], near[Tap, Room]",
        }
    ]
    assert found["dev"][0]["target"] == 'Ox is for "children".'
    assert [row["input"] for row in found["test"]] == [
        "name : Ox | family friendly : yes | customer rating : 5 out of 5"
    ] * 2
    assert (found["test"][1].file, found["test"][1].line) == ("testset_w_refs.csv", 3)
    assert found.notes == ()


def test_a_row_with_an_empty_reference_is_left_out_and_counted(tmp_path):
    made.put(tmp_path / "trainset.csv", "mr,ref\nname[Ox],Fine.\nname[Ox],\nname[Elm], \n")
    found = corpus(f"e2e:{tmp_path}")
    assert [row["target"] for row in found["train"]] == ["Fine."]
    assert found.notes == (f"e2e:{tmp_path.name}#train: 2 rows with an empty reference left out.",)


@pytest.mark.parametrize("mr", ["name[Ox", "Ox", "name[Ox] and area[city centre]] x", ""])
def test_an_mr_of_another_form_is_named_with_its_line(tmp_path, mr):
    path = made.put(tmp_path / "a.csv", f'mr,ref\nname[Ox],Fine.\n"{mr}",Bad.\n')
    with pytest.raises(UserError, match=r"a\.csv line 3: mr reads .* not 'slot\[value\], slot\[value\]'. Mend the row"):
        corpus(f"e2e:{path}")


def test_the_test_tables_without_references_are_refused(folder):
    with pytest.raises(UserError, match=r"testset\.csv line 2 has no field 'mr'\. It has: MR"):
        corpus(f"e2e:{folder / 'testset.csv'}")


def test_the_raw_references_of_a_copy_come_out_beside_the_tokenised_ones(tmp_path):
    made.jsonl(tmp_path / "test.jsonl.gz", {"table": "name : Ox", "text": "Ox .", "mr": "name[Ox]", "text_raw": "Ox."})
    found = corpus(f"e2e:{tmp_path}")
    assert found["test"] == [{"input": "name : Ox", "target": "Ox .", "raw": "Ox."}]
    assert found.notes == (
        f"e2e:{tmp_path.name}#test: target is the tokenised text; the official script scores on the raw one.",
    )


@made.needs_shared
def test_our_linearisation_is_the_stored_one_for_every_published_mr():
    rows = [row for part in ("validation", "test") for row in made.stored(f"e2e/{part}.jsonl.gz")]
    assert len(rows) == 9365
    assert [e2e.linear(row["mr"], "") for row in rows] == [row["table"] for row in rows]


@made.needs_shared
def test_the_stored_copy_has_the_rows_and_tables_that_it_should():
    found = corpus(f"e2e:{made.SHARED / 'e2e'}")
    counts = {part: (len(rows), len({row["input"] for row in rows})) for part, rows in found.items()}
    assert counts == {"train": (42061, 4862), "dev": (4672, 547), "test": (4693, 630)}
