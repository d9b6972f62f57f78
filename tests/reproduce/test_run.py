"""Recipes as commands: found by name, refused what they do not take, gone on with, and shown beside the paper."""

import json
import math
import os
import re
from contextlib import nullcontext

import pytest
import torch
from scipy.stats import ttest_1samp

import tunescope as ts
from tunescope.__main__ import main
from tunescope.report.cells import Cell, Table
from tunescope.reproduce import earlier, piece, run
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import check, find, listing, recipes
from tunescope.reproduce.recipes import _courses
from tunescope.reproduce.recipes._largest import largest
from tunescope.reproduce.show import as_json, as_text, ours
from tunescope.system import lock, machine, run_folder, sealed_json

TAKEN = {"protocol", "quick", "seeds", "model", "models", "data", "steps", "precision", "accumulate"}
TAKEN |= {"batch-size", "inputs", "lines", "template", "words", "k", "test", "load"}
TAKEN |= {"device-map", "gradient-checkpointing"}
NEEDED = {"petrov-table1", "petrov-table2", "petrov-table3", "petrov-lora", "verdict-calibration", "learning-rates"}


def test_every_recipe_has_what_the_runner_asks_for():
    assert set(recipes()) >= NEEDED
    for name in recipes():
        recipe = find(name)
        assert recipe.TITLE and recipe.SOURCE and set(recipe.TAKES) <= TAKEN
        assert all(callable(getattr(recipe, part)) for part in ("settings", "worlds", "units", "work", "table"))
        assert name in listing()


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_settings_and_units_are_json_and_each_unit_is_asked_once(name):
    recipe = find(name)
    for quick in (False, True):
        settings = recipe.settings(Ask(name, quick=quick))
        units = recipe.units(settings)
        assert json.loads(json.dumps(settings)) == settings
        assert len({json.dumps(unit, sort_keys=True) for unit in units}) == len(units) > 0


@pytest.mark.parametrize("name", ["petrov-table1", "petrov-table2", "petrov-table3", "petrov-lora"])
def test_the_two_protocols_are_not_mixed(name):
    paper, tuned = (find(name).settings(Ask(name, protocol=each)) for each in ("paper", "tuned"))
    assert all(len(plan["rates"]) == 1 and plan["trial"] == 0 for plan in paper["plans"].values())
    assert any(len(plan["rates"]) > 1 for plan in tuned["plans"].values())


def test_published_settings_are_those_of_the_paper():
    plans = {name: find(name).settings(Ask(name, protocol="paper"))["plans"] for name in sorted(NEEDED)[1:5]}
    told = {
        name: {arm: (plan["steps"], *plan["rates"], plan["batch_size"]) for arm, plan in each.items()}
        for name, each in plans.items()
    }
    assert told["petrov-table1"] == {
        "pretraining": (20_000, 5e-4, 64),
        "full": (10_000, 5e-4, 64),
        "inputs:length=1": (40_000, 5e-4, 64),
    }
    assert told["petrov-table2"] == {"pretraining": (20_000, 5e-4, 64), "inputs:length=1": (30_000, 5e-5, 64)}
    assert told["petrov-table3"] == {
        "pretraining": (40_000, 5e-4, 64),
        "seen": (20_000, 5e-5, 64),
        "new": (500_000, 5e-5, 64),
    }
    lora = "lora:rank=1,alpha=1.0,sites=attn.o,ffn.in,ffn.out"
    assert told["petrov-lora"] == {
        "pretraining": (40_000, 5e-4, 64),
        "inputs:length=12": (100_000, 5e-5, 64),
        lora: (10_000, 5e-3, 64),
    }


