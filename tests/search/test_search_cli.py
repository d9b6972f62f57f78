"""`tunescope search` as a person meets it: tables, a page, artifacts, and other models."""

import errno
import html
import json
import re
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import bash
import pytest
import tiny
import tinyrun
import torch
import transformers
import warm
from commands import call
from search_tools import bench

import tunescope as ts
from tunescope.cli.options import PlanOptions, question
from tunescope.data import scores
from tunescope.report import findings_page, terminal
from tunescope.search import findings, names, seeds, study, transfer
from tunescope.search.apply import made, stats_of, with_found
from tunescope.search.methods.pez import PEZ
from tunescope.search.methods.projected import Projected
from tunescope.search.search import Found
from tunescope.search.without_words import open_unworded
from tunescope.system import files
from tunescope.tasks.kinds.classification import Classification
from tunescope.trial.open import open_bench

BRIEF = ["--passes", "330", "--seeds", "0", "1"]


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """A decoder with what it can learn from; the same with a poorer tokenizer; an encoder."""
    root = tmp_path_factory.mktemp("material")
    model, data = tinyrun.write(root)
    tokenizer = tinyrun.tokenizer()
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["model"]["vocab"] = {word: i for word, i in state["model"]["vocab"].items() if word != "film"}
    poor = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer.from_str(json.dumps(state)),
        unk_token="[UNK]",
        pad_token="[PAD]",
        eos_token="[EOS]",
    )
    tinyrun.model(1).save_pretrained(root / "poor")
    poor.save_pretrained(root / "poor")
    tiny.make("bert", dtype=torch.float32).save_pretrained(root / "bert")
    tokenizer.save_pretrained(root / "bert")
    return {"model": model, "root": root, **data}


@pytest.fixture
def tunescope(monkeypatch, capsys, material, tmp_path):
    """(exit code, stdout, stderr) of a search."""

    def run(*words, model=None, out=None, workers="1"):
        parts = ["--dev", material["dev"], "--test", material["test"], "--out", out or tmp_path / "out"]
        parts += ["--workers", workers]
        return call(monkeypatch, capsys, "search", model or material["model"], material["train"], *parts, *words)

    return run


def test_it_prints_the_prompts_and_writes_results_a_page_and_artifacts(tunescope, material, tmp_path):
    methods = ["pez:length=2,batch=4", "gcg:length=2,top=4,swaps=4,batch=4"]
    targets = [material["root"] / "poor", material["root"] / "bert"]
    code, out, err = tunescope("--method", *methods, *BRIEF, "--transfer-to", *targets)
    assert (code, err) == (0, "")
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [one["name"] for one in results["searches"]] == methods
    assert "no prompt" in out and "CARRIED TO OTHER MODELS" in out and f"prompts: {tmp_path / 'out' / 'prompts'}" in out
    assert "bert is refused: A search trains nothing, and an encoder has no answer" in out
    page = (tmp_path / "out" / "report.html").read_text()
    for run in [run for one in results["searches"] for run in one["runs"]]:
        assert run["found"]["text"] in out and run["found"]["text"] in page
        assert run["found"]["passes"] <= 330
        _check_artifact(material, tmp_path / "out" / run["artifact"], run)
    poor, bert = results["transfer"]
    assert (bert["status"], poor["status"], poor["zero_shot"]["score"] is None) == ("refused", "done", False)
    for one, source in zip(poor["searches"], results["searches"], strict=True):
        texts = [run["found"]["text"] for run in source["runs"]]
        assert (one["status"] == "refused") == any("film" in text for text in texts)


