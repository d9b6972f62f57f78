"""`tunescope anchors` on every executor gives what one process gives; the oracle is that process."""

import far_tools
import pytest
import tinyrun
from far_tools import NAMES, NEEDS, Queue, gone_on

from tunescope.errors import UserError
from tunescope.probes.anchors import study
from tunescope.probes.anchors.request import AnchorRequest
from tunescope.probes.names import DEMONSTRATIONS
from tunescope.system import plugins
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
        gone_on(lambda: asked(request_, tmp_path / "only", far_tools.DEBUG), tmp_path / "only")


def test_a_folder_in_use_is_refused(request_, tmp_path):
    with locked(tmp_path / "run"), pytest.raises(UserError, match="is in use"):
        study.study(request_, lambda line: None, tmp_path / "run")
