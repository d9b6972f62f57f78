"""Classification heads that peft saves beside an artifact."""

import copy
import json
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
from zoo import zoo

import tunescope as ts
from tunescope.attachment.initial_artifacts import initialised
from tunescope.exchange import convert
from tunescope.exchange.peft.config import CONFIG, TENSORS, checked
from tunescope.methods.artifact import Artifact

LABELS = 5
AUTO = {"SEQ_CLS": tf.AutoModelForSequenceClassification, "TOKEN_CLS": tf.AutoModelForTokenClassification}
TARGETS = {
    "bert": "query",
    "roberta": "query",
    "distilbert": "q_lin",
    "gpt2": "c_attn",
    "llama": "q_proj",
    "qwen2": "q_proj",
    "opt": "q_proj",
    "gpt_neox": "query_key_value",
    "gemma2": "q_proj",
}
ENCODERS = ("bert", "roberta", "distilbert")
FORMS = {
    ("bert", "SEQ_CLS"): {"pooler": True},
    ("roberta", "SEQ_CLS"): {"dense": "tanh"},
    ("distilbert", "SEQ_CLS"): {"dense": "relu"},
}
METHODS = {
    "lora": lambda: peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"]),
    "prefix": lambda: peft.PrefixTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3),
    "prompt": lambda: peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3),
    "p-tuning": lambda: peft.PromptEncoderConfig(task_type="SEQ_CLS", num_virtual_tokens=3, encoder_hidden_size=9),
}


def classifier(family: str, task: str = "SEQ_CLS", labels: int = LABELS) -> tuple[Any, Any]:
    """transformers' model with a head, and the bare one in it."""
    config = copy.deepcopy(tiny.make(family).config)
    config.num_labels = labels
    config.pad_token_id = config.pad_token_id if config.pad_token_id is not None else 0
    whole = tiny.build(AUTO[task], config)
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


def padded(base: Any, side: str) -> dict[str, Tensor]:
    """Two rows of 4 and 7 tokens, none of them padding, padded on a side with the config's own token, or whole ones."""
    ids = tiny.ids(2, 7)
    pad = base.config.pad_token_id
    ids = torch.where(ids == pad, pad + 2, ids)
    if side == "none":
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    short = torch.full((3,), pad)
    ids[0] = torch.cat([short, ids[0, :4]] if side == "left" else [ids[0, :4], short])
    return {"input_ids": ids, "attention_mask": (ids != pad).long()}


def at_text(given: dict[str, Tensor], found: Tensor) -> Tensor:
    """Of a label a token, those of the text."""
    return found[given["attention_mask"].bool()] if found.dim() == 3 else found


TASKS_OF = [(family, task) for family in TARGETS for task in AUTO if (family, task) != ("opt", "TOKEN_CLS")]


@pytest.mark.parametrize(("classes", "task"), TASKS_OF)
def test_the_head_of_every_class_gives_peft_s_logits_and_goes_back(classes: str, task: str, tmp_path: Path) -> None:
    """Saved, loaded and attached to the bare model and to transformers' own; exported, and loaded by peft again."""
    whole, base = classifier(classes, task)
    config = peft.LoraConfig(task_type=task, r=2, target_modules=[TARGETS[classes]])
    made = peftly.wrapped(whole, config)
    found = convert.read(peftly.written(made, tmp_path / "peft"), form="peft", model=base)
    token = "every" if task == "TOKEN_CLS" else "first" if classes in ENCODERS else "last"
    bias = task == "TOKEN_CLS" or classes in ENCODERS
    assert found.artifacts[-1].spec == ts.Head(
        n_labels=LABELS, **{"token": token, "bias": bias, **FORMS.get((classes, task), {})}
    )
    peftly.assert_own_memory(found.artifacts)
    artifacts = ts.load(ts.save(tmp_path / "own", found.artifacts, model=base))
    convert.export(tmp_path / "out", artifacts, to="peft", model=base)
    again = peftly.loaded(whole, tmp_path / "out")
    for side in ("none", "right", "left"):
        given = padded(base, side)
        expected = at_text(given, logits(made, given))
        torch.testing.assert_close(at_text(given, logits(again, given)), expected, rtol=0, atol=1e-12)
        if side == "left" and token == "first":
            continue  # there transformers reads what stands first, a padding: the next tests
        for model in (base, whole):
            with ts.attach(model, *artifacts):
                torch.testing.assert_close(at_text(given, logits(model, given)), expected, rtol=0, atol=1e-12)


