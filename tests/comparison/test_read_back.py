"""What a run reads back is verified: what was changed or lost is made again, and an error of the disk stops the run."""

import errno
import json
import shutil
from pathlib import Path

import commands
import pytest
import tinyrun

from tunescope import report
from tunescope.attachment.artifact_folder import load
from tunescope.comparison import comparison, run, saved_artifact
from tunescope.errors import UserError
from tunescope.report import terminal
from tunescope.system import files, run_folder, sealed_json
from tunescope.trial import plan, plan_check
from tunescope.trial.open import open_bench
from tunescope.trial.train import loop, state
from tunescope.trial.train.settings import Settings

CLOCKED = {"created", "seconds", "memory_mb"}


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    model, data = tinyrun.write(tmp_path_factory.mktemp("material"))
    settings = Settings(steps=2, batch_size=8, eval_every=1)
    fields = {"task": {"kind": "classification"}, "arms": ("lora",), "budgets": (256,), "seeds": (0,)}
    return plan_check.check(plan.Plan(model=model, data=data, trials=3, beyond=0, settings=settings, **fields))


@pytest.fixture(scope="module")
def go_on(asked):
    """The comparison in a folder, on a model that is loaded already; what it says is read from stderr."""
    bench = open_bench(asked)
    return lambda folder, quiet=True: comparison.run(asked, folder, tinyrun.opened(bench), by_name=True, quiet=quiet)


@pytest.fixture(scope="module")
def truth(go_on, tmp_path_factory):
    return go_on(tmp_path_factory.mktemp("truth") / "run")


@pytest.fixture
def copied(truth, tmp_path):
    shutil.copytree(truth.folder, tmp_path / "run")
    return tmp_path / "run"


def numbers(results):
    if isinstance(results, dict):
        return {key: numbers(value) for key, value in results.items() if key not in CLOCKED}
    return [numbers(value) for value in results] if isinstance(results, list) else results


def chosen(truth):
    """The id of lora's run on the test set."""
    return truth.results["arms"][0]["runs"][0]["id"]


def changed(path):
    """One digit of the first number with a fraction is another."""
    text = path.read_text()
    at = text.index("0.") + 2
    path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])


@pytest.mark.parametrize("name", ["result.json", "test.json"])
def test_an_arm_s_file_in_which_a_digit_was_changed_is_told_and_made_again(truth, copied, go_on, capsys, name):
    changed(run_folder.folder(copied, chosen(truth)) / name)
    found = go_on(copied, quiet=False)
    assert numbers(found.results) == numbers(truth.results)
    told = [line for line in capsys.readouterr().err.splitlines() if "damaged" in line]
    assert len(told) == 1 and name in told[0] and told[0].endswith("It is made again.")
    assert run_folder.finished(copied, chosen(truth), name) is not None


@pytest.mark.parametrize("lost", ["result.json", "artifact", "artifact/tensors.safetensors", "artifact/tunescope.json"])
def test_what_was_deleted_of_an_arm_is_made_again(truth, copied, go_on, lost):
    place = run_folder.folder(copied, chosen(truth))
    files.remove(place / lost)
    assert numbers(go_on(copied).results) == numbers(truth.results)
    assert sorted(path.name for path in place.rglob("*")) == sorted(
        path.name for path in run_folder.folder(truth.folder, chosen(truth)).rglob("*")
    )
    assert sorted(path.name for path in (copied / "arms").iterdir()) == sorted(
        path.name for path in (truth.folder / "arms").iterdir()
    )


def test_the_artifact_of_another_run_is_not_taken_for_a_run_s_own(truth, copied, go_on):
    place = run_folder.folder(copied, chosen(truth)) / "artifact"
    manifest = json.loads((place / "tunescope.json").read_text())
    manifest["about"]["seed"] = 7
    (place / "tunescope.json").write_text(json.dumps(manifest))
    go_on(copied)
    assert load(place) and json.loads((place / "tunescope.json").read_text())["about"]["seed"] == 0


def test_a_changed_results_json_is_refused_by_report_and_made_again_by_resume(
    truth, copied, go_on, monkeypatch, capsys
):
    changed(copied / "results.json")
    code, out, err = commands.call(monkeypatch, capsys, "report", copied)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{copied}/results.json is damaged" in err and f"type: tunescope resume {copied}" in err
    assert numbers(go_on(copied).results) == numbers(truth.results)


def test_report_on_a_folder_that_takes_no_file_shows_the_table_and_ends_in_one_line(copied, monkeypatch, capsys):
    before = (copied / "report.html").read_bytes()

    def refuse(path, data):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(files, "write", refuse)
    code, out, err = commands.call(monkeypatch, capsys, "report", copied)
    assert code == 2 and "Verdict: " in out and (copied / "report.html").read_bytes() == before
    assert err == f"error: {copied}/report.html cannot be written (Read-only file system); it is as it was.\n"


