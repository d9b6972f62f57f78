"""`tunescope anchors` on every executor gives what one process gives; the oracle is that process."""

import socket
from dataclasses import replace

import far_tools
import pytest
import tinyrun
from commands import call
from far_tools import NAMES, NEEDS, Queue, gone_on

from tunescope.errors import UserError
from tunescope.probes.anchors import study
from tunescope.probes.anchors.request import AnchorRequest
from tunescope.probes.names import DEMONSTRATIONS
from tunescope.system import job_folder, lease, pieces, plugins
from tunescope.system.executors import slurm
from tunescope.system.lock import locked
from tunescope.system.pieces import Place
from tunescope.trial import executor_name
from tunescope.trial.plan import Plan

pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def request_(tmp_path_factory):
    model, data = tinyrun.write(tmp_path_factory.mktemp("material"))
    plan = Plan(model=model, data=data, task={"kind": "classification"}, seeds=(0, 1))
    return AnchorRequest(plan, rows=6, only=("flow", "isolate"))


@pytest.fixture(scope="module")
def want(request_):
    return study.study(request_, lambda line: None)


def asked(request_, run, executor, said=None):
    place = Place(executor_name.parse(executor), 2)
    return study.study(request_, (said if said is not None else []).append, run, place)


@pytest.mark.parametrize("name", NAMES)
def test_every_executor_gives_the_draws_of_one_process_each_once(request_, want, tmp_path, name, monkeypatch):
    pytest.importorskip(NEEDS.get(name.partition(":")[0], "torch"))
    if name == far_tools.DEBUG:
        monkeypatch.setattr(slurm, "called", Queue())
    said, run = [], tmp_path / "run"
    found, goes = gone_on(lambda: asked(request_, run, name, said), run, 4)
    assert found == want
    assert len(list((run / "draws").iterdir())) == 4 and not list(run.glob("jobs/*/lease.json"))
    if goes == 1 and name != far_tools.DEBUG:
        told = sorted(line.partition(": ")[2].partition(" (")[0] for line in said if line.startswith("section "))
        assert told == ["flow, draw 0", "flow, draw 1", "isolate, draw 0", "isolate, draw 1"]
    assert asked(request_, run, name) == want


@pytest.mark.slow
def test_a_section_that_cannot_be_had_is_left_out_wherever_it_was_tried(request_, tmp_path, monkeypatch):
    at_work = Queue("refuses")
    monkeypatch.setattr(slurm, "called", at_work)
    every = AnchorRequest(request_.plan, rows=6)
    plain = plugins.names
    some = {DEMONSTRATIONS: ["isolate", "flow"]}
    monkeypatch.setattr(plugins, "names", lambda folder: some.get(folder) or plain(folder))
    said = []
    found, _ = gone_on(lambda: asked(every, tmp_path / "run", far_tools.DEBUG, said), tmp_path / "run")
    assert list(found.findings) == ["isolate"] and found.facts["left out"] == "flow: it flows nowhere"
    assert "left out, flow: it flows nowhere" in said
    with pytest.raises(UserError, match=r"^it flows nowhere$"):
        gone_on(lambda: asked(replace(request_, only=("flow",)), tmp_path / "only", far_tools.DEBUG), tmp_path / "only")


def test_a_folder_in_use_is_refused(request_, tmp_path):
    with locked(tmp_path / "run"), pytest.raises(UserError, match="is in use"):
        study.study(request_, lambda line: None, tmp_path / "run")


def test_status_tells_pieces_in_a_queue_and_at_work_and_who_leads(request_, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    monkeypatch.setattr(slurm, "called", lambda command: 0)  # taken, and never begun
    with pytest.raises(far_tools.Submitted, match="jobs: 4 handed in"):
        asked(request_, run, far_tools.DEBUG)
    first = job_folder.every(run)[0]
    with lease.held(first.lease, dead=first.death, lost=lambda: None), locked(run):
        code, out, _ = call(monkeypatch, capsys, "status", run)
    lines = out.splitlines()
    assert code == 0 and len(lines) == 5 and lines[-1].startswith("led by process ")
    assert sum(line.endswith(": queued") for line in lines) == 3
    assert lines[0] == f"section flow, draw {first.asked()['seed']}: on {socket.gethostname()}"
    assert not pieces.is_over(run)  # the queue has them all
    for one in job_folder.every(run):
        one.queue_note.unlink()
    code, out, _ = call(monkeypatch, capsys, "watch", run)
    assert code == 0 and "nobody leads it; to go on, type the same command again" in out
