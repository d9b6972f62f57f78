from functools import partial
from types import SimpleNamespace

import pytest
import tiny
import torch
from task_tools import model
from torch.nn import functional as F
from transformers import AutoModelForCausalLM
from zoo import ZOO, zoo

from tunescope.errors import UserError
from tunescope.tasks.answers import batch_trial, choices
from tunescope.tasks.answers.likelihood import decoder_start, head_loss, shifted_right, target_loss, word_scores
from tunescope.tasks.task import Encoded

TOKENIZER = SimpleNamespace(pad_token_id=None, eos_token_id=2)
PROMPTS = [(5, 17, 23, 8, 61), (90,), (3, 4, 5, 6, 7, 8, 9), (11, 12)]
WORDS = {
    "several tokens": [(7, 8, 9), (13,), (7, 21), (40, 41, 42, 43, 44)],
    "one token each": [(7,), (13,), (96,)],
}
SEQUENCE = ["gpt2", "llama", "mistral", "t5", "bart"]
# Families without a file: the first four read a row that is padded on the left otherwise than alone, with or without a
# cache, and all but Llama 4 and Bloom have a cache that cannot be repeated, or none.
UNLISTED = ["rwkv", "recurrent_gemma", "llama4_text", "minimax", "falcon_h1", "mamba", "openai-gpt", "bloom"]


@pytest.fixture(scope="module")
def made():
    models = {}
    return lambda name: models.setdefault(name, model(name))


def first_token(model):
    return model.config.decoder_start_token_id if model.config.is_encoder_decoder else None


def alone(model, prompt, word):
    """(word,) log-probabilities of one word's tokens: one row, no padding, no cache."""
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            start = [model.config.decoder_start_token_id]
            out = model(
                input_ids=torch.tensor([prompt]),
                decoder_input_ids=torch.tensor([start + list(word[:-1])]),
                use_cache=False,
            )
            logits = out.logits[0]
        else:
            out = model(input_ids=torch.tensor([prompt + word]), use_cache=False)
            logits = out.logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1)[torch.arange(len(word)), list(word)]


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("name", SEQUENCE)
def test_word_scores_equal_each_whole_sequence_scored_alone(made, name, words):
    network = made(name)
    expected = torch.stack([torch.stack([alone(network, p, w).sum() for w in words]) for p in PROMPTS])
    got = word_scores(network, PROMPTS, words, TOKENIZER)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
    rows = [Encoded(1, p, (), None, (), "") for p in PROMPTS]
    for batch_size in (1, 3, 32):
        assert (
            choices.label_scores(network, rows, words, TOKENIZER, batch_size).argmax(-1).tolist()
            == expected.argmax(-1).tolist()
        )


@pytest.mark.parametrize("name", UNLISTED)
def test_in_every_decoder_a_word_scores_as_its_whole_row_does_alone_whatever_else_is_in_the_batch(name):
    network = zoo(name)
    rows = [Encoded(1, p, (), None, (), "") for p in [*PROMPTS, (30, 31)]]  # two of one length
    for words in WORDS.values():
        expected = torch.stack([torch.stack([alone(network, row.input_ids, w).sum() for w in words]) for row in rows])
        got = choices.all_scores(network, rows, words, TOKENIZER, len(rows))
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)  # Mamba computes in float32 in parts


def calls(network, ask):
    """How often the model is called."""
    seen = []
    handle = network.register_forward_hook(lambda *_: seen.append(None))
    ask()
    handle.remove()
    return len(seen)


@pytest.mark.parametrize("name", SEQUENCE)
def test_a_family_that_has_a_file_is_not_tried_and_takes_one_more_pass_for_longer_words(made, name):
    rows = [Encoded(1, p, (), None, (), "") for p in PROMPTS]
    for words, passes in zip(WORDS.values(), (2, 1), strict=True):
        ask = partial(choices.all_scores, made(name), rows, words, TOKENIZER)
        assert calls(made(name), ask) == passes


def test_a_decoder_is_tried_once_and_again_for_longer_rows_alone():
    network = zoo("llama4_text").train()
    for layer in network.model.layers:
        layer.self_attn.floor_scale = 16  # from so many tokens on its attention counts columns
    settings, answers, tries = network.generation_config, [], []

    def ask(lengths, batch_size):
        answers.append(batch_trial.takes_left_padding(network, lengths, batch_size))

    for lengths, batch_size in (([7, 7], 4), ([7, 1], 1), ([7, 1], 4), ([6, 2], 4), ([24, 1], 4), ([7, 1], 4)):
        tries.append(calls(network, partial(ask, lengths, batch_size)) > 0)
    assert answers == [True, True, True, True, False, False]
    assert tries == [False, False, True, False, True, False]
    assert network.training and network.generation_config is settings


@pytest.mark.parametrize(("name", "field"), [("doge", "keep_window_size"), ("deepseek_v32", "index_topk")])
def test_rows_longer_than_the_keys_that_a_layer_chooses_are_not_padded_and_shorter_ones_are(name, field):
    """Of keys that are worth the same those are chosen that stand in some columns."""
    config = ZOO[name]()
    setattr(config, field, 12)
    network = tiny.build(AutoModelForCausalLM, config)
    assert batch_trial.takes_left_padding(network, [7, 2], 4)
    draw = torch.Generator().manual_seed(0)
    prompts = [tuple(torch.randint(5, 20, (size,), generator=draw).tolist()) for size in (30, 9, 14, 22, 11)]
    rows, words = [Encoded(1, prompt, (), None, (), "") for prompt in prompts], WORDS["one token each"]
    with torch.no_grad():
        logits = torch.stack([network(input_ids=torch.tensor([prompt])).logits[0, -1] for prompt in prompts])
    expected = logits.log_softmax(-1)[:, [word[0] for word in words]]
    got = choices.all_scores(network, rows, words, TOKENIZER, len(rows))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("window", [5, 12])