def test_four_heads_stand_below_one_and_have_no_published_numbers():
    recipe, ask = find("petrov-table1"), Ask("petrov-table1", seeds=2)
    settings = recipe.settings(ask)
    assert [(str(world.shape), world.seed) for world in recipe.worlds(settings)] == [
        (f"1 layer, {heads} head{'s' * (heads > 1)}, width 96", seed) for heads in (1, 4) for seed in (0, 1)
    ]
    units, arms = recipe.units(settings), [arm for arm in recipe.LABELS if arm != "pretraining"]
    score = {(1, 0): 0.1, (1, 1): 0.3, (4, 0): 0.5, (4, 1): 0.9}
    exact = {"exact": dict.fromkeys(recipe.SKILLS, 0.0)}
    found = []
    for unit in units:
        own = {"exact": dict.fromkeys(recipe.SKILLS, score[unit["heads"], unit["seed"]])}
        found.append((unit, dict.fromkeys(arms, exact) | {"full": own}))
    rows = dict(recipe.table(settings, found).rows)
    assert rows["full tuning on descending"][1].values == (0.1, 0.3)
    assert rows["full tuning on descending"][1].paper == ".85±.05"
    assert rows["4 heads: full tuning on descending"][1].values == (0.5, 0.9)
    assert not any(cell.paper for label, cells in rows.items() if label.startswith("4 heads") for cell in cells)


def test_how_long_a_trial_may_be_is_told_where_one_may_be_run_again():
    recipe = find("petrov-lora")
    notes = _courses.notes(recipe.settings(Ask("petrov-lora")), recipe.THEIRS)
    assert any("trials of 1,000 steps, run again twice as long, up to 8,000" in note for note in notes)
    assert not any("run again" in note for note in _courses.notes(find("petrov-table1").settings(Ask("petrov-table1"))))


def test_by_the_paper_full_tuning_decays_as_pretraining_and_what_is_attached_a_tenth_of_it():
    made = find("petrov-table1").settings(Ask("petrov-table1", protocol="paper"))
    decays = {arm: _courses.course(made, arm).settings.weight_decay for arm in ("full", "inputs:length=1")}
    assert decays == {"full": 0.1, "inputs:length=1": 0.01}


def test_by_the_paper_nothing_is_stopped_or_warmed_up_and_pretraining_alone_has_dropout():
    recipe = find("petrov-table1")
    how, dropout = {}, {}
    for protocol in ("paper", "tuned"):
        made = recipe.settings(Ask("petrov-table1", protocol=protocol, seeds=1))
        training = _courses.course(made, "full").settings
        how[protocol] = (training.schedule, training.warmup == 0, training.patience >= training.steps)
        dropout[protocol] = {world.shape.dropout for world in recipe.worlds(made)}
    assert how == {"paper": ("constant", True, True), "tuned": ("cosine", False, False)}
    assert dropout == {"paper": {0.1}, "tuned": {0.0}}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (Ask("petrov-tabel1"), "There is no recipe 'petrov-tabel1'. Did you mean 'petrov-table1'"),
        (
            Ask("petrov-table1", model="gpt2"),
            "petrov-table1 has no use for --model; it takes --protocol, --quick",
        ),
        (Ask("petrov-table1", protocol="own"), "--protocol own is not known; it is 'tuned' or 'paper'"),
        (Ask("petrov-table1", seeds=0), "--seeds 0: at least one"),
        (Ask("petrov-table1", protocol="paper", quick=True), "--quick is a small size of the tuned protocol"),
    ],
)
def test_what_a_recipe_cannot_use_is_refused_in_one_line(ask, message):
    with pytest.raises(ts.UserError, match=message) as refused:
        check(ask, find(ask.name))
    assert "\n" not in str(refused.value)


