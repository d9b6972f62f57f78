"""The recipe on a given model and data: what it asks, and that its table is what the sections measured."""

import json
import math
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import tinyrun
from smaller import smaller

import tunescope as ts
from tunescope.probes.anchors import study
from tunescope.probes.anchors.request import AnchorRequest
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import check, find
from tunescope.reproduce.recipes import anchors
from tunescope.reproduce.run import reproduce, so_far
from tunescope.trial.plan import Plan

ROOT = Path(__file__).parents[2]


def draws(result):
    """What was measured of each draw, its sections together."""
    found = {}
    for unit in result["units"]:
        found.setdefault(unit["unit"]["seed"], {}).update(unit["outcome"])
    return list(found.values())


def test_it_runs_on_a_given_model_and_data_and_its_cells_are_the_measured_numbers(tmp_path, in_process):
    model, data = tinyrun.write(tmp_path)
    ask = Ask("anchors", quick=True, model=model, data=data["train"])
    result = reproduce(ask, tmp_path / "run", 1, lambda line: None)
    rows = {row["label"]: row["cells"][0] for row in result["table"]["rows"]}
    outcomes = draws(result)
    assert len(result["units"]) == 10 and len(outcomes) == 2
    assert rows["accuracy"]["values"] == [one["isolate"]["accuracy"] for one in outcomes]
    assert rows["flow into label words, last layer but one"]["values"] == [
        one["flow"]["shares"][-2][0] for one in outcomes
    ]
    cuts = [cut for cut in outcomes[0]["isolate"]["cuts"] if cut["layers"] == 1 and cut["where"] == "first"]
    assert [cut["words"] for cut in cuts] == ["label words", "random words"]
    assert "label loyalty, random words cut in the last layer" not in rows  # nothing could come of it
    assert rows["label loyalty, random words cut in the first layer"]["values"][0] == cuts[1]["label_loyalty"]
    assert rows["label loyalty, labels kept"]["values"][1] == outcomes[1]["compress"]["ways"]["labels"]["label_loyalty"]
    assert rows["word loyalty, anchors kept"]["values"][0] == outcomes[0]["compress"]["ways"]["anchors"]["word_loyalty"]
    for way, name, paper in (
        ("full", "all", ".519"),
        ("anchors", "anchors", ".450"),
        ("text_anchor", "text_anchor", ".388"),
    ):
        cell = rows[f"accuracy, {name} kept"]
        assert cell["values"] == [one["compress"]["ways"][way]["accuracy"] for one in outcomes]
        assert cell["paper"] == paper
    drawn = (tmp_path / "run" / "kept-model.svg").read_text()
    for ranking in ("at random", "by saliency"):
        least = sum(one["compress"]["curves"][ranking][0] for one in outcomes) / 2
        assert f"{ranking}: from {least:.3f} to 1" in drawn
    assert outcomes[0]["diagnose"]["correlation"] == [None, None]  # of two classes there is one pair
    assert "confusion of classes, predicted and actual, correlation" not in rows
    json.dumps(result, allow_nan=False)
    one, *others = sorted((tmp_path / "run" / "units").glob("*.json"))
    one.unlink()
    part = so_far(ask, tmp_path / "run", lambda line: None)["table"]
    assert part["rows"][0]["cells"][0]["seeds"] == 1
    assert part["notes"][0].startswith("9 of 10 pieces") and part["notes"][-1] == "Whole draws: 1."
    for other in others[1:]:
        other.unlink()
    with pytest.raises(ts.UserError, match="No draw of anchors has all of its sections yet"):
        so_far(ask, tmp_path / "run", lambda line: None)


def test_template_words_demonstrations_and_test_rows_are_those_asked_for(tmp_path, in_process):
    model, data = tinyrun.write(tmp_path)
    ask = Ask("anchors", quick=True, seeds=1, model=model, data=data["train"], test=data["test"], k=2)
    ask = replace(ask, template="{text} was", words=("neg=dull,pos=bright",))
    result = reproduce(ask, tmp_path / "run", 1, lambda line: None)
    assert "--template '{text} was' --words neg=dull,pos=bright --k 2 --test test.jsonl" in result["command"]
    assert result["settings"]["test"] == "test.jsonl"  # no path of this machine
    plan = Plan(
        model=model,
        data={"train": data["train"], "test": data["test"]},
        task={"kind": "classification", "template": "{text} was", "words": {"neg": "dull", "pos": "bright"}},
        seeds=(0,),
    )
    (expected,) = study.study(AnchorRequest(plan, 2, 24, ("isolate",)), lambda _: None).draws["isolate"]
    assert draws(result)[0]["isolate"] == expected
    with pytest.raises(ts.UserError, match="anchors has no use for --k without --model and --data"):
        anchors.settings(Ask("anchors", k=2))
    with pytest.raises(ts.UserError, match="prefix-main has no use for --template"):
        check(Ask("prefix-main", template="{text}"), find("prefix-main"))


