"""Recipes that look for prompts on a given model and corpus, at the size of seconds."""

import copy
import json
import random
from dataclasses import replace
from types import SimpleNamespace

import masked
import pytest
import tinyrun
import torch

import tunescope as ts
from tunescope.data.k_shot import k_shot
from tunescope.data.read import read
from tunescope.models.load import load_model
from tunescope.reproduce import corpus_table
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import find
from tunescope.reproduce.recipes import _label_tasks, lm_bff, pez
from tunescope.reproduce.run import reproduce
from tunescope.system import run_folder

WORDS = ("negative=neg,positive=pos",)


@pytest.fixture(scope="module")
def searched(tmp_path_factory, in_process):
    home = tmp_path_factory.mktemp("pez")
    model, _ = tinyrun.write(home)
    other = home / "other"
    tinyrun.model(seed=1).save_pretrained(other)
    tinyrun.tokenizer().save_pretrained(other)
    ask = Ask(
        "pez",
        quick=True,
        model=model,
        others=(str(other),),
        data=tinyrun.sst2(home / "sst2"),
        template="{text} Label:",
        words=WORDS,
        seeds=2,
    )
    return home, reproduce(ask, home / "run", 1, lambda line: None)


def test_each_search_has_the_budget_and_the_score_of_its_prompt_is_that_of_attaching_it(searched):
    home, result = searched
    settings = result["settings"]
    assert [row["label"] for row in result["table"]["rows"]] == ["no prompt", "PEZ", "random prompts, the best kept"]
    assert str(home) not in json.dumps(result)
    made = find("pez").settings(
        Ask("pez", quick=True, model=str(home / "model"), data=f"sst2:{home / 'sst2'}", template="{text} Label:",
            words=WORDS)
    )  # fmt: skip
    test = corpus_table.parts(made)["test"]
    for one in result["units"]:
        outcome = one["outcome"]
        assert outcome["passes"] <= settings["passes"] == 3 * 8 * 8
        scores = [*outcome["scores"]["accuracy"], *outcome["carried"]]
        for folder, score in zip(("model", "other"), scores, strict=True):
            assert score == pytest.approx(right(str(home / folder), outcome["prompt"], test))
        if outcome["prompt"]:
            kept = ts.load(home / "run/units" / run_folder.identity(one["unit"]) / "prompt")
            assert [artifact.spec.text for artifact in kept] == [outcome["prompt"]]


def test_a_piece_that_was_killed_behind_its_saved_prompt_is_done_again(searched, tmp_path):
    home, result = searched
    asked = Ask("pez", quick=True, model=str(home / "model"), data=f"sst2:{home / 'sst2'}", template="{text} Label:")
    made = find("pez").settings(replace(asked, words=WORDS))
    unit = next(one["unit"] for one in result["units"] if one["outcome"]["prompt"])
    first, again = (find("pez").work(made, unit, tmp_path / "piece") for _ in range(2))
    assert first["prompt"] == again["prompt"] and first["scores"] == again["scores"]


def right(folder, prompt, rows):
    """The share of rows whose label word is the likelier behind prompt, text and template, by plain logits."""
    model, tokenizer = load_model(folder)
    pair = [tokenizer(word)["input_ids"][0] for word in ("neg", "pos")]
    hits = 0
    for row in rows:
        ids = tokenizer(f"{prompt} {row['text']} Label:")["input_ids"]
        choice = model(torch.tensor([ids])).logits[0, -1, pair].argmax().item()
        hits += ("negative", "positive")[choice] == row["label"]
    return hits / len(rows)


def test_how_likely_a_prompt_is_is_torchs_cross_entropy_of_its_tokens_behind_one_another(searched):
    home, result = searched
    model, tokenizer = load_model(str(home / "model"))
    outcome = next(one["outcome"] for one in result["units"] if one["unit"]["arm"].startswith("pez"))
    ids = torch.tensor([tokenizer(outcome["prompt"])["input_ids"]])
    want = model(ids, labels=ids).loss.item()  # transformers' own shift
    assert outcome["nats"] == pytest.approx(want, rel=1e-5)
    bare = result["units"][0]["outcome"]
    assert f"The test rows' own texts have {bare['nats']:.2f}" in " ".join(result["table"]["notes"])


