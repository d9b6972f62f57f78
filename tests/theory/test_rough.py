"""The rough costs against arithmetic by hand, and against the exact model of gpt2 and llama."""

from dataclasses import replace

import pytest

from tunescope.errors import UserError
from tunescope.theory.costs import rough, training
from tunescope.theory.costs.gpus import SHEETS, gpu
from tunescope.theory.costs.machine import Machine
from tunescope.theory.costs.methods import Method, trained
from tunescope.theory.costs.shapes import Shape

SLOW = Machine("plain", 1e6, 0.5, 1e6, 0.5, 1e9, 1e9)
BOTH = rough.Model(1000, 7, rough.Stack(100, 2, 4), rough.Stack(60, 3, 4), stored=2, bytes=4)
MEDIUM = Shape("gpt2", 24, 1024, 16, 16, 64, 4096, 50_257, positions=1024, bytes=2)
EIGHT = Shape("llama", 32, 4096, 32, 8, 128, 14_336, 128_256)


def test_a_step_of_an_encoder_decoder_by_hand():
    step = rough.Step(rows=4, read=10, written=5, parts=2)
    encoder = 2 * 100 * 40 + 4 * 2 * 4 * 40 * 10
    decoder = 2 * 60 * 20 + 4 * 3 * 4 * 20 * 15
    forward = encoder + decoder + 2 * 7 * 4 * 20
    update = 4 * 7 * 50 / 0.5e6
    assert rough.seconds(BOTH, 50, step, SLOW, full=False) == pytest.approx(2 * forward / 0.5e6 + update)
    assert rough.seconds(BOTH, 50, step, SLOW, full=True) == pytest.approx(3 * forward / 0.5e6 + update)
    kept = 17 * 4 * 4 * (2 * 20 + 3 * 10)
    logits = 12 * 2 * 5 * 7
    assert rough.memory(BOTH, 50, step, full=False) == 2 * 1000 + 16 * 50 + kept + logits
    assert rough.memory(BOTH, 50, step, full=True) == 2 * 1000 + 16 * 50 + kept + logits
    whole = replace(BOTH, stored=4)  # whose weights are what is trained
    assert rough.memory(whole, 50, step, full=True) == 16 * 50 + kept + logits


def test_a_checkpointed_step_keeps_inputs_and_one_layer_and_runs_the_forward_pass_again():
    step = rough.Step(rows=4, read=10, written=5, checkpointing=True)
    kept = 4 * 4 * (2 * 40 + 3 * 20) + 17 * 4 * 4 * (40 + 20)
    assert rough.memory(BOTH, 0, step, full=False) == 2000 + kept + 12 * 20 * 7
    plain = rough.seconds(BOTH, 0, rough.Step(4, 10, 5), SLOW, full=False)
    assert rough.seconds(BOTH, 0, step, SLOW, full=False) == pytest.approx(1.5 * plain)


def test_small_models_wait_for_their_kernels_and_answers_for_the_weights():
    fast = Machine("fast", 1e18, 0.5, 1e18, 0.5, 1e9, 1e9)
    step = rough.Step(rows=4, read=10, written=5, parts=2)
    assert rough.seconds(BOTH, 50, step, fast, full=False) == pytest.approx(3 * 2 * 5 * 1e-3)
    again = replace(step, checkpointing=True)  # a fourth pass, forward once more
    assert rough.seconds(BOTH, 50, again, fast, full=False) == pytest.approx(4 * 2 * 5 * 1e-3)
    assert rough.writing(BOTH, 17, step, 1, fast) == pytest.approx(2 * 5 * 3e-3)
    narrow = Machine("narrow", 1e18, 0.5, 1e4, 0.5, 1e9, 1e9)
    assert rough.writing(BOTH, 17, step, 1, narrow) == pytest.approx(2 * 5 * 2000 / 5e3)
    chosen = rough.Model(1000, 7, rough.Stack(100, 2, 4), None, stored=2, bytes=4)
    assert rough.writing(chosen, 32, step, 1, fast) == pytest.approx(2 * 2e-3)


@pytest.mark.parametrize("shape", [MEDIUM, EIGHT], ids=["gpt2-medium", "llama-8b"])
@pytest.mark.parametrize(
    "method", [Method("prefix", 20), Method("lora", 8, ("attn.q", "attn.v")), Method("full")], ids=lambda one: one.kind
)
def test_it_is_within_a_factor_of_two_of_the_exact_model(shape, method):
    about = rough.Model(
        shape.parameters, shape.vocabulary, None, rough.Stack(shape.linear, shape.layers, shape.width), 2, 2
    )
    slow = Machine("slow", 1e12, 0.4, 1e12, 0.6, 80e9, 80e9)  # so that kernels are longer than their beginning
    count, full = trained(method, shape), method.kind == "full"
    batch = training.Batch(rows=16, tokens=256, labelled=16 * 64)
    step = rough.Step(16, 192, 64)
    exact = training.memory(method, shape, batch).total, training.seconds(method, shape, batch, slow)
    mine = rough.memory(about, count, step, full=full), rough.seconds(about, count, step, slow, full=full)
    for ours, theirs in zip(mine, exact, strict=True):
        assert 0.5 < ours / theirs < 2


def test_a_gpu_attains_the_shares_of_its_peaks_that_the_page_says():
    h100, _ = gpu("H100")
    assert h100.seconds(0.4 * 989e12) == pytest.approx(1) and h100.seconds(0, 0.6 * 3350e9) == pytest.approx(1)


def test_gpus_are_known_by_name_and_one_without_bfloat16_computes_in_float32():
    assert gpu("h100")[1] == "bfloat16" and gpu("h100")[0].peak_flops == 989e12
    assert gpu("T4")[1] == "float32" and gpu("H100", "float32")[0].peak_flops == 67e12
    with pytest.raises(UserError, match=r"A T4 has no products in bfloat16\. Type: --precision float32"):
        gpu("T4", "bfloat16")
    with pytest.raises(UserError, match=rf"--gpu H1000: it is one of {', '.join(SHEETS)}"):
        gpu("H1000")
