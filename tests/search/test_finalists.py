"""Finalists that are tuned: against a training loop of plain torch, on every kind of model, and what it costs."""

import copy
import json
from types import SimpleNamespace

import masked
import pytest
import torch
from commands import call
from test_label_words import WORDS, bench, causal, rows

from tunescope.errors import UserError
from tunescope.search import finalists
from tunescope.search.finalists import Candidate, settled, settled_by_tuning
from tunescope.search.methods.label_words import LabelWords
from tunescope.search.methods.template import Template
from tunescope.tasks.kinds.classification import Classification
from tunescope.trial.plan import Plan
from tunescope.trial.train.batches import stream
from tunescope.trial.train.settings import Settings

SETTINGS = Settings(
    steps=99, batch_size=4, eval_every=3, patience=9, schedule="constant", warmup=0.0, clip=1e9, precision="float32"
)


def made(name, settings=SETTINGS):
    if name == "gpt2":
        tokenizer = masked.sentence_piece()
        model, template = causal(tokenizer), "{text} it was"
    else:
        (model, tokenizer), template = masked.make(name), "{text} it was {mask}."
    task = Classification(words=WORDS, template=template)
    given = bench(model, tokenizer, task, rows(10, 1), rows(6, 2))
    given.plan = Plan(model="tiny", data={}, task={}, settings=settings)
    return given


@pytest.mark.parametrize("name", ["bert", "t5", "gpt2"])
def test_a_finalist_is_tuned_as_a_loop_of_plain_torch_tunes_it_and_the_model_is_left_as_it_was(name):
    given = made(name)
    before = {key: value.clone() for key, value in given.model.state_dict().items()}
    by_hand = copy.deepcopy(given.model)
    items = given.task.encode(given.splits.train, given.tokenizer, model_kind=given.kind, train=True)
    dev = given.task.encode(given.splits.dev, given.tokenizer, model_kind=given.kind)
    optimizer = torch.optim.AdamW(by_hand.parameters(), 1e-4, weight_decay=0.0)
    taken, scores, lengths = 0, [], [len(item.input_ids) + len(item.target_ids) for item in items]
    for step, chosen in zip(range(1, 6), stream(lengths, 4, 7), strict=False):
        optimizer.zero_grad()
        given.task.loss(by_hand, [items[index] for index in chosen], given.tokenizer).backward()
        optimizer.step()
        taken += 3 * len(chosen)
        if step in (3, 5):
            scores.append(sum(one.stats[0] for one in given.task.predict(by_hand, dev, given.tokenizer)) / 6)
            taken += 6
    seen = []
    handle = given.model.register_forward_hook(lambda model, _, out: model.training or seen.append(out.logits))
    found = finalists.tuned_score(given, 5, 7)
    handle.remove()
    assert found == (pytest.approx(max(scores)), taken)
    seen_by_hand = []
    by_hand.register_forward_hook(lambda *call: seen_by_hand.append(call[-1].logits))
    given.task.predict(by_hand, dev, given.tokenizer)
    torch.testing.assert_close(seen[-1], seen_by_hand[-1], rtol=0, atol=1e-9)
    assert all(torch.equal(value, before[key]) for key, value in given.model.state_dict().items())


@pytest.mark.parametrize(("rates", "expected"), [((), 1e-4), ((5e-5, 1e-5, 2e-5), 1e-5)])
def test_finalists_are_tuned_at_the_smallest_rate_of_the_plan_or_at_the_middle_of_full_tuning(
    rates, expected, monkeypatch
):
    given, asked = made("gpt2"), []
    given.plan = Plan(model="tiny", data={}, task={}, settings=SETTINGS, rates=rates)

    def train(problem, settings, seed):
        asked.append(set(problem.rates.values()))
        return SimpleNamespace(best_score=0.5)

    monkeypatch.setattr("tunescope.trial.train.loop.train", train)
    assert finalists.tuned_score(given, 5, 0)[0] == 0.5 and asked == [{expected}]


@pytest.mark.parametrize("name", ["bert", "t5", "gpt2"])
def test_label_words_are_found_by_the_best_finalist_after_tuning(name, monkeypatch):
    given, told, asked = made(name), [], []
    scores = iter([0.5, None, 0.75, 0.75])

    def score(own, steps, seed):
        asked.append((dict(own.task.words), steps, seed))
        return next(scores), 30

    monkeypatch.setattr(finalists, "tuned_score", score)
    plain = LabelWords(shortlist=6, keep=8).search(given, 10_000, 2, told.append)
    found = LabelWords(shortlist=6, keep=8, tune=9, finalists=4).search(given, 10_000, 2, told.append)
    ranked = sorted(plain.trace, key=lambda point: -point.dev)
    assert [",".join(f"{a}={b}" for a, b in words.items()) for words, _, _ in asked] == [p.shown for p in ranked[:4]]
    assert {(steps, seed) for _, steps, seed in asked} == {(9, 2)}
    assert (dict(found.words), found.dev) == (asked[2][0], 0.75)  # of equals the better one before
    assert found.passes == plain.passes + 4 * 30
    assert [point.passes - plain.passes for point in found.trace[8:]] == [30, 90, 120]
    assert found.counts == {"finalists tuned for 9 steps each; dev is after tuning, test without": 4}
    assert any("diverged in tuning" in line for line in told)
    assert any(line.endswith("0.750 after 9 steps") for line in told)


