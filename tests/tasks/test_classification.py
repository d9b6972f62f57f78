import json
from collections import Counter

import pytest
import tiny
import torch
from apple import OnApple
from task_tools import byte_level, model, sentence_piece
from zoo import zoo

from tunescope.data.row import Row
from tunescope.errors import UserError
from tunescope.tasks.answers.calibration import share
from tunescope.tasks.answers.shares import highest
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.prompts.templates import ids

TRAIN = [
    Row({"text": text, "label": label}, "train.csv", line)
    for line, (text, label) in enumerate(
        [
            ("The film is great", "pos"),
            ("A terrible film, bad in every way.", "neg"),
            ("not bad at all", "pos"),
            ("bad cast", " neg "),
            ("every film", "odd"),
        ],
        start=2,
    )
]
WORDS = {"neg": "bad", "odd": "not in every way", "pos": "great"}


@pytest.fixture(scope="module")
def tokenizer():
    return byte_level()


def prepared(tokenizer, rows=TRAIN, kind="decoder", **settings):
    return Classification(**settings).prepare({"train": rows}, tokenizer, model_kind=kind)


def test_labels_come_from_the_training_rows_sorted_and_are_their_own_words(tokenizer):
    task = prepared(tokenizer)
    assert task.labels == ("neg", "odd", "pos")
    assert dict(task.words) == {"neg": "neg", "odd": "odd", "pos": "pos"}
    assert task.needs_head is None
    assert task.counts(TRAIN) == {"pos": 2, "neg": 2, "odd": 1}
    numbers = [{"text": "a", "label": 1}, {"text": "b", "label": True}, {"text": "c", "label": 0.5}]
    assert prepared(tokenizer, numbers).labels == ("0.5", "1", "true")


def test_given_words_are_sorted_by_label_as_a_file_keeps_them_and_describe_says_everything_as_json(tokenizer):
    words = {"pos": "great", "odd": "greatest film", "neg": "bad"}
    task = prepared(tokenizer, words=words)
    told = task.describe()
    assert json.loads(json.dumps(told)) == told
    assert told == prepared(tokenizer, words=dict(sorted(words.items()))).describe()
    assert told["labels"] == ["neg", "odd", "pos"]
    assert told["words"] == words and list(told["words"]) == told["labels"]
    assert told["chance"] == pytest.approx(1 / 3)
    assert (told["kind"], told["metric"], told["higher_is_better"]) == ("classification", "accuracy", True)
    assert "longer words start at a disadvantage" in told["notes"][0]


def test_white_space_around_labels_goes_with_that_of_words_and_a_label_that_is_then_there_twice_is_refused(tokenizer):
    assert prepared(tokenizer, words={" neg": " bad", "odd\n": "odd", "pos": "great "}).words == WORDS | {
        "neg": "bad",
        "odd": "odd",
        "pos": "great",
    }
    with pytest.raises(UserError, match=r"has a label twice, white space around it aside"):
        Classification(words={"neg": "bad", "neg ": "worse"})
    with pytest.raises(UserError, match=r"^Classification\(words=\{0: 'bad', 1: 'good'\}\): give each label a text"):
        Classification(words={0: "bad", 1: "good"})


def test_encoded_rows_are_prompt_and_word(tokenizer):
    task = prepared(tokenizer, words=WORDS)
    for row, item in zip(TRAIN, task.encode(TRAIN, tokenizer, model_kind="decoder", train=True), strict=True):
        label = row["label"].strip()
        whole = f"{row['text']}\nLabel: {WORDS[label]}"
        assert item.input_ids + item.target_ids == ids(tokenizer, [whole])[0]
        assert (item.row, item.references, item.source, item.cut) == (row.line, (label,), row["text"], 0)
        assert item.label == ("neg", "odd", "pos").index(label)


@pytest.mark.parametrize("less", [1, 4])
def test_room_holds_the_prompt_and_the_longest_word_but_for_its_last_token(tokenizer, less):
    task = prepared(tokenizer, words=WORDS)
    longest = max(len(ids(tokenizer, [" " + word])[0]) for word in WORDS.values())
    whole = task.encode(TRAIN, tokenizer, model_kind="decoder")
    room = max(len(item.input_ids) for item in whole) + longest - 1
    assert task.encode(TRAIN, tokenizer, model_kind="decoder", room=room) == whole
    room -= less
    items = task.encode(TRAIN, tokenizer, model_kind="decoder", room=room)
    assert max(len(item.input_ids) for item in items) + longest - 1 <= room
    assert any(item.cut for item in items)
    assert all(tokenizer.decode(list(item.input_ids)).endswith("\nLabel:") for item in items)


