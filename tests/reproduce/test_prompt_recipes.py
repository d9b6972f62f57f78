"""The recipes about searched prompts: what is asked, what the numbers are, and the direction at small size."""

import json
import random
from types import SimpleNamespace

import pytest
import tinyrun
from smaller import smaller

import tunescope as ts
from tunescope.lab.worlds.named_skills import tokenizer
from tunescope.lab.worlds.world import part_of
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipes import _named_skills, _searches, prompt_likelihood, prompt_search, prompt_transfer
from tunescope.reproduce.run import reproduce
from tunescope.trial.train import loop

PASSES = 5000  # thrice as many as any of these searches needs


@pytest.fixture(scope="module")
def found(tmp_path_factory, in_process):
    with pytest.MonkeyPatch.context() as patch:
        smaller(patch, prompt_search, passes=PASSES, steps=400, batch_size=32)
        return reproduce(Ask("prompt-search", quick=True), tmp_path_factory.mktemp("search"), 1, lambda line: None)


@pytest.mark.slow
def test_searches_find_the_names_of_skills_and_a_name_found_answers_as_the_name_does(found):
    rows = {row["label"]: row["cells"] for row in found["table"]["rows"]}
    assert set(rows) == {_searches.METHODS[one] for one in ("random", "pez", "gcg")}
    assert rows["PEZ"][0]["values"] == rows["PEZ"][1]["values"] == [1.0, 1.0]
    for unit in found["units"]:
        outcome = unit["outcome"]
        is_whole = outcome["words"] == 2
        assert is_whole == (outcome["prompt"] == outcome["name"])
        assert not is_whole or outcome["exact"]["found"] == outcome["exact"]["name"]
        assert outcome["passes"] <= PASSES


def test_when_a_prompt_was_found_is_the_median_over_those_that_found_it():
    found = [
        ({"seed": seed}, {"enough_at": at, "words": words, "exact": {"found": 0.5}})
        for seed, at, words in ((0, 300, 1), (0, None, 2), (1, 100, 0))
    ]
    cells = prompt_search._cells(found, 2)
    assert cells[0].values == (0.75, 0.0)  # a model is one draw, with the mean of its skills
    assert cells[2].text == "200 (2 of 3)"
    assert prompt_search._cells(found[1:2], 2)[2].text == "never (0 of 1)"


@pytest.mark.slow
def test_a_found_name_is_worth_the_same_carried_by_its_text_and_the_loss_of_the_others_is_arithmetic(
    tmp_path, in_process, monkeypatch
):
    smaller(monkeypatch, prompt_transfer, passes=PASSES, steps=500, batch_size=32, shapes=[[2, 4, 64], [2, 2, 48]])
    carried = reproduce(Ask("prompt-transfer", quick=True), tmp_path, 1, lambda line: None)
    for unit in carried["units"]:
        outcome, source = unit["outcome"], unit["unit"]["source"]
        if outcome["whole"]:
            assert outcome["exact"]["found"] == outcome["exact"]["name"]
        assert min(outcome["exact"]["name"]) > 0.95 and max(outcome["exact"]["none"]) < 0.1
        assert outcome["exact"]["found"][source] > 0.5
    assert prompt_transfer._lost({"exact": {"found": [0.5, 0.9, 0.2]}}, 1) == pytest.approx(0.35 - 0.9)
    rows = [row["label"] for row in carried["table"]["rows"]]
    assert rows[:2] == ["no prompt", "the skill's name"] and len(rows) == 6


def stories(path, count):
    draw = random.Random(0)
    words = ["film", "plot", "was", "a", "the", "good", "bad"]
    path.write_text("".join(json.dumps({"text": " ".join(draw.choices(words, k=41))}) + "\n" for _ in range(count)))
    return str(path)


