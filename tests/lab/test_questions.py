"""The lab's worlds: their table is consistent, their parts are apart, their rows are right."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tunescope.errors import UserError
from tunescope.lab.worlds import questions as module
from tunescope.lab.worlds.base_table import MODELS, SUBJECTS, base
from tunescope.lab.worlds.calibration import LEARNT
from tunescope.lab.worlds.concepts import CONCEPTS, RELATED
from tunescope.lab.worlds.curriculum import LABELS, WORDS, WORLD
from tunescope.lab.worlds.questions import SIZES, Question, question, questions
from tunescope.lab.worlds.variants import THEN, find_variant
from tunescope.lab.worlds.vocabulary import tokenizer_for
from tunescope.lab.worlds.world import part_of

EVERY = questions()
GENERATIONS = [one for one in EVERY if one.task == "generation"]
CLASSIFICATIONS = [one for one in EVERY if one.task == "classification"]


def test_worlds_are_many_and_of_many_kinds() -> None:
    assert [one.number for one in EVERY] == list(range(178))
    assert len(MODELS) == 38 == len({base(number).identity for number in range(38)})
    assert {one.depth for one in EVERY} == {1, 2, 3, 4, 6, 8, 12}
    by_architecture = Counter(one.architecture for one in EVERY)
    assert set(by_architecture) == {"gpt2", "llama", "gpt_neox", "bert", "t5", "bart"}
    assert min(by_architecture.values()) >= 28
    kinds = Counter(one.kind for one in EVERY)
    assert kinds["named"] + kinds["unnamed"] >= 60 and min(kinds["named"], kinds["unnamed"]) >= 30
    assert kinds["near"] + kinds["far"] >= 60
    assert kinds["composed"] >= 20 and kinds["renamed"] >= 8
    assert len(CLASSIFICATIONS) >= 45
    assert {one.by for one in CLASSIFICATIONS} == {"words", "head"}
    assert all(one.architecture == "bert" for one in EVERY if one.by == "head")


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gpt_neox", "bert", "t5", "bart"])
def test_an_architecture_can_be_left_out_with_every_kind_of_skill_among_the_others(architecture: str) -> None:
    left = {one.kind for one in EVERY if one.architecture != architecture}
    assert left == {"named", "unnamed", "composed", "renamed", "near", "far"}
    own = {one.kind for one in EVERY if one.architecture == architecture}
    assert own >= {"named", "unnamed", "near", "far"}


def test_what_is_known_was_pretrained_and_what_is_not_was_not() -> None:
    for one in EVERY:
        mix = base(one.model).curriculum.mix
        parts = one.skill.split(THEN)
        assert (len(parts) == 2) == (one.kind == "composed")
        known = one.kind in ("named", "unnamed", "composed", "renamed")
        assert [part in mix for part in parts] == [known] * len(parts), one
        assert one.kind not in ("named", "unnamed") or base(one.model).curriculum.named == (one.kind == "named")


def test_no_skill_that_is_asked_for_as_new_is_a_known_one_on_the_lab_s_sequences() -> None:
    sequences = WORLD.sequences("test", 200, seed=2)
    for one in (one for one in GENERATIONS if one.kind in ("composed", "near", "far")):
        wanted = find_variant(one.skill)(sequences)
        for skill in base(one.model).curriculum.mix:
            assert (find_variant(skill)(sequences) == wanted).all(-1).mean() < LEARNT, one


def test_concepts_that_are_near_are_related_to_a_known_one_and_far_ones_to_none() -> None:
    for one in (one for one in CLASSIFICATIONS if one.kind in ("near", "far")):
        related = RELATED[one.skill] in base(one.model).curriculum.mix
        assert related == (one.kind == "near"), one


def test_a_renamed_concept_is_asked_for_under_words_that_were_pretrained_for_others() -> None:
    for one in (one for one in CLASSIFICATIONS if one.kind in ("named", "unnamed", "renamed")):
        curriculum = base(one.model).curriculum
        assert (one.labels == curriculum.labels_of(one.skill)) == (one.kind != "renamed")
        assert one.labels in {curriculum.labels_of(name) for name in curriculum.mix}


@pytest.mark.parametrize("number", [0, 2, 3, 60, 88, 150, 152, 177])
def test_files_hold_unique_sequences_of_their_own_parts_with_right_answers(number: int, tmp_path: Path) -> None:
    one, seen = question(number), set()
    for part, path in one.files(tmp_path).items():
        rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
        assert len(rows) == SIZES[part]
        given = [row["input" if one.task == "generation" else "text"] for row in rows]
        assert len(set(given)) == len(given) and not seen & set(given)
        seen |= set(given)
        sequences = [np.array([int(word) for word in words.split()]) for words in given]
        assert {part_of(sequence) for sequence in sequences} == {part}
        if one.task == "generation":
            targets = [" ".join(map(str, find_variant(one.skill)(each))) for each in sequences]
            assert [row["target"] for row in rows] == targets
        else:
            answers = [one.labels[int(CONCEPTS[one.skill](each))] for each in sequences]
            assert [row["label"] for row in rows] == answers
            assert set(Counter(answers).values()) == {SIZES[part] // 2}


def test_every_word_of_every_world_is_in_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIZES", {"train": 20, "dev": 20, "test": 20})
    tokenizer = tokenizer_for(WORLD, WORDS)
    for one in {(each.task, each.skill, each.labels): each for each in EVERY}.values():
        for row in one.rows("dev"):
            assert tokenizer.unk_token_id not in tokenizer(" ".join(row.values()))["input_ids"], one


def test_a_world_s_command_is_what_a_comparison_takes(tmp_path: Path) -> None:
    asked = next(one for one in EVERY if one.architecture == "bert" and one.by == "words")
    words = asked.command(tmp_path / "model", tmp_path)
    name = str(tmp_path / f"world{asked.number}")
    assert words == [
        *("tunescope", "compare", str(tmp_path / "model"), f"{name}.train.jsonl"),
        *("--dev", f"{name}.dev.jsonl", "--test", f"{name}.test.jsonl"),
        *("--task", "classification", "--by", "words", "--template", "{text} {mask}"),
    ]


def test_subjects_are_all_asked_and_their_labels_are_two_pairs() -> None:
    assert {row[4] for row in MODELS} == set(SUBJECTS)
    assert all(len(set(about.mix)) == 4 for about in SUBJECTS.values())
    assert len({word for pair in LABELS for word in pair}) == 4


def test_a_world_that_there_is_not_is_refused() -> None:
    with pytest.raises(UserError, match="no lab world 178; they are numbered from 0 to 177"):
        question(178)
    assert isinstance(question(177), Question)
