"""Classification heads that peft saves beside an artifact."""

import copy
from pathlib import Path
from typing import Any

import peft
import peftly
import pytest
import tiny
import torch
import transformers as tf
from safetensors.torch import load_file
from torch import Tensor

import tunescope as ts
from tunescope.attachment.fit import initialised
from tunescope.exchange import convert
from tunescope.exchange.peft.config import TENSORS, checked
from tunescope.methods.artifact import Artifact

LABELS = 5
METHODS = {
    "lora": lambda: peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"]),
    "prefix": lambda: peft.PrefixTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3),
    "prompt": lambda: peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3),
}


def classifier(family: str) -> tuple[Any, Any]:
    """transformers' model with a head, and the bare one in it."""
    base = tiny.make(family)
    config = copy.deepcopy(base.config)
    config.num_labels = LABELS
    whole = tiny.build(tf.AutoModelForSequenceClassification, config)
    return whole, whole.base_model


def logits(model: Any, given: dict[str, Tensor]) -> Tensor:
    with peftly.quiet(), torch.no_grad(), tiny.Float64():
        return model(**given).logits


@pytest.mark.parametrize("method", ["lora", "prefix"])
def test_a_head_of_bert_gives_peft_s_logits(method: str, tmp_path: Path) -> None:
    whole, base = classifier("bert")
    folder = peftly.written(peftly.wrapped(whole, METHODS[method]()), tmp_path / "peft")
    found = convert.read(folder, form="peft", model=base)
    assert found.artifacts[-1].spec == ts.Head(n_labels=LABELS, pooler=True)
    assert any("reads the model's own pooler, which has to be in the base's checkpoint" in note for note in found.notes)
    made = peftly.loaded(whole, folder)
    for padding in ("none", "right"):
        given = tiny.batch(base, padding)
        with ts.attach(base, *found.artifacts):
            got = logits(base, given)
        assert got.shape == (2, LABELS)
        torch.testing.assert_close(got, logits(made, given), rtol=0, atol=1e-12)


@pytest.mark.parametrize("spec", [ts.LoRA(rank=2), ts.Prefix(length=3, positions="after")])
def test_a_head_that_reads_the_pooler_is_written_for_transformers_class(spec: Any, tmp_path: Path) -> None:
    whole, base = classifier("bert")
    draw = torch.Generator().manual_seed(1)
    artifacts = [
        Artifact(a.spec, {k: torch.randn(v.shape, generator=draw, dtype=v.dtype) for k, v in a.tensors.items()})
        for a in initialised(base, [ts.Head(n_labels=LABELS, pooler=True), spec], None, 0)
    ]
    done = convert.export(tmp_path / "out", artifacts, to="peft", model=base)
    assert done.difference is not None and done.difference < 1e-12
    assert "for AutoModelForSequenceClassification, whose classifier is in the file" in done.notes
    given = tiny.batch(base)
    with ts.attach(base, *artifacts):
        expected = logits(base, given)
    torch.testing.assert_close(logits(peftly.loaded(whole, tmp_path / "out"), given), expected, rtol=0, atol=1e-12)


def test_a_head_that_reads_the_pooler_reads_its_output() -> None:
    base = tiny.make("bert")
    (head,) = initialised(base, [ts.Head(n_labels=3, pooler=True)], None, 0)
    given = tiny.batch(base)
    with torch.no_grad():
        expected = base(**given).pooler_output @ head.tensors["pooled:weight"].T + head.tensors["pooled:bias"]
        with ts.attach(base, head):
            assert torch.equal(base(**given).logits, expected)
    base.pooler = None
    with pytest.raises(
        ts.UserError, match=r"reads the model's pooler, which this one does not have. Load it with AutoM"
    ):
        ts.attach(base, head)


def test_what_no_head_here_says_is_refused(tmp_path: Path) -> None:
    whole, base = classifier("bert")
    folder = peftly.written(peftly.wrapped(whole, METHODS["prompt"]()), tmp_path / "prompt")
    with pytest.raises(ts.UserError, match=r"behind a soft prompt, where peft's head reads the prompt's first row"):
        convert.read(folder, form="peft", model=base)
    folder = peftly.written(peftly.wrapped(whole, METHODS["lora"]()), tmp_path / "tokens", task_type="TOKEN_CLS")
    with pytest.raises(ts.UserError, match=r"for the task 'TOKEN_CLS'; a head here classifies whole texts"):
        convert.read(folder, form="peft", model=base)
    for family, targets, named in (
        ("roberta", "query", "classifier.dense.bias, .* one linear map behind the pooler.* --by head$"),
        (
            "gpt2",
            "c_attn",
            "score.weight. They are a classification head, and a decoder answers in words here: .*compare$",
        ),
    ):
        whole, base = classifier(family)
        config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=[targets])
        folder = peftly.written(peftly.wrapped(whole, config), tmp_path / family)
        with pytest.raises(ts.UserError, match=rf"trained modules that have no place here: {named}"):
            convert.read(folder, form="peft", model=tiny.make(family) if family == "gpt2" else base)
    model = tiny.make("llama")
    config = peftly.lora(model, r=2, target_modules=["q_proj"], modules_to_save=["lm_head"])
    folder = peftly.written(peftly.wrapped(model, config), tmp_path / "lm")
    assert "base_model.model.lm_head.weight" in load_file(folder / TENSORS)
    with pytest.raises(ts.UserError, match=r"have no place here: lm_head.weight\. Merge it in peft"):
        convert.read(folder, form="peft", model=model)


def test_a_refusal_tells_of_its_own_case(tmp_path: Path) -> None:
    base = tiny.make("roberta")  # whose class has another classifier, so that no Head(pooler=True) would help
    with pytest.raises(ts.UserError, match=r"and 'roberta' has none that is one linear map .*: keep tunescope's own"):
        convert.export(
            tmp_path / "out", initialised(base, [ts.LoRA(rank=2), ts.Head()], None, 0), to="peft", model=base
        )
    for kind, hint in (("LORA", r"Merge it in peft .*"), ("PROMPT_TUNING", r"Keep it in peft\.")):
        with pytest.raises(ts.UserError, match=rf"is trained token embeddings, which has no place here\. {hint}$"):
            checked({"peft_type": kind, "trainable_token_indices": [1]})


def test_heads_that_transformers_has_not_are_not_written(tmp_path: Path) -> None:
    base = tiny.make("bert")
    for specs, told in (
        ((ts.LoRA(rank=2), ts.Head()), r"BertForSequenceClassification reads the pooler: tune Head\(pooler=True\)"),
        ((ts.Soft(length=2), ts.Head(pooler=True)), "head behind a soft prompt reads the prompt and not the text"),
        ((ts.Head(pooler=True),), "holds LoRAs, or one prefix, or soft prompts, and not head"),
    ):
        with pytest.raises(ts.UserError, match=told):
            convert.export(tmp_path / "out", initialised(base, specs, None, 0), to="peft", model=base)
