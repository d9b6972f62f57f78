"""Lessons, the models that learn them, and what is kept of a pretrained one."""

import dataclasses
import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tunescope as ts
from tunescope.lab.worlds import adaptation, world_cache
from tunescope.lab.worlds.adaptation import Course, adapted, unadapted
from tunescope.lab.worlds.lessons import Lesson, Unnamed, digits, exact, lesson, problem, right, vocabulary
from tunescope.lab.worlds.models import Shape, gpt2
from tunescope.lab.worlds.world import World, part_of
from tunescope.lab.worlds.world_cache import Pretraining, pretrained
from tunescope.system import files
from tunescope.trial.train.loop import Diverged, train
from tunescope.trial.train.settings import Settings

WORLD = World(length=4, digits=4, few=3)


def model(seed: int = 0, **shape: int):
    return gpt2(Shape(**{"layers": 1, "heads": 2, "width": 16, **shape}), vocabulary(WORLD), 8, seed)


def test_rows_are_the_sequence_and_the_answer_of_the_skill_whose_turn_it_is():
    ids = digits(WORLD, ("ascending", "add1"), "test", 50, seed=3).numpy()
    assert ids.shape == (50, 8)
    assert np.array_equal(ids[0::2, 4:], np.sort(ids[0::2, :4]))
    assert np.array_equal(ids[1::2, 4:], ids[1::2, :4] + 1)
    assert {part_of(row[:4]) for row in ids} == {"test"}


def test_a_lesson_has_no_sequence_of_its_development_rows_among_its_training_rows():
    given = lesson(WORLD, ("ascending",), 300, seed=0)
    train_rows, dev_rows = ({tuple(row[:4]) for row in part.tolist()} for part in (given.train, given.dev))
    assert not train_rows & dev_rows


def test_the_loss_is_torchs_cross_entropy_over_the_answer_alone():
    net, given = model(), lesson(WORLD, ("ascending",), 20, seed=0)
    rows = [3, 5, 8]
    ids = given.train[rows]
    logits = net(input_ids=ids).logits
    expected = torch.stack([-logits[:, t - 1].log_softmax(-1).gather(1, ids[:, t : t + 1]) for t in range(4, 8)]).mean()
    torch.testing.assert_close(problem(net, {}, 0.1, given).loss(rows), expected)


def test_all_tokens_right_is_what_greedy_decoding_writes():
    net, ids = model(), digits(WORLD, ("add1",), "train", 64, seed=0)
    taught = Lesson(ids, ids, 4)
    train(problem(net, dict(net.named_parameters()), 1e-2, taught), Settings(steps=60, batch_size=32, eval_every=60), 0)
    written = net.generate(
        ids[:, :4], attention_mask=torch.ones(64, 4, dtype=torch.long), max_new_tokens=4, do_sample=False
    )
    expected = (written == ids).all(1).int().tolist()
    assert exact(net, ids, 4) == expected
    assert 0 < sum(expected) < 64  # both kinds are there, or nothing was shown


def test_a_model_is_drawn_from_its_seed_and_leaves_torchs_own_alone():
    torch.manual_seed(7)
    state = torch.get_rng_state()
    one, same, other = (model(seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, same[name]) for name, value in one.items())
    assert not torch.equal(one["lm_head.weight"], other["lm_head.weight"])


@pytest.mark.parametrize(
    ("net", "ids", "message"),
    [
        (gpt2(Shape(width=8), 5, 8, 0), torch.full((1, 8), 6), "needs 7 symbols; the model's vocabulary has 5"),
        (gpt2(Shape(width=8), 9, 6, 0), torch.zeros(1, 8, dtype=torch.long), "sequences of 8 tokens; the model has 6"),
    ],
)
def test_a_lesson_that_does_not_fit_is_refused(net: torch.nn.Module, ids: Tensor, message: str):
    with pytest.raises(ts.UserError, match=message):
        problem(net, {}, 0.1, Lesson(ids, ids, 4))


def recipe(**changes: object) -> Pretraining[Unnamed]:
    training = Settings(steps=30, batch_size=16, eval_every=15)
    given: dict[str, Any] = {"skills": ("add1",), "rows": 200, "rate": 1e-2, "seed": 0} | changes
    taught = Unnamed(given["skills"], WORLD, given["rows"])
    return Pretraining(taught, Shape(1, 1, 16), training, given["rate"], given["seed"])


def test_a_pretrained_world_is_made_once_and_read_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNESCOPE_CACHE", str(tmp_path))
    made = pretrained(recipe()).state_dict()
    monkeypatch.setattr(world_cache, "pretrain", lambda *_: pytest.fail("made a second time"))
    again = pretrained(recipe()).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in made.items())


@pytest.mark.parametrize("change", [{"seed": 1}, {"rate": 2e-2}, {"skills": ("add2",)}, {"rows": 201}])
def test_the_identity_of_a_world_follows_its_content(change):
    assert recipe().identity == recipe().identity != recipe(**change).identity


def test_the_rate_with_the_best_trial_is_the_one_that_is_run_and_the_model_is_left_as_it_was():
    net, given = model(width=32), lesson(WORLD, ("add1",), 500, seed=0)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    tests = {"add1": digits(WORLD, ("add1",), "test", 50, seed=0)}
    settings = Settings(steps=80, batch_size=32, schedule="cosine", eval_every=20)
    found = adapted(net, "full", given, tests, Course(rates=(1e-6, 1e-2), settings=settings, trial=40), seed=0)
    assert found["rate"] == 1e-2
    assert found["trials"]["0.01"] > found["trials"]["1e-06"]
    assert found["exact"]["add1"] > 0.9 > unadapted(net, 4, tests)["exact"]["add1"]
    assert found["trained"] == sum(value.numel() for value in net.parameters())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize("stop", [10, 35, 70])
