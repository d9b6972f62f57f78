"""Demonstrations as an arm: chosen, ordered and calibrated, and what is told of it."""

import dataclasses
import json
import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import tinyrun
import torch
from scipy.stats import chisquare
from scipy.stats import entropy as scipy_entropy

import tunescope as ts
from tunescope.comparison import arms, comparison
from tunescope.methods.text_form import made
from tunescope.report import terminal
from tunescope.report.verdict.remarks import remarks
from tunescope.tasks.answers.decode import Sampling, greedy, sampled
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.task import Encoded, Prediction
from tunescope.trial import plan, plan_check
from tunescope.trial.arm import Arm
from tunescope.trial.demos import draw, order, probing_set
from tunescope.trial.demos.order import candidates, entropy, ordered
from tunescope.trial.demos.spec import Demos
from tunescope.trial.open import open_bench
from tunescope.trial.train.settings import Settings

ARMS = (
    "zero-shot",
    "demos:k=1",
    "demos:k=1,choose=random",
    "demos:k=1,choose=diverse,calibrate=true",
    "demos:k=1,choose=nearest",
    "demos:k=1,order=best,orders=all",
    "demos:k=1,order=entropy,orders=all",
    "demos:k=1,order=best,calibrate=true+lora",
)


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    return tinyrun.write(tmp_path_factory.mktemp("material"))


def question(material, *, task="classification", texts=ARMS, **fields):
    model, data = material
    settings = Settings(steps=4, batch_size=8, eval_every=2, patience=3)
    given = {"kind": task, "template": "{text} Label:", **fields}
    return plan_check.check(
        plan.Plan(model=model, data=data, task=given, arms=texts, seeds=(0, 1), trials=1, settings=settings)
    )


@pytest.fixture(scope="module")
def bench(material):
    return open_bench(question(material))


@pytest.fixture(scope="module")
def done(bench, material, tmp_path_factory):
    asked = question(material)
    found = comparison.run(asked, tmp_path_factory.mktemp("run"), tinyrun.opened(bench), by_name=True, quiet=True)
    return found, {arm["name"]: arm for arm in found.results["arms"]}


def test_every_way_is_an_arm_that_finishes(done):
    _, found = done
    assert {name: arm["status"] for name, arm in found.items()} == dict.fromkeys(ARMS, "done")
    assert found["demos:k=1,choose=nearest"]["group"] == "text"
    assert len(found["demos:k=1,choose=nearest"]["runs"]) == 1  # it draws nothing
    assert len(found["demos:k=1,choose=diverse,calibrate=true"]["runs"]) == 2


def test_what_was_the_default_before_still_is(bench):
    rows = draw.drawn(Demos(k=3), bench, 5)
    assert draw.text(bench, bench.task, rows) == bench.task.demonstrations(bench.splits.train, 3, 5)
    assert str(Demos()) == "demos:k=4"


def test_an_arm_is_written_as_it_is_typed():
    for text in (
        "demos:k=2,choose=diverse,calibrate=true",
        "demos:k=3,order=best,orders=all",
        r"demos:k=1,choose=similar,encoder=/Some/folder\+1\,2,sets=16",
    ):
        assert str(made(Demos, text)) == text
    assert made(Demos, text).encoder == "/Some/folder+1,2"
    assert arms._front(f"{text}+lora:rank=2") == (made(Demos, text), None, "lora:rank=2")


@torch.no_grad()
def test_every_query_has_the_rows_nearest_to_it_in_front(done, bench):
    """Strings joined by hand, and the logits of plain transformers."""
    model, tokenizer = tinyrun.model(), tinyrun.tokenizer()
    train_rows, test_rows = bench.splits.train, bench.splits.test

    def state(row):
        ids = torch.tensor([tokenizer(f"{row['text']} Label:")["input_ids"]])
        return model(input_ids=ids, output_hidden_states=True).hidden_states[-1][0].mean(0)

    states = torch.stack([state(row) for row in train_rows])
    right = []
    for row in test_rows:
        near = torch.nn.functional.cosine_similarity(state(row)[None], states).sort(descending=True, stable=True)[1]
        shown = [train_rows[index] for index in near[:2].tolist()[::-1]]
        text = "".join(f"{one['text']} Label: {one['label']}\n\n" for one in shown) + f"{row['text']} Label:"
        logits = model(input_ids=torch.tensor([tokenizer(text)["input_ids"]])).logits[0, -1]
        words = tokenizer.convert_tokens_to_ids(["neg", "pos"])
        right.append(float(["neg", "pos"][int(logits[words].argmax())] == row["label"]))
    (run,) = done[1]["demos:k=1,choose=nearest"]["runs"]
    assert [stats[0] for stats in run["stats"]] == right