@pytest.mark.parametrize("name", ["rwkv", "recurrent_gemma"])
def test_a_recurrent_decoder_answers_in_a_batch_as_row_by_row(name):
    tokenizer = tiny.tokenizer()
    texts = [" ".join(f"w{(7 * row + at) % 60 + 10}" for at in range(1 + row % 5)) for row in range(20)]
    rows = [{"text": text, "label": ["w7", "w8"][number % 2]} for number, text in enumerate(texts)]
    network = zoo(name, dtype=torch.float32)
    task = Classification(template="{text}").prepare({"train": rows}, tokenizer, model_kind="decoder")
    items = task.encode(rows, tokenizer, model_kind="decoder")
    together, alone = (task.predict(network, items, tokenizer, batch_size=size) for size in (4, 1))
    assert [one.text for one in together] == [one.text for one in alone]
    assert [one.shares for one in together] == [pytest.approx(one.shares, abs=1e-3) for one in alone]


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
def test_predictions_are_the_words_of_highest_probability(name):
    kind = "encoder-decoder" if name == "t5" else "decoder"
    tokenizer = {"gpt2": byte_level, "llama": lambda: sentence_piece(bos=True)}.get(
        name, lambda: sentence_piece(bos=False)
    )()
    network, task = model(name, len(tokenizer)), prepared(tokenizer, kind=kind, words=WORDS)
    items = task.encode(TRAIN, tokenizer, model_kind=kind)
    predictions = task.predict(network, items, tokenizer, batch_size=2)
    assert [p.row for p in predictions] == [row.line for row in TRAIN]
    for row, item, got in zip(TRAIN, items, predictions, strict=True):
        scores = []
        for word in WORDS.values():
            if name == "t5":
                prompt = tokenizer(f"{row['text']}\nLabel:")["input_ids"]
                target = tokenizer(word, add_special_tokens=False)["input_ids"]
                given = {"input_ids": torch.tensor([prompt]), "decoder_input_ids": torch.tensor([[0, *target[:-1]]])}
                logits = network(**given).logits[0]
            else:
                prompt = tokenizer(f"{row['text']}\nLabel:")["input_ids"]
                whole = tokenizer(f"{row['text']}\nLabel: {word}")["input_ids"]
                target = whole[len(prompt) :]
                logits = network(input_ids=torch.tensor([whole])).logits[0, len(prompt) - 1 : -1]
            scores.append(logits.log_softmax(-1)[torch.arange(len(target)), target].sum().item())
        best = scores.index(max(scores))
        assert got.text == list(WORDS)[best]
        assert got.stats == (float(best == item.label), float(item.label), float(best))
        shares = torch.tensor(scores, dtype=torch.float64).softmax(-1).tolist()
        assert list(got.shares) == sorted(WORDS, key=lambda label: -shares[list(WORDS).index(label)])
        assert got.shares == pytest.approx(dict(zip(WORDS, shares, strict=True)), abs=6e-4)


def test_a_head_is_trained_and_asked_for_the_label():
    tokenizer = sentence_piece(bos=False)
    task = prepared(tokenizer, kind="encoder", by="head")
    network = model("bert", len(tokenizer)).float()
    assert task.needs_head == 3
    assert task.describe()["words"] is None
    items = task.encode(TRAIN, tokenizer, model_kind="encoder", train=True)
    assert [item.input_ids for item in items] == [
        tuple(tokenizer(f"{row['text']}\nLabel:")["input_ids"]) for row in TRAIN
    ]
    assert all(item.target_ids == () for item in items)
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(40):
        optimizer.zero_grad()
        task.loss(network, items, tokenizer).backward()
        optimizer.step()
    assert [p.stats[0] for p in task.predict(network, items, tokenizer)] == [1.0] * 5


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_what_is_trained_is_what_is_predicted(name):
    kind = "encoder-decoder" if name == "t5" else "decoder"
    tokenizer = sentence_piece(bos=name == "gpt2")
    network, task = model(name, len(tokenizer)).float(), prepared(tokenizer, kind=kind, words=WORDS)
    items = task.encode(TRAIN, tokenizer, model_kind=kind, train=True)
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        task.loss(network, items, tokenizer).backward()
        optimizer.step()
    assert [p.stats[0] for p in task.predict(network, items, tokenizer)] == [1.0] * 5


def test_demonstrations_are_balanced_and_the_same_for_the_same_seed(tokenizer):
    task = prepared(tokenizer, TRAIN[:4], words={"neg": "bad", "pos": "great"})
    block = task.demonstrations(TRAIN[:4], 2, seed=5)
    assert block.endswith("\n\n")
    shots = block.removesuffix("\n\n").split("\n\n")
    expected = [f"{row['text']}\nLabel: {task.words[row['label'].strip()]}" for row in TRAIN[:4]]
    assert Counter(shots) == Counter(expected)
    assert block == task.demonstrations(TRAIN[:4], 2, seed=5)
    assert len({task.demonstrations(TRAIN[:4], 2, seed=seed) for seed in range(20)}) > 5
    one = task.demonstrations(TRAIN[:4], 1, seed=0)
    assert Counter(shot.rsplit(" ", 1)[1] for shot in one.strip().split("\n\n")) == {"bad": 1, "great": 1}
    for k in (0, 2):
        with pytest.raises(UserError) as caught:
            prepared(tokenizer).demonstrations(TRAIN, k, seed=0)
        assert f"{k} demonstrations a label are asked for" in str(caught.value)
        assert str(caught.value).endswith("Allowed: 1 to 1.")


