"""The demo's model is the one its manifest describes, and its data are what they are said to be."""

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import pad
from transformers import AutoModelForCausalLM, AutoTokenizer

from tunescope.lab.demo import PACKAGED, QUESTIONS, SIZES, compare_one, prepare
from tunescope.lab.worlds.manifest import digests, read_manifest, write_manifest
from tunescope.lab.worlds.measure import measure
from tunescope.lab.worlds.pretrain import MIX, Recipe, batches, pretrain
from tunescope.lab.worlds.skills import SKILLS
from tunescope.lab.worlds.world import World, part_of
from tunescope.system import machine


@pytest.fixture(scope="module")
def model() -> Any:
    return AutoModelForCausalLM.from_pretrained(PACKAGED, local_files_only=True).eval()


def test_the_packaged_files_are_those_of_the_manifest_and_small() -> None:
    assert digests(PACKAGED) == read_manifest(PACKAGED)["sha256"]
    assert sum(file.stat().st_size for file in PACKAGED.iterdir()) <= 1_000_000


def test_the_manifest_says_how_the_model_was_made() -> None:
    manifest = read_manifest(PACKAGED)
    recipe = Recipe(**manifest["recipe"])
    assert f"--seed {recipe.seed} --steps {recipe.steps}" in manifest["command"]
    assert {"python", "torch", "transformers", "tokenizers", "numpy", "tunescope"} <= set(manifest["versions"])


def test_the_packaged_model_and_its_tokenizer_load_without_a_network(model: Any) -> None:
    tokenizer = AutoTokenizer.from_pretrained(PACKAGED, local_files_only=True)
    assert model.dtype == torch.float32
    assert model.num_parameters() == read_manifest(PACKAGED)["parameters"]
    assert model.config.vocab_size == len(tokenizer)
    assert (model.config.pad_token_id, model.config.eos_token_id) == (tokenizer.pad_token_id, tokenizer.eos_token_id)
    assert tokenizer("10 9\n")["input_ids"] == [10, 9, 11]


@pytest.mark.parametrize("skill", read_manifest(PACKAGED)["skills"])
def test_its_skills_measured_again_agree_with_the_manifest(model: Any, skill: str) -> None:
    manifest, again = read_manifest(PACKAGED), 200
    claimed = manifest["skills"][skill]
    for name, share in measure(model, World(), skill, again).items():
        # tokens of a row are not independent, so a token's share is allowed a row's sampling error
        error = (max(share * (1 - share), 0.01) * (1 / again + 1 / manifest["test_rows"])) ** 0.5
        assert abs(share - claimed[name]) < 4 * error, name


def test_the_pretrained_skills_are_there_and_the_others_are_not() -> None:
    skills = read_manifest(PACKAGED)["skills"]
    for skill in MIX:
        assert skills[skill]["exact_match_given_3"] > 0.9
        assert skills[skill]["exact_match"] < 0.6  # it cannot know which skill is wanted
    for skill in set(skills) - set(MIX):
        assert skills[skill]["exact_match"] < 0.02
        assert skills[skill]["exact_match_shown_3"] < 0.02


def test_prepare_writes_the_same_inputs_for_both_tasks_and_keeps_the_parts_apart(tmp_path: Path) -> None:
    setup = prepare(tmp_path / "data")
    assert setup.model == PACKAGED
    assert [task["name"] for task in setup.tasks] == list(QUESTIONS)
    inputs = {}
    for task in setup.tasks:
        for part, count in SIZES.items():
            rows = [json.loads(line) for line in task[part].read_text(encoding="utf-8").splitlines()]
            assert len(rows) == count
            asked = [[int(word) for word in row["input"].split()] for row in rows]
            given = [[int(word) for word in row["target"].split()] for row in rows]
            wanted = {"descending": lambda x: sorted(x, reverse=True), "reverse": lambda x: x[::-1]}
            assert given == [wanted[task["name"]](sequence) for sequence in asked]
            assert inputs.setdefault(part, asked) == asked
    assert all(part_of(np.array(sequence)) == part for part, asked in inputs.items() for sequence in asked)


def test_prepare_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    one, two = prepare(tmp_path / "one"), prepare(tmp_path / "two")
    assert [t["test"].read_bytes() for t in one.tasks] == [t["test"].read_bytes() for t in two.tasks]


def test_a_comparison_of_the_demo_runs_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "default_workers", lambda model: 1)  # starting processes is what takes long
    setup = prepare(tmp_path / "data")
    for file in tmp_path.glob("data/*.jsonl"):
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        file.write_text("".join(lines[:20]), encoding="utf-8")
    small = replace(setup, arms=("zero-shot", "prefix"), trials=1, seeds=(0,), batch_size=4)
    compare_one(small, {**small.tasks[0], "steps": 2}, tmp_path / "run")
    assert "Verdict:" in capsys.readouterr().out
    assert (tmp_path / "run" / "report.html").exists()


def test_pretraining_leaves_a_model_folder_with_its_manifest(tmp_path: Path) -> None:
    recipe = Recipe(layers=1, width=16, heads=2, inner=16, steps=2, examples=8)
    skills = pretrain(tmp_path, World(), recipe, "a test")
    assert read_manifest(tmp_path)["skills"] == skills
    assert set(skills) == set(SKILLS)
    assert read_manifest(tmp_path)["sha256"] == digests(tmp_path)


def test_a_model_made_from_scratch_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def pretend(folder: Path, world: World, recipe: Recipe, command: str) -> None:
        folder.mkdir()
        write_manifest(folder, {"command": command})
        made.append(recipe)

    monkeypatch.setattr("tunescope.lab.worlds.pretrain.pretrain", pretend)
    first, second = prepare(tmp_path, from_scratch=True), prepare(tmp_path, from_scratch=True)
    assert first.model == second.model == tmp_path / "model"
    assert made == [Recipe()]


def test_the_model_learns_from_the_training_part_and_is_measured_on_the_test_part(model: Any) -> None:
    """An example is a sequence, a line end, an answer, and two line ends or the end."""
    world, found = World(), set()
    for ids, _ in islice(batches(world, Recipe(examples=8)), 20):
        every = pad(ids, (0, 1)).unflatten(1, (-1, 2 * world.length + 3))[..., : world.length]
        found |= {part_of(row) for row in every.reshape(-1, world.length).numpy()}
    assert found == {"train"}
    asked: list[torch.Tensor] = []
    hook = model.register_forward_pre_hook(lambda _, given: asked.extend(given))
    measure(model, world, "add1", 5)
    hook.remove()
    assert {part_of(row) for row in asked[0][:, : world.length].numpy()} == {"test"}