def test_what_is_odd_in_the_rows_and_what_is_cut_beside_a_prompt_are_told(monkeypatch, capsys, material, tmp_path):
    data, out = material["train"], tmp_path / "out"
    words = ["--dev", material["dev"], "--test", data, "--out", out, "--workers", "1", "--seeds", "1"]
    words += ["--passes", "330", "--method", "random:length=58"]
    code, said, err = call(monkeypatch, capsys, "search", material["model"], data, *words)
    assert code == 0, err
    results = json.loads((out / "results.json").read_text())
    assert code == 0 and any("also in train" in note for note in results["data"]["notes"])
    page = (out / "report.html").read_text()
    for note in results["data"]["notes"]:
        assert f"note: {note}" in said and html.escape(note) in page
    (run,) = results["searches"][0]["runs"]
    opened = open_bench(question(material["model"], data, PlanOptions(dev=material["dev"], test=data)))
    for part, count in run["cut"].items():  # of 64 positions 58 are the prompt's
        rows = opened.encoded(part, room=None)
        assert count == sum(len(row.input_ids) > 6 for row in rows) > 0
        assert f"{count} {part} rows cut beside it" in page
    assert set(run["cut"]) == {"dev", "test"}


def _check_artifact(material, folder, run):
    """Attached, the artifact gives the test statistics that the results have; and the arm says the same."""
    plan = question(material["model"], material["train"], PlanOptions(test=material["test"]))
    opened = open_bench(plan)
    (artifact,) = ts.load(folder)
    assert artifact.spec == ts.Text(text=run["found"]["text"])
    from tunescope.methods.text_form import parse

    assert parse(run["arm"]) == (artifact.spec,)
    with ts.attach(opened.model, artifact, tokenizer=opened.tokenizer):
        rows = opened.encoded("test", behind="", room=60)
        got = [list(one.stats) for one in opened.task.predict(opened.model, rows, opened.tokenizer)]
    assert got == run["stats"]
    assert run["test"] == scores.aggregate("accuracy", got)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--method needs a search, such as pez:length=10. Searches: "),
        (["--method", "pes"], "--method 'pes': no search 'pes'. Did you mean 'pez'? Searches: "),
        (["--method", "pez:lenght=3"], "'pez' has no field 'lenght'. Did you mean 'length'? Its fields: length, rate"),
        (["--method", "pez:length=x"], "--method field 'pez:length=x': input should be a valid integer"),
        (["--method", "gcg", "gcg:length=10"], "--method has 'gcg' twice; drop one"),
        (["--method", "gcg", "--transfer-to", "./nowhere"], "there is no folder ./nowhere; give the folder of a"),
        (["--method", "gcg", "--passes", "0"], "--passes 0 is too small; give a whole number of 1 or more"),
        (["--method", "gcg", "--passes", "9"], "every search was refused; gcg: 9 passes are too few"),
        (["--method", "pez:length=70"], "every search was refused; pez:length=70: the context takes 70 positions"),
        (
            ["--method", "gcg", "--task", "generation", "--metric", "bleu", "chrf", "ter"],
            "a search tells of one metric, and not of chrf and ter; type: --metric bleu",
        ),
        (["--method", "pez:ban=a,b,d,f,g,l,p,n,w,t"], "No token is left to make a prompt of: of 16, 12 banned"),
    ],
)
def test_what_cannot_be_asked_is_one_clear_line(tunescope, words, message):
    code, _, err = tunescope(*words)
    assert code == 2 and message in err and err.count("\n") == 1


def test_an_encoder_and_a_folder_that_is_not_empty_are_refused(tunescope, material, tmp_path):
    code, _, err = tunescope("--method", "gcg", model=material["root"] / "bert")
    assert code == 2 and "a search trains nothing, and an encoder has no answer" in err.lower()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "full" / "report.html").write_text("mine")
    code, _, err = tunescope("--method", "gcg", out=tmp_path / "full")
    assert code == 2 and "full holds something that is no search (report.html). Name a new folder with --out" in err
    code, _, err = tunescope("--method", "gcg", out=tmp_path / "full" / "mine.txt")
    assert code == 2 and "mine.txt is a file; name a new folder with --out" in err