class Toy:
    """A recipe that counts how often it worked."""

    TITLE, SOURCE, TAKES = "Toy", "nowhere", ("seeds",)
    done = 0

    @staticmethod
    def settings(ask):
        return {"seeds": ask.seeds or 2}

    @staticmethod
    def worlds(settings):
        return []

    @staticmethod
    def units(settings):
        return [{"seed": seed} for seed in range(settings["seeds"])]

    @staticmethod
    def table(settings, found):
        return Table(("score",), [("toy", [Cell.of([outcome for _, outcome in found], "a", "b", paper=".5")])])


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The toy with its two pieces done, as a killed run would leave them: nothing is left to work on."""
    monkeypatch.setattr(run, "find", {"toy": Toy}.__getitem__)
    for unit in Toy.units({"seeds": 2}):
        path = tmp_path / "units" / f"{run_folder.identity(unit)}.json"
        path.parent.mkdir(exist_ok=True)
        sealed_json.put(path, {"a": {"b": 0.25 + unit["seed"] / 2}, "seconds": 1.5})
    return tmp_path


def test_pieces_that_are_done_are_read_and_the_result_says_all_that_it_rests_on(toy):
    said = []
    result = run.reproduce(Ask("toy"), toy, workers=1, say=said.append)
    assert sealed_json.read(toy / "result.json") == result
    assert result["table"]["rows"][0]["cells"][0] == {
        "mean": 0.5,
        "interval": [0.0, 1.0],
        "seeds": 2,
        "values": [0.25, 0.75],
        "paper": ".5",
        "text": "",
    }
    assert result["command"] == "tunescope reproduce toy"
    assert {"versions", "machine", "settings", "units", "source", "workers"} <= set(result)
    assert result["seconds_of_pieces"] == 3.0
    assert "0.500 [0.000, 1.000] (paper: .5)" in said[-1]


def test_a_run_at_work_is_told_of_so_far_where_the_table_can_grow(toy, monkeypatch):
    (first, _) = [toy / "units" / f"{run_folder.identity(unit)}.json" for unit in Toy.units({"seeds": 2})]
    with pytest.raises(ts.UserError, match="The table of toy needs all of its pieces; leave out --so-far to go on"):
        run.so_far(Ask("toy"), toy, lambda line: None)
    monkeypatch.setattr(Toy, "GROWS", True, raising=False)
    whole = run.so_far(Ask("toy"), toy, lambda line: None)
    assert (whole["table"]["rows"][0]["cells"][0]["mean"], whole["table"]["notes"]) == (0.5, [])
    first.write_text(first.read_text().replace("0.25", "0.26"))
    said = []
    part = run.so_far(Ask("toy"), toy, said.append)
    assert said[0] == f"note: {first} is damaged, and is left out."
    assert part["table"]["notes"] == ["1 of 2 pieces are done: this is of these alone."]
    assert part["table"]["rows"][0]["cells"][0]["values"] == [0.75]
    with pytest.raises(ts.UserError, match=r"No piece of toy is done in .*; leave out --so-far to begin"):
        run.so_far(Ask("toy"), toy / "elsewhere", lambda line: None)


def test_pieces_of_an_earlier_result_are_not_done_again(toy, tmp_path_factory):
    run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)
    other, said = tmp_path_factory.mktemp("other"), []
    result = run.reproduce(Ask("toy"), other, workers=1, say=said.append, earlier=toy / "result.json")
    assert said[0] == f"2 of 2 pieces are taken from {toy / 'result.json'}."
    assert result["table"] == sealed_json.read(toy / "result.json")["table"]


@pytest.mark.parametrize(("status", "taken"), [("out of memory", 1), ("failed", 1), ("diverged", 2), ("refused", 2)])
def test_a_piece_that_failed_earlier_is_tried_anew_and_what_would_come_out_again_is_taken(toy, tmp_path, status, taken):
    result = run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)
    first, second = result["units"]
    held = [first, second | {"outcome": {"status": status, "reason": "so"}}]
    sealed_json.put(tmp_path / "held.json", result | {"units": held})
    units = Toy.units({"seeds": 2})
    said = earlier.taken_over("toy", {"seeds": 2}, units, tmp_path / "held.json", tmp_path / "new")
    assert said.startswith(f"{taken} of 2 pieces are taken")
    assert piece.path(tmp_path / "new", run_folder.identity(second["unit"])).exists() == (taken == 2)


def test_with_more_seeds_pieces_that_name_theirs_are_taken_and_others_are_not(toy, tmp_path):
    bare = {"part": "bare"}
    result = run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)
    held = [*result["units"], {"unit": bare, "outcome": {"a": {"b": 0.5}}}]
    sealed_json.put(tmp_path / "held.json", result | {"units": held})
    for seeds, taken in ((2, 3), (3, 2)):
        units, folder = [bare, *Toy.units({"seeds": seeds})], tmp_path / str(seeds)
        said = earlier.taken_over("toy", {"seeds": seeds}, units, tmp_path / "held.json", folder)
        assert said == f"{taken} of {seeds + 1} pieces are taken from {tmp_path / 'held.json'}."
        assert piece.path(folder, run_folder.identity(bare)).exists() == (seeds == 2)
        assert piece.path(folder, run_folder.identity({"seed": 1})).exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"recipe": "anchors"}, "is a result of anchors, not of toy"),
        (
            {"versions": {"torch": "1.0"}},
            r"was made with other versions \(.*torch 1.0, here 2.*\), so its pieces are not",
        ),
        ({"settings": {"seeds": 2, "course": {"steps": 9}}}, r"with other settings \(course.steps 9, here None\)"),
        (
            {"settings": {"seeds": 2, "steps": 400}},
            r"with other settings \(steps 400, here None\), so its pieces are not",
        ),
        ({"units": []}, "has none of the 2 pieces that toy asks for; leave out --earlier"),
    ],
)
def test_an_earlier_result_that_is_of_something_else_is_refused(toy, tmp_path_factory, changed, message):
    result = run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)
    other = tmp_path_factory.mktemp("other")
    sealed_json.put(toy / "result.json", result | changed)
    with pytest.raises(ts.UserError, match=message):
        run.reproduce(Ask("toy"), other, workers=1, say=lambda line: None, earlier=toy / "result.json")


@pytest.mark.parametrize(("named", "refused"), [(False, True), (True, False)])
def test_arms_that_a_piece_does_not_name_are_all_in_it_and_have_to_be_the_same(toy, tmp_path, named, refused):
    result = run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)
    units = [one | ({"arm": "a"} if named else {}) for one in Toy.units({"seeds": 2})]
    held = [{"unit": unit, "outcome": one["outcome"]} for unit, one in zip(units, result["units"], strict=True)]
    sealed_json.put(tmp_path / "held.json", result | {"units": held, "settings": {"seeds": 2, "arms": ["a"]}})
    with (
        pytest.raises(ts.UserError, match=r"other settings \(arms \['a'\], here \['a', 'b'\]")
        if refused
        else nullcontext()
    ):
        earlier.taken_over("toy", {"seeds": 2, "arms": ["a", "b"]}, units, tmp_path / "held.json", tmp_path / "new")


def test_an_earlier_result_that_is_not_there_is_told(toy):
    with pytest.raises(ts.UserError, match=r"--earlier .*nope\.json: there is no such file\. Give the result\.json of"):
        run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None, earlier=toy / "nope.json")


@pytest.mark.parametrize("digest", [str, lambda one: {"train": one, "test": "0"}])
def test_the_same_rows_under_another_name_are_the_same_to_an_earlier_result(toy, tmp_path, digest):
    units = Toy.units({"seeds": 2})
    held = [{"unit": unit, "outcome": {"a": {"b": 0.5}}} for unit in units]
    old = {"recipe": "toy", "versions": machine.versions(), "units": held}
    known = {"seeds": 2, "data": "sst2:a", "sha256": digest("12")}
    sealed_json.put(tmp_path / "held.json", old | {"settings": known})

    def taken(**other):
        return earlier.taken_over("toy", known | other, units, tmp_path / "held.json", tmp_path / "new")

    assert taken(data="sst2:b").startswith("2 of 2 pieces are taken")
    with pytest.raises(ts.UserError, match=r"other settings \(sha256\S* 12, here 13\)"):
        taken(data="sst2:b", sha256=digest("13"))


def test_searches_that_a_piece_names_may_be_more_than_they_were_and_are_to_be_the_same(toy, tmp_path):
    """Where pieces do not say whose they are, as in lm-bff, they are of all of them."""
    by_arm = [{"arm": arm} for arm in "ab"]
    for units, more, other in ((by_arm, True, False), ([{"part": "x"}], False, False)):
        held = [{"unit": unit, "outcome": {"a": {"b": 0.5}}} for unit in units[:1]]
        known = {"searches": {"a": {"length": 2}}}
        sealed_json.put(
            tmp_path / "held.json",
            {"recipe": "toy", "versions": machine.versions(), "units": held, "settings": known},
        )
        for searches, allowed in (
            ({"a": {"length": 2}}, True),
            ({"a": {"length": 2}, "b": {"length": 2}}, more),
            ({"a": {"length": 3}, "b": {"length": 2}}, other),
        ):
            asked = {"searches": searches}
            if allowed:
                said = earlier.taken_over("toy", asked, units, tmp_path / "held.json", tmp_path / "new")
                assert said.startswith(f"1 of {len(units)} pieces are taken")
                continue
            with pytest.raises(ts.UserError, match=r"with other settings \(searches"):
                earlier.taken_over("toy", asked, units, tmp_path / "held.json", tmp_path / "new")


def test_another_name_without_a_hash_may_be_of_other_rows_to_an_earlier_result(toy, tmp_path):
    units = Toy.units({"seeds": 2})
    held = [{"unit": unit, "outcome": {"a": {"b": 0.5}}} for unit in units]
    old = {"recipe": "toy", "versions": machine.versions(), "units": held, "settings": {"seeds": 2, "data": "a.txt"}}
    sealed_json.put(tmp_path / "held.json", old)
    with pytest.raises(ts.UserError, match=r"other settings \(data a\.txt, here b\.txt\)"):
        earlier.taken_over("toy", {"seeds": 2, "data": "b.txt"}, units, tmp_path / "held.json", tmp_path / "new")


def test_an_earlier_result_leaves_nothing_in_a_folder_of_other_settings(toy, tmp_path_factory, monkeypatch):
    result = run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)
    other = tmp_path_factory.mktemp("other")
    run.reproduce(Ask("toy"), other, workers=1, say=lambda line: None, earlier=toy / "result.json")
    gone = piece.path(other, run_folder.identity(result["units"][0]["unit"]))
    gone.unlink()
    longer = result["settings"] | {"steps": 9}
    sealed_json.put(toy / "result.json", result | {"settings": longer})
    monkeypatch.setattr(Toy, "settings", lambda ask: longer)
    with pytest.raises(ts.UserError, match="holds another"):
        run.reproduce(Ask("toy"), other, workers=1, say=lambda line: None, earlier=toy / "result.json")
    assert not gone.exists()


def test_of_pieces_of_several_lines_those_of_other_lines_are_refused(toy, tmp_path_factory, monkeypatch):
    run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)
    result = sealed_json.read(toy / "result.json")
    lines = [{"label": "zero"}, {"label": "tuned"}]
    sealed_json.put(toy / "result.json", result | {"settings": result["settings"] | {"lines": lines[:1]}})
    for settings, works in (({"lines": lines[:1]}, True), ({"lines": lines}, False)):
        monkeypatch.setattr(Toy, "settings", lambda ask, own=settings: result["settings"] | own)
        folder = tmp_path_factory.mktemp("other")
        with (
            nullcontext() if works else pytest.raises(ts.UserError, match=r"lines \['zero'\], here \['zero', 'tuned'\]")
        ):
            run.reproduce(Ask("toy"), folder, workers=1, say=lambda line: None, earlier=toy / "result.json")


def test_pieces_of_a_part_are_taken_when_other_parts_follow_and_its_own_lines_are_the_same(toy, tmp_path):
    result = run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)
    given, found = {"label": "given", "part": ""}, {"label": "found", "part": "words"}
    units = {part: [{"seed": seed, "part": part} for seed in range(2)] for part in ("", "words")}
    held = [{"unit": unit, "outcome": {"a": {"b": 0.5}}} for unit in units[""]]
    sealed_json.put(tmp_path / "held.json", result | {"settings": {"seeds": 2, "lines": [given]}, "units": held})

    def taken(lines, asked):
        folder = tmp_path / str(len(lines))
        return earlier.taken_over("toy", {"seeds": 2, "lines": lines}, asked, tmp_path / "held.json", folder)

    assert taken([given, found], [*units[""], *units["words"]]).startswith("2 of 4 pieces are taken")
    more = {"label": "more", "part": ""}
    with pytest.raises(ts.UserError, match=r"lines\.part \['given'\], here \['given', 'more'\]"):
        taken([given, more, found], [*units[""], *units["words"]])
    with pytest.raises(ts.UserError, match="has none of the 2 pieces"):
        taken([found], units["words"])


def test_runs_that_diverged_are_told_under_the_table_and_no_number_is_the_largest():
    assert _courses.diverged([{"exact": {}}]) == []
    assert _courses.diverged([{"diverged": "step 3"}, {}]) == ["1 of the runs diverged, and count as 0: step 3"]
    assert math.isnan(largest([0.1, math.nan, 0.2])) and largest(iter([0.1, 0.2])) == 0.2


def test_of_bases_that_pieces_number_those_that_both_have_are_compared(toy, tmp_path_factory, monkeypatch):
    run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)
    result = sealed_json.read(toy / "result.json")
    sealed_json.put(toy / "result.json", result | {"settings": result["settings"] | {"bases": [{"size": 1}]}})

    def again(bases):
        monkeypatch.setattr(Toy, "settings", lambda ask: result["settings"] | {"bases": bases})
        folder = tmp_path_factory.mktemp("other")
        return run.reproduce(Ask("toy"), folder, workers=1, say=lambda line: None, earlier=toy / "result.json")

    assert again([{"size": 1}, {"size": 2}])["table"] == result["table"]
    with pytest.raises(ts.UserError, match=r"other settings \(bases\.0 \{'size': 1\}, here \{'size': 2\}\)"):
        again([{"size": 2}, {"size": 1}])


def test_a_piece_that_was_changed_on_the_disk_is_done_again_but_one_of_an_older_version_is_taken(toy, monkeypatch):
    for path in (toy / "units").iterdir():
        path.write_text(path.read_text().replace("0.25", "0.26"))
    todo, said = [], []
    monkeypatch.setattr(
        run, "_done", lambda crew, work, pieces, what, say: todo.extend(pieces) if what == "piece" else 0
    )
    with pytest.raises(ts.UserError, match="was removed while the run was at work"):  # for it has no question
        run._outcomes("toy", Toy, {"seeds": 2}, toy, 1, said.append)
    assert [one[2] for one in todo] == [{"seed": 0}]
    assert re.fullmatch(r"note: \S*units/\w+\.json is damaged\. It is made again\.", "\n".join(said))
    todo[0][3].write_text('{"a": {"b": 0.25}}')
    (toy / "config.json").write_text('{"version": 1}')
    assert run._outcomes("toy", Toy, {"seeds": 2}, toy, 1, lambda line: None)[0][1] == {"a": {"b": 0.25}}


def test_of_several_gpus_each_process_takes_one_in_turn(monkeypatch):
    taken, threads = [], torch.get_num_threads()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr("transformers.utils.logging.disable_progress_bar", lambda: None)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for place in range(3):
        monkeypatch.setattr("tunescope.system.crew.place", lambda place=place: place)
        piece.single()
    torch.set_num_threads(threads)
    assert taken == [0, 1, 0]


@pytest.mark.parametrize(("status", "lasts"), [("out of memory", False), ("failed", False), ("refused", True)])
def test_a_piece_that_failed_is_told_and_tried_again(tmp_path, monkeypatch, status, lasts):
    monkeypatch.setattr(piece, "find", {"toy": Toy}.__getitem__)
    works = {"status": status, "a": {"b": 0.0}}
    monkeypatch.setattr(Toy, "work", lambda settings, unit: dict(works), raising=False)
    path = tmp_path / "units" / f"{run_folder.identity({'seed': 0})}.json"
    path.parent.mkdir()
    piece.unit("toy", {"seeds": 1}, {"seed": 0}, path)
    assert path.exists() == lasts and piece.passing(path).exists() != lasts
    read = run._outcomes("toy", Toy, {"seeds": 1}, tmp_path, 1, lambda line: None) if lasts else None
    assert read is None or read[0][1]["status"] == status
    works["status"] = "done"
    if not lasts:
        piece.unit("toy", {"seeds": 1}, {"seed": 0}, path)
        assert not piece.passing(path).exists()
        assert run._outcomes("toy", Toy, {"seeds": 1}, tmp_path, 1, lambda line: None)[0][1]["status"] == "done"


def test_a_piece_that_was_stopped_finds_its_folder_again_and_leaves_none_when_it_is_done(tmp_path, monkeypatch):
    found = []

    def work(settings, unit, folder):
        found.append(sorted(one.name for one in folder.glob("*")))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "half").touch()
        if len(found) == 1:
            raise KeyboardInterrupt
        return {"a": {"b": 0.5}}

    monkeypatch.setattr(piece, "find", {"toy": Toy}.__getitem__)
    monkeypatch.setattr(Toy, "work", work, raising=False)
    monkeypatch.setattr(Toy, "RESUMES", True, raising=False)
    path = piece.path(tmp_path, "0")
    path.parent.mkdir()
    with pytest.raises(KeyboardInterrupt):
        piece.unit("toy", {}, {"seed": 0}, path)
    piece.unit("toy", {}, {"seed": 0}, path)
    assert found == [[], ["half"]] and [one.name for one in path.parent.iterdir()] == ["0.json"]
    assert sealed_json.read(path)["gone_on"] is True


def test_the_folder_of_a_piece_that_was_killed_behind_its_outcome_goes(toy, monkeypatch):
    run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)
    left = next((toy / "units").glob("*.json")).with_suffix("")
    (left / "arm-0").mkdir(parents=True)
    run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)
    assert left.exists()  # of a comparison it is kept
    monkeypatch.setattr(Toy, "RESUMES", True, raising=False)
    run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)
    assert not left.exists()


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        ({"scores": {"bleu": [10.0, 11.0], "ter": []}}, r"arm full, share 0\.5: bleu 10\.500 \(\d+ s\)"),
        ({"scores": {}, "reason": "no such parameter."}, r"arm full, share 0\.5: no such parameter\. \(\d+ s\)"),
        ({"a": 1}, r"arm full, share 0\.5 \(\d+ s\)"),
    ],
)
def test_a_piece_that_ends_says_what_came_of_it(tmp_path, monkeypatch, outcome, says):
    monkeypatch.setattr(piece, "find", {"toy": Toy}.__getitem__)
    monkeypatch.setattr(Toy, "work", lambda settings, unit: dict(outcome), raising=False)
    unit = {"base": None, "arm": "full", "share": 0.5, "part": ""}
    assert re.fullmatch(says, piece.unit("toy", {}, unit, tmp_path / "a.json"))


def test_a_folder_with_another_configuration_is_refused(toy):
    run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)
    with pytest.raises(ts.UserError, match="holds another"):
        run.reproduce(Ask("toy", seeds=3), toy, workers=1, say=lambda line: None)


def test_a_folder_in_which_nothing_was_done_may_be_asked_something_else(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "find", {"toy": Toy}.__getitem__)
    monkeypatch.setattr(run, "_outcomes", lambda *_: (_ for _ in ()).throw(ts.UserError("no such word")))
    rows = tmp_path / "units" / "a" / "data" / "train.jsonl"
    rows.parent.mkdir(parents=True)
    rows.write_text("{}")
    for seeds in (2, 3):
        with pytest.raises(ts.UserError, match="no such word"):
            run.reproduce(Ask("toy", seeds=seeds), tmp_path, workers=1, say=lambda line: None)
    (tmp_path / "units" / "a" / "run").mkdir()
    (tmp_path / "units" / "a" / "run" / "config.json").write_text("{}")
    with pytest.raises(ts.UserError, match="holds another"):
        run.reproduce(Ask("toy", seeds=2), tmp_path, workers=1, say=lambda line: None)


def test_what_others_have_in_a_folder_is_not_written_over(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "find", {"toy": Toy}.__getitem__)
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(ts.UserError, match=r"holds something that is no run of a recipe \(report\.html\)\. Name a new"):
        run.reproduce(Ask("toy"), tmp_path, workers=1, say=lambda line: None)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_run_whose_question_is_lost_goes_on_with_what_it_has(toy):
    want = run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)
    (toy / "config.json").unlink()
    assert run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)["table"] == want["table"]


def test_of_a_run_at_work_other_commands_say_who_is(toy, capsys, monkeypatch):
    run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)
    monkeypatch.setattr("sys.argv", ["tunescope", "status", str(toy)])
    with lock.locked(toy, lambda line: None), pytest.raises(SystemExit):
        main()
    line = capsys.readouterr().err.splitlines()[-1]
    assert re.search(
        rf"toy`: process {os.getpid()} on \S+ holds it\. Of what is done, its page is {toy}/report\.h", line
    )


@pytest.mark.parametrize("verb", ["status", "resume", "report"])
def test_other_commands_say_whose_a_folder_is_and_where_its_page_is(toy, capsys, monkeypatch, verb):
    run.reproduce(Ask("toy"), toy, workers=1, say=lambda line: None)
    monkeypatch.setattr("sys.argv", ["tunescope", verb, str(toy)])
    with pytest.raises(SystemExit):
        main()
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"error: {toy} is of `tunescope reproduce toy`: its page is {toy / 'report.html'}. To go on")


def test_the_interval_is_students_and_stays_within_what_the_value_can_be():
    values = (0.2, 0.5, 0.4, 0.45)
    low, high = ttest_1samp(values, 0).confidence_interval(0.95)
    assert Cell(values).interval == pytest.approx((low, high))
    assert Cell((0.9, 1.0), bounds=(0.0, 1.0)).interval == (pytest.approx(0.95 - 12.706 * 0.05, abs=1e-3), 1.0)
    assert Cell((0.9,)).interval is None


def test_a_table_is_told_with_the_papers_words_and_as_json_with_every_value():
    table = Table(("a", "b"), [("row", [Cell((0.5, 0.7), ".6"), Cell(text="1,024")])], ["a note"])
    lines = as_text("Title", table).splitlines()
    assert lines[0] == "Title" and lines[-1] == "a note"
    assert "(paper: .6)" in lines[3] and lines[3].endswith("1,024")
    assert as_json(table)["rows"][0]["cells"][0]["values"] == [0.5, 0.7]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((0.00091, 0.00093, 0.00092), "0.00092 [0.000895, 0.000945]"),  # 2 degrees of freedom: 4.3027 times 1e-5 / 3^.5
        ((0.5, 0.75, 0.625), "0.625 [0.314, 0.936]"),
        ((0.25,), "0.250"),
        ((), "–"),
    ],
)
def test_an_interval_is_written_as_its_mean_is(values, shown):
    assert ours(Cell(values)) == shown