def test_rows_of_few_words_and_of_many_each_show_what_the_other_does_not(window):
    """Doge's ties of keys: with a small window rows of few words are read otherwise, with a larger one varied rows."""
    config = ZOO["doge"]()
    config.keep_window_size = window
    network = tiny.build(AutoModelForCausalLM, config)
    size, token = 16, tiny.VOCAB // 2
    row = [token + place % 5 for place in range(size * 3 // 4)]
    if window == 12:
        row = [token // 2 + place * (place + 3) % token for place in range(size - 1)]
    pad = size - len(row)
    ids = torch.tensor([[token] * pad + row, [token] * size])
    mask = torch.tensor([[0] * pad + [1] * len(row), [1] * size])
    with torch.no_grad():
        padded = network(input_ids=ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(0)).logits[0, -1]
        alone = network(input_ids=ids[:1, pad:]).logits[0, -1]
    assert (padded - alone).abs().mean() > 1e-2
    assert not batch_trial.takes_left_padding(network, [size, 2], 4)


@pytest.mark.parametrize("name", ["mixtral", "jamba", "bloom", "mamba"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_is_no_difference(name, dtype):
    assert batch_trial.takes_left_padding(zoo(name, dtype=dtype), [7, 1], 4)


@pytest.mark.parametrize("given_start", [True, False])
@pytest.mark.parametrize("name", SEQUENCE)
def test_the_loss_is_the_mean_over_the_target_tokens_of_all_rows(made, name, given_start):
    network, targets = made(name), [(7, 8, 9), (13,), (7, 21), (40, 41, 42, 43, 44)]
    rows = [Encoded(1, p, t, 0, (), "") for p, t in zip(PROMPTS, targets, strict=True)]
    expected = -torch.cat([alone(network, p, t) for p, t in zip(PROMPTS, targets, strict=True)]).mean()
    start = first_token(network) if given_start else None
    got = target_loss(network, rows, TOKENIZER, start=start)
    torch.testing.assert_close(got.detach(), expected, rtol=0, atol=1e-10)
    assert got.requires_grad


@pytest.mark.parametrize("name", SEQUENCE)
def test_the_gradient_is_that_of_the_rows_alone(made, name):
    network = made(name)
    rows = [Encoded(1, p, t, 0, (), "") for p, t in zip(PROMPTS[:2], [(7, 8, 9), (13,)], strict=True)]
    weight = network.get_input_embeddings().weight
    start = first_token(network)
    losses = [target_loss(network, [row], TOKENIZER, start=start) for row in rows]
    [expected] = torch.autograd.grad((3 * losses[0] + losses[1]) / 4, weight)
    [got] = torch.autograd.grad(target_loss(network, rows, TOKENIZER, start=start), weight)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


def test_the_head_sees_each_row_as_if_it_were_alone(made):
    network = made("bert")
    rows = [Encoded(1, p, (), label, (), "") for p, label in zip(PROMPTS, [2, 0, 1, 1], strict=True)]
    with torch.no_grad():
        logits = torch.cat([network(input_ids=torch.tensor([p])).logits for p in PROMPTS])
    expected = F.cross_entropy(logits, torch.tensor([2, 0, 1, 1]))
    torch.testing.assert_close(head_loss(network, rows, TOKENIZER).detach(), expected, rtol=0, atol=1e-10)
    assert choices.label_scores(network, rows, [], TOKENIZER, 3).argmax(-1).tolist() == logits.argmax(-1).tolist()


def test_scoring_leaves_every_module_in_its_mode_and_runs_without_dropout(made):
    network = model("gpt2")
    expected = word_scores(network, PROMPTS, WORDS["several tokens"], TOKENIZER)
    network.train()
    network.transformer.h[0].eval()
    before = {name: module.training for name, module in network.named_modules()}
    got = word_scores(network, PROMPTS, WORDS["several tokens"], TOKENIZER)
    assert torch.equal(got, expected)
    assert not got.requires_grad
    assert {name: module.training for name, module in network.named_modules()} == before


def test_the_start_of_the_output_is_told_only_to_a_model_that_asks(monkeypatch):
    network, seen = model("gpt2"), []
    network.register_forward_pre_hook(
        lambda module, args, given: seen.append(given.pop("output_start", None)), with_kwargs=True
    )
    rows = [Encoded(1, p, (7, 8), 0, (), "") for p in PROMPTS]
    target_loss(network, rows, TOKENIZER)
    assert seen == [None]
    monkeypatch.setitem(network.__dict__, "_tunescope_wants_output_start", True)
    expected = target_loss(network, rows, TOKENIZER)
    assert seen.pop().tolist() == [4, 0, 6, 1]  # the prompts' last tokens, padded on the right
    word_scores(network, PROMPTS, [(7,), (8,)], TOKENIZER)
    assert seen.pop().tolist() == [6, 6, 6, 6]  # padded on the left
    assert expected.isfinite()


def test_a_decoder_without_a_first_token_is_refused():
    with pytest.raises(UserError) as caught:
        decoder_start(model("mbart"))
    assert str(caught.value) == (
        "MBartForConditionalGeneration has no decoder_start_token_id, which label words need. "
        "Type: model.config.decoder_start_token_id = ID"
    )


def test_where_a_family_shifts_no_labels_what_is_no_target_is_read_as_padding():
    family = SimpleNamespace(config=SimpleNamespace(decoder_start_token_id=2))
    labels = torch.tensor([[7, 8, 9], [5, -100, -100]])
    assert shifted_right(family, labels, 1).tolist() == [[2, 7, 8], [2, 5, 1]]
