"""Jobs on other machines give the numbers of one process here, whatever is killed; what cannot be trusted is refused.

The oracle is the comparison in one process. Slurm's machines are processes that submitit's debug executor begins.
"""

import json
import shutil
from pathlib import Path

import commands
import far_tools
import pytest
import tinyrun
from far_tools import DEBUG, Queue, numbers, question

from tunescope.comparison import status
from tunescope.comparison.comparison import ask, compare, resume
from tunescope.errors import UserError
from tunescope.system import job_folder, run_folder
from tunescope.system.executor import Event
from tunescope.system.executors import slurm
from tunescope.system.far_jobs import FarJobs, Jobs, Submitted, do
from tunescope.system.job_folder import JobFolder

pytest.importorskip("submitit")
pytestmark = [pytest.mark.filterwarnings("ignore")]
QUICK = ("trains", "tells")  # phases; the others are tried by make slow


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    return tinyrun.write(tmp_path_factory.mktemp("material"))


@pytest.fixture(scope="module")
def asked(material):
    return question(material, "zero-shot", "lora")


@pytest.fixture(scope="module")
def want(asked, tmp_path_factory):
    return numbers(ask(asked, tmp_path_factory.mktemp("here") / "run", quiet=True).results)


@pytest.fixture
def queue(monkeypatch):
    def made(*given, **named):
        found = Queue(*given, **named)
        monkeypatch.setattr(slurm, "called", found)
        return found

    return made


def gone_on(asked, folder, most=5):
    """The comparison, handed in until it is done, and how often it was."""
    for count in range(1, most + 1):
        try:
            return ask(asked, folder, executor=DEBUG, quiet=True), count
        except Submitted:
            continue
    raise AssertionError(f"not done in {most} goes")


def test_a_queue_gives_the_numbers_of_one_process(asked, want, queue, tmp_path):
    queue()
    found, goes = gone_on(asked, tmp_path / "run")
    assert numbers(found.results) == want and goes == 1
    logs = sorted(path.parent.name for path in tmp_path.glob("run/jobs/*/log.txt"))
    assert logs == sorted(path.name for path in tmp_path.glob("run/arms/*"))
    assert not [*tmp_path.glob("run/jobs/*/lease.json"), *tmp_path.glob("run/jobs/*/outcome*")]


@pytest.mark.parametrize(
    "phase", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in far_tools.PHASES]
)
def test_a_worker_killed_at_any_phase_costs_time_alone(asked, want, queue, tmp_path, phase):
    at_work = queue(phase, kills=1)
    found, goes = gone_on(asked, tmp_path / "run")
    assert len(at_work.killed) == 1 and numbers(found.results) == want
    assert goes == (
        1 if phase in ("keeps", "tells", "ends") else 2
    )  # the result is there, or the job is handed in again


@pytest.mark.slow
def test_three_deaths_make_a_failed_arm_and_the_next_go_tries_it_again(asked, want, queue, tmp_path):
    at_work = queue("saves", kills=3)
    found, goes = gone_on(asked, tmp_path / "run")
    (name,) = set(at_work.killed)
    lost = [trial for arm in found.results["arms"] for trial in arm["trials"] if trial["status"] != "done"]
    assert [one["id"] for one in lost] == [name] and goes == 4  # the fourth finds that it died a third time
    assert lost[0]["reason"] == f"its worker died 3 times; what it printed is in jobs/{name}/log.txt"
    again, _ = gone_on(asked, tmp_path / "run")
    assert numbers(again.results) == want


@pytest.mark.slow
def test_halving_goes_on_round_by_round(material, queue, tmp_path):
    asked = question(material, "lora", trials=3, halving=True)
    here = numbers(ask(asked, tmp_path / "here", quiet=True).results)
    queue()
    found, _ = gone_on(asked, tmp_path / "run")
    assert numbers(found.results) == here


@pytest.mark.slow
def test_a_result_that_was_changed_is_made_again(asked, want, queue, tmp_path):
    queue()
    found, _ = gone_on(asked, tmp_path / "run")
    (tmp_path / "run" / "results.json").unlink()
    name = found.results["arms"][1]["runs"][0]["id"]
    path = run_folder.folder(tmp_path / "run", name) / "artifact" / "tensors.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert numbers(gone_on(asked, tmp_path / "run")[0].results) == want


def test_the_word_of_a_worker_whose_result_is_damaged_is_not_taken(asked, want, queue, tmp_path, monkeypatch):
    at_work, damaged = queue(), []

    def damages(command):
        at_work(command)
        if not damaged:
            damaged.append(run_folder.folder(tmp_path / "run", command[command.index("--job") + 1]) / "result.json")
            damaged[0].write_text(damaged[0].read_text().replace('"status": "done"', '"status": "gone"'))
        return 0

    monkeypatch.setattr(slurm, "called", damages)
    found, goes = gone_on(asked, tmp_path / "run")
    assert goes == 2 and numbers(found.results) == want


