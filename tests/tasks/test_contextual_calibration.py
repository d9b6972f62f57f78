"""Contextual calibration, against the formula written out with plain forwards of transformers."""

import masked
import pytest
import task_tools
import tiny
import torch
from zoo import zoo

import tunescope as ts
from tunescope.tasks.answers.calibration import calibrated
from tunescope.tasks.kinds.classification import Classification

TEXTS = ["the cast", "is good", "not", "bad at all", "a", "in every way the greatest film", "terrible!", "0 1 2"]
ROWS = [{"text": text, "label": label} for text, label in zip(TEXTS, "abab" * 2, strict=True)]
CODED = [{"text": f"w{row + 10}", "label": ["w7", "w8"][row % 2]} for row in range(4)]
TASK = Classification(template="{text}\nLabel:", words={"a": "marvellous", "b": "horrid"})


def log_probability(model, prompt, word):
    """log p(word | prompt), token by token."""
    total = 0.0
    for at in range(len(word)):
        logits = model(input_ids=torch.tensor([[*prompt, *word[:at]]])).logits[0, -1]
        total += float(logits.log_softmax(-1)[word[at]])
    return total


def shares(model, tokenizer, text):
    """(labels,): p of each label's whole word behind the filled template, normalised over the labels."""
    prompt = tokenizer(f"{text}\nLabel:")["input_ids"]
    words = [tokenizer(f" {word}", add_special_tokens=False)["input_ids"] for word in ("marvellous", "horrid")]
    return torch.tensor([log_probability(model, prompt, word) for word in words], dtype=torch.float64).softmax(-1)


@torch.no_grad()
def test_answers_are_divided_by_the_mean_share_that_each_label_has_for_inputs_without_content():
    tokenizer = task_tools.byte_level()
    model = task_tools.model("gpt2", vocabulary=len(tokenizer), seed=1)
    task = TASK.prepare({"train": ROWS}, tokenizer, model_kind="decoder")
    assert {len(ids) for ids in task.word_ids(tokenizer, "decoder").values()} != {1}  # whole words, not first tokens

    found = calibrated(task, model, tokenizer, model_kind="decoder")

    prior = torch.stack([shares(model, tokenizer, text) for text in ("N/A", "", "[MASK]")]).mean(0)
    torch.testing.assert_close(torch.tensor(list(found.prior.values()), dtype=torch.float64), prior, rtol=1e-7, atol=0)
    asked = found.encode(ROWS, tokenizer, model_kind="decoder")
    expected = ["ab"[int((shares(model, tokenizer, row["text"]) / prior).argmax())] for row in ROWS]
    plain = [one.text for one in task.predict(model, asked, tokenizer)]
    assert [one.text for one in found.predict(model, asked, tokenizer)] == expected != plain
    assert found.describe()["prior"] == found.prior
    assert "prior" not in task.describe()


@torch.no_grad()
def test_in_a_recurrent_decoder_the_inputs_without_content_are_read_one_by_one():
    tokenizer, model = tiny.tokenizer(), zoo("rwkv")
    task = Classification(template="w9 {text} w9").prepare({"train": CODED}, tokenizer, model_kind="decoder")
    asked = [tokenizer(f"w9 {text} w9")["input_ids"] for text in ("N/A", "", "[MASK]")]
    assert len({len(ids) for ids in asked}) == 2
    logits = torch.stack([model(input_ids=torch.tensor([ids])).logits[0, -1, [7, 8]] for ids in asked])

    found = calibrated(task, model, tokenizer, model_kind="decoder")

    prior = logits.double().softmax(-1).mean(0)
    torch.testing.assert_close(torch.tensor(list(found.prior.values()), dtype=torch.float64), prior, rtol=1e-9, atol=0)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bert", "roberta", "t5"])
def test_at_a_mask_the_prior_is_that_of_the_logits_there_also_where_the_text_is_a_mask(name):
    model, tokenizer = masked.make(name)
    task = Classification(template="{text} it was {mask}.", words={"a": "great", "b": "bad"})
    found = calibrated(task, model, tokenizer, model_kind="encoder-decoder" if name == "t5" else "encoder")
    mark = "<extra_id_0>" if name == "t5" else tokenizer.mask_token
    words = [tokenizer(f"it was {word}", add_special_tokens=False)["input_ids"][-1] for word in ("great", "bad")]
    shares = []
    for text in ("N/A", "", "[MASK]"):
        ids = tokenizer(f"{text} it was {mark}.", return_tensors="pt")["input_ids"]
        sentinel = tokenizer.convert_tokens_to_ids(mark)
        if name == "t5":
            logits = model(input_ids=ids, decoder_input_ids=torch.tensor([[0, sentinel]])).logits[0, -1]
        else:
            logits = model(input_ids=ids).logits[0, int((ids[0] == sentinel).nonzero()[-1])]
        shares.append(logits[words].double().softmax(-1))
    prior = torch.stack(shares).mean(0)
    torch.testing.assert_close(torch.tensor(list(found.prior.values()), dtype=torch.float64), prior, rtol=1e-9, atol=0)


def test_a_template_without_words_and_a_head_cannot_be_calibrated():
    tokenizer = task_tools.byte_level()
    model = task_tools.model("gpt2", vocabulary=len(tokenizer))
    bare = Classification(template="{text}", words={"a": "great", "b": "bad"})
    with pytest.raises(ts.UserError, match=r"asks with empty fields, and template '{text}' is then empty. Put words"):
        calibrated(bare, model, tokenizer, model_kind="decoder")
    head = Classification(template="{text}", words={"a": "great", "b": "bad"}, by="head")
    with pytest.raises(ts.UserError, match="divides probabilities of label words, and this task is answered by a head"):
        calibrated(head, model, tokenizer, model_kind="encoder")


@pytest.mark.parametrize(
    "settings", [{"prior": {"a": 0.5}}, {"prior": {"a": 0.5, "b": 0.0}}, {"prior": {"a": 0.5, "b": 0.5}, "by": "head"}]
)
def test_a_prior_must_be_one_of_the_label_words(settings):
    with pytest.raises(ts.UserError, match="a prior is a number above 0 for each label word, of a, b; a head has none"):
        Classification(words={"a": "x", "b": "y"}, **settings)
