"""Pipelines, half precision and gradient checkpointing with something attached are as by hand."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from training import arguments

import tunescope as ts
from tunescope.methods.text_form import parse

TEXTS = ["w5 w6 w7 w8", "w9 w10", "w11 w12 w13"]
HOW = {"max_new_tokens": 5, "do_sample": False}


def by_hand(model: Any, words: Any, text: str, **more: Any) -> str:
    given = words(text, return_tensors="pt", return_token_type_ids=False)
    made = model.generate(**given, **HOW, **more)[0, given["input_ids"].shape[1] :]
    return str(words.decode(made, skip_special_tokens=True))


def by_pipeline(model: Any, words: Any, **how: Any) -> list[str]:
    pipe = tf.pipeline("text-generation", model=model, tokenizer=words, return_full_text=False)
    return [one[0]["generated_text"].strip() for one in pipe(TEXTS, **how, **HOW)]


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("arm", ["lora:rank=2+prefix:length=3", "soft:length=3", "bias"])
def test_a_text_generation_pipeline_is_as_generate_by_hand(arm: str, batch_size: int) -> None:
    model, words = tiny.make("gpt2"), tiny.tokenizer()
    words.padding_side = "left"
    with ts.attach(model, *tiny.away(model, arm, 0), tokenizer=words):
        found = by_pipeline(model, words, batch_size=batch_size)
        assert found == [by_hand(model, words, text) for text in TEXTS]
    bare = by_pipeline(model, words, batch_size=batch_size)
    assert bare == [by_hand(model, words, text) for text in TEXTS] and bare != found


def test_a_pipeline_of_a_bank_takes_the_name_of_each_row() -> None:
    model, words = tiny.make("gpt2"), tiny.tokenizer()
    words.padding_side = "left"
    members = {"anna": tiny.away(model, "prefix:length=3", 0), "ben": tiny.away(model, "lora:rank=2", 1)}
    rows = ["anna", None, "ben"]
    with ts.attach(model, ts.Bank(members), tokenizer=words):
        found = by_pipeline(model, words, batch_size=3, rows=rows)
        assert found == [by_hand(model, words, text, rows=[row]) for text, row in zip(TEXTS, rows, strict=True)]


@pytest.mark.parametrize(("family", "arm"), [("bert", "head:n_labels=2+prefix:length=3"), ("gpt2", "lora:rank=2")])
def test_a_text_classification_pipeline_is_as_the_model_by_hand(family: str, arm: str) -> None:
    model = tiny.build(tf.AutoModelForSequenceClassification, tiny.configs()[family])
    words = tiny.tokenizer()
    with ts.attach(model, *tiny.away(model, arm, 0), tokenizer=words):
        pipe = tf.pipeline("text-classification", model=model, tokenizer=words, top_k=None)
        for text, found in zip(TEXTS, pipe(TEXTS, batch_size=3), strict=True):
            given = words(text, return_tensors="pt", return_token_type_ids=False)
            wanted = model(**given).logits[0].softmax(-1)
            scores = {one["label"]: one["score"] for one in found}
            for index, label in model.config.id2label.items():
                assert scores[label] == pytest.approx(float(wanted[index]), abs=1e-6)


def test_a_text2text_model_generates_in_batches_as_alone() -> None:
    model = tiny.make("t5")
    with ts.attach(model, *tiny.away(model, "lora:rank=2+prefix:length=3", 0)):
        together = model.generate(input_ids=tiny.ids(3, 6), max_new_tokens=5, min_new_tokens=5)
        for row, text in zip(together, tiny.ids(3, 6), strict=True):
            alone = model.generate(input_ids=text[None], max_new_tokens=5, min_new_tokens=5)
            assert row.tolist() == alone[0].tolist()


@pytest.mark.parametrize("arm", ["lora:rank=2", "prefix:length=3", "soft:length=3", "adapter:bottleneck=3", "bias"])
def test_on_a_model_in_bfloat16_what_trains_is_float32_and_near(arm: str) -> None:
    """Near: within a few of bfloat16's steps of 2 ** -8 of the same model in float32."""
    model = tiny.make("llama" if arm != "bias" else "gpt2", dtype=torch.float32)
    given = tiny.batch(model)
    artifacts = tiny.away(model, arm, 0)
    wanted, slopes = outputs_and_slopes(model, artifacts, given)
    found, gradients = outputs_and_slopes(model.to(torch.bfloat16), artifacts, given)
    assert found.dtype == torch.bfloat16
    assert relative(found, wanted) < 0.03
    for name, slope in slopes.items():
        assert gradients[name].dtype == torch.float32
        assert relative(gradients[name], slope) < 0.1, name


