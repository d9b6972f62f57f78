"""A context never pushes the text past the model's last position: that is refused, and what still fits is not."""

from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch

import tunescope as ts
from tunescope.models.positions import check_rescaled, check_room, first_position, recounted, shifted, told_mask

LIMIT, N = 64, 10  # positions of the small models, and how many of them the contexts here take
LEARNED = ["gpt2", "opt", "bert", "roberta"]  # torch itself stops these past their table of positions
AFTER = ts.Prefix(length=N, positions="after")
TAKES = ("input_ids", "attention_mask", "position_ids")


def refused(n_tokens: int, used: int = N) -> Any:
    told = (
        rf"The text has {n_tokens} tokens and the context in front of it {used}: together more than the {LIMIT} "
        rf"positions of '\w+'. Shorten the text to {LIMIT - used} tokens"
    )
    return pytest.raises(ts.UserError, match=told)


def padded_left(n_real: int, columns: int) -> dict[str, torch.Tensor]:
    mask = (torch.arange(columns) >= columns - n_real).long()[None]
    return {"input_ids": tiny.ids(1, columns), "attention_mask": mask}


@pytest.mark.parametrize("context", [AFTER, ts.Soft(length=N)], ids=["prefix", "soft"])
@pytest.mark.parametrize("family", LEARNED)
def test_text_and_context_have_as_many_positions_as_the_text_alone(family: str, context: Any) -> None:
    model = tiny.make(family)
    with torch.no_grad():
        tiny.output(model, {"input_ids": tiny.ids(1, LIMIT)})
        with pytest.raises((IndexError, RuntimeError)):  # torch is the oracle: one more has no position
            tiny.output(model, {"input_ids": tiny.ids(1, LIMIT + 1)})
        with ts.attach(model, context):
            tiny.output(model, {"input_ids": tiny.ids(1, LIMIT - N)})
            with refused(LIMIT - N + 1):
                tiny.output(model, {"input_ids": tiny.ids(1, LIMIT - N + 1)})


@pytest.mark.parametrize("context", [AFTER, ts.Soft(length=N)], ids=["prefix", "soft"])
@pytest.mark.parametrize("family", ["gpt2", "opt", "llama"])
def test_the_step_of_decoding_past_the_last_position_is_refused(family: str, context: Any) -> None:
    """Rotary positions have no end of their own, and go wrong without a word."""
    model = tiny.make(family)
    with ts.attach(model, context), torch.no_grad():
        cache = model(input_ids=tiny.ids(1, LIMIT - N - 1), use_cache=True).past_key_values
        last = model(input_ids=tiny.ids(1, 1), past_key_values=cache)  # at the last position
        with refused(LIMIT - N + 1):
            model(input_ids=tiny.ids(1, 1), past_key_values=last.past_key_values)
        short = tiny.ids(1, LIMIT - N - 2)
        with refused(LIMIT - N + 1):
            model.generate(short, max_new_tokens=9, do_sample=False, eos_token_id=None, pad_token_id=0)


@pytest.mark.parametrize("family", [*LEARNED, "llama"])
def test_padding_in_front_takes_no_position(family: str) -> None:
    model, columns = tiny.make(family), LIMIT - N + 6
    given = padded_left(LIMIT - N, columns)
    with ts.attach(model, AFTER), torch.no_grad(), tiny.Float64():
        padded = tiny.output(model, given)[:, 6:]
        alone = tiny.output(model, {"input_ids": given["input_ids"][:, 6:]})
        torch.testing.assert_close(padded, alone, rtol=0, atol=1e-12)
        with refused(columns):
            tiny.output(model, padded_left(LIMIT - N + 1, columns))


def test_of_rows_with_different_contexts_the_longest_counts() -> None:
    model, used = tiny.make("gpt2"), torch.tensor([3, N, 0])
    text = {"input_ids": tiny.ids(3, LIMIT - N)}
    expected = torch.arange(LIMIT - N)[None] + used[:, None]
    assert torch.equal(shifted(text, used, model, TAKES)["position_ids"], expected)
    with refused(LIMIT - N + 1):
        shifted({"input_ids": tiny.ids(3, LIMIT - N + 1)}, used, model, TAKES)


@pytest.mark.parametrize("family", ["bert", "roberta", "bart"])
def test_room_is_what_the_context_leaves_and_a_model_without_a_limit_has_all(family: str) -> None:
    model = tiny.make(family)
    check_room(model, LIMIT - N, N)
    for n_tokens, used in ((LIMIT - N + 1, N), (LIMIT - N, N + 1)):
        with refused(n_tokens, used):
            check_room(model, n_tokens, used)
    check_room(tiny.make("t5"), 10**6, 10**6)


@pytest.mark.parametrize("family", [*LEARNED, "llama"])
def test_positions_that_the_caller_gives_past_the_last_are_refused(family: str) -> None:
    """However short the text: torch's index error tells nobody why, and rotary positions have no end of their own."""
    model, text = tiny.make(family), tiny.ids(1, 4)
    end = LIMIT + first_position(model)
    given = {"input_ids": text, "position_ids": torch.arange(end - N - 4, end - N)[None]}
    with ts.attach(model, AFTER), torch.no_grad():
        tiny.output(model, given)
        told = (
            rf"^The position_ids given, {N} further on .* reach {end}, and the last position of '\w+' is {end - 1}\. "
        )
        with pytest.raises(ts.UserError, match=told):
            tiny.output(model, given | {"position_ids": given["position_ids"] + 1})


def test_positions_that_begin_before_their_cache_stay_as_they_are_given() -> None:
    """Counting every column from a number below zero is not what a caller of padded rows means."""
    cache = SimpleNamespace(get_seq_length=lambda: 4)
    given = {"input_ids": tiny.ids(1, 3), "position_ids": torch.tensor([[0, 1, 2]]), "past_key_values": cache}
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1]])
    assert recounted(given, mask)["position_ids"].tolist() == [[0, 1, 2]]
    columns = given | {"position_ids": torch.tensor([[4, 5, 6]])}
    assert recounted(columns, mask)["position_ids"].tolist() == [[2, 3, 4]]


def test_of_layers_that_rescale_positions_the_first_to_do_so_is_the_limit() -> None:
    kinds = {
        "full_attention": {"rope_type": "dynamic"},
        "sliding_attention": {
            "rope_type": "longrope",
            "original_max_position_embeddings": 16,
            "short_factor": [1.0],
            "long_factor": [2.0],
        },
        "other": {"rope_type": "default"},
    }
    config = SimpleNamespace(rope_parameters=kinds, max_position_embeddings=LIMIT)
    model = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: config))
    check_rescaled(model, 16, None)
    with pytest.raises(ts.UserError, match="otherwise from 17 tokens on"):
        check_rescaled(model, 17, None)


@pytest.mark.parametrize("is_float", [False, True])
def test_of_masks_that_are_made_the_last_query_of_the_whole_one_says_which_tokens_are_real(is_float: bool) -> None:
    real = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], dtype=torch.bool)
    whole = (real[:, None, None] & torch.ones(5, 5, dtype=torch.bool).tril()).expand(2, 1, 5, 5)
    near = whole & torch.ones(5, 5, dtype=torch.bool).triu(-1)  # a window hides more
    made = {"sliding_attention": near, "full_attention": whole}
    if is_float:
        made = {name: torch.zeros(one.shape).masked_fill(~one, -1e9) for name, one in made.items()}
    assert torch.equal(told_mask({"attention_mask": made}, 5), real)
    assert told_mask({"attention_mask": {"sliding_attention": near}}, 5) is None
