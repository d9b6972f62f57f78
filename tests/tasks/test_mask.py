"""Answers at a mask: BERT, RoBERTa and DistilBERT fill it with a word, T5 as its first sentinel."""

from dataclasses import replace
from types import SimpleNamespace

import masked
import pytest
import task_tools
import torch
import transformers as tf
from torch.nn import functional as F

from tunescope.data.row import Row
from tunescope.errors import UserError
from tunescope.models.anatomy import kind
from tunescope.tasks.answers.likelihood import first_token_scores, target_loss
from tunescope.tasks.answers.masked import mask_logits
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.prompts.mask import halves
from tunescope.tasks.task import Encoded

ENCODERS = ["bert", "roberta", "distilbert"]
WORDS = {"neg": "terrible", "odd": "dull", "pos": "great"}
TRAIN = [
    Row({"text": text, "label": label, "more": more}, "train.csv", line)
    for line, (text, label, more) in enumerate(
        [
            ("the film is great and the cast is good", "pos", "a"),
            ("bad", "neg", "the plot"),
            ("not in every way", "odd", "it"),
            ("the plot", "neg", "news"),
        ],
        start=2,
    )
]
TEMPLATES = ["{text} it was {mask}.", "{mask} news: {text}", "{more} is {mask}, {text}", "{text}({mask})"]


@pytest.fixture(scope="module")
def made():
    found = {}
    return lambda name: found.setdefault(name, masked.make(name))


def prepared(tokenizer, model_kind="encoder", **fields):
    fields = {"words": WORDS, "template": TEMPLATES[0]} | fields
    return Classification(**fields).prepare({"train": TRAIN}, tokenizer, model_kind=model_kind)


def words_ids(name, tokenizer, template):
    """A word's one token, by the tokenizer's own way at that place: behind a space or not."""
    space = " " if name == "roberta" and template.partition("{mask}")[0].endswith(" ") else ""
    return [tokenizer(space + word, add_special_tokens=False)["input_ids"] for word in WORDS.values()]


def oracle(name, network, tokenizer, template):
    """(rows, words) logits of transformers' own model, one row at a time, the template filled as a Python format."""
    words = [only for (only,) in words_ids(name, tokenizer, template)]
    scores = []
    for row in TRAIN:
        given = tokenizer(template.format(mask=tokenizer.mask_token, **row), return_tensors="pt")
        at = (given["input_ids"][0] == tokenizer.mask_token_id).nonzero().item()
        logits = network(input_ids=given["input_ids"], attention_mask=given["attention_mask"]).logits
        scores.append(logits[0, at, words])
    return torch.stack(scores)


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("name", ENCODERS)
def test_the_answer_is_the_label_word_of_highest_logit_at_the_mask(made, name, template):
    network, tokenizer = made(name)
    task = prepared(tokenizer, template=template)
    with torch.no_grad():
        expected = oracle(name, network, tokenizer, template)
    items = task.encode(TRAIN, tokenizer, model_kind="encoder")
    got = task.predict(network, items, tokenizer, batch_size=3)
    assert [int(one.stats[2]) for one in got] == expected.argmax(-1).tolist()
    tokens = [only for (only,) in words_ids(name, tokenizer, template)]
    whole = first_token_scores(network, items, tokenizer)
    torch.testing.assert_close(whole[:, tokens].log_softmax(-1), expected.log_softmax(-1), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ENCODERS)
def test_the_loss_is_the_cross_entropy_over_the_label_words_alone(made, name):
    network, tokenizer = made(name)
    task = prepared(tokenizer)
    logits = oracle(name, network, tokenizer, TEMPLATES[0])
    labels = [list(WORDS).index(row["label"]) for row in TRAIN]
    literal = -sum(
        torch.log(torch.exp(logits[row, label]) / sum(torch.exp(logits[row, word]) for word in range(3)))
        for row, label in enumerate(labels)
    ) / len(TRAIN)  # Gao et al. 2021, equation 1
    got = task.loss(network, task.encode(TRAIN, tokenizer, model_kind="encoder", train=True), tokenizer)
    torch.testing.assert_close(got, literal, rtol=0, atol=1e-10)
    weight = network.get_input_embeddings().weight
    for one, other in zip(torch.autograd.grad(got, [weight]), torch.autograd.grad(literal, [weight]), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ENCODERS)