def test_the_gain_of_a_prompt_is_measured_against_the_bare_model_on_the_same_texts(tmp_path, in_process):
    model, _ = tinyrun.write(tmp_path)
    ask = Ask("prompt-likelihood", quick=True, model=model, data=stories(tmp_path / "texts.jsonl", 60))
    result = reproduce(ask, tmp_path / "run", 1, lambda line: None)
    rows = {row["label"]: row["cells"] for row in result["table"]["rows"]}
    bare = rows["no prompt"][0]["values"][0]
    for label in ("PEZ", "random prompts, the best kept", "soft prompt of 5, trained"):
        (loss,), (gain,) = rows[label][0]["values"], rows[label][1]["values"]
        assert gain == pytest.approx(bare - loss)
    assert len(rows["PEZ"][2]["text"].split()) == 5
    assert rows["soft prompt of 5, trained"][1]["values"][0] > 0


def test_the_bare_loss_is_torchs_cross_entropy_of_the_later_words(tmp_path):
    import torch

    model, _ = tinyrun.write(tmp_path)
    settings = prompt_likelihood.settings(
        Ask("prompt-likelihood", model=model, data=stories(tmp_path / "texts.jsonl", 60))
    )
    bench = prompt_likelihood._bench(settings)
    total, count = 0.0, 0
    for row in bench.splits.test:
        given, later = (bench.tokenizer(row[name])["input_ids"] for name in ("input", "target"))
        assert (len(given), len(later)) == (8, 32)
        logits = bench.model(torch.tensor([given + later])).logits[0, 7:-1]
        total += float(torch.nn.functional.cross_entropy(logits, torch.tensor(later), reduction="sum"))
        count += len(later)
    assert prompt_likelihood._loss(bench, "test", begun=False) == pytest.approx(total / count, rel=1e-5)


@pytest.mark.parametrize("given", [{}, {"model": "m"}, {"data": "d"}])
def test_likelihood_needs_a_model_and_texts(given):
    with pytest.raises(ts.UserError, match="needs --model MODEL and --data FILE"):
        prompt_likelihood.settings(Ask("prompt-likelihood", **given))


