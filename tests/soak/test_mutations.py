"""The short, seeded part of the soak of mutations; all of it: python tests/soak mutations."""

import random
import sys
from pathlib import Path

import mutate
import mutations
import pytest
import targets

HERE = Path(__file__).parent
COUNTS = dict(zip(targets.TARGETS, (60, 12, 10, 0, 5, 8, 8), strict=True))  # to draw a page takes too long here


@pytest.mark.parametrize("name", [name for name, count in COUNTS.items() if count])
def test_no_mutation_ends_in_a_traceback_or_is_taken_in_silence(name, tmp_path, monkeypatch):
    monkeypatch.setattr(mutations, "SHARES", {name: 1.0})
    found = mutations.run(tmp_path, 1, COUNTS[name])
    assert found["faults"] == []
    assert found["mutations"] == COUNTS[name] and found["outcomes"][name]["refused"]


class Careless(targets.Target):
    """A reader of the kind that the soak is to find: it takes what is damaged, runs it, or lets errors out."""

    def make(self):
        (self.folder / "a.json").write_text('{"a": 1}')

    def read(self):
        return self.does() if hasattr(self, "does") else None

    def judge(self, found):
        return "fault", "taken"


@pytest.mark.parametrize(
    ("does", "told"),
    [(dict, "taken"), (lambda: [][1], "IndexError in"), (lambda: sys.audit("os.system", "ls"), "ran [")],
)
def test_what_the_soak_is_to_find_is_found(does, told, tmp_path):
    mutations.watch()
    target = Careless(tmp_path)
    target.does = does
    before = (tmp_path / "a.json").read_bytes()
    outcome, said = mutations.one(target, random.Random(0))
    assert outcome == "fault" and said.startswith(told)
    assert (tmp_path / "a.json").read_bytes() == before


def test_mutations_are_of_the_seed_and_change_the_file():
    data = (HERE / "mutate.py").read_bytes()
    made = [mutate.in_bytes(data, random.Random(seed)) for seed in range(40)]
    assert made == [mutate.in_bytes(data, random.Random(seed)) for seed in range(40)]
    assert sum(one != data for one in made) > 35