def test_cutting_takes_from_the_text_and_never_the_mask(made, name):
    _, tokenizer = made(name)
    for template in TEMPLATES[:2]:
        task = prepared(tokenizer, template=template)
        whole = task.encode(TRAIN, tokenizer, model_kind="encoder")
        room = len(whole[1].input_ids)  # of the shortest row
        for item in task.encode(TRAIN, tokenizer, model_kind="encoder", room=room):
            assert len(item.input_ids) <= room
            assert item.input_ids[item.slot] == tokenizer.mask_token_id
        assert any(item.cut for item in task.encode(TRAIN, tokenizer, model_kind="encoder", room=room))


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("room", [None, 9])  # 9: three tokens of the text, one of its masks with them
def test_a_mask_token_in_the_row_s_own_text_is_not_the_answer_s(made, name, room):
    _, tokenizer = made(name)
    mark = tokenizer.mask_token
    row = {"text": f"a {mark} film {mark} and the plot was good", "label": "pos", "more": mark}
    task = Classification(words=WORDS, template="{more} was {mask} in {text}")
    [item] = task.encode([row], tokenizer, model_kind="encoder", room=room)
    masks = [at for at, token in enumerate(item.input_ids) if token == tokenizer.mask_token_id]
    assert item.slot == masks[1]
    task = replace(task, template="{text} it was {mask}.")
    [item] = task.encode([row], tokenizer, model_kind="encoder", room=room)
    assert bool(item.cut) == (room is not None)
    assert item.slot == [at for at, token in enumerate(item.input_ids) if token == tokenizer.mask_token_id][-1]


def test_a_label_word_stands_as_the_template_has_it(made):
    _, tokenizer = made("roberta")
    behind, at_start = tokenizer.convert_tokens_to_ids(["Ġgood", "good"])
    words = {"neg": "bad", "pos": "good"}
    for template, token in (("{text} {mask}", behind), ("{text}\n{mask}", at_start), ("{mask} {text}", at_start)):
        assert Classification(words=words, template=template).word_ids(tokenizer, "encoder")["pos"] == (token,)


def test_a_decoder_reads_the_template_as_if_its_mask_were_not_there():
    tokenizer = task_tools.byte_level()
    for template, plain in (
        ("{text} it was {mask}", "{text} it was"),
        ("{text}\nLabel: {mask}", "{text}\nLabel:"),
        ("{text}\n{mask}", "{text}\n"),
        ("{text} {mask}", "{text}"),
    ):
        with_mask, without = (prepared(tokenizer, "decoder", template=one) for one in (template, plain))
        assert with_mask == without
        raw = Classification(words=WORDS, template=template)
        items = without.encode(TRAIN, tokenizer, model_kind="decoder")
        assert raw.encode(TRAIN, tokenizer, model_kind="decoder") == items
        assert raw.demonstrations(TRAIN, 1, 0) == without.demonstrations(TRAIN, 1, 0)


T5_WORDS = {"neg": "terrible", "odd": "not in every way", "pos": "great"}


def t5_scores(network, tokenizer, template, row):
    """log p(word | <extra_id_0>, encoder's side), all tokens of each word, by transformers alone."""
    scores = []
    [sentinel] = tokenizer("<extra_id_0>", add_special_tokens=False)["input_ids"]
    given = tokenizer(template.format(mask="<extra_id_0>", **row), return_tensors="pt")["input_ids"]
    for word in T5_WORDS.values():
        target = tokenizer(word, add_special_tokens=False)["input_ids"]
        decoder = torch.tensor([[0, sentinel, *target[:-1]]])
        logits = network(input_ids=given, decoder_input_ids=decoder).logits[0, 1:]
        scores.append(logits.log_softmax(-1)[torch.arange(len(target)), target])
    return scores


@pytest.mark.parametrize("template", TEMPLATES[:3])
def test_t5_fills_the_mask_as_its_first_sentinel(made, template):
    network, tokenizer = made("t5")
    task = prepared(tokenizer, "encoder-decoder", template=template, words=T5_WORDS)
    items = task.encode(TRAIN, tokenizer, model_kind="encoder-decoder", train=True)
    per_row = [t5_scores(network, tokenizer, template, row) for row in TRAIN]
    expected = [max(range(3), key=lambda index: row[index].sum().item()) for row in per_row]
    got = task.predict(network, items, tokenizer, batch_size=3)
    assert [int(one.stats[2]) for one in got] == expected
    tokens = torch.cat([row[item.label] for row, item in zip(per_row, items, strict=True)])
    torch.testing.assert_close(task.loss(network, items, tokenizer), -tokens.mean(), rtol=0, atol=1e-10)
    first = torch.stack([torch.stack([word[0] for word in row]) for row in per_row])
    ids = [tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in T5_WORDS.values()]
    got_first = first_token_scores(network, items, tokenizer)[:, ids]
    torch.testing.assert_close(got_first, first.detach(), rtol=0, atol=1e-10)


def test_without_a_lead_an_encoder_decoder_is_as_before(made):
    network, tokenizer = made("t5")
    task = prepared(tokenizer, "encoder-decoder", template="{text} it was", words=T5_WORDS)
    items = task.encode(TRAIN, tokenizer, model_kind="encoder-decoder", train=True)
    assert {item.lead for item in items} == {()}
    losses, counts = [], []
    for item in items:
        labels = torch.tensor([item.target_ids])
        losses.append(network(input_ids=torch.tensor([item.input_ids]), labels=labels).loss * labels.numel())
        counts.append(labels.numel())
    torch.testing.assert_close(
        target_loss(network, items, tokenizer, start=0), sum(losses) / sum(counts), rtol=0, atol=1e-10
    )