def test_a_pooler_that_would_read_padding_is_refused_where_peft_says_nothing(tmp_path: Path) -> None:
    whole, base = classifier("bert")
    made = peftly.wrapped(whole, peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"]))
    found = convert.read(peftly.written(made, tmp_path / "peft"), form="peft", model=base)
    with ts.attach(base, *found.artifacts), pytest.raises(ts.UserError, match="first column, which is padding"):
        base(**padded(base, "left"))


def test_an_encoder_s_head_reads_the_text_where_transformers_reads_padding(tmp_path: Path) -> None:
    whole, base = classifier("roberta")  # whose positions are the text's own, padded as one likes
    made = peftly.wrapped(whole, peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"]))
    found = convert.read(peftly.written(made, tmp_path / "peft"), form="peft", model=base)
    right, left = padded(base, "right"), padded(base, "left")
    with ts.attach(base, *found.artifacts):
        got = logits(base, left)
    torch.testing.assert_close(got, logits(made, right), rtol=0, atol=1e-12)
    assert (logits(made, left) - logits(made, right)).abs().max() > 0.1


def test_a_decoder_s_head_reads_the_last_token_that_is_not_the_config_s_padding(tmp_path: Path) -> None:
    """A text's end that the mask has and that is the padding's id is passed over by transformers, and here."""
    whole, base = classifier("llama")
    made = peftly.wrapped(whole, peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["q_proj"]))
    found = convert.read(peftly.written(made, tmp_path / "peft"), form="peft", model=base)
    given = padded(base, "right")
    given["attention_mask"][0, 4] = 1
    expected = logits(made, given)
    with ts.attach(base, *found.artifacts):
        torch.testing.assert_close(logits(base, given), expected, rtol=0, atol=1e-12)
        base.config.pad_token_id = None
        by_mask = logits(base, given)
        assert (by_mask[0] - expected[0]).abs().max() > 1e-3
        alone = logits(base, {"input_ids": given["input_ids"][1:]})[0]
        torch.testing.assert_close(by_mask[1], alone, rtol=0, atol=1e-12)
    assert (
        "the base's config has no pad_token_id: the head reads the last token"
        in convert.read(tmp_path / "peft", form="peft", model=base).notes[-1]
    )


def test_bert_s_own_pooler_is_part_of_the_head_where_it_was_trained(tmp_path: Path) -> None:
    whole, base = classifier("bert")
    for name, fields in (
        ("whole", {"modules_to_save": ["pooler"]}),
        ("bias", {"bias": "all"}),
        ("lora", {"target_modules": "all-linear", "rank_pattern": {"pooler.dense": 3}}),
        ("lora and all biases", {"target_modules": "all-linear", "bias": "all"}),
        ("lora and its biases", {"target_modules": "all-linear", "bias": "lora_only"}),
    ):
        config = peft.LoraConfig(task_type="SEQ_CLS", r=2, **({"target_modules": ["query"]} | fields))
        made = peftly.wrapped(whole, config)
        found = convert.read(peftly.written(made, tmp_path / name), form="peft", model=base)
        assert found.artifacts[-1].spec == ts.Head(n_labels=LABELS, dense="tanh")
        given = padded(base, "right")
        for model in (base, whole):
            with ts.attach(model, *found.artifacts):
                torch.testing.assert_close(logits(model, given), logits(made, given), rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "electra"])
def test_biases_of_a_head_of_several_maps_which_peft_saves_three_times_are_read_once(
    family: str, tmp_path: Path
) -> None:
    whole = tiny.build(AUTO["SEQ_CLS"], copy.deepcopy((tiny.make if family == "roberta" else zoo)(family).config))
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"], bias="all")
    made = peftly.wrapped(whole, config)
    folder = peftly.written(made, tmp_path / "peft")
    assert "base_model.model.classifier.original_module.dense.bias" in load_file(folder / TENSORS)
    found = convert.read(folder, form="peft", model=whole.base_model)
    given = padded(whole.base_model, "right")
    for model in (whole.base_model, whole):
        with ts.attach(model, *found.artifacts):
            torch.testing.assert_close(logits(model, given), logits(made, given), rtol=0, atol=1e-12)


