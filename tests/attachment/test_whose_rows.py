"""A bank whose rows cannot be told from what a map or `generate` is given, and padding beside other rows."""

import pytest
import tiny
import torch
from transformers import (
    CLIPVisionConfig,
    GPT2Config,
    GPT2DoubleHeadsModel,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    ModernBertConfig,
    ModernBertForMaskedLM,
)

import tunescope as ts
from tunescope.attachment.bank.rowwise import Rowwise

SMALL = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}


def drawn(model, spec, seed):
    """An artifact whose tensors are not those it begins with."""
    with ts.attach(model, spec, seed=seed) as tuned:
        noise = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for value in tuned.parameters():
                value += 0.3 * torch.randn(value.shape, generator=noise, dtype=value.dtype)
        return tuned.artifacts[0]


def gpt2():
    model = tiny.make("gpt2")
    a, b = (drawn(model, ts.LoRA(rank=2), seed) for seed in (1, 2))
    return model, {"a": a, "b": b, "p": drawn(model, ts.Prefix(length=3), 3)}


def test_generate_takes_a_name_for_each_row_that_it_is_given_and_beams_are_more_of_these():
    model, bank = gpt2()
    ids = torch.randint(3, 40, (4, 6), generator=torch.Generator().manual_seed(0))
    more = {"max_new_tokens": 3, "do_sample": False}
    with ts.attach(model, ts.Bank(bank)):
        with pytest.raises(ts.UserError, match=r"rows= names 2 rows, and the batch has 4\."):
            model.generate(ids, rows=["a", "b"], **more)
        with pytest.raises(ts.UserError, match=r"rows= names 4 rows, and the batch has 2\."):
            model.generate(inputs=ids[:2], rows=["a", "b", "p", None], num_beams=2, **more)
        beams = model.generate(input_ids=ids[:2], rows=["a", "b"], num_beams=2, num_return_sequences=2, **more)
    assert len(beams) == 4
    for at, name in enumerate(("a", "b")):
        with ts.attach(model, bank[name]):
            alone = model.generate(input_ids=ids[at : at + 1], num_beams=2, num_return_sequences=2, **more)
        assert torch.equal(beams[2 * at : 2 * at + 2], alone)


@pytest.mark.parametrize("last", [None, "p"])
def test_a_padded_row_is_as_alone_and_unpadded_whoever_is_beside_it(last):
    model, bank = gpt2()
    ids = torch.randint(3, 40, (4, 6), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    with ts.attach(model, ts.Bank(bank)), torch.no_grad():
        rows = model(ids, attention_mask=mask, rows=["a", None, "b", last]).logits[0, 3:]
    with ts.attach(model, bank["a"]), torch.no_grad():
        assert (rows - model(ids[:1, 3:]).logits[0]).abs().max() < 1e-12


def test_a_bias_of_a_tower_for_pictures_is_refused_for_it_acts_before_rows_are_known():
    vision = CLIPVisionConfig(**SMALL, image_size=8, patch_size=4)
    config = LlavaConfig(vision_config=vision, text_config=LlamaConfig(**SMALL, vocab_size=40), image_token_id=39)
    model = LlavaForConditionalGeneration(config).double().eval()
    bias, lora = drawn(model, ts.Bias(), 0), drawn(model, ts.LoRA(rank=2), 1)
    ids = torch.arange(3, 13).view(2, 5)
    with ts.attach(model, ts.Bank({"bias": bias, "lora": lora})):
        with pytest.raises(ts.UserError, match=r"'bias' changes 'vision_tower.*', which text does not go through"):
            model(ids, rows=["bias", None])
        assert model(ids, rows=["lora", None]).logits.shape == (2, 5, 40)


def test_a_head_that_is_given_chosen_tokens_alone_is_refused_however_many_they_are():
    config = ModernBertConfig(**SMALL, **ENDS, vocab_size=40, sparse_prediction=True, decoder_bias=True)
    model = ModernBertForMaskedLM(config).double().eval()
    bank = {name: drawn(model, ts.Bias(), seed) for seed, name in enumerate("ab")}
    bank["lora"] = drawn(model, ts.LoRA(rank=2), 3)
    ids = torch.arange(3, 15).view(2, 6)
    with ts.attach(model, ts.Bank(bank)):
        with pytest.raises(ts.UserError, match=r"'a' changes '.*', of a head that sees some tokens of a batch"):
            model(ids, rows=["a", "b"])
        assert model(ids, rows=["lora", None]).logits.shape == (2, 6, 40)


def test_chosen_tokens_of_several_rows_are_refused_and_those_of_one_artifact_are_not():
    lora = ts.LoRA(rank=2)
    tensors = {"a": torch.ones(2, 5), "b": torch.ones(5, 2)}
    delta = Rowwise(lora, 3, torch.tensor([0]), shared=True, drops=False, dropout=0.0, columns=lambda: 4)
    for tokens in (3, 12, 24):
        delta._check(torch.zeros(tokens, 5))
    delta._check(torch.zeros(3, 2, 5))
    for tokens in (4, 6, 9):
        with pytest.raises(ts.UserError, match=f"{tokens} chosen tokens of 3 rows"):
            delta.apply(tensors, torch.zeros(tokens, 5), torch.zeros(tokens, 5))
    x = torch.randn(4, 5, dtype=torch.double)
    alike = Rowwise(ts.LoRA(rank=2, alpha=2), 3, None, shared=True, drops=False, dropout=0.0)
    in_double = {name: value.double() for name, value in tensors.items()}
    assert torch.allclose(alike.apply(in_double, x, x), x + x.sum(1, keepdim=True) * 2)


def test_several_choices_to_a_row_are_refused_behind_a_context():
    config = GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2)
    model = GPT2DoubleHeadsModel(config).double().eval()
    ids, at = torch.arange(3, 23).view(2, 2, 5), torch.full((2, 2), 4)
    with ts.attach(model, ts.Soft(length=2)), pytest.raises(ts.UserError, match="several choices to a row"):
        model(ids, mc_token_ids=at)