def test_a_course_that_was_stopped_goes_on_to_the_same_numbers(tmp_path, monkeypatch, stop):
    given, tests = lesson(WORLD, ("add1",), 200, seed=0), {"add1": digits(WORLD, ("add1",), "test", 20, seed=0)}
    settings = Settings(steps=40, batch_size=8, schedule="cosine", eval_every=10)
    course = Course(rates=(1e-3, 1e-2), settings=settings, trial=20, longest=20)
    want = adapted(model(width=32), "lora:rank=2", given, tests, course, 0)
    original, steps = adaptation.problem, []

    def counted(*asked):
        whole = original(*asked)

        def loss(rows):
            steps.append(rows)
            if len(steps) == stop:
                raise KeyboardInterrupt
            return whole.loss(rows)

        return dataclasses.replace(whole, loss=loss)

    monkeypatch.setattr(adaptation, "problem", counted)
    monkeypatch.setattr(adaptation, "SAVE_EVERY", 0.0)
    with pytest.raises(KeyboardInterrupt):
        adapted(model(width=32), "lora:rank=2", given, tests, course, 0, tmp_path / "piece")
    found = adapted(model(width=32), "lora:rank=2", given, tests, course, 0, tmp_path / "piece")
    assert found == json.loads(json.dumps(want))
    assert len(steps) == 20 + 20 + 40 + 1  # the one that was stopped is made again
    assert {one.name for one in (tmp_path / "piece").iterdir()} == {
        "trial-0.001-20.json",
        "trial-0.01-20.json",
        "run.json",
    }


def test_right_gives_one_truth_value_an_answer_token():
    net, ids = model(), digits(WORLD, ("add1",), "test", 7, seed=0)
    got = right(net, ids, 4)
    expected = net(input_ids=ids).logits.argmax(-1)[:, 3:7] == ids[:, 4:]
    assert got.dtype == torch.bool
    assert torch.equal(got, expected)


def test_development_rows_are_the_same_whatever_seed_draws_the_training_rows():
    one, other = (lesson(WORLD, ("ascending",), 20, seed) for seed in (0, 5))
    assert torch.equal(one.dev, other.dev) and not torch.equal(one.train, other.train)


def test_a_seed_draws_the_first_tensors_of_what_is_attached_and_the_order_of_its_rows(monkeypatch):
    seeds = []

    def attach(*given, seed):
        seeds.append(seed)
        return ts.attach(*given, seed=seed)

    def ordered(learning, settings, seed, **more):
        seeds.append(seed)
        return train(learning, settings, seed, **more)

    monkeypatch.setattr(adaptation, "attach", attach)
    monkeypatch.setattr(adaptation, "train", ordered)
    given = lesson(WORLD, ("add1",), 20, seed=0)
    course = Course(rates=(1e-3, 1e-2), settings=Settings(steps=2, batch_size=4, eval_every=2), trial=1)
    adapted(model(), "lora:rank=2", given, {}, course, seed=7)
    assert seeds == [7] * 6  # two trials and the run, each with both


def test_a_run_that_diverged_counts_as_nothing_right_and_says_so(monkeypatch):
    def lost(*_, **more):
        raise Diverged(3, float("nan"))

    monkeypatch.setattr(adaptation, "train", lost)
    given, tests = lesson(WORLD, ("add1",), 20, seed=0), {"add1": digits(WORLD, ("add1",), "test", 8, seed=0)}
    course = Course(rates=(1e-2,), settings=Settings(steps=2, batch_size=4))
    found = adapted(model(), "lora:rank=2", given, tests, course, seed=0)
    assert found["exact"] == {"add1": 0.0} and "loss nan at step 3" in found["diverged"]


@pytest.mark.parametrize("left", [None, b"", b"half of it"])
def test_a_world_of_which_a_part_was_cleared_away_is_made_anew(tmp_path, monkeypatch, left):
    monkeypatch.setenv("TUNESCOPE_CACHE", str(tmp_path))
    made = pretrained(recipe()).state_dict()
    weights = next(tmp_path.rglob("model.safetensors"))
    weights.unlink()
    if left is not None:
        weights.write_bytes(left)
    again = pretrained(recipe()).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in made.items())


def test_a_world_that_the_disk_has_no_room_for_leaves_no_half_and_names_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNESCOPE_CACHE", str(tmp_path))

    def full(self, folder, **more):
        Path(folder).mkdir(parents=True)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("transformers.GPT2LMHeadModel.save_pretrained", full)
    told = rf"^the disk is full in {tmp_path / 'worlds'}, where worlds are kept\. Mend that, or name another folder"
    with pytest.raises(files.DiskError, match=told), files.disk_errors_named(tmp_path / "elsewhere"):
        pretrained(recipe())
    assert not list((tmp_path / "worlds").iterdir())


def test_a_world_is_pretrained_with_dropout_by_its_own_seed_and_scored_without(monkeypatch):
    whole, seen = world_cache.problem, {"loss": set(), "score": set()}

    def problem_of(net, *given):
        made = whole(net, *given)

        def noted(name, what):
            return lambda *rows: seen[name].add((net.training, torch.initial_seed())) or what(*rows)

        return dataclasses.replace(made, loss=noted("loss", made.loss), score=noted("score", made.score))

    monkeypatch.setattr(world_cache, "problem", problem_of)
    asked = recipe(seed=5, rows=40)
    world_cache.pretrain(asked, asked.lesson())
    assert seen == {"loss": {(True, 5)}, "score": {(False, 5)}}
