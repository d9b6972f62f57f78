"""The recipe of re-weighting at the size of seconds: its lines, its course, and what is told of it."""

import json
from dataclasses import replace

import pytest
import tinyrun

import tunescope as ts
from tunescope.comparison import comparison
from tunescope.comparison.entry import AllRefused
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipes import reweight
from tunescope.reproduce.run import reproduce

WORDS = ("negative=neg,positive=pos",)


@pytest.fixture(scope="module")
def done(tmp_path_factory, in_process):
    home = tmp_path_factory.mktemp("reweight")
    model, _ = tinyrun.write(home)
    (home / "sst2").mkdir()
    for seed, (part, count) in enumerate({"train": 64, "dev": 24, "test": 32}.items()):
        rows = [{"text": one["text"], "label": str(int(one["label"] == "pos"))} for one in tinyrun.rows(count, seed)]
        (home / "sst2" / f"{part}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ask = Ask("reweight", quick=True, model=model, data=f"sst2:{home / 'sst2'}", template="{text} Label:", words=WORDS)
    return home, reproduce(ask, home / "run", 1, lambda line: None)


def test_every_line_has_a_score_of_the_test_rows_beside_the_paper_s(done):
    home, result = done
    cells = {row["label"]: row["cells"][0] for row in result["table"]["rows"]}
    assert [*cells] == [
        "one demonstration a label",
        "2 demonstrations a label",
        "one, and its label words re-weighted",
    ]
    assert [cell["paper"] for cell in cells.values()] == [".613", ".648", ".901"]
    assert all(20 * cell["values"][0] == pytest.approx(round(20 * cell["values"][0])) for cell in cells.values())
    assert str(home) not in json.dumps(result)


def test_the_scalars_move_by_the_rate_a_step_at_most(done):
    """Adam's first steps are of the rate each: four rows in batches of one are four steps, in one epoch here."""
    home, result = done
    assert result["settings"]["steps"] == 4
    (unit,) = result["units"]
    assert unit["unit"] == {"seed": 42}
    folders = (home / "run/units").glob("*/run/arms/*/artifact")
    params = [artifact.tensors for folder in folders for artifact in ts.load(folder)]
    betas = [value for one in params for name, value in one.items() if name.endswith("beta")]
    assert {value.shape[1] for value in betas} == {2}  # a label word each
    assert 0.01 < max(value.abs().max() for value in betas) < 4.2 * reweight.RATE


def test_what_it_is_asked_as_is_published_of_three_corpora():
    assert reweight.PUBLISHED["trec"].template.format(text="Who?") == "Question: Who?\nAnswer Type:"
    assert reweight.PUBLISHED.keys() == reweight.PAPER.keys()


def test_each_draw_has_rows_of_its_own_seed(done, tmp_path, monkeypatch):
    home, _ = done
    ask = Ask("reweight", quick=True, seeds=2, model=str(home / "model"), data=f"sst2:{home / 'sst2'}", words=WORDS)
    settings, seeds = reweight.settings(replace(ask, template="{text} Label:")), []

    def compare(*_, **given):
        seeds.extend(given["seeds"])
        raise AllRefused("demos:k=1", "a test")

    monkeypatch.setattr(comparison, "compare", compare)
    found = [reweight.work(settings, unit, tmp_path / str(unit["seed"])) for unit in reweight.units(settings)]
    assert seeds == [42, 43] and {*found[0]["refused"].values()} == {"a test"}  # the paper's first two