def test_a_queue_is_not_waited_for_and_resume_goes_on(asked, want, queue, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    monkeypatch.setattr(slurm, "called", lambda command: 0)  # the cluster has taken it, and has not begun it
    with pytest.raises(Submitted, match=rf"jobs: 2 handed in. .*tunescope status {run}\n.* tunescope resume {run}"):
        ask(asked, run, executor=DEBUG, quiet=True)
    told = list(status.lines(run))
    assert "lora" in told[1] and "0/2 runs  queued" in told[1]
    assert told[-1] == f"with the queue of {DEBUG}; when it is through, type: tunescope resume {run}"
    queue()
    capsys.readouterr()
    code, out, _ = commands.call(monkeypatch, capsys, "resume", run)
    assert code == 0 and "Verdict" in out
    assert numbers(json.loads((run / "results.json").read_text())).items() >= want.items()
    assert list(status.lines(run))[-1].startswith("finished")


def test_a_live_worker_s_job_is_not_handed_in_again(asked, queue, tmp_path, monkeypatch):
    run, handed = tmp_path / "run", []
    monkeypatch.setattr(slurm, "called", lambda command: handed.append(command) or 0)
    with pytest.raises(Submitted):
        ask(asked, run, executor=DEBUG, quiet=True)
    name = handed[0][handed[0].index("--job") + 1]
    handed.clear()
    with (
        job_folder.lease.held(job_folder.JobFolder(run, name).lease, dead=Path, lost=lambda: None),
        pytest.raises(Submitted, match="1 handed in, 1 running"),
    ):
        ask(asked, run, executor=DEBUG, quiet=True)
    assert name not in [command[command.index("--job") + 1] for command in handed]


def test_a_folder_that_is_not_shared_is_refused_by_name(asked, tmp_path, monkeypatch, capsys):
    handed = []
    monkeypatch.setattr(slurm, "called", lambda command: handed.append(command) or 0)
    with pytest.raises(Submitted):
        ask(asked, tmp_path / "run", executor=DEBUG, quiet=True)
    words = handed[0][3:]
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    (tmp_path / "copy" / "jobs" / "run.json").unlink()
    job_folder.share(tmp_path / "copy", {})
    told = (
        "is not the folder that the comparison runs in: jobs/run.json is {}. Jobs on other machines need a folder on a"
    )
    for folder, what in ((tmp_path / "copy", "of another comparison"), (tmp_path / "nowhere", "not there")):
        code, _, err = commands.call(monkeypatch, capsys, words[0], folder, *words[2:])
        assert code == 2 and str(folder) in err and told.format(what) in err
    assert not list(tmp_path.glob("*/arms/*"))


def test_a_worker_that_finds_another_file_stops_the_run(tmp_path, queue):
    material = tinyrun.write(tmp_path / "material")
    asked, at_work = question(material, "zero-shot"), queue()

    def changes(command):
        path = Path(material[1]["train"])
        path.write_text(path.read_text().replace("film", "plot"))
        return at_work(command)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slurm, "called", changes)
        with pytest.raises(UserError, match=r"train.jsonl \(train\) had the hash [0-9a-f]{12} and has [0-9a-f]{12}"):
            ask(asked, tmp_path / "run", executor=DEBUG, quiet=True)


def test_what_cannot_go_to_other_machines_is_refused(material, tmp_path):
    for options, told in (
        ({"together": 4}, "--together 4 shares passes in a process of this machine"),
        ({"together": 0}, "--together 0 shares passes"),
    ):
        with pytest.raises(UserError, match=told):
            ask(question(material, "lora", **options), tmp_path / "run", executor=DEBUG, quiet=True)
    model = tinyrun.model()
    with pytest.raises(UserError, match="compare\\(executor='ray'\\) needs the model by name or folder"):
        compare(model, material[1], tokenizer=tinyrun.tokenizer(), executor="ray", out=tmp_path / "run")


@pytest.mark.slow
def test_resume_asks_where_it_was_asked(asked, want, queue, tmp_path):
    queue()
    gone_on(asked, tmp_path / "run")
    (tmp_path / "run" / "results.json").unlink()
    shutil.rmtree(tmp_path / "run" / "arms")
    assert job_folder.executor_of(tmp_path / "run") == DEBUG
    assert numbers(resume(tmp_path / "run", workers=0, quiet=True).results) == want


def test_a_fault_of_ours_is_one_death_and_the_job_is_begun_three_times(tmp_path):
    begun, folder = [], JobFolder(tmp_path, "one")

    def fails(asked):
        begun.append(asked)
        raise ZeroDivisionError("oops")

    class Here:
        waits = True

        def __init__(self):
            self.events = []

        def submit(self, jobs):
            self.events += [Event(job, "ended", do(JobFolder(tmp_path, job), fails, str)) for job in jobs]

        def poll(self):
            while self.events:
                yield self.events.pop(0)

    class One(Jobs):
        folder, asks, how = tmp_path, {"one": {"what": 1}}, ""

        def known(self, name):
            return None

        passing = done = progress = lambda self, name, found: None

        def failed(self, name, reason):
            return reason

    outcome = FarJobs(One(), Here()).run()
    assert outcome["one"].startswith("its worker died 3 times")
    assert len(begun) == folder.deaths() == 3
