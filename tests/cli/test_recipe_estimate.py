"""What a recipe would take: a model's counts on paper, a line by hand, and what is refused."""

from dataclasses import replace

import commands
import pytest
import tinyrun
from tiny_corpora import bert, corpus, e2e, t5

from tunescope.cli import recipe_estimate as estimate
from tunescope.data.corpus import Rows
from tunescope.errors import UserError
from tunescope.models.load import load_model, load_tokenizer, on_paper
from tunescope.reproduce import published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import find
from tunescope.theory.costs import rough
from tunescope.theory.costs.gpus import gpu

COURSE = {"load": ""}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    return {"gpt2": tinyrun.write(place)[0], "bert": bert(place / "bert"), "t5": t5(place / "t5")}


def test_a_model_on_paper_has_the_shapes_of_the_loaded_one_and_no_weights(models):
    for name in models.values():
        (loaded, tokenizer), paper = load_model(name), on_paper(name)
        assert {key: one.shape for key, one in paper.named_parameters()} == {
            key: one.shape for key, one in loaded.named_parameters()
        }
        assert {one.device.type for one in paper.parameters()} == {"meta"}
        assert load_tokenizer(name)("a film")["input_ids"] == tokenizer("a film")["input_ids"]


def test_maps_are_counted_by_stack_and_tables_are_not(models):
    """All are 16 wide; GPT-2's feed-forward is 64, T5's decoder attends twice."""
    gpt2 = estimate._model(on_paper(models["gpt2"]), COURSE, 2)
    assert gpt2.encoder is None and gpt2.decoder == rough.Stack(2 * (4 * 16 * 16 + 2 * 16 * 64), 2, 16)
    t5 = estimate._model(on_paper(models["t5"]), COURSE, 2)
    attention, ffn = 4 * 16 * 16, 2 * 16 * 16
    assert t5.encoder == rough.Stack(attention + ffn, 1, 16)
    assert t5.decoder == rough.Stack(2 * attention + ffn, 1, 16)
    encoder = estimate._model(on_paper(models["bert"]), {"load": "4bit"}, 2)
    assert encoder.decoder is None and encoder.stored < 1 and t5.stored == 4
    assert encoder.encoder == rough.Stack(4 * 16 * 16 + 2 * 16 * 16 + 16 * 16, 1, 16)  # and the pooler


def test_a_line_by_hand(models, tmp_path):
    ask = Ask("prefix-main", "paper", model=models["gpt2"], data=e2e(tmp_path / "e2e"), check=True)
    made = find("prefix-main").settings(ask)
    assert made["weights"] == "" and made["parameters"] == load_model(models["gpt2"])[0].num_parameters()
    rows = estimate._rows(made)
    assert (rows.train, rows.dev, rows.test) == (60, 6, 8)
    found = estimate._taken(made, find("prefix-main").units(made)[0], rows, gpu("H100")[0], 2)
    steps, launched = 5 * 60 // 10, 3 * 2 * 1e-3
    writing = 1 * rows.written * 2 * 1e-3
    assert found.trained == made["parameters"] and found.runs == 3
    assert found.seconds == pytest.approx(3 * steps * launched + 3 * 5 * writing + 3 * writing)  # five scores a run


def test_few_rows_take_the_steps_that_are_published_of_so_many(models, tmp_path):
    ask = Ask("prefix-low-data", "paper", model=models["gpt2"], data=e2e(tmp_path / "e2e", 650), check=True)
    recipe = find("prefix-low-data")
    made = recipe.settings(ask)
    rows = estimate._rows(made)
    full = [unit for unit in recipe.units(made) if unit["arm"] == "full"]
    few, some, many = (estimate._taken(made, full[at], rows, gpu("H100")[0], 2).seconds for at in (0, 2, 3))
    launched = 10 * 3 * 2 * 1e-3  # seconds of a step in 10 runs: 2 seeds of 5 subsets
    assert (some - few, many - some) == pytest.approx((100 * launched, 200 * launched))


def test_a_subset_of_few_rows_is_scored_on_development_rows_of_its_own(models, tmp_path, monkeypatch):
    """As published three for ten of its training rows, where the corpus has hundreds."""
    ask = Ask("prefix-low-data", "paper", model=models["gpt2"], data=e2e(tmp_path / "e2e", 650), check=True)
    recipe, taken, counted = find("prefix-low-data"), estimate._taken, dict[str, int]()

    def noted(made, unit, rows, *more):
        counted[unit["part"]] = rows.dev
        return taken(made, unit, rows, *more)

    monkeypatch.setattr(estimate, "_taken", noted)
    assert list(estimate.lines(ask, recipe, "H100"))
    made = recipe.settings(ask)
    rows = Rows([{"input": str(number), "target": ""} for number in range(650)], ())
    drawn = {size: recipe._drawn(made, rows, size, 0)["dev"] for size in (50, 100, 200, 500)}
    assert counted == {str(size): len(rows) for size, rows in drawn.items()} and counted["50"] == 15
    ask = replace(ask, protocol="tuned")
    assert list(estimate.lines(ask, recipe, "H100")) and set(counted.values()) == {6}  # the corpus's


