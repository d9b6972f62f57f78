"""Calls and models a little out of the ordinary: shared configs, masks of pairs, torch.func, layers left out."""

import pytest
import tiny
import torch
import transformers

import tunescope as ts
from tunescope.attachment.attention.record import record, record_calls
from tunescope.probes.looks import pattern, prefix_bias
from tunescope.probes.see import see


def test_two_models_of_one_config_leave_no_trace_in_it():
    config = tiny.configs()["llama"]
    one, other = (transformers.LlamaForCausalLM(config).double().eval() for _ in range(2))
    assert one.config is other.config
    own, ids = config._attn_implementation, tiny.ids(2, 6)
    first, second = ts.attach(one, ts.Prefix(length=3)), ts.attach(other, ts.Prefix(length=3))
    expected = other(input_ids=ids).logits
    first.detach()
    assert torch.equal(other(input_ids=ids).logits, expected) and config._attn_implementation != own
    second.detach()
    assert config._attn_implementation == own


def test_a_head_reads_what_a_mask_of_pairs_shows():
    model, ids = tiny.make("bert"), tiny.ids(2, 6)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    pairs = mask.bool()[:, None, None, :].expand(-1, -1, 6, -1)
    added = torch.zeros(pairs.shape, dtype=torch.float64).masked_fill(~pairs, torch.finfo(torch.float64).min)
    with torch.no_grad(), ts.attach(model, ts.Head(n_labels=2)):
        expected = model(input_ids=ids, attention_mask=mask).logits
        for one in (pairs, added):
            torch.testing.assert_close(model(input_ids=ids, attention_mask=one).logits, expected, rtol=0, atol=1e-12)
    left = mask.flip(1).bool()[:, None, None, :].expand(-1, -1, 6, -1)
    told = "reads the first column, which is padding in a row here"
    with ts.attach(model, ts.Head(n_labels=2, pooler=True)), pytest.raises(ts.UserError, match=told):
        model(input_ids=ids, attention_mask=left)


@pytest.mark.parametrize("spec", [ts.LoRA(rank=2), ts.Prefix(length=2)])
def test_gradients_for_each_row_and_of_gradients_by_torch_func(spec):
    model, ids = tiny.make("gpt2"), tiny.ids(2, 4)
    model.set_attn_implementation("eager")
    rows = model.get_input_embeddings()(ids).detach()

    def value(row):
        return model(inputs_embeds=row[None]).logits.square().mean()

    with ts.attach(model, spec):
        each = torch.func.vmap(torch.func.grad(value))(rows)
        for row, found in zip(rows, each, strict=True):
            leaf = row.clone().requires_grad_()
            (expected,) = torch.autograd.grad(value(leaf), leaf)
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_tangents_are_carried_forward_as_differences_say():
    model, ids = tiny.make("gpt2"), tiny.ids(1, 4)
    model.set_attn_implementation("eager")
    rows = model.get_input_embeddings()(ids).detach()
    along = torch.randn(rows.shape, dtype=rows.dtype, generator=torch.Generator().manual_seed(0))

    def value(rows):
        return model(inputs_embeds=rows).logits.square().mean()

    with ts.attach(model, ts.LoRA(rank=2)) as tuned:
        tuned.train()
        _, found = torch.func.jvp(value, (rows,), (along,))
        expected = (value(rows + 1e-6 * along) - value(rows - 1e-6 * along)) / 2e-6
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_a_collator_s_batch_is_recorded_with_its_labels_and_a_cache_that_was_asked_for():
    model, ids = tiny.make("llama"), tiny.ids(2, 6)
    plain = record(model, {"input_ids": ids}, "weights")
    for more in ({"labels": ids}, {"use_cache": True}, {"use_cache": False}):
        found = record(model, {"input_ids": ids, **more}, "weights")
        for name, value in plain.items():
            torch.testing.assert_close(found[name], value, rtol=0, atol=1e-12)
        assert record_calls(model, {"input_ids": ids, **more}).keys() == record_calls(model, {"input_ids": ids}).keys()


def test_stacks_that_read_no_tokens_are_looked_into_by_place():
    model, ids = tiny.make("t5"), tiny.ids(2, 7)
    prefix = tiny.away(model, "prefix:length=3")
    seen = see(model, prefix, {"input_ids": ids, "labels": tiny.ids(2, 4)})
    assert set(seen.tokens) == {"encoder"}
    assert pattern.look(seen).heading and prefix_bias.look(seen).heading


def test_a_context_is_run_through_every_layer_where_training_leaves_some_out():
    config = transformers.OPTConfig(
        **tiny.DECODER,
        hidden_size=24,
        ffn_dim=32,
        num_hidden_layers=3,
        num_attention_heads=3,
        word_embed_proj_dim=24,
        max_position_embeddings=64,
        layerdrop=0.6,
    )
    torch.manual_seed(0)
    model = transformers.OPTForCausalLM(config).double().train()
    with ts.attach(model, ts.Soft(length=2)):
        for _ in range(6):
            assert model(input_ids=tiny.ids(2, 5)).logits.shape == (2, 5, config.vocab_size)
    assert model.model.decoder.layerdrop == 0.6


def test_parameters_made_in_inference_mode_are_left_as_they_are():
    with torch.inference_mode():
        model = tiny.make("llama")
    ids = tiny.ids(2, 5)
    with torch.inference_mode():
        before = model(input_ids=ids).logits
        with ts.attach(model, ts.Prefix(length=2)):
            model(input_ids=ids)
        assert torch.equal(model(input_ids=ids).logits, before)
    assert all(one.requires_grad for one in model.parameters())


def test_task_types_of_a_context_are_those_of_what_has_none():
    config = transformers.ErnieConfig(**tiny.BERT_LIKE, use_task_id=True)
    torch.manual_seed(0)
    model, ids = transformers.ErnieModel(config).double().eval(), tiny.ids(2, 5)
    zeros = torch.zeros_like(ids)
    with torch.no_grad(), ts.attach(model, ts.Soft(length=2)):
        plain = model(input_ids=ids).last_hidden_state
        typed = model(input_ids=ids, token_type_ids=zeros, task_type_ids=zeros).last_hidden_state
        torch.testing.assert_close(typed, plain, rtol=0, atol=1e-12)
