"""Recipes on a given model and corpus: the data they draw, what a line comes to, and lines that a model cannot have."""

import importlib
import json
import math
import re
from dataclasses import asdict, replace

import mbart
import pytest
import tinyrun
import torch
import transformers
from tiny_corpora import bert, corpus, e2e, t5

import tunescope as ts
from tunescope.attachment import attached
from tunescope.comparison.entry import AllRefused
from tunescope.data.corpus import Rows
from tunescope.errors import UserError
from tunescope.methods.text_form import parse
from tunescope.models.load import load_model
from tunescope.reproduce import corpus_line, corpus_table, piece, published, run
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import check, find, recipes
from tunescope.reproduce.recipes import _curve
from tunescope.reproduce.run import command, default_folder, reproduce
from tunescope.system import machine, run_folder, sealed_json
from tunescope.trial import open as opening
from tunescope.trial.budget import count

STUDIES = [name for name in recipes() if "accumulate" in find(name).TAKES]


def webnlg(folder):
    """Training rows of one category, test rows of two."""
    kinds = {"train": ["film"] * 30, "dev": ["film"] * 8, "test": ["film", "plot"] * 6}
    for part, categories in kinds.items():
        entries = [
            {
                str(n): {
                    "category": category,
                    "modifiedtripleset": [{"subject": f"a{n}", "property": "was", "object": "good"}],
                    "lexicalisations": [{"lex": f"the {category} was good", "lang": "en"}],
                }
            }
            for n, category in enumerate(categories)
        ]
        folder.mkdir(exist_ok=True)
        (folder / f"{part}.json").write_text(json.dumps({"entries": entries}))
    return f"webnlg:{folder}"