def test_a_model_that_the_prompts_cannot_be_read_on_is_told_in_its_column(tmp_path):
    recipe = find("pez")
    outcomes = [
        {"scores": {"accuracy": [0.5]}, "carried": ["no such token"], "nats": None, "prompt": "a", "passes": 1234}
    ]
    outcomes[0]["steps"] = 20
    cells = recipe._cells(outcomes, ["gpt2-xl"], {"gpt2-large": ".9", "gpt2-xl": ".8"}, "a")
    assert [(cell.values, cell.paper, cell.text) for cell in cells] == [
        ((0.5,), ".9", ""),
        ((), "", ""),
        ((), ".8", "no such token"),
        ((), "", "1,234 in 20 steps"),
        ((), "", "a"),
    ]
    outcomes.append(outcomes[0] | {"carried": [0.75]})
    own, _, carried, *_ = recipe._cells(outcomes, ["gpt2-xl"], {}, "a")
    assert own.values == (0.5, 0.5) and (carried.values, carried.text) == ((), "seed 0: no such token")


def test_a_search_that_the_budget_does_not_suffice_for_says_so_in_its_row_and_the_others_go_on(tmp_path, in_process):
    model, _ = tinyrun.write(tmp_path)
    ask = Ask(
        "pez",
        quick=True,
        model=model,
        data=tinyrun.sst2(tmp_path / "sst2"),
        template="{text} Label:",
        words=WORDS,
        lines=("random", "greedy"),
        seeds=1,
        steps=1,
    )
    result = reproduce(ask, tmp_path / "run", 1, lambda line: None)
    told = {row["label"]: row["cells"][0] for row in result["table"]["rows"]}
    (refused,) = (cell for label, cell in told.items() if label.startswith("greedy"))
    assert "passes are too few: one step takes" in refused["text"] and not refused["values"]
    assert told["no prompt"]["values"]


def test_passes_are_those_of_the_seeds_that_were_not_refused():
    refused = pez._refused("too few passes", 1)
    done = {"prompt": "a", "passes": 90, "steps": 3, "nats": 4.0, "scores": {"accuracy": [0.5]}, "carried": [0.25]}
    own, nats, other, passes, _ = pez._cells([refused, done], ["other"], {}, says="")
    assert passes.text == "90 in 3 steps" and nats.values == (4.0,)
    assert own.text == other.text == "seed 0: too few passes"
    assert pez._cells([refused], ["other"], {}, says="")[3].text == "0"


