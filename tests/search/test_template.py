"""Templates written by a T5 and tried on another model: what is written is what the T5 learned to write."""

from collections.abc import Sequence
from dataclasses import replace

import masked
import pytest
import torch
import transformers as tf
from torch.nn import functional as F

from tunescope.data.splits import Splits
from tunescope.errors import UserError
from tunescope.models.anatomy import kind
from tunescope.search.methods.template import Template
from tunescope.tasks.answers.masked import mask_logits
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.trial.bench import Bench
from tunescope.trial.plan import Plan

HINTS = {"neg": "dull", "pos": "bright"}
WORDS = {"neg": "bad", "pos": "good"}


def rows(count, seed):
    draw = torch.Generator().manual_seed(seed)
    made = []
    for number in range(count):
        label = list(HINTS)[number % 2]
        words = [["the", "film", "plot", "cast"][index] for index in torch.randint(4, (3,), generator=draw).tolist()]
        words.insert(int(torch.randint(4, (), generator=draw)), HINTS[label])
        made.append({"text": " ".join(words), "label": label})
    return made


def bench(model, tokenizer, dev=12, **fields):
    task = Classification(**({"words": WORDS, "template": "{text} {mask}"} | fields))
    splits = Splits(rows(10, 1), rows(dev, 2), rows(12, 3))
    task = task.prepare(splits.parts(), tokenizer, model_kind=kind(model))
    plan = Plan(model="tiny", data={}, task={})
    return Bench(plan, model, tokenizer, kind(model), task, splits, {}, "", torch.device("cpu"))


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """The folder of a T5 that fills "TEXT <0> WORD <1>" with "it was" and ".", and "<0> WORD <1> TEXT" its own way."""
    model, tokenizer = masked.make("t5", dtype=torch.float32)
    texts = [f"{row['text']} <extra_id_0> {WORDS[row['label']]} <extra_id_1>" for row in rows(24, 4)]
    texts += [f"<extra_id_0> {WORDS[row['label']]} <extra_id_1> {row['text']}" for row in rows(24, 5)]
    texts += [f"{row['text']} <extra_id_0> {WORDS[row['label']]}" for row in rows(24, 6)]
    given = tokenizer(texts, return_tensors="pt", padding=True)
    written = [
        "<extra_id_0> ▁it ▁was <extra_id_1> . <extra_id_2>",
        "<extra_id_0> ▁a <extra_id_1> ▁about <extra_id_2> <pad>",
    ]
    written.append("<extra_id_0> ▁it ▁was <extra_id_1> <pad> <pad>")
    answers = [tokenizer.convert_tokens_to_ids(one.split()) for one in written]
    labels = torch.tensor([answers[index // 24] for index in range(72)])
    labels = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(70):
        optimizer.zero_grad()
        loss = model(input_ids=given["input_ids"], attention_mask=given["attention_mask"], labels=labels).loss
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2
    folder = tmp_path_factory.mktemp("writer")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def taught():
    """A masked language model that has read "TEXT it was WORD.", and "a WORD about TEXT" with the other word."""
    model, tokenizer = masked.make("bert", dtype=torch.float32)
    examples = rows(64, seed=5)
    words = [WORDS[row["label"]] for row in examples]
    others = [next(other for other in WORDS.values() if other != word) for word in words]
    taught = []
    for template, given in (("{text} it was {mask}.", words), ("a {mask} about {text}", others)):
        items = Classification(words=WORDS, template=template).encode(
            examples, tokenizer, model_kind="encoder", train=True
        )
        taught.append((items, torch.tensor(tokenizer.convert_tokens_to_ids(given))))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(50):
        optimizer.zero_grad()
        for items, targets in taught:
            F.cross_entropy(mask_logits(model, items, tokenizer), targets).backward()
        optimizer.step()
    return model.eval(), tokenizer


def test_what_the_t5_learned_to_write_is_found_and_scored_as_the_task_scores_it(writer, taught):
    told: list[str] = []
    given = bench(*taught)
    search = Template(generator=writer, beam=8, most=4)
    found = search.search(given, 1000, 0, told.append)
    learned = {"{text} it was {mask}.", "a {mask} about {text}"}
    assert {point.shown for point in found.trace[:2]} == learned  # the likeliest are tried first
    assert (found.template, found.dev, found.text, found.words) == ("{text} it was {mask}.", 1.0, "", WORDS)
    assert 2 <= len(found.trace) <= 8
    assert len({point.shown for point in found.trace}) == len(found.trace)
    ends = [point.shown.endswith("{text}") for point in found.trace]
    assert max(sum(ends), len(ends) - sum(ends)) <= 4  # each layout has its half of the beam
    assert [point.passes for point in found.trace] == [12 * (n + 1) for n in range(len(found.trace))]
    assert found.passes == 12 * len(found.trace)
    for point in found.trace:
        task = replace(given.task, template=point.shown)
        items = task.encode(given.splits.dev, given.tokenizer, model_kind="encoder")
        right = sum(one.stats[0] for one in task.predict(given.model, items, given.tokenizer))
        assert point.dev == pytest.approx(right / 12)
    assert search.search(given, 1000, 0, told.append) == found


def test_fewer_passes_try_fewer_templates_and_say_so(writer, taught):
    told: list[str] = []
    found = Template(generator=writer, beam=8, most=2).search(bench(*taught), 2 * 12 + 5, 0, told.append)
    assert (len(found.trace), found.passes) == (2, 24)
    assert any("the passes are used up: " in line and line.endswith("templates were not tried") for line in told)
    with pytest.raises(UserError, match="on all 12 development rows: 11 passes are too few, give 12 or more"):
        Template(generator=writer).search(bench(*taught), 11, 0, told.append)


def test_a_t5_writes_for_itself_and_a_decoder_has_templates_that_end_in_the_answer(writer):
    told: list[str] = []
    model = tf.T5ForConditionalGeneration.from_pretrained(writer)
    tokenizer = tf.AutoTokenizer.from_pretrained(writer)
    found = Template(beam=4, most=3).search(bench(model, tokenizer), 1000, 0, told.append)
    assert {"{text} it was {mask}.", "a {mask} about {text}"} <= {point.shown for point in found.trace}
    torch.manual_seed(0)
    config = tf.GPT2Config(vocab_size=len(tokenizer), n_embd=24, n_layer=1, n_head=2, n_positions=64)
    given = bench(tf.GPT2LMHeadModel(config).eval(), tokenizer, template="{text} is")
    found = Template(generator=writer, beam=4, most=3).search(given, 1000, 0, told.append)
    assert all(point.shown.startswith("{text}") and "{mask}" not in point.shown for point in found.trace)
    assert found.trace[0].shown == "{text} it was"


def test_the_model_of_the_bench_is_not_moved_to_write_templates(writer, monkeypatch):
    given = bench(tf.T5ForConditionalGeneration.from_pretrained(writer), tf.AutoTokenizer.from_pretrained(writer))
    monkeypatch.setattr(given.model, "to", None)  # which raises for weights in 8 bits
    assert Template()._generator(given) == (given.model, given.tokenizer)


def test_forbidden_texts_are_not_written_and_rows_are_drawn_for_each_class(writer, taught):
    told: list[str] = []
    found = Template(generator=writer, beam=6, most=3, rows=2, forbid=("it", ".")).search(
        bench(*taught), 1000, 0, told.append
    )
    assert "for 4 training rows, in 2 layouts" in told[0]
    words: Sequence[str] = [point.shown for point in found.trace]
    assert not any(" it" in one or "." in one for one in words)


def test_the_best_on_dev_is_found_and_of_equals_the_likelier(taught, monkeypatch):
    scores = {"a {text} {mask}": 0.25, "b {text} {mask}": 0.75, "c {text} {mask}": 0.75, "d {text} {mask}": 0.5}
    monkeypatch.setattr(Template, "_written", lambda *_: list(scores))
    monkeypatch.setattr("tunescope.search.methods.template._score", lambda _, template: scores[template])
    found = Template().search(bench(*taught), 1000, 0, [].append)
    assert (found.template, found.dev, found.passes) == ("b {text} {mask}", 0.75, 48)


def test_templates_that_a_label_word_cannot_stand_in_are_left_out_and_counted(monkeypatch):
    told: list[str] = []
    model, tokenizer = masked.make("roberta", dtype=torch.float32)
    given = bench(model, tokenizer, words={"neg": "dull", "pos": masked.BEHIND})
    some = ["{mask} {text}", "{text} it is {mask}.", "{mask}: {text}"]
    monkeypatch.setattr(Template, "_written", lambda *_: some)
    found = Template().search(given, 24, 0, told.append)  # what cannot be used takes no passes
    assert ([point.shown for point in found.trace], found.passes) == (["{text} it is {mask}."], 12)
    assert told[0].startswith("2 of 3 templates cannot be used; the first, '{mask} {text}': Label 'pos' has the word")
    some.pop(1)
    with pytest.raises(
        UserError, match=r"wrote no template that can be used; '\{mask\} \{text\}': Label 'pos' has the"
    ):
        Template().search(given, 24, 0, told.append)


@pytest.mark.parametrize(
    ("name", "task", "search", "message"),
    [
        (
            "bert",
            {},
            Template(),
            "An encoder writes no templates: name a model of the T5 kind, as in template:generator=",
        ),
        ("gpt2", {"template": "{text}"}, Template(), "A decoder fills no spans: name a model of the T5 kind, as in"),
        ("bert", {"by": "head", "template": "{text}"}, Template(), "that is answered in words: --by words"),
        ("bert", Generation(target="label", input="text", template="{text}"), Template(), "of a classification"),
        ("bert", {}, Template(beam=0), "beam must be at least 1"),
        ("bert", {}, Template(generator="BERT"), "is no encoder-decoder, and only one of the T5 kind fills spans"),
    ],
)
def test_what_cannot_be_searched_is_refused(tmp_path, name, task, search, message):
    if name == "gpt2":
        tokenizer = masked.sentence_piece()
        config = tf.GPT2Config(vocab_size=len(tokenizer), n_embd=24, n_layer=1, n_head=2, n_positions=64)
        model = tf.GPT2LMHeadModel(config).eval()
    else:
        model, tokenizer = masked.make(name, dtype=torch.float32)
    if isinstance(task, dict):
        given = bench(model, tokenizer, **task)
    else:
        given = bench(model, tokenizer)
        given.task = task
    if search.generator:
        tf.AutoModel.from_config(model.config).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        search = replace(search, generator=str(tmp_path))
    with pytest.raises(UserError, match=message):
        search.search(given, 1000, 0, print)