def test_nearest_demonstrations_are_no_artifact_and_it_is_said(done):
    found, by_name = done
    (run,) = by_name["demos:k=1,choose=nearest"]["runs"]
    assert not (found.folder / "arms" / run["id"] / "artifact").exists()
    assert "no artifact" in by_name["demos:k=1,choose=nearest"]["remarks"][0]


def test_the_spread_over_orders_is_in_the_result_the_table_and_the_page(done):
    found, by_name = done
    arm = by_name["demos:k=1,order=best,orders=all"]
    for run in arm["runs"]:
        orders = run["demonstrations"]["orders"]
        assert (orders["tried"], orders["possible"], len(orders["dev"])) == (2, 2, 2)
        assert orders["dev"][orders["chosen"]] == max(orders["dev"]) == run["dev"]
        assert orders["sd"] == pytest.approx(np.std(orders["dev"]))
    (remark,) = arm["remarks"]
    page = (found.folder / "report.html").read_text()
    assert remark.startswith("Order alone moves the development score from ") and remark in page.replace("&#39;", "'")
    assert remark[:40] in " ".join(terminal.table(found.results).split())


def test_calibration_is_saved_with_the_artifact(done):
    found, by_name = done
    arm = by_name["demos:k=1,choose=diverse,calibrate=true"]
    run = arm["runs"][0]
    saved = json.loads(next((found.folder / "arms" / run["id"] / "artifact").glob("*.json")).read_text())
    prior = run["demonstrations"]["prior"]
    assert sum(prior.values()) == pytest.approx(1)
    assert f'"prior": {json.dumps(prior)}'.replace(" ", "") in json.dumps(saved).replace(" ", "")
    assert "divided out of the answers. They are saved with the artifact" in arm["remarks"][0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("demos:k=1,orders=4", "demos:k=1,orders=4: orders is how many order=entropy or order=best try"),
        ("demos:k=1,order=best,orders=1", "at least 2 orders, or orders=all; type demos:k=4,order=best,orders=24"),
        ("demos:order=worst", "Arm field 'demos:order=worst': input should be 'mixed', 'entropy' or 'best'"),
        ("demos:choose=all", "input should be 'balanced', 'random', 'diverse', 'nearest' or 'similar'"),
        ("demos:k=1,choose=nearest,order=best", "of its own, in the order of their similarity; order has no effect"),
        ("demos:k=1,choose=similar,order=best", "no one block to put into the order order=best; drop it"),
        ("demos:k=1,sets=4,order=entropy", "no one block to put into the order order=entropy; drop it"),
        ("demos:k=1,sets=0", "at least one set of demonstrations; type demos:k=1,choose=similar,sets=16"),
        ("demos:k=1,choose=nearest,sets=4", "choose=nearest has one answer; drop sets, or type choose=similar"),
        ("demos:k=1,choose=diverse,sets=4", "choose=diverse has one answer; drop sets, or type choose=similar"),
        ("demos:k=1,encoder=there", "which rows are alike, and choose=balanced does not ask; drop it"),
        ("demos:k=1,choose=similar+reweight", "and reweight is of the label words of one block in front of all"),
        ("demos:k=40,choose=similar", "40 demonstrations are asked for from the half most like a query of label '"),
    ],
)
def test_an_option_without_effect_is_refused(bench, text, message):
    with pytest.raises(ts.UserError, match=message) as refused:
        arms.ready(Arm(text, text), bench)
    assert "\n" not in str(refused.value)


def test_every_field_is_listed():
    from tunescope.cli import arms as listing

    said = next(line for line in listing.UNTRAINED if "choose=" in line)
    assert all(f" {field.name}" in said for field in dataclasses.fields(Demos))
    for line in listing.UNTRAINED:
        if "example: demos" in line:
            arms.listed((line.partition("example: ")[2],), (), "decoder")
    assert any(line.endswith("tune=0, finalists") for line in listing.lines())


