"""The parts between which flow is drawn are all of the prompt: each token is in one of them."""

from dataclasses import replace

import pytest
import tiny
import torch
from anchor_tools import TASK, prompted

from tunescope.probes.anchors.prompts import Prompt
from tunescope.probes.anchors.round import Round
from tunescope.probes.demonstrations import flow


@pytest.mark.parametrize("family", ["gpt2", "t5"])
@pytest.mark.parametrize("start", [(), (1, 2)])  # two tokens in front, as a tokenizer or a chat has them
def test_each_token_of_a_prompt_is_in_one_part(family: str, start: tuple[int, ...]) -> None:
    model = tiny.make(family)
    prompts, told = prompted(model)
    moved = [
        replace(
            prompt.spans,
            ids=(*start, *prompt.spans.ids),
            places=tuple(
                {part: tuple(at + len(start) for at in some) for part, some in place.items()}
                for place in prompt.spans.places
            ),
        )
        for prompt in prompts
    ]
    prompts = [Prompt(spans, prompt.query) for spans, prompt in zip(moved, prompts, strict=True)]
    round = Round(model, tiny.tokenizer(), told, TASK.labels, prompts, 0)
    (batch,) = round.batches()
    nodes, names = flow._Prompt.of(round, batch).nodes, flow._names(round)
    real = torch.nn.functional.pad(batch.real, (0, nodes.shape[1] - batch.real.shape[1]), value=True)
    assert torch.equal(nodes.sum(-1), real.double())
    held = dict(zip(names, nodes[0].sum(0).tolist(), strict=True))
    assert held["start"] == len(start)
    assert [held[f"end {number}"] for number in (1, 2, 3)] == [len(place["end"]) for place in moved[0].places]
    found = flow.measure(round)
    assert len(found["parts"]) == len(found["between"]["0"]) == 3 * 5 + 3
    assert [found["parts"][at] for at in found["marked"]] == ["label 1", "label 2", "label 3"]
