"""`generate` with classifier-free guidance, which reads a second text: a row's last token, and what is written."""

from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from odd_families import FRONT, close, model, text

import tunescope as ts

SCALE, STEPS = 2.0, 4
DECODING: dict[str, Any] = {"max_new_tokens": STEPS, "do_sample": False, "pad_token_id": 0}
INFIX = {"infix": [ts.Infix(length=3)], "reweight": [text(), ts.Reweight(anchors=("1", "2"))]}


def as_keyword(_: Any) -> dict[str, Any]:
    return {"guidance_scale": SCALE}


def in_a_config(_: Any) -> dict[str, Any]:
    return {"generation_config": tf.GenerationConfig(guidance_scale=SCALE)}


def in_the_model_s(network: Any) -> dict[str, Any]:
    network.generation_config.guidance_scale = SCALE
    return {"generation_config": tf.GenerationConfig(top_k=1)}


def as_a_processor(network: Any) -> dict[str, Any]:
    return {"logits_processor": [tf.UnbatchedClassifierFreeGuidanceLogitsProcessor(SCALE, network)]}


@pytest.mark.parametrize("given", [as_keyword, in_a_config, in_the_model_s, as_a_processor])
@pytest.mark.parametrize("arm", INFIX)
def test_what_acts_from_where_the_output_starts_refuses_it_in_one_line(arm: str, given: Any) -> None:
    network = model("llama")
    with ts.attach(network, *INFIX[arm]):
        asked = given(network)
        with pytest.raises(
            ts.UserError, match=r"guidance_scale=2 reads a second text .* Pass guidance_scale=1"
        ) as caught:
            network.generate(tiny.ids(2, 5), **DECODING, **asked)
        assert "\n" not in str(caught.value)
        network.generation_config.guidance_scale = SCALE
        for scale in (1, 1.0, None):
            assert network.generate(tiny.ids(2, 5), **DECODING, guidance_scale=scale).shape == (2, 5 + STEPS)


@torch.no_grad()
def test_words_in_front_stand_before_both_texts() -> None:
    with tiny.Float64():
        network, ids = model("llama"), tiny.ids(1, 5)
        decoding = {**DECODING, "guidance_scale": SCALE, "output_scores": True, "return_dict_in_generate": True}
        with ts.attach(network, text()):
            out = network.generate(ids, **decoding)
        with ts.attach(network, ts.Bank({"a": text(), "b": ts.Infix(length=3)})):
            in_bank = network.generate(ids, **decoding, rows=["a"])
            with pytest.raises(ts.UserError, match="reads a second text"):
                network.generate(ids, **decoding, rows=["b"])
        for step in range(STEPS):
            written = out.sequences[:, 5 : 5 + step]
            rows = [torch.cat([torch.tensor([FRONT]), begun, written], 1) for begun in (ids, ids[:, -1:])]
            one, other = (network(row).logits[:, -1].log_softmax(-1) for row in rows)
            for found in (out, in_bank):
                close(found.scores[step], other + SCALE * (one - other))
