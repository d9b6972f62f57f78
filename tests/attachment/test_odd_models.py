"""Models that share layers, whose weights are computed, whose tokens have boxes, or that have no table of tokens."""

from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from torch import Tensor
from torch.nn.utils import parametrizations, prune

import tunescope as ts

SIZES: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 32,
}  # fmt: skip


def said(model: Any) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(tiny.ids(1, 5)).logits
    return found


@pytest.mark.parametrize("spec", [ts.LoRA(rank=2), ts.Prefix(length=2)], ids=["lora", "prefix"])
def test_a_model_that_shares_layers_with_one_that_is_attached_is_refused_and_breaks_nothing(spec: Any) -> None:
    one, other = tiny.make("llama"), tiny.make("llama")
    other.model.layers[0] = one.model.layers[0]
    with ts.attach(one, spec):
        before = said(one)
        with pytest.raises(ts.UserError, match=r"shares layers with another, a LlamaForCausalLM, that has artifacts"):
            ts.attach(other, spec)
        assert torch.equal(said(one), before)
    ts.attach(other, spec).detach()


def test_a_shared_table_of_words_is_no_layer() -> None:
    one, other = tiny.make("llama"), tiny.make("llama")
    other.set_input_embeddings(one.get_input_embeddings())
    artifacts = tiny.away(one, "lora:rank=2")
    with ts.attach(one, *artifacts):
        alone = said(one)
    before = said(other)
    with ts.attach(one, *artifacts), ts.attach(other, ts.LoRA(rank=2)):
        assert torch.equal(said(one), alone)
        assert torch.equal(said(other), before)  # a LoRA begins as nothing


@pytest.mark.parametrize("way", ["weight_norm", "prune"])
def test_what_cannot_be_merged_into_a_computed_weight_is_told(way: str) -> None:
    model = tiny.make("llama")
    module = model.model.layers[0].self_attn.q_proj
    prune.random_unstructured(module, "weight", 0.5) if way == "prune" else parametrizations.weight_norm(module)
    artifacts = tiny.away(model, "lora:rank=2")
    before = said(model)
    with pytest.raises(ts.UserError, match=r"whose weight is computed from others, as torch's parametrize, prune"):
        ts.merge(model, *artifacts)
    assert torch.equal(said(model), before)


def test_words_in_front_of_boxes_have_those_of_none() -> None:
    model: Any = tf.LayoutLMModel(tf.LayoutLMConfig(**SIZES)).double().eval()
    words, ids = torch.tensor([[5, 6]]), torch.tensor([[7, 8, 9]])
    boxes = torch.randint(0, 1000, (1, 3, 4)).sort(-1).values[..., [0, 1, 2, 3]]
    whole = torch.cat([torch.zeros(1, 2, 4, dtype=torch.long), boxes], 1)
    with torch.no_grad():
        expected = model(input_ids=torch.cat([words, ids], 1), bbox=whole).last_hidden_state[:, 2:]
        with ts.attach(model, ts.Soft(length=2)) as tuned:
            tuned.parameters()[0].copy_(model.get_input_embeddings()(words[0]))
            found = model(input_ids=ids, bbox=boxes).last_hidden_state
    torch.testing.assert_close(found[:, -3:], expected, rtol=0, atol=1e-12)


def test_a_prefix_on_layers_beside_a_longer_list_of_modules() -> None:
    model: Any = tf.MarkupLMModel(tf.MarkupLMConfig(**SIZES)).double().eval()
    ids = torch.tensor([[5, 6, 7, 8, 0, 0], [9, 10, 11, 12, 13, 14]])
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1] * 6])
    with ts.attach(model, ts.Prefix(length=2)), torch.no_grad():
        padded = model(input_ids=ids, attention_mask=mask).last_hidden_state[0, :4]
        alone = model(input_ids=ids[:1, :4]).last_hidden_state[0]
    torch.testing.assert_close(padded, alone, rtol=0, atol=1e-6)
    tags = torch.zeros(2, 6, 50, dtype=torch.long)
    with ts.attach(model, ts.Soft(length=2)), pytest.raises(ts.UserError, match=r"xpath_tags_seq say where each token"):
        model(input_ids=ids, attention_mask=mask, xpath_tags_seq=tags, xpath_subs_seq=tags)


def test_a_model_of_characters_has_no_table_to_stand_in() -> None:
    model: Any = tf.CanineModel(tf.CanineConfig(**{**SIZES, "max_position_embeddings": 64})).eval()
    with pytest.raises(ts.UserError, match=r"family 'canine' has no table of its tokens' embeddings"):
        ts.attach(model, ts.Soft(length=2))
    ids = torch.arange(1, 33)[None]
    with ts.attach(model, ts.Full()), torch.no_grad():
        assert model(input_ids=ids).last_hidden_state.shape == (1, 32, 16)


def test_a_prefix_behind_which_positions_are_turned_otherwise_is_refused_where_the_cache_is_of_others() -> None:
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 2, "long_factor": [3.0, 7.0]}
    sizes = {**SIZES, "max_position_embeddings": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = tf.Phi3Config(
        **sizes, pad_token_id=0, bos_token_id=1, eos_token_id=39, original_max_position_embeddings=16,
        rope_parameters={**rope, "original_max_position_embeddings": 16},
    )  # fmt: skip
    model: Any = tf.Phi3ForCausalLM(config).double().eval()
    model.generation_config.eos_token_id = None
    how: dict[str, Any] = {"do_sample": False, "max_new_tokens": 4, "pad_token_id": 0}
    with ts.attach(model, ts.Prefix(length=3, positions="after")), torch.no_grad():
        for count in (6, 20):  # below to the end, and beyond from the begin
            ids = torch.arange(2, 2 + count)[None]
            cached = model.generate(ids, attention_mask=torch.ones_like(ids), **how)
            assert torch.equal(cached, model.generate(ids, attention_mask=torch.ones_like(ids), use_cache=False, **how))
        ids = torch.arange(2, 13)[None]
        with pytest.raises(ts.UserError, match=r"otherwise from 17 tokens on, and the cache holds keys as below that"):
            model.generate(ids, attention_mask=torch.ones_like(ids), **how)