def test_data_that_cannot_be_classified_are_refused(tokenizer):
    task = Classification()
    good, other = TRAIN[:2], Row({"text": "x", "label": "new"}, "test.csv", 9)
    for splits, message in [
        (
            {"train": TRAIN[:1]},
            "The training rows have one label only, 'pos'. Classification needs at least two; "
            "is 'label' the right field? Type: --label FIELD",
        ),
        (
            {"train": good, "test": [other]},
            "test.csv line 9: label 'new' of the test rows does not occur in the training rows, which have neg, pos. "
            "Add training rows of it, or take it out.",
        ),
        (
            {"train": [*good, Row({"text": "x", "label": "  "}, "a.csv", 3)]},
            "a.csv line 3: 'label' is empty. Fill it in or delete the row.",
        ),
        (
            {"train": [*good, Row({"text": "x", "label": None}, "a.jsonl", 3)]},
            "a.jsonl line 3: 'label' is null, where text or a number is needed. Fill it in or delete the row.",
        ),
    ]:
        with pytest.raises(UserError) as caught:
            task.prepare(splits, tokenizer, model_kind="decoder")
        assert str(caught.value) == message
    with pytest.raises(UserError) as caught:
        prepared(tokenizer, words={"pos": "great", "negative": "bad"})
    assert str(caught.value) == (
        "train.csv line 3: label 'neg' is not among the labels: negative, pos. "
        "Correct it, or name its word beside the others: --words negative=bad,pos=great,neg=WORD"
    )
    with pytest.raises(UserError, match="has no field 'text'"):
        prepared(tokenizer).encode([{"label": "pos"}], tokenizer, model_kind="decoder")


def test_settings_that_cannot_work_are_refused(tokenizer):
    with pytest.raises(UserError, match=r"by='heads'\): allowed are 'words' and 'head'\. Type: by='words'"):
        Classification(by="heads")
    with pytest.raises(UserError, match=r"has one label only, 'a'\. Give at least two\."):
        Classification(words={"a": "b"}).describe()
    with pytest.raises(UserError, match=r"label 'neg' is not among .*: pos\. .* --words pos=great,neg=WORD$"):
        prepared(tokenizer, words={"pos": "great"})
    with pytest.raises(UserError, match=r"contains the label's own field \{label\}, which would give the answer away"):
        Classification(template="{text} {label}")
    with pytest.raises(UserError, match=r"does not know its labels yet\. Type: task = task\.prepare"):
        Classification().encode(TRAIN, tokenizer, model_kind="decoder")
    with pytest.raises(UserError, match=r"by='head' is for encoders, and this model is a decoder\. Type: by='words'"):
        prepared(tokenizer, by="head")
    with pytest.raises(UserError, match=r"has \{mask\}, which by='head' has no use for\. Take it out\."):
        Classification(template="{text} {mask}", by="head")


def test_white_space_around_words_goes_as_around_labels(tokenizer):
    bare = {"neg": "bad", "odd": "so", "pos": "a film"}
    blank = {"neg": " bad", "odd": "so", "pos": "a film\n"}
    found = [prepared(tokenizer, words=words).encode(TRAIN, tokenizer, model_kind="decoder") for words in (bare, blank)]
    assert found[0] == found[1]
    with pytest.raises(UserError, match="which comes to no token"):
        prepared(tokenizer, words=bare | {"neg": " "})
    for wrong in ({"neg": 1, "pos": 2}, ["neg", "pos"]):
        with pytest.raises(UserError, match=r"give each label a text, as words=\{'neg': 'bad'\}"):
            Classification(words=wrong)


@torch.no_grad()
def test_scores_that_are_no_numbers_are_no_answer():
    tokenizer = byte_level()
    network, task = model("gpt2", len(tokenizer)), prepared(tokenizer, words=WORDS)
    items = task.encode(TRAIN, tokenizer, model_kind="decoder")
    network.transformer.ln_f.weight[0] = float("nan")
    with pytest.raises(UserError, match=rf"scores are no numbers \(NaN\), first on row {TRAIN[0].line}: .* float32"):
        task.predict(network, items, tokenizer)


def test_scores_on_a_device_without_float64_are_answered_as_on_a_cpu(tokenizer):
    task = prepared(tokenizer, words=WORDS)
    rows, scores = task.encode(TRAIN[:2], tokenizer, model_kind="decoder"), torch.tensor([[1.0, 2, 3], [2.5, 0, -1]])
    assert task.answered(rows, scores.as_subclass(OnApple)) == task.answered(rows, scores)
    assert torch.equal(share(scores.as_subclass(OnApple)), share(scores)) and share(scores).dtype == torch.float64


def test_of_labels_that_come_to_one_share_the_answer_is_kept_and_stands_first():
    assert list(highest(dict.fromkeys("abcd", 0.25), "d")) == ["d", "a", "b"]
