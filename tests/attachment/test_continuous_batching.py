"""transformers' continuous batching: with a LoRA it writes what `generate` does, and what it cannot see is refused."""

from typing import Any

import pytest
import tiny
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

import tunescope as ts

PROMPTS = [[5, 6, 7, 8], [9, 10, 11]]
GREEDY = GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=-1, pad_token_id=0)
SMALL = ContinuousBatchingConfig(num_blocks=4, max_batch_tokens=32)  # else it takes most of the memory there is


def written(model: Any) -> list[list[int]]:
    found = model.generate_batch(PROMPTS, GREEDY, SMALL, warmup=False)
    return [one.generated_tokens for one in found.values()]


def alone(model: Any) -> list[list[int]]:
    rows = [model.generate(torch.tensor([prompt]), max_new_tokens=4, do_sample=False) for prompt in PROMPTS]
    return [row[0, len(prompt) :].tolist() for row, prompt in zip(rows, PROMPTS, strict=True)]


def model_without_end() -> Any:
    model = tiny.make("llama", dtype=torch.float32)
    model.generation_config.eos_token_id = None
    return model


def test_with_a_lora_it_writes_what_generate_does() -> None:
    model = model_without_end()
    bare = alone(model)
    with ts.attach(model, *tiny.away(model, "lora:rank=2,sites=all-linear", 0)):
        wanted = alone(model)
        assert written(model) == wanted != bare


@pytest.mark.parametrize(
    ("what", "refusal"),
    [
        (
            "prefix:length=2",
            r"does not see the context attached to this LlamaForCausalLM: take model\.generate\(\.\.\.\)",
        ),
        ("soft:length=2+lora:rank=2", "does not see the context"),
        ("bank", r"does not see the bank attached to this LlamaForCausalLM: take model\.generate\(\.\.\., rows=\["),
    ],
)
def test_with_a_context_or_a_bank_it_is_refused_and_detached_it_runs_as_ever(what: str, refusal: str) -> None:
    model = model_without_end()
    artifacts: Any = tiny.away(model, "lora:rank=2" if what == "bank" else what, 0)
    tuned = ts.attach(model, *([ts.Bank({"anna": artifacts})] if what == "bank" else artifacts))
    with pytest.raises(ts.UserError, match=refusal):
        written(model)
    with pytest.raises(ts.UserError, match=refusal):
        model.init_continuous_batching()
    with pytest.raises(ts.UserError, match=refusal), model.continuous_batching_context_manager(GREEDY):
        pass
    tuned.detach()
    assert "init_continuous_batching" not in model.__dict__
    assert model.init_continuous_batching(GREEDY).model is model


def test_what_was_begun_before_a_context_came_writes_nothing_without_it() -> None:
    model = model_without_end()
    manager = model.init_continuous_batching(GREEDY, SMALL)
    with ts.attach(model, *tiny.away(model, "prefix:length=2", 0)):
        asked = manager.add_request(PROMPTS[0], max_new_tokens=4)
        manager.start()
        found = manager.get_result(asked, timeout=20)
        manager.stop(block=True, timeout=20)
    assert not found.generated_tokens and "does not see the context attached" in found.error