def test_as_many_development_inputs_are_counted_as_a_run_scores(models, tmp_path):
    ask = Ask("prefix-main", "paper", model=models["gpt2"], data=e2e(tmp_path / "e2e"), steps=100, check=True)
    rows = estimate.Rows(train=60, dev=published.DEV, test=8, read=10, written=5)
    scored = estimate._scored(find("prefix-main").settings(ask), rows)
    assert scored == [32] * 5 + [published.DEV]  # 100 steps of 10 leave 500 passes, an answer is two: 32 at least
    tuned = find("prefix-main").settings(replace(ask, protocol="tuned"))
    assert estimate._scored(tuned, replace(rows, dev=100)) == [100] * 5


def test_the_command_prints_every_line_and_runs_nothing(models, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tunescope.models.load.load_model", None)  # weights are not needed
    words = ["reproduce", "unified-main", "--model", models["t5"], "--data", e2e(tmp_path / "e2e"), "--check"]
    code, out, _ = commands.call(monkeypatch, capsys, *words, "--gpu", "t4", "--load", "bfloat16")
    assert code == 0 and "unified-main on one T4, in float32: rows of " in out
    assert "BitFit: Bias(): family 't5' has no such parameter" in out and "MAM" in out
    assert "in all " in out and "T4 has 14.4 GB to spare" in out and not (tmp_path / "runs").exists()
    code, _, err = commands.call(monkeypatch, capsys, *words, "--gpu", "G4")
    assert code == 2 and "--gpu G4: it is one of T4, V100, " in err
    code, _, err = commands.call(monkeypatch, capsys, *words, "--out", "here", "--workers", "2")
    assert code == 2 and "--check, which runs nothing, has no use for --workers and --out." in err
    code, _, err = commands.call(monkeypatch, capsys, *words[:-1], "--gpu", "T4")
    assert code == 2 and "reproduce without --check has no use for --gpu." in err
    code, _, err = commands.call(monkeypatch, capsys, *words[:-1], "--so-far", "--earlier", "result.json")
    assert code == 2 and "--so-far, which runs nothing, has no use for --earlier." in err


@pytest.mark.parametrize("name", ["prefix-low-data", "unified-scale", "prefix-init"])
def test_every_kind_of_table_can_be_asked(name, models, tmp_path):
    ask = Ask(name, model=models["gpt2"], data=e2e(tmp_path / "e2e", 520), check=True)
    told = list(estimate.lines(ask, find(name), "H200"))
    assert len(told) >= 6 and told[1].startswith("line ")


def test_several_bases_have_lines_each(models, tmp_path):
    ask = Ask("prompt-bases", model=models["t5"], others=(models["t5"],), data=corpus(tmp_path / "rte"), check=True)
    told = list(estimate.lines(ask, find("prompt-bases"), "H100"))
    assert sum("full tuning" in line for line in told) == 2
    shown = [line.split() for line in told if "4 demonstrations a label" in line]
    assert [words[5] for words in shown] == ["0", "0"]  # nothing is trained


def test_a_recipe_without_a_model_and_a_corpus_cannot_be_asked():
    with pytest.raises(UserError, match="--check is for recipes whose lines are tuned on a corpus, and petrov"):
        list(estimate.lines(Ask("petrov-table1", check=True), find("petrov-table1"), "H100"))


def test_other_rates_are_tried_at_the_first_seed_alone_and_only_the_chosen_runs_are_tested(models, tmp_path):
    ask = Ask("prefix-main", model=models["gpt2"], data=e2e(tmp_path / "e2e"), seeds=4, check=True)
    made = find("prefix-main").settings(ask)
    rows = estimate._rows(made)
    found = estimate._taken(made, find("prefix-main").units(made)[0], rows, gpu("H100")[0], 2)
    rates, seeds, launched, writing = made["course"]["trials"], 4, 3 * 2 * 1e-3, rows.written * 2 * 1e-3
    assert found.runs == rates + seeds - 1
    run = made["course"]["steps"] * launched + 5 * writing  # five scores
    assert found.seconds == pytest.approx(found.runs * run + seeds * writing)