def test_what_a_refusal_says_to_type_is_taken_in_the_same_folder(tunescope, tmp_path):
    for passes, workers in (("20", "1"), ("21", "1"), ("22", "2"), ("23", "1")):
        asked = ["--method", "random:length=2", "--passes", passes, "--seeds", "2"]
        code, _, err = tunescope(*asked, out=tmp_path / "few", workers=workers)
        assert code == 2 and "passes are too few" in err and "--passes" in err
    code, _, _ = tunescope("--method", "random:length=2", *BRIEF, out=tmp_path / "few")
    assert code == 0 and not (tmp_path / "few" / "jobs").exists()  # of what was refused


def test_a_search_that_was_stopped_goes_on_and_another_is_refused(tunescope, material, tmp_path, monkeypatch):
    asked = ["--method", "random:length=2", "pez:length=2,batch=4", *BRIEF]
    whole = tunescope(*asked, out=tmp_path / "whole")
    assert whole[0] == 0
    searched, stopped = [], PEZ.search

    def stop(self, bench, passes, seed, say):
        searched.append(seed)
        if len(searched) == 2:
            raise KeyboardInterrupt
        return stopped(self, bench, passes, seed, say)

    monkeypatch.setattr(PEZ, "search", stop)
    code, _, _ = tunescope(*asked, out=tmp_path / "cut")
    assert code == 130 and not (tmp_path / "cut" / "results.json").exists()
    code, _, err = tunescope("--method", "random:length=3", *BRIEF, out=tmp_path / "cut")
    assert code == 2 and "cut holds another search (it differs in: searches)" in err
    code, out, err = tunescope(*asked, out=tmp_path / "cut")
    assert (code, err) == (0, "") and len(searched) == 3 and out.count("found before, dev") == 3
    one, two = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("whole", "cut"))
    for key in ("searches", "zero_shot"):
        assert one[key] == two[key]
    code, _, err = tunescope(*asked, out=tmp_path / "cut")
    assert code == 2 and "cut holds a search that is done: see" in err
    (tmp_path / "cut" / "results.json").unlink()
    test = Path(material["test"])
    before = test.read_text()
    try:
        test.write_text(before + before.splitlines()[0] + "\n")
        code, out, _ = tunescope(*asked, out=tmp_path / "cut")
    finally:
        test.write_text(before)
    assert code == 0 and "found before" not in out  # the rows are others