def test_demonstrations_hold_the_word_where_the_mask_stands(made):
    _, tokenizer = made("bert")
    row = [TRAIN[0], TRAIN[1], TRAIN[2]]
    shown = {
        "{text} it was {mask}.": "{text} it was {word}.",
        "{mask} {{news}}: {text}": "{word} {{news}}: {text}",
        "{more}({mask}) {text}!": "{more}({word}) {text}!",
    }
    for template, expected in shown.items():
        task = prepared(tokenizer, template=template)
        block = task.demonstrations(row, 1, seed=0)
        wanted = {expected.format(word=WORDS[one["label"]], **one) for one in row}
        assert set(block.removesuffix("\n\n").split("\n\n")) == wanted
        assert [one.label for one in task.demonstrated(row, 1, 0)] == [
            WORDS[one.name] for one in task.demonstrated(row, 1, 0)
        ]


def test_halves_are_templates_again():
    assert halves("{{a}} {x} is {mask}: {y} {{b}}") == ("{{a}} {x} is ", ": {y} {{b}}")
    assert halves("{x} mask") is None


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        (
            "bert",
            {"template": "{text} it was"},
            "'{text} it was' has no {mask}, and an encoder answers with a word at a",
        ),
        ("bert", {"template": "{mask} {text} {mask}"}, "holds {mask} 2 times; it is the one place of the answer."),
        ("bert", {"template": "it is {mask}"}, "must name a field of the rows beside {mask}, the place of the answer."),
        (
            "bert",
            {"words": WORDS | {"pos": "gripping"}},
            "Label 'pos' has the word 'gripping', which this tokenizer reads as g, ##r, ##i, ##p, ##p, ##i, ##n, ##g. "
            "At a mask a word must be one known token. Choose another: --words pos=WORD,...",
        ),
        ("bert", {"words": WORDS | {"pos": "é"}}, "which this tokenizer reads as [UNK]. At a mask a word must be one"),
        ("t5", {"template": "{text} {mask}"}, "T5's has, and this one has not. Take {mask} out"),
        ("gpt2", {"template": "{text} was {mask}."}, "so {mask} can only end the template, behind white space"),
        ("gpt2", {"template": "{text}{mask}"}, "so {mask} can only end the template, behind white space"),
    ],
)
def test_what_cannot_be_answered_at_a_mask_is_refused(made, name, fields, message):
    tokenizer = made("bert")[1] if name == "bert" else task_tools.sentence_piece(bos=False)
    model_kind = {"bert": "encoder", "t5": "encoder-decoder", "gpt2": "decoder"}[name]
    with pytest.raises(UserError) as caught:
        prepared(tokenizer, model_kind, **fields)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_without_a_mask_or_that_reads_it_as_text_is_refused():
    with pytest.raises(UserError, match="by='words' needs a mask token on an encoder, and this tokenizer has none"):
        prepared(task_tools.sentence_piece(bos=False))
    tokenizer = masked.word_piece()
    tokenizer.split_special_tokens = True
    with pytest.raises(
        UserError, match=r"reads its mask token '.MASK.' as ordinary text, so the mask cannot be placed"
    ):
        prepared(tokenizer).encode(TRAIN, tokenizer, model_kind="encoder")


@pytest.mark.parametrize("name", ENCODERS)
def test_what_is_trained_at_the_mask_is_what_is_predicted(made, name):
    network, tokenizer = masked.make(name, dtype=torch.float32)
    task = prepared(tokenizer)
    items = task.encode(TRAIN, tokenizer, model_kind=kind(network), train=True)
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(40):
        optimizer.zero_grad()
        task.loss(network, items, tokenizer).backward()
        optimizer.step()
    assert [one.stats[0] for one in task.predict(network, items, tokenizer)] == [1.0] * len(TRAIN)
    assert F.softmax(first_token_scores(network, items, tokenizer), -1).isfinite().all()


def test_a_head_whose_weights_are_taken_without_a_call_is_read_at_the_mask_all_the_same():
    config = tf.MobileBertConfig(
        vocab_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        embedding_size=8, true_hidden_size=8, intra_bottleneck_size=8,
    )  # fmt: skip
    model = tf.MobileBertForMaskedLM(config).eval().double()
    rows = [Encoded(1, ids, (), 0, (), "", slot=at) for ids, at in (((3, 4, 5), 1), ((6, 7), 0))]
    with torch.no_grad():
        found = mask_logits(model, rows, SimpleNamespace(pad_token_id=0, eos_token_id=None))
        alone = [model(input_ids=torch.tensor([row.input_ids])).logits[0, row.slot] for row in rows]
    torch.testing.assert_close(found, torch.stack(alone), rtol=0, atol=1e-12)
    assert not model._forward_hooks


@pytest.mark.parametrize("front", ["", "<s>"])
def test_without_a_mask_the_word_stands_behind_what_the_decoder_begins_with(front):
    tokenizer = task_tools.sentence_piece(bos=False, front=front)
    words = WORDS | {"odd": "bad"}  # which it knows
    task = prepared(tokenizer, "encoder-decoder", template="{text} it was", words=words)
    encoded = task.encode(TRAIN, tokenizer, model_kind="encoder-decoder")
    assert {one.lead for one in encoded} == {(tokenizer.bos_token_id,) if front else ()}
