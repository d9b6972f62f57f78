"""A soft prompt said in words."""

import shutil

import pytest
import torch
from search_tools import bench

import tunescope as ts
from tunescope.comparison import arms
from tunescope.comparison.job import job
from tunescope.data import scores
from tunescope.search.apply import stats_behind, stats_of
from tunescope.search.loop import CHANGED
from tunescope.search.methods.projected import Projected
from tunescope.search.seeds import Seed, identity
from tunescope.trial.arm import Arm


def quiet(_line):
    return None


def saved(given, folder, ids, *specs):
    """A soft prompt a little off these tokens' embeddings, in a folder."""
    table = given.model.get_input_embeddings().weight.detach()
    with ts.attach(given.model, ts.Soft(length=len(ids)), *specs, tokenizer=given.tokenizer) as tuned:
        noise = torch.randn(len(ids), table.shape[1], generator=torch.Generator().manual_seed(0), dtype=table.dtype)
        tuned.artifacts[0].tensors["embeddings"].copy_(table[ids] + 0.01 * noise)
        return str(ts.save(folder, tuned.artifacts, model=given.model, tokenizer=given.tokenizer))


@pytest.mark.parametrize("by", ["cosine", "euclidean"])
def test_its_words_are_its_nearest_tokens_and_both_are_scored(tmp_path, by):
    given = bench()
    folder = saved(given, tmp_path / "soft", [20, 21, 22])
    found = Projected(artifact=folder, nearest=by).search(given, 99, 0, quiet)
    (soft,) = ts.load(folder)
    expected = [
        scores.aggregate("accuracy", one)["accuracy"]
        for one in (stats_behind(given, soft, "dev"), stats_of(given, "w20 w21 w22", "dev"))
    ]
    assert found.text == "w20 w21 w22" and [point.dev for point in found.trace] == expected
    assert (found.dev, found.passes, found.counts) == (expected[1], 12, {})
    assert (found.template, found.words) == (given.task.template, given.task.words)


def test_another_soft_prompt_in_the_old_folder_is_another_search(tmp_path):
    given = bench()
    one = Seed(Projected(artifact=saved(given, tmp_path / "soft", [20, 21])), 0, 99, 1)
    before = identity(given, one)
    assert identity(given, one) == before
    shutil.rmtree(tmp_path / "soft")
    saved(given, tmp_path / "soft", [22, 23])
    assert identity(given, one) != before


def test_another_soft_prompt_in_the_old_folder_is_another_job_of_an_arm(tmp_path):
    given = bench()
    ids = []
    for tokens in ([20, 21], [20, 21], [22, 23]):
        shutil.rmtree(tmp_path / "soft", ignore_errors=True)
        arm = Arm("found", f"projected:artifact={saved(given, tmp_path / 'soft', tokens)}")
        ids.append(job(given, arms.ready(arm, given), (), 0).id)
    assert ids[0] == ids[1] != ids[2]


def test_a_token_that_is_banned_gives_way_to_the_next(tmp_path):
    given = bench()
    folder = saved(given, tmp_path / "soft", [20, 21])
    found = Projected(artifact=folder, ban=("w20",)).search(given, 99, 0, quiet)
    assert "w20" not in found.text and found.text.endswith(" w21")


def test_words_that_the_text_changes_are_counted(tmp_path, monkeypatch):
    given = bench()
    monkeypatch.setattr("tunescope.search.vocabulary.Vocabulary.settled", lambda *_: ("w40", (40,)))
    found = Projected(artifact=saved(given, tmp_path / "soft", [20, 21])).search(given, 99, 0, quiet)
    assert (found.text, found.counts) == ("w40", {CHANGED: 1})


def test_what_cannot_be_said_is_one_clear_line(tmp_path, monkeypatch):
    given = bench()
    two = saved(given, tmp_path / "two", [20], ts.LoRA(rank=1))
    one = saved(given, tmp_path / "one", [20])
    for search, passes, message in (
        (Projected(), 99, "projected needs the folder of a saved soft prompt: projected:artifact=RUN/best"),
        (Projected(artifact=two), 99, "two holds Soft.*LoRA.*, and projected reads one soft prompt alone"),
        (Projected(artifact=one), 11, "11 passes are too few: it scores 6 development rows twice"),
    ):
        with pytest.raises(ts.UserError, match=message):
            search.search(given, passes, 0, quiet)
    monkeypatch.setattr("tunescope.search.vocabulary.Vocabulary.settled", lambda *_: None)
    with pytest.raises(ts.UserError, match=r"the tokens nearest to Soft.* cannot be written as text"):
        Projected(artifact=one).search(given, 99, 0, quiet)