def test_a_reward_model_s_single_score_is_a_head(tmp_path: Path) -> None:
    whole, base = classifier("llama", labels=1)
    made = peftly.wrapped(whole, peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["q_proj"]))
    found = convert.read(peftly.written(made, tmp_path / "peft"), form="peft", model=base)
    given = padded(base, "left")
    with ts.attach(base, *found.artifacts):
        torch.testing.assert_close(logits(base, given), logits(made, given), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("family", "task"), [("llama", "SEQ_CLS"), ("roberta", "SEQ_CLS"), ("gpt2", "TOKEN_CLS")])
def test_in_a_bank_each_row_has_its_own_head(family: str, task: str, tmp_path: Path) -> None:
    whole, base = classifier(family, task)
    made, bank = {}, ts.Bank()
    for seed, name in enumerate(("anna", "ben")):
        config = peft.LoraConfig(task_type=task, r=2 + seed, target_modules=[TARGETS[family]])
        made[name] = peftly.wrapped(whole, config, seed=seed)
        folder = peftly.written(made[name], tmp_path / name)
        bank.add(name, convert.read(folder, form="peft", model=base).artifacts)
    given = padded(base, "right")
    with ts.attach(base, bank) as tuned, peftly.quiet(), torch.no_grad(), tiny.Float64():
        got = tuned.model(**given, rows=["ben", "anna"]).logits
    expected = torch.stack([logits(made["ben"], given)[0], logits(made["anna"], given)[1]])
    torch.testing.assert_close(at_text(given, got), at_text(given, expected), rtol=0, atol=1e-12)


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


def test_what_is_written_whole_beside_a_head_is_in_the_file_too(tmp_path: Path) -> None:
    whole, base = classifier("llama")
    arm = f"lora:rank=2+full:only=norm.weight+head:n_labels={LABELS},token=last,bias=False"
    artifacts = tiny.away(base, arm)
    convert.export(tmp_path / "out", artifacts, to="peft", model=base)
    assert json.loads((tmp_path / "out" / CONFIG).read_text())["modules_to_save"] == ["model.norm", "score"]
    given = padded(base, "right")
    with ts.attach(base, *artifacts):
        expected = logits(base, given)
    torch.testing.assert_close(logits(peftly.loaded(whole, tmp_path / "out"), given), expected, rtol=0, atol=1e-12)


def test_a_model_s_own_head_is_told_not_to_be_in_the_file(tmp_path: Path) -> None:
    whole, base = classifier("bert")
    for index, model in enumerate((whole, base)):
        lora = initialised(model, [ts.LoRA(rank=2)], None, 0)
        done = convert.export(tmp_path / str(index), lora, to="peft", model=model)
        told = ["the head of BertForSequenceClassification is not in the file" in note for note in done.notes]
        assert any(told) is (model is whole)


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
    for method in ("prompt", "p-tuning"):
        folder = peftly.written(peftly.wrapped(whole, METHODS[method]()), tmp_path / method)
        with pytest.raises(ts.UserError, match=r"behind a soft prompt, where peft's head reads the prompt's first row"):
            convert.read(folder, form="peft", model=base)
    folder = peftly.written(peftly.wrapped(whole, METHODS["lora"]()), tmp_path / "answers", task_type="QUESTION_ANS")
    with pytest.raises(ts.UserError, match=r"for the task 'QUESTION_ANS'; a head here classifies whole texts \(SEQ_C"):
        convert.read(folder, form="peft", model=base)
    whole, base = classifier("gpt2")
    folder = peftly.written(peftly.wrapped(whole, METHODS["prompt"]()), tmp_path / "decoder")
    with pytest.raises(ts.UserError, match=r"where peft's head reads the last position, be it padding, and not the"):
        convert.read(folder, form="peft", model=base)
    base = zoo("modernbert")
    config = copy.deepcopy(base.config)
    config.num_labels = LABELS
    whole = tiny.build(tf.AutoModelForSequenceClassification, config)
    saved = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["Wqkv"], modules_to_save=["head"])
    folder = peftly.written(peftly.wrapped(whole, saved), tmp_path / "modernbert")
    with pytest.raises(
        ts.UserError, match=r"'modernbert' has a class for SEQ_CLS that is no linear map, or two, of the"
    ):
        convert.read(folder, form="peft", model=whole.base_model)