def test_the_paper_s_protocol_asks_in_its_words_with_its_seeds_and_as_many_rows(tmp_path):
    model, files = tinyrun.write(tmp_path)
    ask = Ask("anchors", "paper", model=model, data=tinyrun.sst2(tmp_path / "sst2"))
    check(ask, find("anchors"))
    made = anchors.settings(ask)
    assert made["task"] == {
        "label": "label",
        "template": "Review: {text}\nSentiment:",
        "words": {"negative": "Negative", "positive": "Positive"},
    }
    assert (made["k"], made["rows"], made["seeds"], made["protocol"]) == (1, 1000, 5, "paper")
    assert list(dict.fromkeys(unit["seed"] for unit in anchors.units(made))) == [42, 43, 44, 45, 46]
    assert made["sha256"] == {
        part: sha256((tmp_path / f"sst2/{part}.jsonl").read_bytes()).hexdigest() for part in ("train", "dev", "test")
    }
    typed = anchors.settings(replace(ask, inputs=7, seeds=2, k=3, words=("negative=neg,positive=pos",)))
    assert (typed["rows"], typed["seeds"], typed["k"]) == (7, 2, 3)
    assert typed["task"]["words"] == {"negative": "neg", "positive": "pos"}
    assert typed["task"]["template"] == made["task"]["template"]
    with pytest.raises(ts.UserError, match="templates are published of sst2, ag_news, trec"):
        anchors.settings(replace(ask, data=files["train"]))
    other = anchors.settings(replace(ask, data=files["train"], template="{text} was"))
    assert other["task"] == {"label": "label", "template": "{text} was"}
    with pytest.raises(ts.UserError, match="anchors has no use for --protocol paper without --model and --data"):
        anchors.settings(Ask("anchors", "paper"))
    with pytest.raises(ts.UserError, match="anchors has no use for --inputs without --model and --data"):
        anchors.settings(Ask("anchors", inputs=5))


def test_a_draw_by_the_paper_s_protocol_is_that_of_the_verb(tmp_path, in_process):
    model, _ = tinyrun.write(tmp_path)
    corpus, words = tinyrun.sst2(tmp_path / "sst2"), {"negative": "neg", "positive": "pos"}
    ask = Ask("anchors", "paper", seeds=1, model=model, data=corpus, inputs=9, words=("negative=neg,positive=pos",))
    result = reproduce(ask, tmp_path / "run", 1, lambda line: None)
    assert " --protocol paper " in result["command"] and " --inputs 9 " in result["command"]
    assert str(tmp_path) not in json.dumps(result)
    task = {"kind": "classification", "template": "Review: {text}\nSentiment:", "words": words}
    data = {part: f"{corpus}#{part}" for part in ("train", "dev", "test")}
    plan = Plan(model=model, data=data, task=task, seeds=(42,))
    (expected,) = study.study(AnchorRequest(plan, 1, 9, ("isolate",)), lambda _: None).draws["isolate"]
    assert draws(result)[0]["isolate"] == expected
    assert result["table"]["notes"][-1] == (
        "Asked by 'Review: {text}\\nSentiment:': 9 test rows at most, 1 of each class in front, drawn anew by "
        "each seed, of which 42 is the first."
    )


def test_what_is_kept_of_the_usual_protocol_is_as_it_was_and_is_read(tmp_path):
    model, files = tinyrun.write(tmp_path)
    kept = json.loads((ROOT / "results/anchors-smollm2.json").read_text())
    made = anchors.settings(Ask("anchors", model=model, data=files["train"], test=files["test"], template="{text}"))
    assert made.keys() == kept["settings"].keys() and made["rows"] == kept["settings"]["rows"]
    assert made["sha256"] == sha256((tmp_path / "train.jsonl").read_bytes()).hexdigest()
    units = [one["unit"] for one in kept["units"]]
    assert anchors.units(kept["settings"]) == units
    table = anchors.table(kept["settings"], [(one["unit"], one["outcome"]) for one in kept["units"]])
    assert [label for label, _ in table.rows] == [row["label"] for row in kept["table"]["rows"]]
    values = [[list(cell.values) for cell in cells] for _, cells in table.rows]
    assert values == [[cell["values"] for cell in row["cells"]] for row in kept["table"]["rows"]]
    assert table.notes == kept["table"]["notes"]


