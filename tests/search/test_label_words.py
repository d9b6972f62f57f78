"""Label words found in the vocabulary: against transformers' own logits, and by a model that knows the right ones."""

import json
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import masked
import pytest
import tiny
import torch
import transformers as tf
from apple import on_apple
from commands import call
from search_tools import bench as bench_of_words
from torch.nn import functional as F
from zoo import zoo

from tunescope.data.splits import Splits
from tunescope.errors import UserError
from tunescope.models.anatomy import kind
from tunescope.search.methods import label_words
from tunescope.search.methods.label_words import LabelWords
from tunescope.search.vocabulary import whole_words
from tunescope.search.without_words import open_unworded
from tunescope.tasks.answers.masked import mask_logits
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.prompts import chat
from tunescope.tasks.task import Encoded
from tunescope.trial.bench import Bench
from tunescope.trial.plan import Plan

HINTS = {"neg": "dull", "odd": "news", "pos": "bright"}
KNOWN = {"neg": ("terrible", "bad"), "odd": ("sport", "about"), "pos": ("great", "good")}
say = partial(lambda lines, line: lines.append(line), [])


def rows(count, seed, labels=tuple(HINTS)):
    draw = torch.Generator().manual_seed(seed)
    made = []
    for number in range(count):
        label = labels[number % len(labels)]
        words = ["the", "film", "plot", "cast", "a"]
        words = [words[index] for index in torch.randint(5, (4,), generator=draw).tolist()]
        words.insert(int(torch.randint(5, (), generator=draw)), HINTS[label])
        made.append({"text": " ".join(words), "label": label})
    return made


def bench(model, tokenizer, task, train, dev, test=None):
    splits = Splits(train, dev, test or dev)
    task = task.prepare(splits.parts(), tokenizer, model_kind=kind(model))
    plan = Plan(model="tiny", data={}, task={})
    return Bench(plan, model, tokenizer, kind(model), task, splits, {}, "", torch.device("cpu"))


WORDS = {"neg": "a", "odd": "the", "pos": "film"}


@pytest.fixture(scope="module")
def taught():
    """A masked language model that has read "TEXT it was WORD.", with one of two words for the hint in the text."""
    model, tokenizer = masked.make("bert", dtype=torch.float32)
    task = Classification(words=WORDS, template="{text} it was {mask}.")
    examples = rows(96, seed=5)
    items = task.encode(examples, tokenizer, model_kind="encoder", train=True)
    answers = [KNOWN[row["label"]][number % 2] for number, row in enumerate(examples)]
    targets = torch.tensor(tokenizer.convert_tokens_to_ids(answers))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(mask_logits(model, items, tokenizer), targets).backward()
        optimizer.step()
    return model.eval(), tokenizer