def test_averaged_scores_are_refused_where_answers_are_written(material):
    for kind in ("generation", "reasoning"):
        bench = open_bench(question(material, task=kind, input="text", target="label", template="{text} Label:"))
        with pytest.raises(ts.UserError, match="sets averages the scores of labels, which neither answers"):
            arms.ready(Arm("one", "demos:k=1,choose=similar,sets=2"), bench)


@pytest.mark.parametrize("option", ["choose=balanced", "order=entropy", "calibrate=true"])
def test_what_is_about_labels_is_refused_where_there_are_none(material, option):
    bench = open_bench(question(material, task="generation", input="text", target="label"))
    with pytest.raises(ts.UserError, match=f"{option} is about labels, and this task has none; drop it"):
        arms.ready(Arm("one", f"demos:k=1,{option}"), bench)
    assert len(draw.drawn(Demos(k=3), bench, 0)) == 3


def test_few_orders_are_all_tried_and_many_are_drawn_the_first_as_it_was():
    rows = (7, 3, 5)
    assert candidates(rows, 24, 0) == candidates(rows, "all", 0) == list(permutations(rows))
    some = candidates(tuple(range(8)), 10, 0)
    assert len(set(some)) == len(some) == 10 and some[0] == tuple(range(8))
    assert all(sorted(order) == list(range(8)) for order in some)
    assert candidates(tuple(range(8)), 10, 1) != some


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        (
            "classification",
            "demos:k=4,order=best,orders=all",
            "8 demonstrations have 40,320 orders, and at most 24 are",
        ),
        ("generation", "demos:k=1,order=best", "one demonstration has one order only; drop order, or take a larger k"),
    ],
)
def test_too_many_orders_and_no_choice_of_orders_are_refused(material, bench, task, text, message):
    other = open_bench(question(material, task=task, input="text", target="label")) if task == "generation" else bench
    with pytest.raises(ts.UserError, match=message):
        arms.ready(Arm(text, text), other)


def test_of_very_many_demonstrations_the_orders_are_told_without_their_thousands_of_digits():
    task, demos = Classification(words={f"l{n}": f"w{n}" for n in range(77)}), Demos(k=21, order="best")
    with pytest.raises(ts.UserError, match=r"1617 demonstrations have 1617! orders, and at most 24 are tried"):
        order.check(replace(demos, orders="all"), task)
    order.check(demos, task)
    possible = [order.Ordered((1,), "best", (0.5, 0.6), 0, math.factorial(n)).to_json()["possible"] for n in (1617, 8)]
    assert json.loads(json.dumps(possible)) == [None, 40_320]


@pytest.mark.parametrize("answers", ["aaab", "aabb", "aaaa", "abcabd"])
def test_the_entropy_is_that_of_the_shares_of_the_answers(answers):
    assert entropy(list(answers)) == pytest.approx(scipy_entropy([answers.count(one) for one in set(answers)]))


def fake(scores):
    """An order's predictions on 10 rows; the order is right as often as it says."""

    def answers(order, asked):
        right = round(10 * scores[order])
        return [Prediction(n, "ab"[n % (order[0] + 1) > 0], (float(n < right), 0.0, 0.0)) for n in range(10)]

    return answers


def test_the_best_order_is_taken_and_the_earlier_of_equals(bench):
    scores = dict(zip(permutations((0, 1, 2)), (0.1, 0.8, 0.3, 0.8, 0.2, 0.4), strict=True))
    found = ordered(Demos(order="best"), bench, (0, 1, 2), 0, fake(scores))
    assert (found.rows, found.chosen, found.possible) == ((0, 2, 1), 1, math.factorial(3))
    told = found.to_json()
    values = list(scores.values())
    expected = (min(values), np.mean(values), max(values), np.std(values))
    assert [told[key] for key in ("min", "mean", "max", "sd")] == pytest.approx(expected)


def test_the_order_whose_answers_spread_best_is_taken_whatever_its_score(bench):
    scores = dict.fromkeys(permutations((0, 1)), 0.9) | {(1, 0): 0.1}
    found = ordered(Demos(order="entropy"), bench, (0, 1), 0, fake(scores))
    assert found.rows == (1, 0) and found.dev == (0.9, 0.1)
    assert found.entropies == pytest.approx((0.0, math.log(2)))