def test_an_undefined_number_is_no_value_of_its_cell():
    assert anchors._cell([None, 0.75, float("nan")], "", anchors.SHARE).values == (0.75,)
    assert anchors._cell([None], ".5", anchors.SHARE).text == "undefined"


def test_sums_over_layers_are_read_where_they_are_told():
    """R at the middle of four layers is the second's; the correlation is that of the layer fixed beforehand."""
    one = {"auc": {"cumulative": [0.1, 0.3, 0.6, 1.0]}, "diagnose": {"layer": 2, "correlation": [0.0, 0.1, -0.5, 0.2]}}
    assert [(read(one), bounds) for _, _, read, bounds in anchors._sums([one])] == [
        (0.3, (-math.inf, math.inf)),
        (-0.5, (-1.0, 1.0)),
    ]


@pytest.mark.parametrize("given", [{"model": "m"}, {"data": "d"}])
def test_it_takes_a_model_and_data_together_or_neither(given):
    with pytest.raises(ts.UserError, match="takes --model and --data together, or neither"):
        anchors.settings(Ask("anchors", **given))


@pytest.mark.parametrize(
    ("row", "template", "told"),
    [
        ({"input": "a", "target": "b"}, None, "needs rows with a field 'label', and these have input, target. Rename"),
        ({"review": "a", "label": "b"}, None, "the rows of .* have review, label. .*: --template '{review} It was'"),
        (
            {"id": "1", "text": "a", "label": "b"},
            "{review}!",
            "names 'review', .* have id, text, label. .*: --template '{text} It was'",
        ),
    ],
)
def test_rows_that_it_cannot_ask_are_refused_by_what_the_recipe_takes(row, template, told, tmp_path):
    model, _ = tinyrun.write(tmp_path)
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    with pytest.raises(ts.UserError, match=told):
        anchors.settings(Ask("anchors", model=model, data=str(tmp_path / "rows.jsonl"), template=template))


@pytest.fixture(scope="module")
def at_home(tmp_path_factory, in_process):
    """Pretrained for so long that it answers from its demonstrations."""
    return on_own_models(tmp_path_factory.mktemp("home"), batch_size=32, rate=2e-3)


def on_own_models(folder, **size):
    with pytest.MonkeyPatch.context() as patch:
        smaller(patch, anchors, **size)
        return folder, reproduce(Ask("anchors", quick=True), folder, 1, lambda line: None)


@pytest.mark.slow
def test_where_the_answer_is_in_the_demonstrations_alone_label_words_are_anchors(at_home):
    _, result = at_home
    found = {row["label"]: row["cells"][0]["values"] for row in result["table"]["rows"]}
    assert min(found["accuracy"]) > 0.95
    assert max(found["accuracy, zero-shot"]) < 0.9
    for one in draws(result):
        shares = one["flow"]["shares"]
        assert shares[0][0] > shares[-1][0]
        assert shares[-1][1] > 0.9
    cut, control = (
        found[f"label loyalty, {words} cut in the first layer"] for words in ("label words", "random words")
    )
    assert max(cut) < min(control) - 0.1
    assert max(found["label loyalty, text_anchor kept"]) < min(found["label loyalty, labels kept"])


def test_what_it_draws_lies_beside_the_result_and_says_the_measured_shares(tmp_path, in_process):
    folder, result = on_own_models(tmp_path / "home", batch_size=4, steps=2, draws=2)
    drawn = (folder / "flow-2-layers.svg").read_text()
    shares = [one["flow"]["shares"][0][0] for one in draws(result)]
    assert f"into label words: from {sum(shares) / 2:.3f} to" in drawn
    arcs = (folder / "arcs-2-layers-layer-0.svg").read_text()
    assert "text 1" in arcs and "label 4" in arcs
    assert "separator" not in arcs  # a demonstration here has none


def test_models_of_its_own_are_one_a_depth_and_seed():
    made = anchors.settings(Ask("anchors", seeds=3))
    worlds = {(world.shape.layers, world.seed) for world in anchors.worlds(made)}
    assert worlds == {(layers, seed) for layers in made["layers"] for seed in range(3)}