def test_published_settings_are_those_of_the_authors_code(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    ask = Ask("pez", "paper", model=model, data=tinyrun.sst2(tmp_path / "sst2"))
    made = find("pez").settings(ask)
    pez = made["searches"]["pez:length=10,rate=0.3,optimizer=adafactor,init_from=labels"]
    assert (pez["length"], pez["batch"], pez["fluency"]) == (10, 16, 0.0)
    (projected,) = [one for one in made["lines"] if one["label"].startswith("projected gradient steps")]
    control = made["searches"][projected["arm"]]  # PEZ in all but what is kept
    assert control.pop("keeps") == "projected" and pez.pop("keeps") == "continuous" and control == pez
    assert made["passes"] == 3 * 16 * 5000 and made["rows"] == {}
    assert made["task"] == {"kind": "classification", "template": "{text}. It was"}
    assert {line["label"]: line["paper"].get("opt-6.7b") for line in made["lines"]}["PEZ"] == ".7172"
    assert next(unit["arm"] for unit in find("pez").units(made)) == "zero-shot"


def test_a_template_of_a_field_that_the_rows_lack_is_refused_with_those_they_have(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    ask = Ask("pez", model=model, data=tinyrun.sst2(tmp_path / "sst2"), template="{premise}?")
    with pytest.raises(
        ts.UserError, match=r"names 'premise', and the rows of sst2:\S+ have input, target, text, label\. Give"
    ):
        find("pez").settings(ask)


def test_a_corpus_of_texts_to_write_is_refused_by_name(tmp_path):
    from tiny_corpora import e2e

    model, _ = tinyrun.write(tmp_path)
    with pytest.raises(ts.UserError, match="pez chooses among labels, and e2e has texts to write"):
        find("pez").settings(Ask("pez", model=model, data=e2e(tmp_path / "e2e")))


def films(folder, count=40):
    """SST-2's JSONL of words that the masked models know."""
    folder.mkdir()
    draw = random.Random(0)
    for part in ("train", "dev", "test"):
        rows = []
        for number in range(count):
            words = draw.choices(["the", "film", "plot", "cast", "was", "news"], k=5)
            words.insert(draw.randrange(5), ("dull", "bright")[number % 2])
            rows.append({"text": " ".join(words), "label": str(number % 2)})
        (folder / f"{part}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return f"sst2:{folder}"


def kept(name, folder):
    model, tokenizer = masked.make(name, dtype=torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def few(tmp_path_factory, in_process):
    home = tmp_path_factory.mktemp("few")
    ask = Ask("lm-bff", quick=True, seeds=2, model=kept("bert", home / "bert"), data=films(home / "sst2"))
    ask = replace(ask, others=(kept("t5", home / "t5"),), lines=("nothing tuned", "tuned, ", "new head"))
    return home, reproduce(ask, home / "run", 1, lambda line: None)


def test_each_line_of_few_rows_has_a_score_a_draw_and_what_was_found_is_told(few):
    home, result = few
    assert str(home) not in json.dumps(result)
    rows = {row["label"]: row["cells"] for row in result["table"]["rows"]}
    assert list(rows) == [
        "nothing tuned",
        "1 demonstration a label, nothing tuned",
        "tuned, given words and template",
        "tuned with a new head",
        "tuned, words found",
        "tuned, template found",
        "tuned, template and words found",
    ]
    assert all(cells[0]["seeds"] == 2 for cells in rows.values())
    assert rows["nothing tuned"][0]["paper"] == ".836"
    given, words, template, both = ("terrible", "It was {mask}."), *(found(result, part) for part in PARTS)
    assert words["template"].endswith(given[1]) and words["words"].keys() == {"negative", "positive"}
    assert template["words"] == {"negative": "terrible", "positive": "great"} and "{mask}" in template["template"]
    assert both["template"] == template["template"]  # the template is looked for first, with the words given
    assert [unit["unit"]["seed"] for unit in result["units"]] == [13] * 5 + [21] * 5


@pytest.mark.parametrize("size", ["paper", "tuned"])
def test_of_a_corpus_with_many_test_rows_the_paper_has_fewer_sets_of_demonstrations(size, tmp_path, monkeypatch):
    assert {lm_bff.FEWER[name] for name in ("mnli", "snli", "qqp")} == {4}
    model, data = kept("bert", tmp_path / "bert"), tinyrun.sst2(tmp_path / "sst2")

    def sets():
        lines = find("lm-bff").settings(Ask("lm-bff", size, model=model, data=data))["lines"]
        return {line["arm"].partition("sets=")[2].partition("+")[0] for line in lines if "sets=" in line["arm"]}

    usual = "16" if size == "paper" else "4"
    assert sets() == {usual}
    monkeypatch.setitem(lm_bff.FEWER, "sst2", 3)  # as if it were one
    assert sets() == {"3" if size == "paper" else usual}


def test_finalists_have_the_published_rates_and_cut_queries_are_told(tmp_path, monkeypatch):
    from tunescope.comparison import comparison

    recipe, seen = find("lm-bff"), []
    model = kept("bert", tmp_path / "bert")
    made = recipe.settings(
        Ask("lm-bff", "paper", model=model, data=tinyrun.sst2(tmp_path / "sst2"), lines=("tuned, ",))
    )

    def bench(*given, **own):
        seen.append(own["rates"])
        raise ts.UserError("enough")

    monkeypatch.setattr(_label_tasks, "bench", bench)
    with pytest.raises(ts.UserError, match="enough"):
        recipe.work(made, {"part": "words", "seed": 13}, tmp_path / "words")
    assert seen == [(1e-5, 2e-5, 5e-5)]
    remarks = ["inputs cut to fit the model's positions: test 3 of 32 rows.", "Unstable."]
    arm = {"status": "done", "reason": "", "learning_rate": 1e-5, "remarks": remarks, "runs": []}
    found = SimpleNamespace(results={"arms": [arm | {"name": "full"}]})
    monkeypatch.setattr(comparison, "compare", lambda *given, **more: found)
    outcome = recipe.work(made, {"part": "", "seed": 13}, tmp_path / "given")
    assert outcome["told"] == {"full": remarks[:1]}


def test_a_line_that_lost_a_draw_has_no_score_and_says_which(few):
    _, result = few
    recipe, units = find("lm-bff"), copy.deepcopy(result["units"])
    one = next(unit for unit in units if unit["unit"] == {"part": "", "seed": 21})["outcome"]
    shown = "demos:k=1"
    del one["scores"][shown]
    one["refused"][shown] = "the context takes 70 positions"
    one["told"]["full"] = ["inputs cut to fit the model's positions: test 3 of 20 rows."]
    table = recipe.table(result["settings"], [(unit["unit"], unit["outcome"]) for unit in units])
    rows = dict(table.rows)
    assert rows["1 demonstration a label, nothing tuned"][0].values == ()
    assert rows["1 demonstration a label, nothing tuned"][0].text == "draw 21: the context takes 70 positions"
    assert len(rows["nothing tuned"][0].values) == 2
    assert table.notes[-1] == (
        "tuned, given words and template, draw 21: inputs cut to fit the model's positions: test 3 of 20 rows."
    )


PARTS = ("words", "template", "both")


def found(result, part):
    return next(one["outcome"] for one in result["units"] if one["unit"]["part"] == part)


def test_what_is_found_is_found_on_the_rows_that_its_seed_is_trained_on(few):
    home, result = few
    for one in result["units"]:
        folder = home / "run/units" / run_folder.identity(one["unit"])
        train, test = (read(str(folder / "data" / f"{part}.jsonl")) for part in ("train", "test"))
        drawn = k_shot(train, test, lambda row, _: row["label"], ("text",), k=4, seed=one["unit"]["seed"])
        told = json.loads((folder / "run/results.json").read_text())["data"]
        assert told["train"]["rows"] == told["dev"]["rows"] == len(drawn.train) == 8
    asked = find("lm-bff").settings(
        Ask("lm-bff", quick=True, model=str(home / "bert"), data=f"sst2:{home / 'sst2'}", lines=("words",))
    )
    bench = _label_tasks.bench(
        asked, asked["model"], _label_tasks.files(asked, home / "again", k_shot=True), k_shot=4, seeds=(21,)
    )
    drawn = k_shot(train, test, lambda row, _: row["label"], ("text",), k=4, seed=21)
    assert [row["text"] for row in bench.splits.train] == [row["text"] for row in drawn.train]


def test_a_decoder_answers_by_words_at_the_end_and_templates_are_left_to_one_who_writes(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    ask = Ask("lm-bff", "paper", model=model, data=tinyrun.sst2(tmp_path / "sst2"))
    made = find("lm-bff").settings(ask)
    assert made["task"]["template"] == "{text} It was" and made["task"]["words"]["positive"] == "great"
    assert {line["part"] for line in made["lines"]} == {"", "words"}
    assert made["lines"][3]["arm"] == "demos:k=1,choose=similar,sets=16+full" and made["k"] == 16
    search = made["searches"]["label_words"]
    assert (search["shortlist"], search["keep"], search["tune"], search["finalists"]) == (100, 100, 1000, 100)
    training = find("lm-bff")._training(made["course"])
    assert (training.steps, training.batch_size, training.eval_every, training.warmup) == (1000, 8, 100, 0.0)
    assert made["course"]["rates"] == (1e-5, 2e-5, 5e-5)
    half = find("lm-bff").settings(replace(ask, precision="bfloat16"))["course"]
    assert (training.precision, find("lm-bff")._training(half).precision) == ("float32", "bfloat16")
    units = find("lm-bff").units(made)
    assert [unit["seed"] for unit in units[::2]] == [13, 21, 42, 87, 100]
    t5 = kept("t5", tmp_path / "t5")
    assert {line["part"] for line in find("lm-bff").settings(replace(ask, others=(t5,)))["lines"]} == {"", *PARTS}
    with pytest.raises(ts.UserError, match="to write templates; 3 were given"):
        find("lm-bff").settings(replace(ask, others=(t5, t5)))
    with pytest.raises(ts.UserError, match="lm-bff, to write templates, needs an encoder-decoder, and --model"):
        find("lm-bff").settings(replace(ask, others=(model,)))


def test_a_line_that_is_refused_says_why_in_the_place_of_its_score():
    recipe = find("lm-bff")
    line = {"label": "a", "arm": "full", "part": "", "paper": {}}
    outcome = {"scores": {"full": []}, "rates": {"full": None}, "refused": {"full": "too long"}, "passes": 0}
    made = {
        "lines": [line],
        "task": {"template": "{text}"},
        "course": {"steps": 1, "batch_size": 1, "rates": (), "trials": 1},
    }
    made |= {"searches": {"label_words": {"finalists": 1, "tune": 1}}, "rows": {}, "others": [], "k": 1, "seeds": 1}
    table = recipe.table(made, [({"part": "", "seed": 13}, outcome)])
    assert [cell.text for cell in table.rows[0][1]] == ["too long", "", ""]


@pytest.mark.parametrize(("steps", "looks"), [(19, 19), (25, 13), (60, 10), (4, 4)])
def test_the_note_counts_the_looks_that_are_taken(steps, looks):
    course = {"steps": steps, "batch_size": 2, "rates": [], "trials": 3, "patience": 99}
    searches = {"label_words": {"finalists": 2, "tune": 3}}
    given = {"task": {"template": "{text}"}, "course": course, "rows": {}, "others": [], "k": 1, "seeds": 1}
    (_, told, _) = lm_bff._notes(given | {"searches": searches})
    taken = sum(step % lm_bff._every(steps) == 0 or step == steps for step in range(1, steps + 1))
    assert f"the best of {looks} looks at" in told and taken == looks


def test_a_search_is_drawn_by_the_seed_of_its_piece(tmp_path, monkeypatch):
    model, data = kept("bert", tmp_path / "bert"), tinyrun.sst2(tmp_path / "sst2")
    decoder, seeds = tinyrun.write(tmp_path)[0], []

    def search(bench, passes, seed, say):
        seeds.append(seed)
        raise ts.UserError("enough")

    for recipe in (find("pez"), lm_bff):
        monkeypatch.setattr(recipe, "built", lambda *_: SimpleNamespace(search=search))
    made = find("pez").settings(Ask("pez", quick=True, model=decoder, data=data, template="{text} Label:", words=WORDS))
    found = find("pez").work(made, {"arm": "random:length=10", "seed": 3}, tmp_path / "pez")
    made = lm_bff.settings(Ask("lm-bff", quick=True, model=model, data=data))
    with pytest.raises(ts.UserError, match="enough"):
        lm_bff.work(made, {"part": "words", "seed": 21}, tmp_path / "words")
    assert seeds == [3, 21] and found["reason"] == "enough"


def test_a_draw_is_compared_on_its_own_rows_and_chosen_by_all_of_its_development_rows(tmp_path, monkeypatch):
    from tunescope.comparison import comparison

    model, asked, none = tinyrun.write(tmp_path)[0], {}, {"arms": []}
    made = lm_bff.settings(Ask("lm-bff", "paper", model=model, data=tinyrun.sst2(tmp_path / "sst2")))
    monkeypatch.setattr(comparison, "compare", lambda *_, **given: asked.update(given) or SimpleNamespace(results=none))
    lm_bff.work(made, {"part": "", "seed": 42}, tmp_path / "given")
    assert (asked["seeds"], asked["k_shot"], asked["dev_share"], asked["beyond"]) == ([42], 16, 1.0, 0)
    assert asked["learning_rates"] == (1e-5, 2e-5, 5e-5)