def test_templates_are_found_by_the_best_finalist_after_tuning(monkeypatch):
    given, asked = made("bert"), []
    scores = {"a {text} {mask}": 0.25, "the {text} {mask}": 0.75, "it {text} {mask}": 0.5}
    monkeypatch.setattr(Template, "_written", lambda *_: list(scores))
    monkeypatch.setattr("tunescope.search.methods.template._score", lambda _, template: scores[template])

    def score(own, steps, seed):
        asked.append(own.task.template)
        return {"it {text} {mask}": 0.9}.get(own.task.template, 0.6), 40

    monkeypatch.setattr(finalists, "tuned_score", score)
    found = Template(tune=9, finalists=2).search(given, 1000, 0, [].append)
    assert asked == ["the {text} {mask}", "it {text} {mask}"]
    assert (found.template, found.dev, found.passes) == ("it {text} {mask}", 0.9, 3 * 6 + 80)
    cost = 2 * (3 * 9 * 4 + 3 * 6)
    found = Template(tune=9, finalists=2).search(given, cost + 2 * 6 + 5, 0, [].append)
    tried = ["a {text} {mask}", "the {text} {mask}"]  # what is left beside tuning is enough for two
    assert [point.shown for point in found.trace] == [*tried, f"{tried[1]} (tuned)", f"{tried[0]} (tuned)"]


def test_where_every_finalist_diverges_it_is_said(monkeypatch):
    given, one = made("bert"), Candidate("{text} {mask}", WORDS, "one", 0.5)
    monkeypatch.setattr(finalists, "tuned_score", lambda *_: (None, 30))
    with pytest.raises(UserError, match="label_words: all 1 finalists diverged in tuning; take a smaller tune"):
        settled_by_tuning(given, [one], settled([one], 5, []), finalists.Tuning("label_words", 9, 5), 0, [].append)


def test_a_loss_that_is_no_number_is_a_candidate_that_diverged(monkeypatch):
    given = made("bert")
    loss = Classification.loss
    monkeypatch.setattr(Classification, "loss", lambda *given: loss(*given) * float("nan"))
    assert finalists.tuned_score(given, 5, 0) == (None, 3 * 4)


@pytest.mark.parametrize("search", ["label_words", "template"])
def test_settings_of_tuning_that_cannot_be_are_refused(search):
    kind, given = {"label_words": LabelWords, "template": Template}[search], made("t5")
    for fields, message in (
        (
            {"tune": -1},
            f"{search}: tune is a number of steps and finalists 1 or more; type {search}:tune=100,finalists",
        ),
        ({"tune": 5, "finalists": 0}, "finalists 1 or more"),
        ({"finalists": 3}, f"{search}:finalists=3 is how many candidates are tuned; add tune=100, or drop it"),
        (
            {"tune": 9, "finalists": 4, "keep" if search == "label_words" else "beam": 3},
            f"{search}:finalists=4 is more than the 3 candidates of",
        ),
        ({"tune": 9}, f"{search}: tuning 5 finalists for 9 steps of 4 rows takes 630 passes, and looking for them at"),
    ):
        with pytest.raises(UserError, match=message):
            kind(**fields).search(given, 630, 0, [].append)


def test_the_command_tunes_and_tells_what_it_took(tmp_path, monkeypatch, capsys):
    model, tokenizer = masked.make("bert", dtype=torch.float32)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    for seed, (part, count) in enumerate({"train": 12, "dev": 6, "test": 6}.items()):
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(count, seed)))
    words = ["search", tmp_path / "model", tmp_path / "train.jsonl", "--by", "words", "--seeds", "1"]
    words += ["--template", "{text} it was {mask}.", "--method", "label_words:shortlist=8,tune=2,finalists=2"]
    for part in ("dev", "test"):
        words += [f"--{part}", tmp_path / f"{part}.jsonl"]
    code, _, err = call(monkeypatch, capsys, *words, "--passes", "1000", "--out", tmp_path / "out")
    assert code == 0, err
    (found,) = json.loads((tmp_path / "out" / "results.json").read_text())["searches"]
    (run,) = found["runs"]
    assert run["found"]["passes"] == 12 + 6 + 2 * (3 * 2 * 12 + 6)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "2 finalists tuned for 2 steps each; dev is after tuning, test without" in page