def test_a_search_whose_files_were_moved_goes_on(monkeypatch, capsys, tmp_path):
    model, data = tinyrun.write(tmp_path / "a")

    def ask(place, *more):
        parts = [str(Path(data[part]).with_name(f"{part}.jsonl")).replace("/a/", f"/{place}/") for part in data]
        words = [model.replace("/a/", f"/{place}/"), parts[0], "--dev", parts[1], "--test", parts[2], *more]
        return call(monkeypatch, capsys, "search", *words, "--workers", "1", "--out", tmp_path / "out")

    asked = ["--method", "random:length=2", *BRIEF]
    assert ask("a", *asked)[0] == 0
    (tmp_path / "out" / "results.json").unlink()
    (tmp_path / "a").rename(tmp_path / "b")
    code, out, _ = ask("b", *asked)
    assert code == 0 and out.count("found before, dev") == 2
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model"] == str(tmp_path / "b" / "model")
    (tmp_path / "out" / "results.json").unlink()
    shutil.copytree(tmp_path / "b", tmp_path / "c")
    tinyrun.model(seed=5).save_pretrained(tmp_path / "c" / "model")
    code, _, err = ask("c", *asked)
    assert code == 2 and "the weights of model had the hash" in err
    rows = (tmp_path / "c" / "dev.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "c" / "dev.jsonl").write_text("".join(rows[1:]))
    code, _, err = ask("c", *asked)
    assert code == 2 and "it differs in: data.dev): dev.jsonl has the hash" in err


SEARCHES = """
import sys, time
from pathlib import Path
from tunescope.search.methods.random import RandomPrompts
plain, stop = RandomPrompts.search, Path(sys.argv.pop())
def search(self, bench, passes, seed, say):
    (stop / f"seed-{seed}").touch()
    while not (stop / "go").exists():
        time.sleep(0.01)
    return plain(self, bench, passes, seed, say)
RandomPrompts.search = search
from tunescope.cli.app import main
main()
"""


@pytest.fixture
def searching(material, tmp_path):
    """A search in a process of its own, which waits for the file `go` before it looks at anything."""
    words = ["search", material["model"], material["train"], "--dev", material["dev"], "--test", material["test"]]
    words += ["--method", "random:length=2", *BRIEF, "--workers", "1", "--out", tmp_path / "out", tmp_path]
    begun = []

    def start():
        begun.append(warm.start(["-c", SEARCHES, *words]))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_a_second_search_in_the_folder_is_refused_in_one_line_and_the_first_goes_on(searching, tmp_path):
    first = searching()
    wait_for(tmp_path / "seed-0")
    second = searching()
    wait_for(tmp_path / "seed-0", over=second)
    (tmp_path / "go").touch()
    _, err = second.communicate(timeout=60)
    assert second.returncode == 2 and err.count("\n") == 1 and f"error: {tmp_path / 'out'} is in use" in err
    assert first.communicate(timeout=60)[1] == "" and first.returncode == 0
    assert (tmp_path / "out" / "results.json").exists()


def test_a_search_that_was_killed_goes_on(searching, tmp_path):
    first = searching()
    wait_for(tmp_path / "seed-0")
    first.kill()
    first.wait()
    torn = tmp_path / "out" / "config.json.tmp-1-abcd"
    torn.touch()
    (tmp_path / "go").touch()
    again = searching()
    assert again.communicate(timeout=60)[1] == "" and again.returncode == 0
    assert (tmp_path / "out" / "results.json").exists() and not torn.exists()


@pytest.mark.parametrize("left", [[], ["config.json.tmp-1-abcd"]])
def test_a_search_that_was_killed_before_it_kept_its_question_goes_on(tunescope, tmp_path, left):
    process = warm.run(["-c", HELD, tmp_path / "out"])
    assert process.returncode == -signal.SIGKILL and any((tmp_path / "out").iterdir())
    for name in left:
        (tmp_path / "out" / name).touch()
    code, _, err = tunescope("--method", "random:length=2", *BRIEF)
    assert (code, err) == (0, "")


HELD = """
import os, signal, sys
from pathlib import Path
from tunescope.system.lock import locked
with locked(Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_that_is_gone_ends_a_search_and_is_not_made_anew(searching, tmp_path):
    first = searching()
    wait_for(tmp_path / "seed-0")
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "go").touch()
    _, err = first.communicate(timeout=60)
    assert first.returncode == 2 and err.endswith(
        "out was removed while the run was at work. To begin anew, type the same command again.\n"
    )
    assert not (tmp_path / "out" / "results.json").exists() and not (tmp_path / "out" / "prompts").exists()


def wait_for(path, over=None):
    """Until the file is there; or until the process `over` has ended, which it must before long."""
    until = time.monotonic() + 60
    while not (path.exists() if over is None else over.poll() is not None):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_full_disk_ends_a_search_in_one_line_that_says_how_to_go_on(tunescope, tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write", full)
    code, _, err = tunescope("--method", "random:length=2", *BRIEF)
    assert (code, err) == (
        2,
        f"error: the disk is full while writing to {tmp_path / 'out'}; what was finished is kept. "
        "Mend that, then type the same command again\n",
    )
    monkeypatch.undo()


def test_without_a_folder_each_question_has_its_own(monkeypatch, capsys, material, tmp_path):
    monkeypatch.chdir(tmp_path)
    given = [material["model"], material["train"], "--dev", material["dev"], "--test", material["test"]]
    for words in (["--method", "gcg:length=2,batch=4"], ["--method", "pez:length=2,batch=4"]):
        code, out, err = call(monkeypatch, capsys, "search", *given, *words, *BRIEF, "--workers", "1")
        assert (code, err) == (0, "") and re.search(r"page: runs/search-model-train-[0-9a-f]{8}/report\.html", out)
    assert len(list((tmp_path / "runs").glob("search-*"))) == 2


def test_a_search_that_is_refused_is_told_beside_the_others(tunescope):
    code, out, _ = tunescope("--method", "pez:length=70", "pez:length=2,batch=4", *BRIEF)
    assert code == 0
    assert "pez:length=70 is refused: the context takes 70 positions" in out
    assert re.search(r"pez:length=70 +refused: the context takes", out)


def test_in_help_the_searches_are_listed(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "160")
    _, out, _ = call(monkeypatch, capsys, "search", "--help")
    assert {"pez", "gcg", "autoprompt", "fluentprompt"} <= set(names.searches())
    assert all(f"{name}: " in out for name in names.searches())


@pytest.mark.parametrize("name", names.searches())
def test_what_is_shown_of_a_search_can_be_typed(name):
    found = names.parse(name)
    assert names.show(found) == name and names.parse(names.show(found)) == found


def test_a_search_is_its_constructor_call():
    assert names.parse("pez:length=3,ban=good,bad,rate=1") == PEZ(length=3, rate=1.0, ban=("good", "bad"))
    assert names.show(PEZ(length=3, ban=("good", "bad"))) == "pez:length=3,ban=good,bad"


def made_up(shown):
    run = {
        "seed": 0,
        "shown": shown,
        "test": {"accuracy": 0.5},
        "artifact": "prompts/pez-1",
        "arm": f"text:text={shown}",
        "found": {"dev": 0.75, "passes": 1200, "counts": {"dropped": 2}},
    }
    scored = {"score": 0.5, "interval": [0.25, 0.75], "gain": -0.125, "gain_interval": [-0.25, 0.0]}
    far = {"model": "far", "status": "refused", "reason": "it is far"}
    return {
        "model": {"name": "near"},
        "data": {part: {"rows": 8} for part in ("train", "dev", "test")},
        "task": {"metric": "accuracy", "template": "{text}", "words": {"a": "b"}},
        "protocol": {"passes": 1200, "seeds": [0]},
        "versions": {},
        "zero_shot": {"score": 0.625, "interval": [0.5, 0.75]},
        "searches": [{"name": "pez", "status": "done", "reason": "", "runs": [run], **scored}],
        "transfer": [far | {"zero_shot": transfer.REFUSED, "searches": []}],
    }


def test_words_of_a_prompt_are_shown_and_never_read_as_markup():
    results = made_up("<script>x</script> [red]y[/red] \x1b[31m z")
    found = findings.findings(results)
    page = findings_page.page(list(found.values()), findings.facts(results))
    assert "<script>" not in page and "&lt;script&gt;x" in page and "[red]y[/red]" in page
    text = "\n".join(map(terminal.finding, found.values()))
    assert "<script>x</script> [red]y[/red] \\x1b[31m z" in text and "\x1b" not in text + page


def test_passes_are_the_mean_over_the_seeds_as_the_score_is():
    results = made_up("w")
    (run,) = results["searches"][0]["runs"]
    results["searches"][0]["runs"].append(run | {"seed": 1, "found": run["found"] | {"passes": 1000}})
    assert findings.findings(results)["scores"].rows[1][-1] == "1,100"


def test_the_tables_say_what_the_results_hold():
    scores, prompts, carried = findings.findings(made_up("w")).values()
    assert scores.rows == [
        ("no prompt", "0.625 [0.500 to 0.750]", "", ""),
        ("pez", "0.500 [0.250 to 0.750]", "−0.125 [−0.250 to +0.000]", "1,200"),
    ]
    assert prompts.rows == [("pez", "0", "w", "0.750", "0.500", "prompts/pez-1", "2 dropped")]
    assert carried.columns == ("search", "near (source)", "far")
    assert carried.rows[1] == ("pez", "0.500 [0.250 to 0.750]", "refused") and "far: it is far" in carried.says
    assert "test rows alone: another seed could find another prompt" in scores.says


def test_two_searches_of_one_name_have_each_its_own_scores_on_a_target():
    results = made_up("w")
    (one,) = results["searches"]
    results["searches"] = [one, one | {"status": "refused"}, one]
    cells = [one | {"score": score, "interval": [score, score]} for score in (0.25, 0.75)]
    results["transfer"] = [{"model": "far", "status": "done", "reason": "", "zero_shot": one, "searches": cells}]
    carried = findings.findings(results)["transfer"]
    assert [row[-1] for row in carried.rows[1:]] == ["0.250 [0.250 to 0.250]", "0.750 [0.750 to 0.750]"]


def test_results_name_a_search_without_the_folders_of_a_path():
    assert seeds.named(PEZ(length=3, ban=("a", "b"))) == "pez:length=3,ban=a,b"
    assert seeds.named(Projected(artifact="/home/somebody/runs/best")) == "projected:artifact=best"


def test_what_was_found_is_shown_as_it_is_typed():
    task = bench().task
    words = {"a": "w10", "b": "w11", "c": "w12"}
    assert seeds.shown(Found("w20 w21", task.template, task.words, 0.5, 1), task) == '"w20 w21"'
    assert seeds.shown(Found(" w20\n\x0f", task.template, task.words, 0.5, 1), task) == r'" w20\n\u000f"'
    told_of = "\"w20\" --template '{text}' --words a=w10,b=w11,c=w12"
    assert seeds.shown(Found("w20", "{text}", words, 0.5, 1), task) == told_of
    assert seeds.shown(Found("", task.template, task.words, 0.5, 1), task) == "nothing changed"
    for template, found in (('{text} It\'s "$5".', {"very negative": "bad", "b": "good"}), ("{text}\tis", words)):
        typed = bash.words(seeds.shown(Found("", template, found, 0.5, 1), task))
        told = ",".join(f"{label}={word}" for label, word in found.items())
        assert typed == ["--template", template, "--words", told]


def test_what_a_search_left_alone_is_the_target_s_own():
    """A decoder reads the template without {mask}; a T5 has a place for it, and keeps that."""
    words = {"neg": "neg", "pos": "pos"}
    source = transfer.Source(Classification(template="{text} was", words=words))
    target = bench()
    target = replace(target, task=replace(target.task, template="{text} was {mask}", words={"neg": "w5", "pos": "w6"}))
    found = vars(Found("plot", "{text} was", words, 0.5, 10))
    kept = transfer._again(found, source, target)
    assert (kept.template, kept.words) == ("{text} was {mask}", {"neg": "w5", "pos": "w6"})
    changed = transfer._again({**found, "template": "a {text}"}, source, target)
    assert (changed.template, changed.words) == ("a {text}", {"neg": "w5", "pos": "w6"})
    stood_in = transfer._again(found, replace(source, stands_in=True), target)
    assert (stood_in.template, stood_in.words) == ("{text} was {mask}", words)


def test_words_found_for_labels_that_are_none_are_carried_and_nothing_is_their_score_without(material, tmp_path):
    data = {part: tmp_path / f"{part}.jsonl" for part in ("train", "dev", "test")}
    for part, path in data.items():  # labels of which one begins as another
        rows = [json.loads(line) for line in Path(material[part]).read_text().splitlines()]
        renamed = [row | {"label": {"neg": "bad", "pos": "bad film"}[row["label"]]} for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in renamed))
    plan = question(material["model"], str(data["train"]), PlanOptions(test=str(data["test"])))
    with pytest.raises(ts.UserError, match="collide"):
        open_bench(plan)
    opened, stands_in = open_unworded(plan)
    assert stands_in and set(opened.task.words) == {"bad", "bad film"}
    words = {"bad": "neg", "bad film": "pos"}
    searched = [{"name": "label_words", "status": "done"}]
    searched[0]["runs"] = [{"seed": 0, "found": vars(Found("", opened.task.template, words, 0.5, 10))}]
    target = str(material["root"] / "poor")
    got = transfer.carried(plan, target, searched, transfer.Source(opened.task, stands_in), lambda line: None)
    (cell,) = got["searches"]
    task = Classification(template=opened.task.template, words=words)
    expected = stats_of(open_bench(replace(plan, model=target), task=task), "")
    assert cell["runs"][0]["stats"] == expected and cell["gain"] is None and got["zero_shot"]["score"] is None


def test_a_template_and_words_that_were_found_are_used():
    given = bench()
    found = Found("", "{text} w9", {"a": "w10", "b": "w11", "c": "w12"}, 0.5, 10)
    own = with_found(given, found)
    assert (own.task.template, own.task.words) == (found.template, found.words)
    rows = own.task.encode(given.splits.test, given.tokenizer, model_kind="decoder")
    assert stats_of(own, "") == [list(one.stats) for one in own.task.predict(own.model, rows, own.tokenizer)]
    assert with_found(given, Found("w20", given.task.template, given.task.words, 0.5, 1)) is given
    with pytest.raises(ts.UserError, match="cannot be told apart"):
        with_found(given, Found("", "{text}", {"a": "w10", "b": "w10", "c": "w12"}, 0.5, 10))


def test_a_prompt_that_the_target_s_tokenizer_cannot_read_refuses_its_search_alone(material):
    plan = question(material["model"], material["train"], PlanOptions(test=material["test"]))
    template, words = "{text}\nLabel:", {"neg": "neg", "pos": "pos"}

    def one(name, *texts):
        runs = [{"seed": seed, "found": vars(Found(text, template, words, 0.5, 10))} for seed, text in enumerate(texts)]
        return {"name": name, "status": "done", "runs": runs}

    lines = []
    found = [one("pez", "plot", "bad film"), one("gcg", "plot", "bad")]
    source = transfer.Source(Classification(template=template, words=words))
    got = transfer.carried(plan, str(material["root"] / "poor"), found, source, lines.append)
    told_of = "seed 1: the tokenizer has no token for a part of the prompt 'bad film'."
    assert [(cell["name"], cell["status"], cell["reason"]) for cell in got["searches"]] == [
        ("pez", "refused", told_of),
        ("gcg", "done", ""),
    ]
    assert lines == [f"poor, prompt of pez, is refused: {told_of}"]
    opened = open_bench(replace(plan, model=str(material["root"] / "poor")))
    assert [run["stats"] for run in got["searches"][1]["runs"]] == [stats_of(opened, "plot"), stats_of(opened, "bad")]
    assert study.summary(opened, {0: stats_of(opened, "")}) == got["zero_shot"]


def test_a_start_token_that_is_the_unknown_one_too_is_no_unknown_part_of_a_prompt():
    given = bench(start=True)
    given.tokenizer.unk_token = given.tokenizer.bos_token  # as OPT's
    (word,) = given.tokenizer("w20", add_special_tokens=False)["input_ids"]
    assert made(given, "w20").tensors["ids"].tolist() == [given.tokenizer.unk_token_id, word]


def test_a_template_and_words_that_were_found_are_carried_too(material):
    plan = question(material["model"], material["train"], PlanOptions(test=material["test"]))
    found = Found("plot", "a {text} was", {"neg": "pos", "pos": "neg"}, 0.5, 10)
    searched = [{"name": "known", "status": "done", "runs": [{"seed": 0, "found": vars(found)}]}]
    source = transfer.Source(Classification(template="{text}", words={"neg": "neg", "pos": "pos"}))
    got = transfer.carried(plan, str(material["root"] / "poor"), searched, source, lambda line: None)
    task = Classification(template="a {text} was", words={"neg": "pos", "pos": "neg"})
    opened = open_bench(replace(plan, model=str(material["root"] / "poor")), task=task)
    (cell,) = got["searches"]
    assert cell["runs"][0]["stats"] == stats_of(opened, "plot")
    plain = open_bench(replace(plan, model=str(material["root"] / "poor")))
    assert got["zero_shot"] == study.summary(plain, {0: stats_of(plain, "")})
    assert cell["runs"][0]["stats"] != stats_of(plain, "plot")