def test_a_family_without_a_file_has_the_head_that_its_class_has(tmp_path: Path) -> None:
    config = copy.deepcopy(zoo("deberta-v2").config)
    config.num_labels = LABELS
    whole = tiny.build(tf.AutoModelForSequenceClassification, config)
    base = whole.base_model
    for saved, told in (
        (["pooler"], None),
        (None, r"lacks pooler.dense.bias.*modules_to_save=\['classifier', 'pooler'\]"),
    ):
        fields = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query_proj"], modules_to_save=saved)
        made = peftly.wrapped(whole, fields)
        folder = peftly.written(made, tmp_path / str(saved))
        if told is not None:
            with pytest.raises(ts.UserError, match=told):
                convert.read(folder, form="peft", model=base)
            continue
        found = convert.read(folder, form="peft", model=base)
        assert found.artifacts[-1].spec == ts.Head(n_labels=LABELS, dense="gelu")
        given = padded(base, "right")
        with ts.attach(base, *found.artifacts):
            torch.testing.assert_close(logits(base, given), logits(made, given), rtol=0, atol=1e-12)


def test_a_head_that_was_not_saved_in_whole_is_refused(tmp_path: Path) -> None:
    whole, base = classifier("distilbert")
    made = peftly.wrapped(whole, peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["q_lin"]))
    folder = peftly.written(made, tmp_path / "peft")
    dense = {f"base_model.model.pre_classifier.{part}": None for part in ("weight", "bias")}
    peftly.retensored(folder, dense)
    with pytest.raises(
        ts.UserError, match=r"lacks pre_classifier.bias, pre_classifier.weight: what is not saved was dra"
    ):
        convert.read(folder, form="peft", model=base)
    peftly.written(made, tmp_path / "more")
    peftly.retensored(tmp_path / "more", {"base_model.model.score.bias": torch.ones(24)})
    with pytest.raises(ts.UserError, match=r"has score.bias, which AutoModelForSequenceClassification has not in this"):
        convert.read(tmp_path / "more", form="peft", model=base)
    whole, base = classifier("bart")  # its head is a classification_head, of which peft saves nothing unasked
    made = peftly.wrapped(whole, peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["q_proj"]))
    with pytest.raises(
        ts.UserError, match=r"has no head for SEQ_CLS: the file was cut, or peft found none of the name"
    ):
        convert.read(peftly.written(made, tmp_path / "bart"), form="peft", model=base)


def test_a_refusal_tells_of_its_own_case(tmp_path: Path) -> None:
    base = tiny.make("roberta")
    with pytest.raises(
        ts.UserError, match=r"SequenceClassification of family 'roberta' has Head\(.*dense='tanh'.*: tune t"
    ):
        convert.export(
            tmp_path / "out", initialised(base, [ts.LoRA(rank=2), ts.Head()], None, 0), to="peft", model=base
        )
    for kind, hint in (("LORA", r"Merge it in peft .*"), ("PROMPT_TUNING", r"Keep it in peft\.")):
        with pytest.raises(
            ts.UserError, match=rf"is Arrow, a router of several LoRAs, which has no place here\. {hint}$"
        ):
            checked({"peft_type": kind, "arrow_config": {"a": 1}})


def test_heads_that_transformers_has_not_are_not_written(tmp_path: Path) -> None:
    base = tiny.make("bert")
    for specs, told in (
        ((ts.LoRA(rank=2), ts.Head()), r"SequenceClassification of family 'bert' has Head\(n_labels=2, pooler=True"),
        ((ts.Soft(length=2), ts.Head(pooler=True)), "head behind a soft prompt reads the prompt and not the text"),
        ((ts.Head(pooler=True),), "holds LoRAs, or one prefix, or soft prompts, and not head"),
    ):
        with pytest.raises(ts.UserError, match=told):
            convert.export(tmp_path / "out", initialised(base, specs, None, 0), to="peft", model=base)
