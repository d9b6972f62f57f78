"""The tasks on models with artifacts attached, and on a pretrained tokenizer."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from task_tools import model

import tunescope as ts
from tunescope.tasks.answers.likelihood import target_loss, word_scores
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.prompts.label_words import word_tokens
from tunescope.tasks.task import Encoded

TOKENIZER = SimpleNamespace(pad_token_id=0, eos_token_id=2)
PROMPTS = [(5, 17, 23, 8, 61), (90,), (3, 4, 5, 6, 7, 8, 9), (11, 12)]
WORDS = [(7, 8, 9), (13,), (7, 21), (40, 41, 42, 43, 44)]
SPECS = {
    "prefix": lambda: ts.Prefix(length=3),
    "soft": lambda: ts.Soft(length=3),
    "infix": lambda: ts.Infix(length=2),
    "lora": lambda: ts.LoRA(rank=2),
}
STORIES = Path(__file__).parents[3] / "shared/models/stories260K"


def alone(network, prompt, word, wants):
    """One row, no padding, no cache."""
    if network.config.is_encoder_decoder:
        start = [network.config.decoder_start_token_id, *word[:-1]]
        given = {"input_ids": torch.tensor([prompt]), "decoder_input_ids": torch.tensor([start])}
    else:
        given = {"input_ids": torch.tensor([prompt + word])}
        given |= {"output_start": torch.tensor([len(prompt) - 1])} if wants else {}
    logits = network(**given, use_cache=False).logits[0, -len(word) - (not network.config.is_encoder_decoder) :]
    return logits[: len(word)].log_softmax(-1)[torch.arange(len(word)), list(word)]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
def test_scores_and_loss_with_an_artifact_equal_each_sequence_alone(name, spec):
    if (name, spec) == ("t5", "infix"):
        pytest.skip("an infix is for decoders")
    network = model(name)
    with ts.attach(network, SPECS[spec](), tokenizer=None, seed=0) as tuned, torch.no_grad():
        for leaf in tuned.parameters():
            leaf.add_(0.3 * torch.randn(leaf.shape, generator=torch.Generator().manual_seed(1)))
        tokens = [[alone(network, p, w, tuned.wants_output_start) for w in WORDS] for p in PROMPTS]
        expected = torch.stack([torch.stack([one.sum() for one in row]) for row in tokens])
        got = word_scores(network, PROMPTS, WORDS, TOKENIZER)
        rows = [Encoded(1, p, w, 0, (), "") for p, w in zip(PROMPTS, WORDS, strict=True)]
        loss = target_loss(network, rows, TOKENIZER)
    without = word_scores(network, PROMPTS, WORDS, TOKENIZER)
    assert (without - expected).abs().min() > 1e-4
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)  # artifacts are float32
    mean = -torch.cat([tokens[i][i] for i in range(4)]).mean()
    torch.testing.assert_close(loss, mean, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def stories():
    if not STORIES.exists():
        pytest.skip(f"no {STORIES.name} beside the project")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    network = AutoModelForCausalLM.from_pretrained(STORIES, dtype=torch.float64)
    return network, AutoTokenizer.from_pretrained(STORIES)


def test_a_pretrained_model_is_asked_for_words_as_it_would_read_them(stories):
    network, tokenizer = stories
    words = {"happy": "happy", "sad": "very sad"}
    rows = [{"text": "The dog ran to the park.", "label": "happy"}, {"text": "He lost his toy", "label": "sad"}]
    task = Classification(words=words, template="{text} He was").prepare(
        {"train": rows}, tokenizer, model_kind="decoder"
    )
    items = task.encode(rows, tokenizer, model_kind="decoder")
    tokens = word_tokens(tokenizer, task.template, words, "decoder")
    got = word_scores(network, [item.input_ids for item in items], list(tokens.values()), tokenizer)
    for row, scores in zip(rows, got, strict=True):
        head = tokenizer(f"{row['text']} He was")["input_ids"]
        for word, score in zip(words.values(), scores, strict=True):
            whole = tokenizer(f"{row['text']} He was {word}", return_tensors="pt")["input_ids"]
            assert whole[0, : len(head)].tolist() == head
            with torch.no_grad():
                logits = network(input_ids=whole).logits[0, len(head) - 1 : -1].log_softmax(-1)
            expected = logits.gather(1, whole[0, len(head) :, None]).sum()
            torch.testing.assert_close(score, expected, rtol=0, atol=1e-9)


def test_a_pretrained_model_writes_what_transformers_lets_it_write_alone(stories):
    network, tokenizer = stories
    rows = [{"input": text, "target": "x"} for text in ("Once upon a time", "Lily", "The big dog and the cat")]
    task = Generation(template="{input}", max_new_tokens=20)
    items = task.encode(rows, tokenizer, model_kind="decoder")
    got = [p.text for p in task.predict(network, items, tokenizer)]
    for row, text in zip(rows, got, strict=True):
        given = tokenizer(row["input"], return_tensors="pt")
        out = network.generate(**given, max_new_tokens=20, do_sample=False, pad_token_id=2)
        answer = out[0, given["input_ids"].shape[1] :]
        assert text == tokenizer.decode(answer, skip_special_tokens=True).strip()
