"""Recipes that look for prompts on a given model and corpus, at the size of seconds."""

import json

import pytest
import tinyrun
import torch

import tunescope as ts
from tunescope.models.load import load_model
from tunescope.reproduce import corpus_table
from tunescope.reproduce.recipe import Ask, find
from tunescope.reproduce.run import reproduce
from tunescope.system import run_folder


def sst2(folder):
    """SST-2's JSONL, of words that the tiny model knows."""
    folder.mkdir()
    for seed, (part, count) in enumerate({"train": 64, "dev": 24, "test": 32}.items()):
        rows = [{"text": one["text"], "label": str(int(one["label"] == "pos"))} for one in tinyrun.rows(count, seed)]
        (folder / f"{part}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return f"sst2:{folder}"


WORDS = ("negative=neg,positive=pos",)


@pytest.fixture(scope="module")
def found(tmp_path_factory, in_process):
    home = tmp_path_factory.mktemp("pez")
    model, _ = tinyrun.write(home)
    other = home / "other"
    tinyrun.model(seed=1).save_pretrained(other)
    tinyrun.tokenizer().save_pretrained(other)
    ask = Ask(
        "pez", quick=True, model=model, others=(str(other),), data=sst2(home / "sst2"), template="{text} Label:",
        words=WORDS, seeds=2,
    )  # fmt: skip
    return home, reproduce(ask, home / "run", 1, lambda line: None)


def test_each_search_has_the_budget_and_the_score_of_its_prompt_is_that_of_attaching_it(found):
    home, result = found
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


def test_how_likely_a_prompt_is_is_torchs_cross_entropy_of_its_tokens_behind_one_another(found):
    home, result = found
    model, tokenizer = load_model(str(home / "model"))
    outcome = next(one["outcome"] for one in result["units"] if one["unit"]["arm"].startswith("pez"))
    ids = torch.tensor([tokenizer(outcome["prompt"])["input_ids"]])
    want = model(ids, labels=ids).loss.item()  # transformers' own shift
    assert outcome["nats"] == pytest.approx(want, rel=1e-5)
    bare = result["units"][0]["outcome"]
    assert f"The test rows' own texts have {bare['nats']:.2f}" in " ".join(result["table"]["notes"])


def test_a_model_that_the_prompts_cannot_be_read_on_is_told_in_its_column(tmp_path):
    recipe = find("pez")
    outcomes = [{"scores": {"accuracy": [0.5]}, "carried": ["no such token"], "nats": None, "prompt": "a"}]
    cells = recipe._cells(outcomes, ["gpt2-xl"], {"gpt2-large": ".9", "gpt2-xl": ".8"}, "a")
    assert [(cell.values, cell.paper, cell.text) for cell in cells] == [
        ((0.5,), ".9", ""),
        ((), "", ""),
        ((), ".8", "no such token"),
        ((), "", "a"),
    ]


def test_published_settings_are_those_of_the_authors_code(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    ask = Ask("pez", "paper", model=model, data=sst2(tmp_path / "sst2"))
    made = find("pez").settings(ask)
    pez = made["searches"]["pez:length=10,rate=0.3,optimizer=adafactor,init_from=labels"]
    assert (pez["length"], pez["batch"], pez["fluency"]) == (10, 16, 0.0)
    assert made["passes"] == 3 * 16 * 5000 and made["rows"] == {}
    assert made["task"] == {"kind": "classification", "template": "{text}. It was"}
    assert {line["label"]: line["paper"].get("opt-6.7b") for line in made["lines"]}["PEZ"] == ".7172"
    assert next(unit["arm"] for unit in find("pez").units(made)) == "zero-shot"


def test_a_template_of_a_field_that_the_rows_lack_is_refused_with_those_they_have(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    ask = Ask("pez", model=model, data=sst2(tmp_path / "sst2"), template="{premise}?")
    with pytest.raises(
        ts.UserError, match=r"names 'premise', and the rows of sst2 have input, target, text, label\. Give"
    ):
        find("pez").settings(ask)


def test_a_corpus_of_texts_to_write_is_refused_by_name(tmp_path):
    from tiny_corpora import e2e

    model, _ = tinyrun.write(tmp_path)
    with pytest.raises(ts.UserError, match="pez chooses among labels, and e2e has texts to write"):
        find("pez").settings(Ask("pez", model=model, data=e2e(tmp_path / "e2e")))