def test_a_model_that_knows_the_words_is_asked_for_them_and_they_are_found(taught):
    model, tokenizer = taught
    task = Classification(words=WORDS, template="{text} it was {mask}.")
    given = bench(model, tokenizer, task, rows(24, 1), rows(30, 2), rows(60, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = LabelWords(shortlist=8).search(given, 1000, 0, say)
    assert all(found.words[label] in KNOWN[label] for label in KNOWN)
    assert (found.text, found.template, found.dev, found.passes) == ("", task.template, 1.0, 54)
    worded = replace(given.task, words=found.words)
    items = worded.encode(given.splits.test, tokenizer, model_kind="encoder")
    assert sum(one.stats[0] for one in worded.predict(model, items, tokenizer)) == 60
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_device_without_float64_finds_the_same(taught):
    model, tokenizer = taught
    given = bench(
        model, tokenizer, Classification(words=WORDS, template="{text} it was {mask}."), rows(9, 1), rows(9, 2)
    )
    expected = LabelWords(shortlist=4).search(given, 1000, 0, say)
    with on_apple(model):
        assert LabelWords(shortlist=4).search(given, 1000, 0, say).words == expected.words


def causal(tokenizer):
    config = tf.GPT2Config(vocab_size=len(tokenizer), n_embd=24, n_layer=2, n_head=3, n_positions=64)
    torch.manual_seed(3)
    model = tf.GPT2LMHeadModel(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn_like(parameter))
    return model


def alone(model, tokenizer, row, template):
    """(vocabulary,) log-probabilities at the answer's place of one row, by transformers alone."""
    mark = "<extra_id_0>" if model.config.is_encoder_decoder else tokenizer.mask_token
    asked = template.format(mask=mark, **row)
    if tokenizer.chat_template:
        said = [{"role": "user", "content": asked}]
        ids = tokenizer.apply_chat_template(said, return_tensors="pt", return_dict=False)
    else:
        ids = tokenizer(asked, return_tensors="pt", add_special_tokens="{mask}" in template)["input_ids"]
    if model.config.is_encoder_decoder:
        start = torch.tensor([[0, tokenizer.convert_tokens_to_ids(mark)]])
        return model(input_ids=ids, decoder_input_ids=start).logits[0, -1].log_softmax(-1)
    at = (ids[0] == tokenizer.mask_token_id).nonzero().item() if "{mask}" in template else -1
    return model(input_ids=ids).logits[0, at].log_softmax(-1)


CHAT = (
    "{% for m in messages %}{% if m.role == 'user' %}<extra_id_0>{{ m.content }}<extra_id_1>{% else %}"
    "{{ m.content }}<extra_id_2>{% endif %}{% endfor %}"
)


BARE = "{% for m in messages %}{{ m.content }}</s>{% endfor %}"  # the answer behind no space, which is another token


@pytest.mark.parametrize("name", ["roberta", "t5", "gpt2", "chat", "chat of bytes"])
def test_what_is_found_is_the_best_of_all_pairs_by_transformers_own_logits(name):
    if name in ("gpt2", "chat", "chat of bytes"):
        tokenizer = masked.byte_level() if name == "chat of bytes" else masked.sentence_piece()
        tokenizer.chat_template = {"chat": CHAT, "chat of bytes": BARE}.get(name)
        model, template = causal(tokenizer), "{text} it was"
    else:
        (model, tokenizer), template = masked.make(name), "{text} it was {mask}."
    two = ("neg", "pos")
    words = {"neg": "bad", "pos": "good"}
    task = Classification(words=words, template=template, chat="chat" in name)
    given = bench(model, tokenizer, task, rows(10, 1, two), rows(7, 2, two))
    search = LabelWords(shortlist=6, keep=4)
    found = search.search(given, 17, 0, say)
    known = whole_words(tokenizer, chat.asked(given.task), kind(model), chat.space_of(given.task))
    with torch.no_grad():
        train, dev = (
            torch.stack([alone(model, tokenizer, row, template) for row in some])
            for some in (given.splits.train, given.splits.dev)
        )
    lists = []
    for label in two:
        mine = [index for index, row in enumerate(given.splits.train) if row["label"] == label]
        lists.append(sorted(known, key=lambda token: -train[mine][:, token].mean().item())[:6])

    def right(scores, some, pair):
        chosen = [int(row[pair[1]] > row[pair[0]]) for row in scores]
        return sum(two[one] == row["label"] for one, row in zip(chosen, some, strict=True))

    def loss(pair):
        both = train[:, list(pair)].log_softmax(-1)
        return -sum(both[index, two.index(row["label"])].item() for index, row in enumerate(given.splits.train))

    pairs = [(one, other) for one in lists[0] for other in lists[1] if one != other]
    pairs.sort(key=lambda pair: (-right(train, given.splits.train, pair), loss(pair)))
    on_dev = [right(dev, given.splits.dev, pair) for pair in pairs[:4]]
    best = pairs[on_dev.index(max(on_dev))]
    assert dict(found.words) == {"neg": known[best[0]], "pos": known[best[1]]}
    assert found.dev == pytest.approx(max(on_dev) / 7)
    assert [point.dev for point in found.trace] == pytest.approx([one / 7 for one in on_dev])
    assert found.passes == 17
    worded = replace(given.task, words=found.words)
    items = worded.encode(given.splits.dev, tokenizer, model_kind=given.kind)
    assert sum(one.stats[0] for one in worded.predict(model, items, tokenizer)) == max(on_dev)
    assert search.search(given, 17, 0, say) == found


def test_a_shortlist_is_by_the_mean_log_probability_and_of_equals_by_the_earlier_token():
    scores = torch.tensor([[-1.0, -9.0, -4.0, -4.0], [-9.5, -1.5, -4.0, -4.0]])
    assert LabelWords(shortlist=3)._shortlist(scores) == (2, 3, 0)
    assert LabelWords(shortlist=9)._shortlist(scores) == (2, 3, 0, 1)


def test_fewer_passes_read_fewer_training_rows_of_each_class(taught):
    model, tokenizer = taught
    task = Classification(words=WORDS, template="{text} it was {mask}.")
    given = bench(model, tokenizer, task, rows(24, 1), rows(9, 2))
    seen = []
    handle = model.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    found = LabelWords(shortlist=5).search(given, 9 + 7, 0, say)
    handle.remove()
    assert found.passes == sum(seen) == 9 + 6
    with pytest.raises(
        UserError, match="each of 9 development rows once and a training row of each of 3 classes at least"
    ):
        LabelWords().search(given, 11, 0, say)
    assert LabelWords(rows=2).search(given, 1000, 0, say).passes == 9 + 6


def test_a_label_without_a_training_row_gets_no_word_as_if_one_was_found(taught):
    model, tokenizer = taught
    some = [row for row in rows(6, 1) if row["label"] != "pos"]
    given = bench(model, tokenizer, Classification(words=WORDS, template="{text} {mask}"), some, some)
    with pytest.raises(UserError, match="no training row is labelled pos, and a word is found from rows"):
        LabelWords().search(given, 100, 0, say)


@pytest.mark.parametrize(
    ("task", "search", "message"),
    [
        (
            Classification(words=WORDS, by="head", template="{text}"),
            LabelWords(),
            "that is answered in words: --by words",
        ),
        (Generation(target="label", input="text", template="{text}"), LabelWords(), "of a classification"),
        (None, LabelWords(keep=0), r"LabelWords\(shortlist=100, keep=0, rows=100, .*: keep must be at least 1"),
        (None, LabelWords(shortlist=2), "3 classes need as many different words, and each shortlist has 2"),
    ],
)
def test_what_has_no_label_words_to_find_is_refused(taught, task, search, message):
    model, tokenizer = taught
    given = bench(model, tokenizer, Classification(words=WORDS, template="{text} {mask}"), rows(6, 1), rows(6, 2))
    given.task = task or given.task
    with pytest.raises(UserError, match=message):
        search.search(given, 100, 0, say)


def test_labels_that_are_no_words_of_the_vocabulary_need_none_to_be_looked_for(taught, tmp_path):
    model, tokenizer = taught
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    data = {}
    for seed, part in enumerate(("train", "dev", "test")):
        data[part] = str(tmp_path / f"{part}.jsonl")
        made = [row | {"label": f"{row['label']}/3-x"} for row in rows(12, seed)]
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    plan = Plan(model=str(tmp_path / "model"), data=data, task={"kind": "classification", "by": "words"})
    opened, stands_in = open_unworded(plan)
    assert stands_in
    assert opened.task.labels == ("neg/3-x", "odd/3-x", "pos/3-x")
    found = LabelWords(shortlist=8).search(opened, 1000, 0, say)
    assert found.words["pos/3-x"] in KNOWN["pos"]
    named = replace(plan, task=plan.task | {"words": dict(found.words)})
    assert open_unworded(named)[1] is False and open_unworded(named)[0].task.words == found.words
    many = [json.dumps({"text": "a", "label": str(n)}) + "\n" for n in range(60)]
    (tmp_path / "train.jsonl").write_text("".join(many))
    with pytest.raises(UserError, match=r"The vocabulary has \d+ whole words, and there are 60 labels to name"):
        open_unworded(plan)


def test_labels_that_are_no_words_are_given_some_in_a_chat_too(tmp_path):
    tokenizer = masked.sentence_piece()
    tokenizer.chat_template = CHAT
    causal(tokenizer).float().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    made = [row | {"label": {"neg": "", "odd": "a b", "pos": "a"}[row["label"]] or "a c"} for row in rows(24, 1)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    data = dict.fromkeys(("train", "dev", "test"), str(tmp_path / "train.jsonl"))
    plan = Plan(model=str(tmp_path / "model"), data=data, task={"kind": "classification", "chat": True})
    opened, stands_in = open_unworded(plan)
    assert stands_in and opened.task.turns is not None
    found = LabelWords(shortlist=8).search(opened, 1000, 0, say)
    assert len(set(found.words.values())) == 3


def test_the_command_finds_the_words_of_a_masked_model_that_was_given_none(taught, tmp_path, monkeypatch, capsys):
    model, tokenizer = taught
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    for seed, (part, count) in enumerate({"train": 24, "dev": 18, "test": 30}.items()):
        made = [row | {"label": f"{row['label']}/3-x"} for row in rows(count, seed)]
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    words = ["search", tmp_path / "model", tmp_path / "train.jsonl", "--by", "words", "--seeds", "1"]
    words += ["--template", "{text} it was {mask}.", "--method", "label_words:shortlist=8", "--passes", "100"]
    for part in ("dev", "test"):
        words += [f"--{part}", tmp_path / f"{part}.jsonl"]
    code, out, err = call(monkeypatch, capsys, *words, "--out", tmp_path / "out")
    assert code == 0, err
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["zero_shot"]["score"] is None and "no label words were given" in out
    (found,) = results["searches"]
    assert found["score"] == 1.0 and found["gain"] is None
    assert "at each seed, as it is typed" in out and "in quotes" not in out
    assert f"--words neg/3-x={found['runs'][0]['found']['words']['neg/3-x']}" in found["runs"][0]["shown"]


def test_too_few_words_for_the_classes_are_told_with_what_helps(monkeypatch):
    given, words = bench_of_words(), {5: "w5", 6: "w6", 7: "w7"}
    monkeypatch.setattr("tunescope.search.vocabulary.whole_words", lambda *_: words)
    with pytest.raises(UserError, match=r"and each shortlist has 1\. Type: label_words:shortlist=3"):
        LabelWords(shortlist=1).search(given, 1000, 0, [].append)
    LabelWords(shortlist=3).search(given, 1000, 0, [].append)
    del words[6], words[7]
    with pytest.raises(UserError, match=r"this vocabulary has 1 whole ones\. Name them yourself: --words"):
        LabelWords().search(given, 1000, 0, [].append)


@torch.no_grad()
def test_in_a_recurrent_decoder_a_row_s_words_do_not_hang_on_the_other_rows():
    asked = SimpleNamespace(model=zoo("rwkv"), tokenizer=tiny.tokenizer())
    encoded = [Encoded(1, ids, (), None, (), "") for ids in [(5, 17, 23, 8), (90,), (3, 4, 5), (11,)]]
    alone = [asked.model(input_ids=torch.tensor([row.input_ids])).logits[0, -1].log_softmax(-1) for row in encoded]
    got = label_words._scores(asked, encoded, [7, 8, 9])
    torch.testing.assert_close(got, torch.stack(alone)[:, [7, 8, 9]].double(), rtol=0, atol=1e-9)


def test_training_rows_of_a_class_are_drawn_by_the_seed_and_from_all_of_them():
    given = [SimpleNamespace(label=number % 2, at=number) for number in range(400)]
    drawn = [[row.at for row in label_words._drawn(given, 2, 20, seed)] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2] and all(one == sorted(one) for one in drawn)
    for one in drawn:
        assert [sum(at % 2 == label for at in one) for label in (0, 1)] == [20, 20]
        assert max(one) > 200  # and not the first ones
