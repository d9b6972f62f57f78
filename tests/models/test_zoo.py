"""The zoo's models are what the tests over it take them for."""

from functools import cache

import pytest
import tiny
import torch
from torch import nn
from zoo import LENGTH, ZOO, inputs, kind_of, paddings, zoo
from zoo_fields import llama_like

OF_TEXT = ("decoder", "mixture", "hybrid", "recurrent")
OTHER_IN_A_BATCH = {
    "doge",  # under sdpa and within Float64 a row changes beside another, padded or not; eager does not
    "llama4_text",  # its queries' temperature counts places, pads too
    "recurrent_gemma",  # its recurrence runs over pads
    "rwkv",  # takes a mask and leaves it
}


@cache
def made(name):
    return zoo(name)


def output(model, given):
    with torch.no_grad(), tiny.Float64():
        return tiny.output(model, given)


@pytest.mark.parametrize("name", ZOO)
def test_it_runs_the_same_twice_and_is_finite_under_every_padding(name):
    model = made(name)
    assert not model.training
    for padding in paddings(name):
        given = inputs(name, model, padding)
        out = output(model, given)
        assert out.isfinite().all() and out.std() > 1e-3
        assert torch.equal(out, output(model, given))


@pytest.mark.parametrize("name", ZOO)
def test_nobody_need_keep_it_in_float64_none_of_its_weights_is_where_it_begins_and_nothing_is_dropped(name):
    model = made(name)
    with torch.no_grad():
        assert tiny.output(model, inputs(name, model)).isfinite().all()
    assert all(((value != 0) & (value != 1)).all() for value in model.parameters())
    assert all(module.p == 0 for module in model.modules() if isinstance(module, nn.Dropout))


def test_a_seed_draws_the_weights():
    again, other = (dict(zoo("phi3", seed=seed).named_parameters()) for seed in (0, 1))
    for name, value in made("phi3").named_parameters():
        assert torch.equal(value, again[name]) and not torch.equal(value, other[name])


@pytest.mark.parametrize("name", ZOO)
def test_its_text_is_longer_than_what_a_layer_sees(name):
    config = ZOO[name]()
    windows = [getattr(config, field, None) for field in ("sliding_window", "attention_chunk_size", "window_size")]
    assert all(window < LENGTH for window in windows if window is not None)


def test_a_field_that_the_family_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"GemmaConfig has no sliding_windows\. It has: .*head_dim"):
        llama_like("Gemma", sliding_windows=5)()


def test_images_take_no_padding():
    with pytest.raises(ValueError, match=r"vit takes no padding='left'\. Type one of: none\."):
        inputs("vit", made("vit"), "left")
    assert kind_of("vit") == "vision"


@pytest.mark.parametrize("name", [name for name in ZOO if kind_of(name) in OF_TEXT and name not in OTHER_IN_A_BATCH])
def test_a_padded_row_of_a_decoder_is_the_row_alone(name):
    model = made(name)
    for padding in ("left", "right"):
        given = inputs(name, model, padding)
        out = output(model, given)
        for row, is_real in enumerate(given["attention_mask"].bool()):
            alone = output(model, {"input_ids": given["input_ids"][row : row + 1, is_real]})
            torch.testing.assert_close(out[row][is_real], alone[0], rtol=0, atol=1e-12)
