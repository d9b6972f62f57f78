"""Random prompts: the prompt of the moment is the one with the least loss of all drawn so far, on the same rows."""

import pytest
import torch
from search_tools import bench
from test_objective import opened

import tunescope as ts
from tunescope.search.loop import DROPPED
from tunescope.search.methods.random import RandomPrompts
from tunescope.search.names import parse


def test_the_prompt_of_the_moment_has_the_least_loss_of_all_that_were_drawn():
    search = RandomPrompts(length=3, candidates=2, batch=5)
    with opened(bench()) as goal:
        moves = search.moves(goal, torch.Generator().manual_seed(3), 0)
        found = [next(moves).clone() for _ in range(12)]
        assert goal.passes == 12 * 2 * 5
        again = torch.Generator().manual_seed(3)
        rows = goal.batch(5, again)
        drawn = torch.cat([torch.randint(len(goal.table), (2, 3), generator=again) for _ in range(12)])
        losses = torch.stack([goal.losses(prompt[None], rows)[0] for prompt in drawn])
    for step, prompt in enumerate(found, start=1):
        assert torch.equal(prompt, drawn[: 2 * step][int(losses[: 2 * step].argmin())])
    assert len({tuple(prompt.tolist()) for prompt in found}) > 1  # or nothing was compared


def test_what_does_not_come_back_from_its_text_costs_nothing_and_is_never_kept(monkeypatch):
    search = RandomPrompts(length=3, candidates=4, batch=5)
    with opened(bench()) as goal:
        monkeypatch.setattr(
            type(goal.words), "all_come_back", lambda self, prompts: [prompt[0] % 2 == 0 for prompt in prompts]
        )
        moves = search.moves(goal, torch.Generator().manual_seed(3), 0)
        found = [goal.ids(next(moves)) for _ in range(6)]
        assert all(prompt[0] % 2 == 0 for prompt in found)
        assert goal.passes == 5 * (6 * 4 - goal.counts[DROPPED]) and goal.counts[DROPPED] > 0
        monkeypatch.setattr(type(goal.words), "all_come_back", lambda self, prompts: [False] * len(prompts))
        before = goal.passes
        next(moves)
        assert goal.passes == before + 1  # so that it ends where none ever does


def test_it_is_typed_by_the_name_of_its_file_and_refuses_no_candidates():
    assert parse("random:length=2,candidates=8") == RandomPrompts(length=2, candidates=8)
    with pytest.raises(ts.UserError, match="candidates=0\\) must be above 0"):
        parse("random:candidates=0")