def test_a_good_best_is_never_replaced_by_a_damaged_copy(truth, copied):
    source, best = saved_artifact.place(copied, chosen(truth)), copied / "best"
    before = {path.name: path.read_bytes() for path in best.iterdir()}
    data = (source / "tensors.safetensors").read_bytes()
    (source / "tensors.safetensors").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    manifest = json.loads((best / "tunescope.json").read_text())
    (best / "tunescope.json").write_text(json.dumps(manifest))  # another file, and still a good one
    before["tunescope.json"] = (best / "tunescope.json").read_bytes()
    with pytest.raises(UserError, match=rf"{source}/tensors.safetensors is damaged.* {best} is left as it was"):
        saved_artifact.copy(source, best, "type: tunescope resume RUN")
    assert {path.name: path.read_bytes() for path in best.iterdir()} == before
    assert not list(copied.glob("best.tmp*"))


def test_a_damaged_artifact_is_made_again_and_best_is_the_good_one(truth, copied, go_on):
    for place in (saved_artifact.place(copied, chosen(truth)), copied / "best"):
        path = place / "tensors.safetensors"
        path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1")
    assert numbers(go_on(copied).results) == numbers(truth.results)
    whole = (truth.folder / "best" / "tensors.safetensors").read_bytes()
    assert (copied / "best" / "tensors.safetensors").read_bytes() == whole


def test_a_state_that_was_changed_is_not_gone_on_with(tmp_path, asked, go_on, monkeypatch):
    monkeypatch.setattr(run, "SAVE_EVERY", 0.0)
    plain = loop.update

    def stop(*given):
        if list(tmp_path.glob("run/arms/*.tmp-*/state.json")):
            raise KeyboardInterrupt
        return plain(*given)

    monkeypatch.setattr(loop, "update", stop)
    with pytest.raises(KeyboardInterrupt):
        go_on(tmp_path / "run")
    (path,) = tmp_path.glob("run/arms/*.tmp-*/state.json")
    record = json.loads(path.read_text())
    assert sealed_json.read(path)["state"]["step"] == 1
    record["state"]["best_score"] = 0.99
    path.write_text(json.dumps(record))
    assert state.load(path.parent, {}, None) is None


def failing(monkeypatch, problem, at):
    """The at-th step of training raises it."""
    plain, calls = loop.update, []

    def update(*given):
        calls.append(1)
        if len(calls) == at:
            raise problem
        return plain(*given)

    monkeypatch.setattr(loop, "update", update)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOENT])
def test_an_error_of_the_disk_in_a_rate_s_training_stops_the_run_and_resume_reaches_the_truth(
    truth, go_on, tmp_path, monkeypatch, number
):
    with monkeypatch.context() as within:
        failing(within, OSError(number, "words", "x"), 3)
        with pytest.raises(files.DiskError, match=r"the disk fails \(.*: x\) while writing to .*tunescope resume"):
            go_on(tmp_path / "run")
    assert numbers(go_on(tmp_path / "run").results) == numbers(truth.results)


def test_a_rate_that_failed_is_told_in_the_table_on_the_page_and_in_the_verdict(go_on, tmp_path, monkeypatch):
    failing(monkeypatch, ZeroDivisionError("by zero"), 5)  # the largest of three
    results = go_on(tmp_path / "run").results
    lora = results["arms"][0]
    rates = [trial["learning_rate"] for trial in lora["trials"]]
    assert [trial["status"] for trial in lora["trials"]] == ["done", "done", "failed"]
    told = f"Not tried: learning rate {rates[2]:g} (failed: ZeroDivisionError: by zero"
    assert any(told in remark for remark in lora["remarks"])
    table = " ".join(terminal.table(results).split())
    assert told in table and told in report.html(results)
    said = f"Not every learning rate could be tried: lora at {rates[2]:g}."
    assert any(said in sentence for sentence in results["verdict"]["sentences"])
    at_end = [note for note in terminal.edge_notes(results) if "The largest" in note]
    assert bool(at_end) == (lora["learning_rate"] == rates[1])  # of those of which something is known
    assert len(terminal.edge_notes(results)) == 1


def test_the_paths_of_a_run_are_told_where_they_are_too_long(asked, go_on, tmp_path):
    with pytest.raises(UserError, match="File name too long") as told:
        go_on(Path(tmp_path) / ("x" * 300))
    assert "\n" not in str(told.value)