def test_too_few_long_texts_are_refused_with_their_number(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    ask = Ask("prompt-likelihood", quick=True, model=model, data=stories(tmp_path / "texts.jsonl", 39))
    with pytest.raises(ts.UserError, match="39 texts of 40 words or more; at least 40 are needed"):
        prompt_likelihood.work(prompt_likelihood.settings(ask), {"method": "none"})


def test_prompts_that_are_parts_of_a_name_are_counted_on_their_own_model_and_on_the_others():
    settings = {"seeds": 1, "world": {"skills": ("a",)}, "passes": 10}
    part = {"whole": False, "exact": {"found": [0.25, 0.75, 1.0]}}
    other = {"whole": False, "exact": {"found": [0.5, 0.125, 0.0]}}
    whole = {"whole": True, "exact": {"found": [1.0, 1.0, 1.0]}}
    found = [({"source": 1}, part), ({"source": 0}, other), ({"source": 2}, whole)]
    told = prompt_transfer._notes(settings, found)[2]
    assert told.startswith("Of 3 found prompts 1 are the whole name, which every model was taught. The other 2 are")
    assert told.endswith("right in 0.625 of the rows of their own model and in 0.344 of the others'.")


def test_the_soft_prompt_has_the_rate_that_development_texts_choose(monkeypatch):
    dev = dict(zip(prompt_likelihood.RATES, (2.0, 1.0, 3.0), strict=True))
    monkeypatch.setattr(
        prompt_likelihood, "_trained", lambda settings, bench, seed, rate: {"dev": dev[rate], "loss": 10 * rate}
    )
    found, best = prompt_likelihood._soft({"passes": 9}, None, 0), prompt_likelihood.RATES[1]
    assert (found["rate"], found["dev"], found["loss"]) == (best, 1.0, 10 * best)


def test_a_soft_prompt_is_trained_for_the_passes_of_a_search_and_told_by_the_texts_held_out(tmp_path, monkeypatch):
    model, _ = tinyrun.write(tmp_path)
    ask = Ask("prompt-likelihood", quick=True, model=model, data=stories(tmp_path / "texts.jsonl", 60))
    settings, taken = prompt_likelihood.settings(ask), []
    bench, losses = prompt_likelihood._bench(settings), {"dev": 1.0, "test": 2.0}

    def trained(learning, how, seed):
        taken.append((how.steps, seed))
        return SimpleNamespace(best_score=learning.score())

    monkeypatch.setattr(loop, "train", trained)
    monkeypatch.setattr(prompt_likelihood, "_loss", lambda bench, part, begun: losses[part])
    assert prompt_likelihood._trained(settings, bench, 4, 0.1) == {"dev": 1.0, "loss": 2.0}
    ((steps, seed),) = taken
    passes = 3 * settings["batch_size"]  # of a step, whose gradient counts three
    assert steps * passes <= settings["passes"] < (steps + 1) * passes and seed == 4


def test_a_search_is_drawn_by_the_seed_of_its_piece(tmp_path, monkeypatch):
    model, _ = tinyrun.write(tmp_path)
    ask = Ask("prompt-likelihood", quick=True, model=model, data=stories(tmp_path / "texts.jsonl", 60))
    seeds = []

    def search(bench, passes, seed, say):
        seeds.append(seed)
        return SimpleNamespace(text="film plot", passes=passes, trace=[])

    for recipe in (prompt_likelihood, prompt_search):
        monkeypatch.setattr(recipe, "built", lambda *_: SimpleNamespace(search=search))
    prompt_likelihood.work(prompt_likelihood.settings(ask), {"method": "pez", "seed": 3})
    monkeypatch.setattr(prompt_search, "pretrained", lambda made: None)
    for name, value in {"name": "film film", "bench": None, "right": 0.5}.items():
        monkeypatch.setattr(_named_skills, name, lambda *_, value=value: value)
    settings = prompt_search.settings(Ask("prompt-search", quick=True))
    found = prompt_search.work(settings, {"spoiled": 0.0, "seed": 5, "skill": "add1", "method": "pez"})
    assert seeds == [3, 5] and (found["words"], found["enough_at"]) == (1, None)


def test_a_prompt_s_answers_are_counted_on_test_rows_behind_it(monkeypatch):
    settings = prompt_search.settings(Ask("prompt-search", quick=True))
    made, asked = prompt_search._world(settings, 0.0, 1), []
    monkeypatch.setattr(_named_skills, "exact", lambda model, ids, length: asked.append(ids) or [1, 1, 0, 1])
    assert _named_skills.right(settings, made, None, "add1", "w1 w2") == 0.75
    length, words = made.curriculum.world.length, tokenizer(made.curriculum)
    assert asked[0][:, :2].unique(dim=0).tolist() == [words("w1 w2")["input_ids"]]
    inputs = asked[0][:, 2 : 2 + length].numpy()
    assert {part_of(row) for row in inputs} == {"test"} and len(inputs) == settings["rows"]["test"]


def test_what_others_lose_is_their_mean_less_the_source_s_own():
    assert prompt_transfer._lost({"exact": {"found": [0.5, 0.9, 0.2]}}, 1) == pytest.approx((0.5 + 0.2) / 2 - 0.9)


def test_models_of_a_language_share_its_names_and_neither_seed_nor_ids_and_a_search_has_its_source_s_seed(monkeypatch):
    settings, seeds = prompt_transfer.settings(Ask("prompt-transfer", seeds=2)), []
    languages = [prompt_transfer._models(settings, language) for language in (0, 1)]
    assert len({made.seed for models in languages for made in models}) == 2 * len(prompt_transfer.SHAPES)
    named = [{_named_skills.name(made, "reverse") for made in models} for models in languages]
    assert [len(names) for names in named] == [1, 1] and named[0] != named[1]
    assert len({tuple(made.curriculum.places()) for made in languages[0]}) == len(prompt_transfer.SHAPES)

    def search(bench, passes, seed, say):
        seeds.append(seed)
        return SimpleNamespace(text="w1", passes=passes)

    monkeypatch.setattr(prompt_transfer, "built", lambda *_: SimpleNamespace(search=search))
    monkeypatch.setattr(prompt_transfer, "pretrained", lambda made: None)
    monkeypatch.setattr(_named_skills, "bench", lambda *_: None)
    monkeypatch.setattr(_named_skills, "right", lambda *_: 0.5)
    unit = {"language": 1, "source": 2, "skill": "reverse", "method": "pez"}
    assert prompt_transfer.work(settings, unit)["exact"]["none"] == [0.5] * 3
    assert seeds == [languages[1][2].seed]
