"""The world of recall: what its sequences say, what is learned of them, and that prompts are those sequences."""

from dataclasses import replace

import torch

from tunescope.lab.worlds.lessons import WATCHED, Lesson, problem
from tunescope.lab.worlds.models import Shape, gpt2
from tunescope.lab.worlds.recall import Recall, tokenizer
from tunescope.tasks.prompts.spans import spans

WORLD = Recall(items=7, labels=3, shown=5)


def test_every_item_is_shown_once_and_asked_once_and_its_label_is_the_one_shown():
    rows = WORLD.sequences(200, seed=4)
    assert rows.shape == (200, 20)
    shown, asked = rows[:, :10].reshape(200, 5, 2).tolist(), rows[:, 10:].reshape(200, 5, 2).tolist()
    for first, second in zip(shown, asked, strict=True):
        assert len(dict(first)) == 5
        assert dict(first) == dict(second)  # type: ignore[arg-type]
    assert any(first != second for first, second in zip(shown, asked, strict=True))
    assert int(rows[:, ::2].max()) < 7 <= int(rows[:, 1::2].min())


def test_an_item_has_every_label_in_some_sequence_so_only_the_sequence_can_tell():
    rows = WORLD.sequences(300, seed=0)
    pairs = {(item, label) for row in rows[:, :10].reshape(300, 5, 2).tolist() for item, label in row}
    assert len(pairs) == 7 * 3


def test_the_loss_and_the_score_are_those_of_the_answers_alone():
    net = gpt2(Shape(1, 2, 16), len(WORLD.words), 20, seed=0)
    rows = WORLD.sequences(6, seed=0)
    given = replace(WORLD, rows=6).lesson(0)
    assert torch.equal(given.train, rows)
    logits = net(input_ids=rows).logits
    answers = [11, 13, 15, 17, 19]
    expected = torch.stack([-logits[:, t - 1].log_softmax(-1).gather(1, rows[:, t : t + 1]) for t in answers]).mean()
    found = problem(net, {}, 0.1, given)
    torch.testing.assert_close(found.loss(list(range(6))), expected)
    right = [net(input_ids=given.dev).logits[:, t - 1].argmax(-1) == given.dev[:, t] for t in answers]
    assert found.score() == float(torch.stack(right).double().mean())
    assert found.labelled == [5] * 6


def test_every_third_of_five_answer_tokens_are_the_second_and_the_last():
    net = gpt2(Shape(1, 2, 16), len(WORLD.words), 20, seed=0)
    rows = WORLD.sequences(4, seed=0)
    logits = net(input_ids=rows).logits
    expected = torch.stack([-logits[:, t - 1].log_softmax(-1).gather(1, rows[:, t : t + 1]) for t in (16, 19)]).mean()
    torch.testing.assert_close(problem(net, {}, 0.1, Lesson(rows, rows, 5, every=3)).loss([0, 1, 2, 3]), expected)


def test_a_prompt_has_the_tokens_of_a_training_sequence_up_to_the_first_answer():
    words, task = tokenizer(WORLD), WORLD.task()
    for shown, rows in WORLD.draws(10, seed=0):
        found = spans(words, shown)
        assert [len(place["text"]) + len(place["label"]) for place in found.places] == [2] * 5
        labels = dict(zip((found.ids[0::2]), found.ids[1::2], strict=True))
        assert len(labels) == 5 and set(labels.values()) == {7, 8, 9}
        for row, query in zip(rows, task.encode(rows, words, model_kind="decoder", behind=""), strict=True):
            assert query.target_ids == (labels[query.input_ids[0]],)
            assert f"l{labels[query.input_ids[0]] - 7}" == row["label"]


def test_fresh_weights_have_the_spread_that_was_asked_for():
    weight = gpt2(Shape(1, 4, 64, initial=0.125), 40, 20, seed=0).transformer.h[0].attn.c_attn.weight
    assert abs(float(weight.detach().std()) / 0.125 - 1) < 0.05
    usual = gpt2(Shape(1, 4, 64), 40, 20, seed=0).transformer.h[0].attn.c_attn.weight
    assert abs(float(usual.detach().std()) / 0.02 - 1) < 0.05


def test_progress_is_watched_on_sequences_that_are_not_among_those_learned():
    given = replace(WORLD, rows=WATCHED).lesson(3)  # as many of either
    train, dev = ({tuple(row) for row in part.tolist()} for part in (given.train, given.dev))
    assert dev and not train & dev