def stored(folder, **fields):
    """Three rows a part, the same but for a number where a text has {}."""
    folder.mkdir()
    for part in ("train", "dev", "test"):
        rows = [{name: text.format(index) for name, text in fields.items()} for index in range(3)]
        (folder / f"{part}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def test_dev_and_test_lose_whole_inputs_and_training_rows_go_one_by_one():
    rows = [{"input": str(n // 3), "target": str(n)} for n in range(30)]
    some = corpus_table.reduced(rows, 4, "test")
    kept = {row["input"] for row in some}
    assert len(kept) == 4 and some == [row for row in rows if row["input"] in kept]
    assert len(corpus_table.reduced(rows, 7, "train")) == 7
    assert corpus_table.reduced(rows, 7, "train") == corpus_table.reduced(rows, 7, "train")
    assert corpus_table.reduced(rows, None, "test") == corpus_table.reduced(rows, 10, "test") == rows


def test_a_line_comes_to_what_its_comparison_says(tmp_path, in_process):
    model, _ = tinyrun.write(tmp_path)
    ask = Ask("prefix-main", quick=True, model=model, data=e2e(tmp_path / "e2e"))
    result = reproduce(ask, tmp_path / "run", 1, lambda line: None)
    assert str(tmp_path) not in json.dumps(result)
    assert [row["label"] for row in result["table"]["rows"]] == ["full tuning", "adapter, 3 %"]
    for one in result["units"]:
        folder = tmp_path / "run/units" / run_folder.identity(one["unit"])
        arm = json.loads((folder / "run/results.json").read_text())["arms"][0]
        assert one["outcome"]["scores"]["bleu"] == [run["test"]["bleu"] for run in arm["runs"]]
        assert one["outcome"]["stored"] == arm["parameters"]["stored"]
        assert len(one["outcome"]["scores"]["nist"]) == len(arm["runs"]) == 1
    page = (tmp_path / "run/report.html").read_text()
    assert page.count('<td class="arm-name">') == 2 * page.count('<th scope="rowgroup"') > 0
    assert f'href="units/{run_folder.identity(result["units"][0]["unit"])}/run/report.html"' in page
    small = result["units"][1]["outcome"]
    assert small["stored"] <= 0.03 * result["settings"]["parameters"]


def test_a_line_that_the_model_cannot_have_is_told_and_the_others_stay(tmp_path, in_process):
    ask = Ask("unified-main", quick=True, model=t5(tmp_path / "t5"), data=e2e(tmp_path / "e2e"))
    result = reproduce(ask, tmp_path / "run", 1, lambda line: None)
    full, bias = result["units"]
    assert full["outcome"]["status"] == "done" and bias["outcome"]["status"] == "refused"
    first, *rest = result["table"]["rows"][1]["cells"][2:]
    assert "has no such parameter" in first["text"] and not any(cell["text"] for cell in rest)
    composed = {**result["settings"], "lines": [{"arm": "prefix+lora"}]}
    said = "The rate of a composition is its first method's; the others walk their own grids beside it."
    new, old = (({"arm": "prefix+lora"}, {"rate": rate}) for rate in ("0.05+0.005", "0.05"))
    assert said in corpus_line.notes(composed, [new, old])  # of a result that has the first one alone
    assert said not in corpus_line.notes(composed, [new]) and said not in result["table"]["notes"]
    course = composed["course"] | {"beyond": 2, "trials": 3}
    apart = "up to 2 past an end of these that won, or of one of its methods alone, chosen"
    first = [corpus_line.notes(composed | {"course": course}, [one])[0] for one in (new, old)]
    assert apart in first[0] and apart not in first[1]


def test_every_rate_of_a_composition_stands_in_a_table_and_an_end_of_one_is_told(tmp_path):
    trials = [{"learning_rate": a, "learning_rates": [a, b], "dev": 0.5, "status": "done"} for a, b in ((1, 2), (3, 4))]
    arm = {"status": "done", "reason": "", "told": [], "learning_rate": 1, "learning_rates": [1, 4], "trials": trials}
    found = corpus_line.outcome(arm | {"runs": [], "parameters": {}}, [], tmp_path)
    assert found["rate"] == "1+4" and corpus_line._edges(found) == {"smallest", "largest"}
    old = [{"learning_rate": rate} for rate in (1, 0.5)]
    assert corpus_line._edges(found | {"trials": old, "rate": "1"}) == {"largest"}


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("protocol", ["tuned", "paper"])
def test_every_line_of_every_recipe_is_an_arm_that_a_model_can_have(tmp_path, name, protocol):
    recipe = find(name)
    folder, _ = tinyrun.write(tmp_path)
    sizes = (("train", 700), ("dev", 8), ("test", 10))
    data = webnlg(tmp_path / "webnlg") if name == "prefix-unseen" else corpus(tmp_path / "rte", sizes)
    wide = transformers.GPT2Config(vocab_size=16, n_embd=128, n_layer=1, n_head=2)  # published ranks are above 100
    model = transformers.GPT2LMHeadModel(wide)
    settings = recipe.settings(Ask(name, protocol, model=folder, data=data))
    assert settings["course"]["rates"] or protocol == "tuned"
    for line in settings["lines"]:
        if line["arm"].startswith("demos"):
            continue
        parts = parse(line["arm"])
        assert count(model, parts, tinyrun.tokenizer()).stored > 0
    assert len(recipe.units(settings)) == len({json.dumps(unit) for unit in recipe.units(settings)})


def test_few_rows_are_the_same_subset_for_every_method_and_drawn_anew_for_every_subset(tmp_path, monkeypatch):
    recipe = find("prefix-low-data")
    folder, _ = tinyrun.write(tmp_path)
    settings = recipe.settings(Ask("prefix-low-data", model=folder, data=e2e(tmp_path / "e2e", 520), seeds=2))
    assert {line["part"] for line in settings["lines"]} == {str(size) for size in recipe.SIZES}
    assert settings["seeds"] == 1 and len(settings["lines"]) == len(recipe.SIZES) * len(recipe.ARMS)
    with pytest.raises(ts.UserError, match="500 training rows cannot be drawn from 60"):
        recipe.settings(Ask("prefix-low-data", model=folder, data=e2e(tmp_path / "few")))
    drawn, rates = [], []

    def compared(settings, unit, folder, given):
        drawn.append([row["input"] + row["target"] for row in given["train"]])
        rates.append((settings["course"]["rates"], settings["course"]["beyond"]))
        run = {"id": "", "dev": len(drawn), "test": dict.fromkeys(settings["metrics"], float(len(drawn)))}
        arm = {"status": "done", "reason": "", "told": [folder.name], "learning_rate": 0.5, "trials": [], "runs": [run]}
        return arm | {"parameters": {"trained": 1, "stored": 1, "live": 1}}

    monkeypatch.setattr(corpus_line, "compared", compared)
    found = [recipe.work(settings, {"arm": arm, "part": "20"}, tmp_path) for arm in ("full", "lora")]
    assert drawn[0] == drawn[2] and drawn[1] == drawn[3] and len(set(drawn[0]) - set(drawn[1])) > 0
    assert all(len(rows) == 20 for rows in drawn) and rates == [((), 2), ([0.5], 0)] * 2
    assert found[1]["scores"]["bleu"] == [3.0, 4.0] and found[1]["dev"] == [3, 4]
    assert found[1]["told"] == ["subset-0", "subset-1"]


def test_few_rows_are_trained_on_for_the_published_steps_beside_their_own_development_rows(tmp_path, monkeypatch):
    recipe, seen, inputs = find("prefix-low-data"), [], []
    folder, _ = tinyrun.write(tmp_path)
    ask = Ask("prefix-low-data", "paper", model=folder, data=e2e(tmp_path / "e2e", 650), seeds=1)
    settings = recipe.settings(ask)
    assert settings["seeds"] == 2
    with pytest.raises(ts.UserError, match="650 training rows cannot be drawn from 649"):
        recipe.settings(replace(ask, data=e2e(tmp_path / "few", 649)))

    def compared(settings, unit, folder, given):
        seen.append((settings["course"]["steps"], len(given["train"]), len(given["dev"])))
        inputs.append(len({row["input"] for row in given["dev"]}))
        return corpus_line.REFUSED | {"status": "diverged", "reason": "", "told": []}

    monkeypatch.setattr(corpus_line, "compared", compared)
    for size in recipe.SIZES:
        recipe.work(settings, {"arm": "full", "part": str(size)}, tmp_path)
    assert seen == [(100, 50, 15), (100, 100, 30), (200, 200, 60), (400, 500, 150)]
    lost = corpus_line.REFUSED | {"told": [], "scores": {}, "reason": "lost"}
    told = recipe.table(settings, [(unit, lost) for unit in recipe.units(settings)]).notes
    assert told[1] == "Each subset is trained on from 2 seeds, of which the mean counts."
    assert told[2].startswith("Steps of full tuning, in place of those below: 50 rows 100; 100 rows 100; 200 rows 200;")
    assert "1 seed." in told[3]
    seen.clear()
    recipe.work(recipe.settings(replace(ask, steps=400)), {"arm": "full", "part": "50"}, tmp_path)
    assert seen == [(400, 50, 15)]
    inputs.clear()
    few = recipe.settings(replace(ask, inputs=6))
    for size in recipe.SIZES:
        recipe.work(few, {"arm": "full", "part": str(size)}, tmp_path)
    assert inputs == [recipe.own_dev(few, {"part": size}) for size in recipe.SIZES] == [6] * 4


@pytest.mark.parametrize(
    ("metric", "most"), [("squad_f1", 1.0), ("accuracy", 1.0), ("bleu", 100.0), ("cider", 10.0), ("nist", math.inf)]
)
def test_a_score_has_the_bounds_of_its_metric(metric, most):
    assert corpus_line.bounds(metric) == (0.0, most)


def test_a_line_of_few_rows_ends_with_the_subset_that_failed(tmp_path, monkeypatch):
    recipe = find("prefix-low-data")
    folder, _ = tinyrun.write(tmp_path)
    settings = recipe.settings(Ask("prefix-low-data", model=folder, data=e2e(tmp_path / "e2e", 520), seeds=3))
    many = corpus_line.REFUSED | {"status": "diverged", "reason": "seed 0: loss is nan", "told": ["a", "a"]}
    asked = []
    monkeypatch.setattr(corpus_line, "compared", lambda *given: asked.append(given) or many)
    outcome = recipe.work(settings, {"arm": "full", "part": "20"}, tmp_path)
    assert len(asked) == 1 and outcome["scores"] == {} and outcome["told"] == ["a"]
    assert (outcome["status"], outcome["reason"]) == ("diverged", "seed 0: loss is nan")


def test_of_rows_with_labels_each_keeps_its_share():
    rows = [{"input": str(n), "target": "yes" if n % 4 else "no"} for n in range(60)]
    for most, counts in (
        (20, (15, 5)),
        (10, (8, 2)),
        (59, (44, 15)),
    ):  # 7.5 and 2.5: the first of equal remainders is "no"
        some = corpus_table.reduced(rows, most, "dev", choose=True)
        found = [sum(row["target"] == label for row in some) for label in ("yes", "no")]
        assert sum(found) == most and abs(found[0] - 0.75 * most) <= 0.5, counts
        assert some == [row for row in rows if row in some]
    assert corpus_table.reduced(rows, 60, "dev", choose=True) == rows


def outcome(rate, *tried):
    return {"rate": rate, "trials": [{"learning_rate": one, "dev": 0.0, "status": "done"} for one in tried]}


def test_a_rate_at_the_edge_of_what_was_tried_is_told_of_every_line_alike():
    lines = [{"label": label, "part": part} for label, part in (("full", "50"), ("full", "100"), ("prefix", "50"))]
    found = [outcome("0.001", 1e-4, 1e-3), outcome("0.0001", 1e-4, 1e-3), outcome("0.01", 0.01, 0.1)]
    told = corpus_line.at_an_edge({"lines": lines}, [({}, one) for one in found])
    assert told == [
        "The largest rate tried was chosen for 1 of 3 lines: full (50).",
        "The smallest rate tried was chosen for 2 of 3 lines: full (100); prefix (50).",
    ]
    middle, single, refused = outcome("3e-05", 1e-6, 3e-5, 1e-3), outcome("0.01", 0.01), outcome("")
    lines = [{"label": "a"}, {"label": "b"}, {"label": "c"}]
    assert corpus_line.at_an_edge({"lines": lines}, [({}, one) for one in (middle, single, refused)]) == []
    every = [({}, outcome("0.1", 0.01, 0.1)), ({}, single)]
    assert corpus_line.at_an_edge({"lines": lines}, every) == ["The largest rate tried was chosen for every line."]


def test_settings_of_another_corpus_than_the_published_one_are_told(tmp_path):
    folder, _ = tinyrun.write(tmp_path)
    e2e = f"multi30k:{stored(tmp_path / 'multi30k', en='the film {}', de='film')}"
    told = "Of multi30k nothing published is known here: steps, batches, rates and beams are those of e2e."
    for protocol in ("paper", "tuned"):
        settings = find("prefix-main").settings(Ask("prefix-main", protocol, model=folder, data=e2e))
        assert (told in corpus_line.notes(settings)) == (protocol == "paper")
    xsum = f"xsum:{stored(tmp_path / 'xsum', document='the film {}', summary='film')}"
    settings = find("prefix-main").settings(Ask("prefix-main", "paper", model=folder, data=xsum))
    assert not any("nothing published is known" in note for note in corpus_line.notes(settings))
    assert any(
        "(5e-05 of full tuning)" in note
        for note in corpus_line.notes({**settings, "course": settings["course"] | {"full": 5e-5}})
    )
    lines = [line for line in settings["lines"] if line["arm"] != "full"]
    few = {**settings, "lines": lines, "course": settings["course"] | {"full": 5e-5}}
    assert not any("of full tuning" in note for note in corpus_line.notes(few))


def test_few_rows_as_published_have_development_rows_steps_and_seeds_of_their_own():
    recipe, rows = find("prefix-low-data"), Rows([{"input": str(number)} for number in range(200)], ("told",))
    course = asdict(published.FEW)
    settings = {"protocol": "paper", "course": course, "rows": {}}
    drawn = [recipe._drawn(settings, rows, 50, subset) for subset in (0, 0, 1)]
    assert [(len(one["train"]), len(one["dev"]), one["train"].notes) for one in drawn] == [(50, 15, ("told",))] * 3
    texts = [{part: {row["input"] for row in one[part]} for part in one} for one in drawn]
    assert texts[0] == texts[1] != texts[2] and not texts[0]["train"] & texts[0]["dev"]
    free = recipe._drawn({"protocol": "tuned", "rows": {}}, rows, 50, 0)
    assert list(free) == ["train"] and free["train"] == drawn[0]["train"]  # the same subset, and the corpus's dev
    published_ones = settings | {"steps_by_rows": recipe.STEPS}
    steps = {
        arm: [
            published.with_steps(published_ones, {"arm": arm, "part": str(size)})["course"]["steps"]
            for size in recipe.SIZES
        ]
        for arm in ("full", "prefix:length=6")
    }
    assert steps == {"full": [100, 100, 200, 400], "prefix:length=6": [200, 200, 200, 400]}
    typed = {"protocol": "paper", "course": course | {"steps": 7}}
    assert published.with_steps(typed, {"arm": "full", "part": "50"}) == typed
    outcome = {"status": "done", "reason": "", "told": [], "dev": [0.5, 0.5]}
    subsets = [outcome | {"scores": {"bleu": scores}} for scores in ([1.0, 2.0], [5.0, 6.0])]
    assert recipe._together(subsets)["scores"] == {"bleu": [1.5, 5.5]}


def test_scores_of_few_rows_stand_by_method_and_size_and_are_drawn():
    recipe = find("prefix-low-data")
    lines = [{"label": label, "paper": {}} for label in ("full tuning", "full tuning", "prefix")]
    units = [{"part": part} for part in ("50", "100", "50")]
    scores = ([1.0, 3.0], [4.0, 6.0], [5.0, 7.0])
    found = [(unit, {"scores": {"bleu": few}}) for unit, few in zip(units, scores, strict=True)]
    found.append(({"part": "100"}, {"scores": {"bleu": [8.0]}, "reason": "seed 0: out of memory"}))
    lines.append(lines[-1])
    course, one_rate = asdict(published.Course(steps=5, batch_size=2)), {"rates": (5e-5,)}
    settings = {"lines": lines, "metrics": ["bleu"], "sizes": [50, 100], "subsets": 2, "course": course, "rows": {}}
    table = recipe.table(settings | {"parameters": 10, "seeds": 1, "choose": False}, found)
    assert [(label, *(cell.values for cell in cells)) for label, cells in table.rows] == [
        ("full tuning", (1.0, 3.0), (4.0, 6.0)),
        ("prefix", (5.0, 7.0), (8.0,)),
    ]
    assert table.notes[0] == (
        "Cells: bleu; the intervals are over 2 random subsets; a rate is chosen on the first of them."
    )
    one = recipe.table({**settings, "parameters": 10, "seeds": 1, "choose": False, "course": course | one_rate}, found)
    assert one.notes[0] == "Cells: bleu; the intervals are over 2 random subsets."
    assert table.notes[-1] == "prefix, 100 rows: not every subset has a score (seed 0: out of memory)."
    (drawn,) = table.pictures.values()
    assert "full tuning: 50 2.00, 100 5.00; prefix: 50 6.00, 100 8.00" in drawn


def test_an_interval_of_a_share_ends_at_one():
    course = asdict(published.Course(steps=5, batch_size=2))
    settings = {"lines": [{"label": "full", "paper": {}}], "course": course, "rows": {}, "parameters": 1, "seeds": 3}
    for metric, high in (("accuracy", 1.0), ("exact_match", 1.0), ("bleu", 1.550)):
        outcome = {"stored": 1, "rate": "", "reason": "", "scores": {metric: [0.5, 1.0, 1.0]}}
        table = corpus_line.table(settings | {"metrics": [metric], "choose": False}, [({}, outcome)])
        (interval,) = [cell.interval for cell in table.rows[0][1] if cell.values]
        assert interval == pytest.approx((0.116, high), abs=1e-3)  # by hand: 4.303 standard errors of .1667 about .8333


def test_seen_and_unseen_domains_are_scored_apart_and_together_as_the_metric_does(tmp_path, in_process):
    from tunescope.data.metric import find_metric

    recipe = find("prefix-unseen")
    outputs, references = ["a b c d e", "a b x d e", "q"], [["a b c d e"], ["a b c d e"], ["a b c d e"]]
    counts = find_metric("bleu").stats(outputs, references, False)
    scores = recipe._scores("bleu", counts.tolist(), [True, False, False])
    assert scores["seen"] == pytest.approx(100.0) and scores["unseen"] < scores["all"] < 100
    assert recipe._scores("bleu", counts.tolist()[:1], [True]) == {
        "seen": pytest.approx(100.0),
        "all": pytest.approx(100.0),
    }
    model, _ = tinyrun.write(tmp_path)
    ask = Ask("prefix-unseen", quick=True, model=model, data=webnlg(tmp_path / "webnlg"))
    result = reproduce(ask, tmp_path / "run", 1, lambda line: None)
    outcome = result["units"][0]["outcome"]
    assert (outcome["inputs"], outcome["seen"]) == (12, 6)
    assert outcome["domains"][0]["all"] == outcome["scores"]["bleu_webnlg"][0]
    assert "bleu_webnlg over 12 inputs, 6 of them of seen categories" in result["table"]["notes"][0]
    whole = [(line["label"], line["arm"]) for line in recipe.settings(replace(ask, quick=False))["lines"]]
    assert whole[-1] == ("prefix, .1 %, begun as examples", "prefix:init_from=demos") and len(whole) == 8
    with pytest.raises(ts.UserError, match="this corpus has no domains"):
        recipe.settings(Ask("prefix-unseen", model=model, data=e2e(tmp_path / "e2e")))


def test_several_bases_are_rows_and_their_folders_are_not_told(tmp_path, in_process):
    models = [t5(tmp_path / name) for name in ("small", "large")]
    ask = Ask("prompt-bases", quick=True, model=models[0], others=(models[1],), data=corpus(tmp_path / "rte"))
    result = reproduce(ask, tmp_path / "run", 1, lambda line: None)
    labels = [row["label"] for row in result["table"]["rows"]]
    ways = ("prompt", "prompt, sentinel")
    assert labels == [f"{name}: {way}" for name in ("small", "large") for way in ways]
    first, _, second, _ = result["table"]["rows"]
    assert first["cells"][2]["values"] == second["cells"][2]["values"]  # the same weights under two names
    answers = [row["target"] for row in corpus_table.parts(result["settings"] | {"data": ask.data})["test"]]
    most = max(answers.count(one) for one in set(answers)) / len(answers)
    told = [note for note in result["table"]["notes"] if note.startswith("The commonest label, ")]
    assert len(told) == 1 and told[0].endswith(f" is that of {most:.3f} of the test rows.")
    assert str(tmp_path) not in json.dumps(result)
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert all(f">{label}<" in page for label in labels) and page.count('href="units/') == len(labels)


def test_each_base_is_told_the_languages_of_its_own_tokenizer(tmp_path):
    data = f"multi30k:{stored(tmp_path / 'multi30k', en='the film {}', de='der film')}"
    asked = Ask("prompt-bases", model=t5(tmp_path / "t5"), others=(mbart.write(tmp_path / "mbart"),), data=data)
    settings = find("prompt-bases").settings(asked)
    told = [corpus_line._task(settings | base, "{input}").source_language for base in settings["bases"]]
    assert told == ["", "en"]


def test_a_run_knows_its_device_and_what_auto_is_there(tmp_path, monkeypatch):
    model, _ = tinyrun.write(tmp_path)
    ask = Ask("prefix-main", model=model, data=e2e(tmp_path / "e2e"), quick=True)
    settings = find("prefix-main").settings(ask)
    assert (settings["device"], settings["course"]["precision"]) == ("cpu", "float32")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    other = find("prefix-main").settings(ask)
    assert (other["device"], other["course"]["precision"]) == ("cuda", "bfloat16")
    (tmp_path / "run" / "units").mkdir(parents=True)
    (tmp_path / "run" / "units" / "a.json").write_text("{}")  # a piece is done
    run_folder.write_config(
        tmp_path / "run", {"version": run_folder.VERSION, "recipe": "prefix-main", "settings": settings}
    )
    with pytest.raises(ts.UserError, match=r"differs in: settings\.course\.precision, settings\.device"):
        reproduce(ask, tmp_path / "run", 1, lambda line: None)


def test_a_recipe_whose_data_were_moved_goes_on_and_one_whose_model_was_does_not(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    model, _ = tinyrun.write(tmp_path / "m")
    ask = Ask("prefix-main", model=model, data=e2e(tmp_path / "a" / "e2e"), quick=True)
    settings = find("prefix-main").settings(ask)
    out = tmp_path / "run"
    (out / "units").mkdir(parents=True)
    (out / "units" / "a.json").write_text("{}")  # a piece is done
    run_folder.write_config(out, {"version": run_folder.VERSION, "recipe": "prefix-main", "settings": settings})
    (tmp_path / "a").rename(tmp_path / "b")
    moved = replace(ask, data=ask.data.replace("/a/", "/b/"))
    monkeypatch.setattr("tunescope.reproduce.run._outcomes", lambda *_: (_ for _ in ()).throw(ts.UserError("begun")))
    with pytest.raises(ts.UserError, match="begun"):
        reproduce(moved, out, 1, lambda line: None)
    assert run_folder.read_config(out)["settings"]["data"] == moved.data != ask.data
    (tmp_path / "m").rename(tmp_path / "n")  # where nothing says that its tokenizer and configuration are the same
    elsewhere = replace(moved, model=model.replace("/m/", "/n/"))
    with pytest.raises(ts.UserError, match=r"differs in: settings\.model\)"):
        reproduce(elsewhere, out, 1, lambda line: None)


def test_how_a_prompt_began_is_asked_of_the_seed_that_was_kept(tmp_path, monkeypatch):
    recipe, seeds = find("prompt-init"), []
    folder, _ = tinyrun.write(tmp_path)
    model, words = load_model(folder)
    arm = "soft:length=2,init_from=uniform"
    with ts.attach(model, *parse(arm), tokenizer=words, seed=2) as tuned:
        ts.save(tmp_path / "run" / "best", tuned.artifacts, model=model, tokenizer=words)
    runs = [{"seed": seed, "dev": dev} for seed, dev in ((1, 0.2), (2, 0.6), (3, 0.4))]
    results = {"version": run_folder.VERSION, "arms": [{"runs": runs}]}
    sealed_json.put(tmp_path / "run" / "results.json", results)
    attach = ts.attach
    monkeypatch.setattr(attached, "attach", lambda *given, **more: seeds.append(more["seed"]) or attach(*given, **more))
    read = recipe._read({"model": folder, "labels": list(tinyrun.WORDS)}, arm, tmp_path)
    assert seeds == [2, 2] and read["begun"] == read["trained"]


class _Words:
    def convert_ids_to_tokens(self, ids):
        return [f"w{one}" for one in ids]


def test_labels_are_found_near_a_prompt_that_begins_as_them(tmp_path):
    recipe = find("prompt-init")
    table = torch.eye(6)
    assert recipe._share(table[[0, 1]], table, {0, 1, 2}) >= 2 / 3
    words = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    assert recipe._share(words[[3]], words, {3, 30}) in (0.5, 1.0)
    near = recipe._words(torch.stack([words[3] + 0.1 * words[4], words[7]]), words, _Words())
    assert [word for word, _ in near] == ["w7", "w3"] and near[0][1] == pytest.approx(1.0) and near[1][1] < 1
    outcome = {"read": {"words": near}}
    assert recipe._nearest_tokens("labels", outcome).endswith(f": w7 1.00, w3 {near[1][1]:.2f}.")
    folder, _ = tinyrun.write(tmp_path)
    with pytest.raises(ts.UserError, match="the targets are 60 different texts, no labels; it takes at most 20"):
        recipe.settings(Ask("prompt-init", model=folder, data=e2e(tmp_path / "e2e")))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs --model MODEL and --data CORPUS:FOLDER"),
        ({"model": "m", "data": "nowhere.jsonl"}, "give the folder of a corpus, such as e2e:FOLDER"),
        ({"model": "m", "data": "rte:{}#train"}, "give the folder of a corpus"),
        ({"model": "m", "data": "rte:nowhere"}, "--data rte:nowhere: there is no folder nowhere"),
    ],
)
def test_what_is_no_corpus_is_refused_before_anything_is_loaded(tmp_path, given, message):
    given = given | ({"data": given["data"].format(tmp_path)} if "data" in given else {})
    with pytest.raises(ts.UserError, match=message):
        find("prefix-main").settings(Ask("prefix-main", **given))


@pytest.mark.parametrize(("protocol", "quick", "most"), [("tuned", False, 2), ("tuned", True, 0), ("paper", False, 0)])
def test_rates_past_the_end_of_a_grid_are_ours_alone(tmp_path, monkeypatch, protocol, quick, most):
    model, _ = tinyrun.write(tmp_path)
    settings = find("prefix-main").settings(
        Ask("prefix-main", protocol, quick, model=model, data=e2e(tmp_path / "e2e"))
    )
    asked = []

    def compared(*_, **given):
        asked.append(given["beyond"])
        raise AllRefused("full", "a test")

    monkeypatch.setattr("tunescope.comparison.comparison.compare", compared)
    unit = corpus_table.units(settings)[0]
    assert corpus_line.compared(settings, unit, tmp_path / "unit", corpus_table.parts(settings))["reason"] == "a test"
    assert asked == [most]
    assert (
        ", 3 rates a line and up to 2 past an end of these that won, chosen" in corpus_line.notes(settings)[0]
    ) == bool(most)


def test_what_is_published_reaches_training_and_decoding_and_encoders_have_their_own(tmp_path):
    recipe, data = find("unified-sites"), corpus(tmp_path / "rte")
    folder, _ = tinyrun.write(tmp_path)
    stored(tmp_path / "wmt", en="the big cat {}", ro="big")
    settings = recipe.settings(Ask("unified-sites", "paper", model=folder, data=f"wmt:{tmp_path / 'wmt'}"))
    training = corpus_line.training(settings["course"], rows=40)
    assert (training.steps, training.batch_size, training.weight_decay, training.clip) == (100_000, 64, 0.01, 0.1)
    task = corpus_line._task(settings, "{input}")
    assert (task.beams, task.no_repeat_ngram, task.label_smoothing, task.z_loss) == (6, 3, 0.1, 0.0)
    assert any("every method, labels smoothed by 0.1; beam search of 6" in note for note in corpus_line.notes(settings))
    settings = recipe.settings(Ask("unified-sites", "paper", model=folder, data=data))
    assert settings["choose"] and settings["metrics"] == ["accuracy"]  # a decoder, too, where there are labels
    settings = recipe.settings(Ask("unified-sites", "paper", model=bert(tmp_path / "bert"), data=data))
    training = corpus_line.training(settings["course"], rows=40)
    assert (training.steps, training.batch_size, training.weight_decay, training.clip) == (13, 32, 0.1, 1.0)
    assert settings["course"]["rates"] == (1e-4,) and settings["metrics"] == ["accuracy"]
    assert settings["course"]["label_smoothing"] == 0.0


def test_translation_into_romanian_has_its_own_published_course_and_metric(tmp_path):
    folder, _ = tinyrun.write(tmp_path)
    stored(tmp_path / "wmt", en="the big cat {}", ro="big")
    ask = Ask("unified-sites", "paper", model=folder, data=f"wmt_en_ro:{tmp_path / 'wmt'}")
    settings = find("unified-sites").settings(ask)
    arms = [line["arm"] for line in settings["lines"]]  # as the authors have it, before the output projection
    assert "adapter:placement=parallel,sites=attn.heads,bottleneck=200,norm=in,start=bert" in arms
    assert "adapter:sites=attn,bottleneck=30,norm=in,start=bert" in arms and "prefix:mlp=800,length=30" in arms
    last = settings["lines"][-1]
    assert last["label"] == "prefix without its gate, 30" and last["paper"]["bleu_romanian"] == "34.9"
    assert settings["metrics"][0] == "bleu_romanian" and settings["lines"][0]["paper"]["bleu_romanian"] == "35.6"
    training, task = corpus_line.training(settings["course"], rows=3), corpus_line._task(settings, "{input}")
    assert (training.steps, training.batch_size, training.accumulate, training.clip) == (50_000, 360, 4, 1.0)
    assert (task.beams, task.no_repeat_ngram, task.label_smoothing, task.min_new_tokens) == (5, 0, 0.1, 0)
    plain = find("unified-sites").settings(replace(ask, data=f"wmt:{tmp_path / 'wmt'}"))
    assert plain["course"]["steps"] == 100_000 and plain["metrics"][0] == "bleu"


def test_other_corpora_of_the_same_table_have_their_own_published_course(tmp_path, monkeypatch):
    folder, _ = tinyrun.write(tmp_path)
    xsum = f"xsum:{stored(tmp_path / 'xsum', document='the film {}', summary='film')}"
    settings = find("prefix-main").settings(Ask("prefix-main", "paper", model=folder, data=xsum))
    training, task = corpus_line.training(settings["course"], rows=480), corpus_line._task(settings, "{input}")
    assert (training.steps, training.batch_size, training.accumulate) == (300, 48, 3)  # 30 times 480 in batches of 48
    assert (task.beams, task.min_new_tokens, task.max_new_tokens) == (6, 11, 62)
    assert settings["course"]["rates"] == (5e-5,) and {"prefix:mlp=800", "prefix:mlp=800,length=100"} <= {
        line["arm"] for line in settings["lines"]
    }
    assert settings["lines"][0]["paper"] == {"rouge_1": "45.14", "rouge_2": "22.27", "rouge_l": "37.25"}
    ask = Ask("prefix-length", "paper", model=folder, data=webnlg(tmp_path / "webnlg"))
    settings = find("prefix-length").settings(ask)
    assert (settings["course"]["batch_size"], settings["course"]["rates"]) == (5, (5e-5,))
    for name in ("prefix-main", "prefix-unseen"):
        last = find(name).settings(replace(ask, name=name))["lines"][-1]
        assert (last["label"], last["arm"], last["share"]) == ("prefix, .1 %: 5", "prefix:mlp=512,length=5", None)
    few = find("prefix-low-data")
    monkeypatch.setattr(few, "SIZES", (1, 2))
    settings = few.settings(Ask("prefix-low-data", "paper", model=folder, data=xsum))
    assert (settings["course"]["network"], settings["course"]["beams"], settings["course"]["steps"]) == (800, 6, 400)
    assert settings["lines"][-1]["label"] == "prefix of 1, from 'summarize'"


def test_some_lines_of_a_table_are_named_and_a_name_of_none_is_refused(tmp_path):
    folder, _ = tinyrun.write(tmp_path)
    ask = Ask("unified-main", model=folder, data=corpus(tmp_path / "rte"), lines=("mam", "LoRA, feed"))
    assert [line["label"] for line in find("unified-main").settings(ask)["lines"]] == [
        "LoRA, feed-forward, s = 4",
        "MAM: prefix of 30 and parallel adapter",
        "MAM: prefix of 30 and parallel adapter, begun as tokens",
    ]
    arms = [line["arm"] for line in find("unified-main").settings(replace(ask, lines=("prefix of", "MAM")))["lines"]]
    noise, tokens = arms[:2], arms[2:]
    assert tokens == [arm.replace("length=30", "length=30,init_from=tokens") for arm in noise] != noise
    assert command(ask).endswith("--lines mam 'LoRA, feed'") and str(default_folder(ask)).endswith("mam-LoRA--feed")
    names = [
        default_folder(replace(ask, lines=tuple("line" * 9 + more for more in some))).name for some in ("abcdef", "g")
    ]
    assert len(names[0]) < 100 and names[1].endswith("line" * 9 + "g")
    with pytest.raises(UserError, match=r"--lines: none has 'IA3' in its name\. They are: full tuning; BitFit"):
        find("unified-main").settings(replace(ask, lines=("IA3",)))
    with pytest.raises(UserError, match="petrov-table1 has no use for --lines"):
        check(Ask("petrov-table1", lines=("prefix",)), find("petrov-table1"))


def test_published_sizes_are_those_of_the_model_s_kind(tmp_path):
    folder, _ = tinyrun.write(tmp_path)
    data = corpus(tmp_path / "rte")
    settings = find("unified-main").settings(Ask("unified-main", "paper", model=folder, data=data))
    arms = {line["arm"]: line["share"] for line in settings["lines"]}
    parallel = "adapter:placement=parallel,sites=ffn,scale=4.0,bottleneck=512"
    assert {parallel, f"prefix:mlp=800,length=30+{parallel}", "prefix:mlp=800,length=200"} <= arms.keys()
    lora = "lora:sites=ffn.in,ffn.out,rank=102,alpha=408.0"
    assert {lora, f"prefix:mlp=800,length=30+{lora}"} <= arms.keys() and set(arms.values()) == {None}
    at_heads = "adapter:placement=parallel,sites=attn.heads,norm=in,start=bert,bottleneck=30"
    plain = "adapter:placement=parallel,sites=ffn,bottleneck="
    assert {f"{at_heads}+{plain}512", f"{plain}1024", "adapter:sites=ffn,bottleneck=600"} <= arms.keys()
    settings = find("unified-main").settings(Ask("unified-main", model=bert(tmp_path / "bert"), data=data))
    arms = {line["arm"]: line["share"] for line in settings["lines"]}
    assert arms["prefix:length=16+adapter:placement=parallel,sites=ffn,scale=2.0"] == arms["prefix"] == 0.005
    settings = find("unified-main").settings(Ask("unified-main", "paper", model=bert(tmp_path / "own"), data=data))
    mam = "prefix:mlp=800,length=16+adapter:placement=parallel,sites=ffn,scale=2.0,bottleneck=16"
    assert settings["lines"][-1]["arm"] == mam and settings["lines"][-1]["share"] is None
    lines = find("unified-scale").settings(Ask("unified-scale", model=bert(tmp_path / "scaled"), data=data))["lines"]
    assert [line["label"] for line in lines[2:]] == [f"parallel adapter, s = {one}" for one in ("1", "2", "learned")]


@pytest.mark.parametrize("front", ["", "prefix:length=3+"])
def test_the_rank_of_a_scaled_lora_is_the_largest_that_its_arm_has_room_for(tmp_path, front):
    folder, _ = tinyrun.write(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    total = model.num_parameters()
    arm, share = corpus_table.scaled_lora({"model": folder, "parameters": total}, f"{front}lora:sites=ffn.in", 0.3, 4.0)
    start, _, alpha = arm.partition(",alpha=")
    rank = int(start.partition("rank=")[2])
    assert arm.startswith(front) and (float(alpha), share) == (4.0 * rank, None)
    larger = start.replace(f"rank={rank}", f"rank={rank + 1}")
    assert count(model, parse(start)).stored <= 0.3 * total < count(model, parse(larger)).stored


def test_few_examples_begin_as_published_from_words_through_a_network(tmp_path):
    folder, _ = tinyrun.write(tmp_path)
    data = corpus(tmp_path / "rte", (("train", 700), ("dev", 8), ("test", 10)))
    for name in ("prefix-low-data", "prefix-init"):
        arms = [line["arm"] for line in find(name).settings(Ask(name, "paper", model=folder, data=data))["lines"]]
        assert "prefix:mlp=512,length=1,init_from=text,text=table-to-text:" in arms  # one word, one token here
    settings = find("prefix-depth").settings(Ask("prefix-depth", "paper", model=folder, data=data))
    assert {"infix:mlp=512,length=10", "soft:length=10"} <= {line["arm"] for line in settings["lines"]}


def test_prefixes_begin_as_tokens_beside_embeddings_that_do_but_not_as_published(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    ask = Ask("prefix-depth", model=model, data=corpus(tmp_path / "rte"))
    arms = {
        each: [line["arm"] for line in find("prefix-depth").settings(replace(ask, protocol=each))["lines"]]
        for each in ("tuned", "paper")
    }
    begun = [f"prefix:length={length},init_from=tokens" for length in (1, 10, 20)]
    assert arms["tuned"][-3:] == begun and len(arms["tuned"]) == len(arms["paper"]) + 3
    assert not [arm for arm in arms["paper"] if "init_from" in arm]


def test_a_metric_that_cannot_run_is_told_and_one_that_decides_is_refused(tmp_path, monkeypatch):
    from tunescope.data import metric
    from tunescope.data.metric import find_metric

    folder, _ = tinyrun.write(tmp_path)
    ask = Ask("prefix-main", model=folder, data=e2e(tmp_path / "e2e"))
    found = find_metric

    def lacks():
        raise ts.UserError("no such thing here")

    def without(gone):
        return lambda name: replace(found(name), needs=lacks) if name == gone else found(name)

    monkeypatch.setattr(metric, "find_metric", without("nist"))
    settings = find("prefix-main").settings(ask)
    assert "nist" not in settings["metrics"] and "Not scored: no such thing here" in corpus_line.notes(settings)
    monkeypatch.setattr(metric, "find_metric", without("bleu"))
    with pytest.raises(ts.UserError, match="no such thing here"):
        find("prefix-main").settings(ask)


def test_written_answers_that_are_no_label_are_counted_line_by_line(tmp_path, in_process):
    model, _ = tinyrun.write(tmp_path)
    ask = Ask("prompt-length", quick=True, model=model, data=corpus(tmp_path / "rte"))
    result = reproduce(ask, tmp_path / "run", 1, lambda line: None)
    assert result["table"]["columns"] == ["parameters", "rate", "exact_match", "no label"]
    for one, row in zip(result["units"], result["table"]["rows"], strict=True):
        (path,) = (tmp_path / "run/units" / run_folder.identity(one["unit"])).glob("run/arms/*/test.json")
        answers = json.loads(path.read_text())["outputs"]
        illegal = sum(answer.strip() not in ("entailment", "not_entailment") for answer in answers)
        assert row["cells"][3]["values"] == [pytest.approx(illegal / len(answers))] and illegal
    shares = [(["a", "b", " b"], 0.0), (["a", "c", "b c", ""], 0.75)]
    for number, (outputs, share) in enumerate(shares):
        place = run_folder.folder(tmp_path / "run", str(number))
        place.mkdir(parents=True)
        sealed_json.put(place / "test.json", {"outputs": outputs})
        told = {"lowercase": False}
        assert corpus_line._illegal({"id": str(number)}, ["a", "b"], told, tmp_path) == pytest.approx(share)


def test_a_seed_that_diverged_and_one_below_half_of_the_best_line_have_failed(tmp_path, monkeypatch):
    recipe = find("prefix-network")
    folder, _ = tinyrun.write(tmp_path)
    settings = recipe.settings(Ask("prefix-network", model=folder, data=e2e(tmp_path / "e2e"), seeds=3))
    assert [(line["arm"], line["part"]) for line in settings["lines"][:2]] == [
        ("prefix:mlp=512,length=10", "0.0001"),
        ("prefix:length=10", "0.0001"),
    ]
    asked = []

    def compared(settings, unit, folder, given):
        (seed,) = settings["seeds"]
        asked.append((unit["part"], settings["course"]["rates"], folder.name))
        score = {"0.0001": (8.0, 3.9, 4.0), "0.1": (2.0, 1.0, None)}[unit["part"]][seed]
        if score is None:
            return corpus_line.REFUSED | {"status": "diverged", "reason": "loss is nan"}
        run = {"id": "", "dev": score, "test": dict.fromkeys(settings["metrics"], score)}
        arm = {"status": "done", "reason": "", "told": [], "learning_rate": 0.5, "trials": [], "runs": [run]}
        return arm | {"parameters": {"trained": 1, "stored": 7, "live": 1}}

    monkeypatch.setattr(corpus_line, "compared", compared)
    settings["lines"] = [settings["lines"][0], settings["lines"][-1]]
    found = [(unit, recipe.work(settings, unit, tmp_path)) for unit in recipe.units(settings)]
    assert asked[0] == ("0.0001", (1e-4,), "seed-0") and asked[-1] == ("0.1", (0.1,), "seed-2")
    rows = [cells for _, cells in recipe.table(settings, found).rows]
    best = (8.0 + 3.9 + 4.0) / 3  # its half is 2.65
    assert rows[0][1].mean == pytest.approx(best) and rows[0][2].values == (pytest.approx(8.0 - 3.9),)
    assert [cells[3].text for cells in rows] == ["0 of 3", "3 of 3"] and rows[1][1].values == (2.0, 1.0, 0.0)
    none = [(unit, outcome | {"scores": {"bleu": [0.0] * 3}}) for unit, outcome in found]
    assert [cells[3].text for _, cells in recipe.table(settings, none).rows] == ["3 of 3", "3 of 3"]


def test_a_prefix_by_a_network_and_one_without_are_trained_at_each_rate(tmp_path, in_process):
    folder, _ = tinyrun.write(tmp_path)
    ask = Ask("prefix-network", quick=True, model=folder, data=e2e(tmp_path / "e2e"), seeds=2, steps=2)
    result = reproduce(ask, tmp_path / "run", 1, lambda line: None)
    assert [row["label"] for row in result["table"]["rows"]] == ["by a network, 0.001", "directly, 0.001"]
    network, direct = (one["outcome"] for one in result["units"])
    assert network["stored"] == direct["stored"] < network["trained"] and direct["rate"] == "0.001"
    assert len(network["scores"]["bleu"]) == 2


def test_a_prefix_without_the_papers_network_is_told(tmp_path):
    folder, _ = tinyrun.write(tmp_path)
    ask, told = Ask("prefix-main", model=folder, data=e2e(tmp_path / "e2e")), "Prefixes are trained directly, and begin"
    for protocol, lines, expected in (("tuned", (), True), ("paper", (), False), ("tuned", ("adapter",), False)):
        settings = find("prefix-main").settings(replace(ask, protocol=protocol, lines=lines))
        assert any(note.startswith(told) for note in corpus_line.notes(settings)) == expected


def test_who_chooses_among_labels_is_given_none_to_write(tmp_path):
    data = e2e(tmp_path / "e2e")
    with pytest.raises(ts.UserError, match="an encoder chooses among labels, and e2e has texts to write"):
        find("unified-main").settings(Ask("unified-main", model=bert(tmp_path / "bert"), data=data))
    settings = find("prompt-bases").settings(Ask("prompt-bases", model=t5(tmp_path / "t5"), data=data))
    labels = [line["label"] for line in settings["lines"]]
    assert labels == ["prompt", "4 demonstrations", "full tuning"] and not settings["choose"]


def test_a_decoder_among_the_bases_has_demonstrations_and_no_sentinel(tmp_path, in_process):
    models, data = (t5(tmp_path / "t5"), str(tmp_path / "gpt2")), corpus(tmp_path / "rte")
    words = transformers.AutoTokenizer.from_pretrained(models[0], model_max_length=256)  # which tells the labels apart
    config = transformers.GPT2Config(vocab_size=len(words), n_embd=16, n_layer=1, n_head=2, n_positions=256)
    transformers.GPT2LMHeadModel(config).save_pretrained(models[1])
    words.save_pretrained(models[1])
    ask = Ask("prompt-bases", model=models[1], others=models[:1], data=data, seeds=1, steps=2)  # the larger one first
    ask = replace(ask, lines=("sentinel", "demonstrations"))
    result = reproduce(ask, tmp_path / "run", 1, lambda line: None)
    cells = {row["label"]: row["cells"] for row in result["table"]["rows"]}
    shown = "4 demonstrations a label"
    assert list(cells) == ["t5: prompt, sentinel", f"t5: {shown}", f"gpt2: {shown}"]
    assert cells[f"gpt2: {shown}"][0]["text"] == "0" and cells[f"gpt2: {shown}"][2]["seeds"] == 1
    assert result["table"]["notes"][0].endswith("Sentinel: input and answer have T5's first.")
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert all(f">{label}<" in page for label in cells)


def test_a_row_without_a_target_is_left_out_and_told(tmp_path):
    folder, _ = tinyrun.write(tmp_path)
    data = e2e(tmp_path / "e2e")
    path = tmp_path / "e2e" / "devset.csv"
    path.write_text(path.read_text() + '"name[film]",\n')
    settings = find("prefix-main").settings(Ask("prefix-main", model=folder, data=data))
    dev = corpus_table.parts(settings)["dev"]
    assert all(row["target"] for row in dev) and "1 rows with an empty reference left out" in " ".join(dev.notes)


def test_languages_of_a_corpus_reach_a_tokenizer_that_marks_them(tmp_path):
    data = f"multi30k:{stored(tmp_path / 'multi30k', en='the film {}', de='der film')}"
    folder, _ = tinyrun.write(tmp_path)
    assert find("unified-main").settings(Ask("unified-main", model=folder, data=data))["languages"] == {}
    assert corpus_table._languages(
        mbart.write(tmp_path / "mbart"), importlib.import_module("tunescope.data.corpora.multi30k")
    ) == {
        "source_language": "en",
        "target_language": "de",
    }


def test_a_recipe_s_folder_names_its_model_and_data_and_processes_are_as_many_as_have_room(tmp_path):
    ask = Ask("prefix-main", "paper", model="/x/gpt2-medium", data="e2e:/y/e2e")
    assert str(run.default_folder(ask)).endswith("reproduce/prefix-main-paper-gpt2-medium-e2e")
    other = replace(ask, steps=40, seeds=2, precision="bfloat16", accumulate=4)
    name = "prefix-main-paper-gpt2-medium-e2e-40-steps-2-seeds-4-parts-bfloat16"
    assert run.default_folder(other).name == name
    assert run.default_workers(ask) == 1  # its size is not known
    assert run.default_workers(Ask("petrov-table1")) == machine.cores()


def test_what_is_published_stands_beside_its_own_corpus_alone(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    own, other = e2e(tmp_path / "e2e"), corpus(tmp_path / "rte")
    for name in ("prefix-main", "prefix-depth"):
        lines = find(name).settings(Ask(name, model=model, data=own))["lines"]
        assert any(line["paper"].get("bleu") for line in lines)
        assert not any(line["paper"] for line in find(name).settings(Ask(name, model=model, data=other))["lines"])
    assert find("unified-main").settings(Ask("unified-main", model=model, data=own))["lines"][0]["paper"] == {}


def test_development_rows_are_cut_once_and_stay_whatever_subset_is_drawn(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    data = corpus(tmp_path / "rte", (("train", 60), ("test", 10)))
    settings = find("prefix-low-data").settings(Ask("prefix-low-data", model=model, data=data, seeds=1, quick=True))
    parts = corpus_table.parts(settings)
    assert {part: len(rows) for part, rows in parts.items()} == {"train": 54, "dev": 6, "test": 10}
    assert not {row["input"] for row in parts["train"]} & {row["input"] for row in parts["dev"]}
    assert parts == corpus_table.parts(settings)
    assert "dev cut from the training file by a hash" in parts["train"].notes[-1]
    assert "train" not in settings["rows"]


def test_what_is_told_of_rows_while_they_are_read_stands_below_the_table(tmp_path, in_process):
    model, _ = tinyrun.write(tmp_path)
    data = corpus(tmp_path / "rte", (("train", 40), ("test", 10)))
    result = reproduce(Ask("prefix-main", quick=True, model=model, data=data), tmp_path / "run", 1, lambda line: None)
    told = [note for note in result["table"]["notes"] if "cut from the training file" in note]
    assert len(told) == 1 and all(told[0] in unit["outcome"]["told"] for unit in result["units"])


def test_only_the_parts_that_count_are_read_and_a_test_part_is_needed(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    data = corpus(tmp_path / "rte")
    (tmp_path / "rte" / "unlabeled.jsonl").write_text('{"premise": "a", "hypothesis": "b"}\n')
    assert find("prefix-main").settings(Ask("prefix-main", model=model, data=data))["sha256"].keys() == {
        "train",
        "dev",
        "test",
    }
    assert corpus_table.parts({"data": data, "rows": {}, "choose": False}).keys() == {"train", "dev", "test"}
    (tmp_path / "rte" / "validation.jsonl").unlink()
    with pytest.raises(ts.UserError, match="the folder has no test part, on which a recipe's scores are"):
        find("prefix-unseen").settings(Ask("prefix-unseen", model=model, data=data))


def test_a_base_without_sentinels_is_refused_before_anything_is_trained(tmp_path):
    words = tinyrun.tokenizer()
    config = transformers.BartConfig(
        vocab_size=len(words), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, decoder_start_token_id=0,
        forced_eos_token_id=None, bos_token_id=0, eos_token_id=1, pad_token_id=0
    )  # fmt: skip
    transformers.BartForConditionalGeneration(config).save_pretrained(tmp_path / "bart")
    words.save_pretrained(tmp_path / "bart")
    ask = Ask("prompt-bases", model=str(tmp_path / "bart"), data=corpus(tmp_path / "rte"))
    with pytest.raises(ts.UserError, match="fills where its tokenizer has <extra_id_0>, as T5's has"):
        find("prompt-bases").settings(ask)


def test_full_tuning_has_the_paper_s_own_rate(tmp_path):
    folder, _ = tinyrun.write(tmp_path)
    made = find("prefix-main").settings(Ask("prefix-main", "paper", model=folder, data=e2e(tmp_path / "e2e")))
    by_arm = {line["arm"]: corpus_line._rates(made["course"], line["arm"]) for line in made["lines"]}
    assert by_arm["full"] == (5e-5,) and {rate for arm, rate in by_arm.items() if arm != "full"} == {(8e-5,)}
    assert "the rate 8e-05 (5e-05 of full tuning);" in corpus_line.notes(made)[0]
    tuned = find("prompt-length").settings(Ask("prompt-length", model=folder, data=corpus(tmp_path / "rte")))
    assert corpus_line._rates(tuned["course"], "full") == ()
    assert command(Ask("x", data="e2e:/home/anna/e2e")) == "tunescope reproduce x --data e2e:e2e"


def test_a_summary_s_published_lengths_and_the_z_loss_of_prompts_are_kept(tmp_path):
    folder, _ = tinyrun.write(tmp_path)
    stored(tmp_path / "xsum", document="the big cat {}", summary="big")
    ask = Ask("unified-sites", "paper", model=folder, data=f"xsum:{tmp_path / 'xsum'}")
    task = corpus_line._task(find("unified-sites").settings(ask), "{input}")
    assert (task.min_new_tokens, task.max_new_tokens) == (11, 62)
    tuned = corpus_line._task(find("unified-sites").settings(replace(ask, protocol="tuned")), "{input}")
    assert (tuned.min_new_tokens, tuned.max_new_tokens, tuned.label_smoothing) == (0, None, 0.0)
    prompts = replace(ask, name="prompt-length", data=corpus(tmp_path / "rte"))
    settings = find("prompt-length").settings(prompts)
    assert corpus_line._task(settings, "{input}").z_loss == 1e-4
    assert "with a z-loss of 0.0001" in corpus_line.notes(settings)[1]


def test_steps_and_precision_are_the_users_where_given(tmp_path):
    ask = Ask(
        "prefix-main", model=tinyrun.write(tmp_path)[0], data=e2e(tmp_path / "e2e"), steps=7, precision="bfloat16"
    )
    for protocol in ("tuned", "paper"):
        made = find("prefix-main").settings(replace(ask, protocol=protocol))
        training = corpus_line.training(made["course"], rows=60)
        assert (training.steps, training.precision) == (7, "bfloat16")
        assert "7 steps" in corpus_line.notes(made)[0] and "in bfloat16" in corpus_line.notes(made)[0]
    assert command(ask).endswith(" --data e2e:e2e --steps 7 --precision bfloat16")
    with pytest.raises(ts.UserError, match="--steps 0: at least one"):
        check(replace(ask, steps=0), find("prefix-main"))
    with pytest.raises(ts.UserError, match="petrov-table1 has no use for --steps"):
        check(Ask("petrov-table1", steps=3), find("petrov-table1"))


def test_a_batch_goes_through_in_the_parts_that_the_user_says(tmp_path):
    ask = Ask("prefix-main", model=tinyrun.write(tmp_path)[0], data=e2e(tmp_path / "e2e"), accumulate=5)
    for protocol, size in (("tuned", 16), ("paper", 10)):
        training = corpus_line.training(
            find("prefix-main").settings(replace(ask, protocol=protocol))["course"], rows=60
        )
        assert (training.batch_size, training.accumulate) == (size, 5)
    assert command(ask).endswith(" --data e2e:e2e --accumulate 5")
    with pytest.raises(ts.UserError, match="--accumulate 17: a batch has 16 rows; give at most as many"):
        find("prefix-main").settings(replace(ask, accumulate=17))
    with pytest.raises(ts.UserError, match="--accumulate 0: at least one"):
        check(replace(ask, accumulate=0), find("prefix-main"))
    with pytest.raises(ts.UserError, match="petrov-table1 has no use for --accumulate"):
        check(Ask("petrov-table1", accumulate=2), find("petrov-table1"))


def test_steps_are_as_wide_and_inputs_as_few_as_the_user_says(tmp_path):
    ask = Ask("prefix-main", model=tinyrun.write(tmp_path)[0], data=e2e(tmp_path / "e2e"), batch_size=4, inputs=5)
    made = find("prefix-main").settings(ask)
    parts = corpus_table.parts(made)
    assert corpus_line.training(made["course"], rows=60).batch_size == 4
    assert [len({row["input"] for row in parts[part]}) for part in ("dev", "test")] == [5, 5]
    assert made["rows"]["train"] == 10_000 and "5 inputs of dev and 5 inputs of test" in corpus_line.notes(made)[0]
    assert find("prefix-main").settings(replace(ask, inputs=500))["rows"]["dev"] == 100  # as few as without it
    assert command(ask).endswith(" --data e2e:e2e --batch-size 4 --inputs 5")
    assert run.default_folder(ask).name.endswith("e2e-4-a-step-5-inputs")
    with pytest.raises(ts.UserError, match="--batch-size 0: at least one"):
        check(replace(ask, batch_size=0), find("prefix-main"))
    with pytest.raises(ts.UserError, match="petrov-table1 has no use for --inputs"):
        check(Ask("petrov-table1", inputs=2), find("petrov-table1"))


def test_the_paper_s_protocol_chooses_by_some_of_the_development_inputs(tmp_path):
    ask = Ask("prefix-main", "paper", model=tinyrun.write(tmp_path)[0], data=e2e(tmp_path / "e2e"))
    rows = (f'"name[film], eatType[plot {n}]",the film was good\n' for n in range(1700))
    (tmp_path / "e2e/devset.csv").write_text("mr,ref\n" + "".join(rows))
    made = find("prefix-main").settings(ask)
    assert len({row["input"] for row in corpus_table.parts(made)["dev"]}) == 1600  # of He et al. on XSum
    assert "At most 1,600 inputs of dev" in corpus_line.notes(made)[0]
    assert find("prefix-main").settings(replace(ask, inputs=2000))["rows"] == {"dev": 1600, "test": 2000}


def test_short_runs_in_the_paper_s_protocol_are_scored_on_few_rows_while_they_train(tmp_path, in_process):
    ask = Ask("prefix-main", "paper", model=tinyrun.write(tmp_path)[0], data=e2e(tmp_path / "e2e"), steps=2, seeds=1)
    rows = (f'"name[film], eatType[plot {n}]",the film was good\n' for n in range(40))
    (tmp_path / "e2e/devset.csv").write_text("mr,ref\n" + "".join(rows))
    reproduce(replace(ask, lines=("lora",)), tmp_path / "run", 1, lambda line: None)
    (found,) = (tmp_path / "run/units").glob("*/run/results.json")
    assert json.loads(found.read_text())["protocol"]["early_rows"] == 32


def test_a_model_is_spread_over_all_devices_where_it_is_asked_for(tmp_path, in_process, monkeypatch):
    given = []

    def loaded(name, **kept):
        given.append(kept["given"])  # to `from_pretrained`, which spreads it
        return load_model(name, **kept)

    monkeypatch.setattr(opening, "load_model", loaded)
    ask = Ask("prefix-main", quick=True, model=tinyrun.write(tmp_path)[0], data=e2e(tmp_path / "e2e"))
    ask = replace(ask, lines=("lora",), device_map="auto")
    check(ask, find("prefix-main"))
    result = reproduce(ask, tmp_path / "run", 1, lambda line: None)
    assert result["units"][0]["outcome"]["status"] == "done" and given == [{"device_map": "auto"}]
    assert " --device-map auto " in result["command"] and result["settings"]["device_map"] == "auto"
    assert "device_map" not in find("prefix-main").settings(replace(ask, device_map=""))


def test_a_device_map_is_refused_where_it_is_of_no_use_and_has_one_worker(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 4)
    monkeypatch.setattr(machine, "default_workers", lambda *given: 4)
    ask = Ask("prefix-main", model="m", data="e2e:d")
    assert [run.default_workers(one) for one in (ask, replace(ask, device_map="auto"))] == [4, 1]
    for name in ("pez", "lm-bff", "reweight", "anchors", "petrov-table1"):
        with pytest.raises(ts.UserError, match=f"{name} has no use for --device-map; it takes"):
            check(Ask(name, device_map="auto"), find(name))
    with pytest.raises(ts.UserError, match="--device-map auto spreads a whole model, and --load makes it small"):
        check(replace(ask, device_map="auto", load="4bit"), find("prefix-main"))
    with pytest.raises(ts.UserError, match="--device-map 'balanced' is not known"):
        check(replace(ask, device_map="balanced"), find("prefix-main"))
    assert all("device-map" in find(name).TAKES for name in STUDIES)


def test_a_table_whose_pieces_are_its_lines_is_made_of_those_that_are_done(tmp_path):
    ask = Ask("prefix-main", model=tinyrun.write(tmp_path)[0], data=e2e(tmp_path / "e2e"), lines=("adapter",))
    out, recipe = tmp_path / "run", find("prefix-main")
    (out / "units").mkdir(parents=True)
    settings = recipe.settings(ask)
    unit = recipe.units(settings)[1]
    run_folder.write_config(out, run._config(ask, settings))
    done = corpus_line.REFUSED | {"rate": "", "dev": [], "scores": {"bleu": [2.0, 4.0]}, "stored": 3, "reason": ""}
    sealed_json.put(piece.path(out, run_folder.identity(unit)), done)
    result = run.so_far(ask, out, lambda line: None)
    (row,) = result["table"]["rows"]
    assert row["label"] == settings["lines"][1]["label"] and row["cells"][2]["values"] == [2.0, 4.0]
    assert result["table"]["notes"][0] == "1 of 2 pieces are done: this is of these alone."
    assert result["settings"]["lines"] == settings["lines"]  # of which the run is


def test_a_model_of_the_hub_that_is_here_has_as_many_processes_as_its_folder(tmp_path, monkeypatch):
    folder, _ = tinyrun.write(tmp_path)
    monkeypatch.setattr(machine, "cores", lambda: 3)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert machine.default_workers(folder) == 3
    here = {"owner/name": f"{folder}/config.json"}
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda name, file: here.get(name))
    assert [machine.default_workers(name) for name in ("owner/name", "owner/other")] == [3, 1]


def test_one_model_is_taken_where_one_is_meant():
    with pytest.raises(ts.UserError, match="prefix-main takes one --model, and 2 were given"):
        reproduce(Ask("prefix-main", model="a", others=("b",), data="e2e:x"), None, 1)  # type: ignore[arg-type]


def test_a_curve_says_its_numbers_and_draws_a_line_a_method():
    lines = {"full": {50: (1.0, 2.0), 100: (3.0, 4.0)}, "prefix <b>": {50: (2.0,)}}
    drawn = _curve.drawn(lines, ("rows", "BLEU"), corpus_line.bounds("bleu"))
    assert drawn.count("<circle") == 3 and "prefix &lt;b&gt;" in drawn and "<b>" not in drawn
    assert "full: 50 1.50, 100 3.50" in drawn
    for metric, end in (("nist", ">150<"), ("bleu", ">100<")):  # Student's interval ends at 15 + 12.7 * 10
        wide = _curve.drawn({"full": {50: (5.0, 25.0)}}, ("rows", metric), corpus_line.bounds(metric))
        assert end in wide and (metric == "nist" or ">150<" not in wide)


def test_a_curve_of_shares_ends_at_one_and_is_broken_where_a_size_has_no_score():
    shares = _curve.drawn({"full": {50: (0.2, 0.5, 0.9)}}, ("rows", "accuracy"), corpus_line.bounds("accuracy"))
    ticks = [float(one) for one in re.findall(r">(-?[0-9.]+)</text>", shares)]
    assert 50.0 in ticks and max(one for one in ticks if one != 50) <= 1.0

    def joined(values):
        drawn = _curve.drawn({"full": values, "other": {100: (1.0,)}}, ("rows", "BLEU"), corpus_line.bounds("bleu"))
        return drawn.count('stroke-width="2"')

    key = 2  # of the two lines
    assert joined({50: (1.0,), 100: (2.0,), 200: (3.0,)}) == key + 2
    assert joined({50: (1.0,), 100: (), 200: (3.0,)}) == joined({50: (1.0,), 200: (3.0,)}) == key


def test_development_rows_that_are_cut_have_no_input_of_the_training_rows(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    data = e2e(tmp_path / "e2e")  # two references of each input
    (tmp_path / "e2e" / "devset.csv").unlink()
    parts = corpus_table.parts(find("prefix-main").settings(Ask("prefix-main", model=model, data=data)))
    train, dev = ({row["input"] for row in parts[part]} for part in ("train", "dev"))
    assert dev and not train & dev and len(parts["dev"]) == 2 * len(dev)


def test_courses_are_those_that_the_papers_name():
    prompts, few, glue, tables = published.PROMPT_TUNING, published.FEW, published.GLUE, published.E2E
    assert (prompts.optimizer, prompts.schedule, prompts.rates) == ("adafactor", "constant", (0.3,))
    assert (prompts.steps, prompts.batch_size, prompts.weight_decay) == (30_000, 32, 1e-5)
    assert (few.steps, few.warmup * few.steps, few.rates) == (400, 100, (5e-5,))
    assert (glue.epochs, glue.batch_size, glue.rates, glue.warmup) == (10, 32, (1e-4,), 0.06)
    assert (tables.epochs, tables.batch_size, tables.beams, tables.network, tables.warmup) == (5, 10, 5, 512, 0.0)


def test_the_unified_view_s_figures_stand_beside_the_lines_that_they_are_of(tmp_path):
    folder, _ = tinyrun.write(tmp_path)
    ask = Ask("unified-scale", "paper", model=folder)
    xsum = f"xsum:{stored(tmp_path / 'xsum', document='the film {}', summary='film')}"
    wmt = f"wmt_en_ro:{stored(tmp_path / 'wmt', en='the big cat {}', ro='big')}"
    lines = find("unified-scale").settings(replace(ask, data=xsum))["lines"]
    assert {line["label"]: line["paper"]["rouge_1"] for line in lines} == {
        "LoRA, s = 1": "44.17",
        "LoRA, s = 4": "44.59",
        "parallel adapter, s = 1": "44.35",
        "parallel adapter, s = 4": "44.85",
        "parallel adapter, s = learned": "44.56",
    }
    first, *_, mam = find("unified-main").settings(replace(ask, name="unified-main", data=wmt))["lines"]
    assert [line["paper"]["bleu_romanian"] for line in (first, mam)] == ["37.3", "37.5"]
    assert mam["label"].startswith("MAM") and first["label"] == "full tuning"


def test_few_examples_to_begin_from_are_few_under_every_protocol(tmp_path):
    folder, _ = tinyrun.write(tmp_path)
    ask = Ask("prefix-init", model=folder, data=corpus(tmp_path / "rte", (("train", 300), ("dev", 8), ("test", 10))))
    for protocol in ("tuned", "paper"):
        made = find("prefix-init").settings(replace(ask, protocol=protocol))
        assert len(corpus_table.parts(made)["train"]) == find("prefix-init").EXAMPLES