@pytest.mark.parametrize(
    ("template", "text", "expected"),
    [
        ("{text}\nLabel:", " a fine film\nLabel: pos\n\nnext", {"text": "a fine film"}),
        ("{text}\nLabel:", "no label at all", {"text": "no label at all"}),
        ("{text} It was", "dull It was bad", {"text": "dull"}),
        ("{text} It was", "first line\nsecond It was", {"text": "first line"}),
        ("{text}\nLabel:", "\nLabel: pos", None),
        ("P: {a}\nH: {b}\nL:", "one\ntwo\nH: three\nL: no", {"a": "one\ntwo", "b": "three"}),
        ("P: {a}\nH: {b}\nL:", "one and no more", None),
    ],
)
def test_a_sample_is_read_by_the_template(template, text, expected):
    assert probing_set.parsed(template, text) == expected


def test_a_probing_set_without_a_usable_sample_and_a_field_twice_are_refused(bench, monkeypatch):
    monkeypatch.setattr("tunescope.tasks.answers.decode.sampled", lambda *_, **__: ["", " \n"])
    with pytest.raises(ts.UserError, match="none of the 2 samples of the model has the form of the template"):
        probing_set.written(bench, [(0, 1), (1, 0)], 0)
    with pytest.raises(ts.UserError, match=r"cannot read template '{a} {a}', which has a field twice"):
        probing_set.parsed("{a} {a}", "x")


def encoded(*prompts):
    return [Encoded(index, ids, (), None, (), "") for index, ids in enumerate(prompts)]


def test_samples_are_those_of_the_seed_and_near_temperature_zero_they_are_greedy():
    model, tokenizer = tinyrun.model(), tinyrun.tokenizer()
    rows = encoded((5, 6, 7), (8, 9))
    one, again, other = (sampled(model, rows, tokenizer, 12, 2, Sampling(1.5, seed)) for seed in (3, 3, 4))
    assert one == again != other
    before = torch.random.get_rng_state()
    assert sampled(model, rows, tokenizer, 6, 2, Sampling(1e-6, 0)) == greedy(model, rows, tokenizer, 6, 2)
    assert torch.equal(before, torch.random.get_rng_state())


@torch.no_grad()
def test_samples_follow_the_softmax_at_the_temperature():
    model, tokenizer = tinyrun.model(), tinyrun.tokenizer()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model.lm_head.weight = torch.nn.Parameter(torch.randn(16, 16) / 2)  # far from uniform
    texts = sampled(model, encoded(*[(5, 6)] * 4000), tokenizer, 1, 4000, Sampling(2.0, 0))
    logits = model(input_ids=torch.tensor([[5, 6]])).logits[0, -1]
    expected = (logits.double() / 2).softmax(-1)[3:15]  # those that a text shows
    names = tokenizer.convert_ids_to_tokens(list(range(3, 15)))
    counts = np.array([texts.count(name) for name in names])
    assert chisquare(counts, (expected / expected.sum() * counts.sum()).numpy()).pvalue > 0.01


def test_remarks_say_the_spread_of_every_seed():
    orders = {"rule": "best", "tried": 3, "possible": 6, "min": 0.1, "mean": 0.2, "max": 0.35, "sd": 0.05}
    orders |= {"dev": [0.1, 0.35, 0.15], "chosen": 1}
    shown = {"each": False, "orders": orders, "prior": None}
    (said,) = remarks([{"seed": 4, "demonstrations": shown}])
    assert said.startswith(
        "Order alone moves the development score from 0.100 to 0.350 (mean 0.200, deviation 0.050, taken 0.350; "
        "seed 4), over 3 of the 6 orders of the same demonstrations; the order with the best"
    )
    assert remarks([{"seed": 0, "demonstrations": None}, {"seed": 1}]) == []


def test_orders_tried_are_counted_in_the_estimate(bench):
    assert order.most(Demos(k=1, order="best"), bench.task) == 2
    assert order.most(Demos(k=4, order="best"), bench.task) == 24
    assert order.most(Demos(k=2, order="best", orders="all"), bench.task) == 24
