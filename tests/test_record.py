import pytest
import tiny
import torch

import tunescope as ts
from tunescope.record import record


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
    with pytest.raises(ts.UserError, match="record keeps query, key, value, weights, output; it was asked for wieghts"):
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