@pytest.mark.parametrize("arm", ["lora:rank=2", "prefix:length=3", "soft:length=3", "adapter:bottleneck=3", "bias"])
def test_under_autocast_it_is_near_too(arm: str) -> None:
    model = tiny.make("llama" if arm != "bias" else "gpt2", dtype=torch.float32)
    given, artifacts = tiny.batch(model), tiny.away(model, arm, 0)
    wanted, slopes = outputs_and_slopes(model, artifacts, given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, gradients = outputs_and_slopes(model, artifacts, given)
    assert relative(found, wanted) < 0.03
    for name, slope in slopes.items():
        assert relative(gradients[name], slope) < 0.1, name


@pytest.mark.parametrize("family", ["gpt2", "llama", "gpt_neox"])
@pytest.mark.parametrize("arm", ["text:text=w5 w6 w7", "prefix:length=3,positions=after,init_from=text,text=w5 w6 w7"])
def test_attached_within_autocast_it_is_the_words_in_the_row_to_the_precision_of_the_model(
    family: str, arm: str
) -> None:
    """A model that was not seen before is tried out, and the keys of words are made, as if there was no autocast."""
    model, text = tiny.make(family, dtype=torch.float32), tiny.ids()
    front = torch.tensor([5, 6, 7]).expand(len(text), -1)
    with torch.no_grad():
        wanted = model(input_ids=torch.cat([front, text], 1)).logits[:, 3:]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            tuned = ts.attach(model, *parse(arm), tokenizer=tiny.tokenizer())
        with tuned:
            torch.testing.assert_close(model(input_ids=text).logits, wanted, rtol=0, atol=1e-5)


def outputs_and_slopes(model: Any, artifacts: Any, given: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    with ts.attach(model, *artifacts) as tuned:
        tuned.train()
        out = model(**given).logits
        out.float().log_softmax(-1)[..., 5].sum().backward()
        found = {}
        for name, value in tuned.named_parameters().items():
            assert value.grad is not None
            found[name], value.grad = value.grad.clone(), None
    return out.detach(), found


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.float() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize(("family", "arm"), [("llama", "lora:rank=2+prefix:length=3"), ("gpt2", "soft:length=3+bias")])
def test_a_trainer_with_checkpointing_trains_to_the_same_bits(family: str, arm: str, tmp_path: Path) -> None:
    data = [{"input_ids": row, "labels": row} for row in tiny.ids(6, 6)]
    found = []
    for on in (False, True):
        model = tiny.make(family, dtype=torch.float32)
        given = arguments(tmp_path, gradient_checkpointing=on)
        with ts.attach(model, *tiny.away(model, arm, 0)) as tuned:
            with tuned.registered():
                tf.Trainer(model, given, train_dataset=data).train()
            assert bool(model.is_gradient_checkpointing) == on
            found.append(tuned.named_parameters())
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=0, atol=1e-6)


def test_a_trainer_in_bfloat16_trains_float32_tensors(tmp_path: Path) -> None:
    model = tiny.make("llama", dtype=torch.float32)
    data = [{"input_ids": row, "labels": row} for row in tiny.ids(6, 6)]
    start = tiny.away(model, "lora:rank=2+prefix:length=3", 0)
    before = {name: value.clone() for artifact in start for name, value in artifact.tensors.items()}
    with ts.attach(model, *start) as tuned:
        with tuned.registered():
            trainer = tf.Trainer(model, arguments(tmp_path, bf16=True), train_dataset=data)
            assert trainer.train().training_loss > 0
        for artifact in tuned.artifacts:
            for name, value in artifact.tensors.items():
                assert value.dtype == torch.float32 and value.isfinite().all()
                assert not torch.equal(value, before[name])
