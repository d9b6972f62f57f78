import pytest
import tiny
import torch
from zoo import zoo

import tunescope as ts
from tunescope.attachment.attention.reach import reached
from tunescope.attachment.attention.record import record, record_calls, replay
from tunescope.models.family import family_names

FAMILIES = family_names()


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "bert", "t5"])
def test_recorded_weights_are_those_that_transformers_returns(name):
    model = tiny.make(name)
    ids = torch.randint(3, tiny.VOCAB, (2, 7))
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids[:, :5]} if model.config.is_encoder_decoder else {})
    got = record(model, inputs, "weights", "key")
    model.set_attn_implementation("eager")
    with torch.no_grad():
        out = model(**inputs, output_attentions=True)
    if model.config.is_encoder_decoder:
        for stack, kind, want in (
            ("encoder", "self", out.encoder_attentions),
            ("decoder", "self", out.decoder_attentions),
            ("decoder", "cross", out.cross_attentions),
        ):
            for layer, weights in enumerate(want):
                torch.testing.assert_close(got[f"{stack}.{layer}.{kind}.weights"], weights, rtol=0, atol=1e-6)
        return
    stack = "encoder" if name == "bert" else "decoder"
    for layer, weights in enumerate(out.attentions):  # eager softmaxes in float32 in some families
        torch.testing.assert_close(got[f"{stack}.{layer}.self.weights"], weights, rtol=0, atol=1e-6)
        assert got[f"{stack}.{layer}.self.key"].shape[2] == 7


@pytest.mark.parametrize("name", ["gemma4_text", "gemma4_unified_text"])
def test_layers_that_share_the_keys_of_others_have_a_query_for_every_token(name):
    model = zoo(name, attention="eager")
    ids = torch.randint(3, tiny.VOCAB, (2, 7))
    with tiny.Float64():
        got = record(model, {"input_ids": ids}, "weights")
    assert record_calls(model, {"input_ids": ids})["decoder.3.self"].kwargs["hidden_states"].shape[1] == 7
    with torch.no_grad(), tiny.Float64():
        out = model(input_ids=ids, output_attentions=True)
    for layer, weights in enumerate(out.attentions):
        torch.testing.assert_close(got[f"decoder.{layer}.self.weights"], weights, rtol=0, atol=1e-12)


def test_contexts_stand_in_the_first_columns_and_the_model_is_left_as_it_was():
    model = tiny.make("llama")
    ids = torch.randint(3, tiny.VOCAB, (2, 7))
    with torch.no_grad():
        plain = model(input_ids=ids).logits
    with ts.attach(model, ts.Prefix(length=3)):
        with torch.no_grad():
            before = model(input_ids=ids).logits
        kept = record(model, {"input_ids": ids}, "weights")
        with torch.no_grad():
            assert torch.equal(model(input_ids=ids).logits, before)
    weights = kept["decoder.1.self.weights"]
    assert weights.shape == (2, 4, 7, 3 + 7)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 7, dtype=torch.float64))
    assert (weights[..., 0, :4] > 0).all()
    assert (weights[..., 0, 4:] == 0).all()  # the first token sees the prefix and itself
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, plain)


def test_an_unknown_name_is_refused():
    names = "query, key, value, scores, weights, sink, output, context_key, context_value"
    with pytest.raises(ts.UserError, match=f"record keeps {names}; it was asked for wieghts"):
        record(tiny.make("gpt2"), {}, "wieghts")


def test_recording_after_a_change_leaves_the_change_in_force():
    model = tiny.make("gpt2")
    ids = torch.randint(3, tiny.VOCAB, (2, 7))
    with ts.attach(model, ts.Prefix(length=3)) as tuned, torch.no_grad():
        model(input_ids=ids)
        for value in tuned.parameters():
            value.mul_(2)
        record(model, {"input_ids": ids}, "weights")
        got = model(input_ids=ids).logits
    with ts.attach(model, *tuned.artifacts), torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, got)


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "bert", "t5"])
def test_the_contexts_keys_and_values_are_those_of_the_artifact_and_empty_without_one(name):
    model = tiny.make(name)
    batch = tiny.batch(model)
    with ts.attach(model, ts.Prefix(length=3)) as tuned:
        kept = record(model, batch, "context_key", "context_value")
    assert kept.keys() == {
        site.replace(".key", ".context_key").replace(".value", ".context_value") for site in tuned.artifacts[0].tensors
    }
    for site, value in tuned.artifacts[0].tensors.items():
        place, _, which = site.rpartition(".")
        torch.testing.assert_close(kept[f"{place}.context_{which}"], value.double(), rtol=0, atol=0)
    alone = record(model, batch, "context_key", "key")
    for site in (site for site in alone if site.endswith("context_key")):
        like = alone[site.replace("context_key", "key")]
        assert alone[site].shape == (like.shape[1], 0, like.shape[3])


@pytest.mark.parametrize("name", FAMILIES)
def test_a_replay_of_a_run_s_own_calls_is_that_run_and_leaves_no_trace(name):
    model = tiny.make(name)
    batch = tiny.batch(model)
    kept = ("query", "key", "value", "weights", "output")
    alone = record(model, batch, *kept)
    calls = record_calls(model, batch)
    again = replay(model, calls, *kept)
    assert again.keys() == alone.keys()
    for key, value in alone.items():
        torch.testing.assert_close(again[key], value, rtol=0, atol=1e-12, msg=key)
    assert not any(key.startswith("_tunescope") for module in model.modules() for key in vars(module))
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("name", FAMILIES)
def test_a_replay_under_lora_is_a_run_whose_every_attention_is_handed_the_bare_inputs(name):
    """The oracle: whole runs, with the input of one attention module at a time replaced on the way in."""
    model = tiny.make(name)
    batch = tiny.batch(model)
    calls = record_calls(model, batch)
    lora = ts.LoRA(rank=2, sites=("attn.q", "attn.k"))
    with ts.attach(model, lora) as tuned:
        for value in tuned.parameters():
            value.data.normal_(generator=torch.Generator().manual_seed(4))
        record(model, batch, "output")
        got = replay(model, calls, "weights")
        for found in reached(model):
            handle = found.module.register_forward_pre_hook(
                lambda _module, _args, _kwargs, call=calls[found.name]: (call.args, call.kwargs), with_kwargs=True
            )
            expected = record(model, batch, "weights")[f"{found.name}.weights"]
            handle.remove()
            assert torch.equal(got[f"{found.name}.weights"], expected)
