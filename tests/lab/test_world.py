"""The digit world: its rejection rule, its split, its rows and its vocabulary."""

import json
import os
import subprocess
import sys
from math import comb, factorial
from pathlib import Path

import numpy as np
import pytest

from tunescope.errors import UserError
from tunescope.lab.worlds.skills import SKILLS
from tunescope.lab.worlds.vocabulary import tokenizer_for
from tunescope.lab.worlds.world import SHARES, World, distinct, part_of, rows, text, write

IN_ANOTHER_PROCESS = """
from hashlib import sha256
from tunescope.lab.worlds.world import World
print(sha256(b"".join(World().sequences(p, 40, 3).tobytes() for p in ("train", "dev", "test"))).hexdigest())
"""


def surjections(n: int, k: int) -> int:
    """How many maps of n things onto all of k things there are."""
    return sum((-1) ** i * comb(k, i) * (k - i) ** n for i in range(k + 1))


def share_with_few_distinct(world: World) -> float:
    """The closed form of the rejection rule: q / (q + (1 - q) / 2), q being the share of a raw draw."""
    n, d = world.length, world.digits
    raw = sum(comb(d, k) * surjections(n, k) for k in range(1, world.few + 1)) / d**n
    return raw / (raw + (1 - raw) / 2)


def test_surjections_count_permutations_and_constants() -> None:
    assert surjections(4, 4) == factorial(4)
    assert surjections(7, 1) == 1


def test_the_rejection_rule_gives_its_closed_form_share() -> None:
    world, drawn = World(), 40000
    expected = share_with_few_distinct(world)
    assert round(expected, 3) == 0.488
    share = (distinct(world.draw(drawn, np.random.default_rng(0))) <= world.few).mean()
    assert abs(share - expected) < 4 * (expected * (1 - expected) / drawn) ** 0.5


def test_distinct_counts_as_a_set_does() -> None:
    drawn = World().draw(300, np.random.default_rng(5))
    assert distinct(drawn).tolist() == [len(set(row)) for row in drawn.tolist()]


def test_the_split_is_the_same_in_every_process() -> None:
    seen = set()
    for hash_seed in ("0", "1", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", IN_ANOTHER_PROCESS], env=environment, capture_output=True, text=True, check=True
        )
        seen.add(done.stdout.strip())
    assert len(seen) == 1
    (only,) = seen
    assert len(only) == 64


def test_the_split_of_these_sequences_is_written_down() -> None:
    sequences = [[digit] * 10 for digit in range(8)]
    parts = [part_of(np.array(sequence)) for sequence in sequences]
    assert parts == ["test", "train", "train", "dev", "train", "train", "train", "train"]


def test_the_parts_share_no_sequence_and_have_their_shares() -> None:
    world = World()
    parts = {part: {tuple(row) for row in world.sequences(part, 3000, 7).tolist()} for part in SHARES}
    assert not parts["train"] & parts["test"]
    assert not parts["train"] & parts["dev"]
    assert not parts["dev"] & parts["test"]
    drawn = [part_of(row) for row in world.draw(20000, np.random.default_rng(2))]
    for part, eighths in SHARES.items():
        expected = len(eighths) / 8
        assert abs(drawn.count(part) / 20000 - expected) < 4 * (expected * (1 - expected) / 20000) ** 0.5


def test_an_unknown_part_is_refused_with_the_parts_there_are() -> None:
    with pytest.raises(UserError, match="asked for the part 'valid'; it has: test, dev, train"):
        World().sequences("valid", 1, 0)  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_sequences_and_another_gives_others() -> None:
    world = World()
    assert np.array_equal(world.sequences("test", 64, 9), world.sequences("test", 64, 9))
    assert not np.array_equal(world.sequences("test", 64, 9), world.sequences("test", 64, 10))


@pytest.mark.parametrize("name", SKILLS)
def test_every_target_is_within_the_vocabulary(name: str) -> None:
    world = World()
    tokenizer = tokenizer_for(world)
    extremes = np.array([[0] * 10, [7] * 10, [0, 1, 2, 3, 4, 5, 6, 7, 7, 7]])
    sequences = np.concatenate([extremes, world.draw(500, np.random.default_rng(3))])
    for row in rows(sequences, name):
        assert tokenizer.unk_token_id not in tokenizer(row["target"])["input_ids"]


def test_a_number_is_its_own_token_id_and_text_comes_back_unchanged() -> None:
    tokenizer = tokenizer_for(World())
    assert tokenizer("0 1 2 3 4 5 6 7 8 9 10")["input_ids"] == list(range(11))
    assert tokenizer.decode(list(range(11))) == "0 1 2 3 4 5 6 7 8 9 10"
    specials = (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id)
    assert specials == (12, 13, 14)


def test_a_line_end_is_a_token_and_other_white_space_is_none() -> None:
    tokenizer = tokenizer_for(World())
    assert tokenizer(" 3\t1  2\n\n 4\n")["input_ids"] == [3, 1, 2, 11, 11, 4, 11]
    assert tokenizer("3 what")["input_ids"] == [3, tokenizer.unk_token_id]


def test_rows_are_plain_json_lines(tmp_path: Path) -> None:
    sequences = np.array([[3, 1, 2], [0, 7, 7]])
    path = write(tmp_path / "rows.jsonl", rows(sequences, "descending"))
    read = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert read == [{"input": "3 1 2", "target": "3 2 1"}, {"input": "0 7 7", "target": "7 7 0"}]
    assert text(np.array([10, 0])) == "10 0"
