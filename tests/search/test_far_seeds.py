"""`tunescope search` on every executor gives what one process gives, each seed once; the oracle is that process."""

import far_tools
import pytest
import tinyrun
from far_tools import NAMES, NEEDS, Queue, gone_on, numbers

from tunescope.errors import UserError
from tunescope.search import far_seeds, seeds, study
from tunescope.search.methods.random import RandomPrompts
from tunescope.system import job_folder, pieces
from tunescope.system.executors import slurm
from tunescope.system.job_folder import JobFolder
from tunescope.system.pieces import Place
from tunescope.trial import executor_name
from tunescope.trial.plan import Plan

METHODS = ("random:length=2", "pez:length=70", "pez:length=2,batch=4")  # the second has no room for its prompt
pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def request_(tmp_path_factory):
    model, data = tinyrun.write(tmp_path_factory.mktemp("material"))
    task = {"kind": "classification", "words": {"pos": "pos", "neg": "neg"}}  # which a file sorts
    plan = Plan(model=model, data=data, task=task, seeds=(0, 1))
    return study.SearchRequest(plan, METHODS, 330)


@pytest.fixture(scope="module")
def want(request_, tmp_path_factory):
    return study.study(request_, tmp_path_factory.mktemp("here") / "run", lambda line: None)


def asked(request_, folder, executor, said=None):
    place = Place(executor_name.parse(executor), 2)
    return study.study(request_, folder, (said if said is not None else []).append, "", place)


@pytest.mark.parametrize("name", NAMES)
def test_every_executor_gives_the_results_and_prompts_of_one_process(request_, want, tmp_path, name, monkeypatch):
    pytest.importorskip(NEEDS.get(name.partition(":")[0], "torch"))
    if name == far_tools.DEBUG:
        monkeypatch.setattr(slurm, "called", Queue())
    said, run = [], tmp_path / "run"
    found, _ = gone_on(lambda: asked(request_, run, name, said), run, 6)
    assert numbers(found) == numbers(want)
    assert [one["status"] for one in found["searches"]] == ["done", "refused", "done"]
    prompts = {path.name for path in (run / "prompts").iterdir()}
    assert prompts == {"random-1", "random-2", "pez-5", "pez-6"} and len(list((run / "seeds").iterdir())) == 4
    assert sum("pez:length=70 is refused: the context takes 70 positions" in line for line in said) == 1
    assert not [*run.glob("jobs/*/lease.json"), *run.glob("jobs/*/outcome*")]


def test_a_search_whose_process_is_killed_is_tried_again_and_costs_itself_alone(request_, want, tmp_path, monkeypatch):
    at_work = Queue("search", kills=1)
    monkeypatch.setattr(slurm, "called", at_work)
    run = tmp_path / "run"
    found, goes = gone_on(lambda: asked(request_, run, far_tools.DEBUG), run)
    assert numbers(found) == numbers(want) and len(at_work.killed) == 1 and goes == 2


def test_what_was_found_before_is_not_searched_again_elsewhere(request_, want, tmp_path, monkeypatch):
    plain, run = RandomPrompts.search, tmp_path / "run"

    def stops(self, bench, passes, seed, say):
        if seed == 1:
            raise KeyboardInterrupt
        return plain(self, bench, passes, seed, say)

    monkeypatch.setattr(RandomPrompts, "search", stops)
    with pytest.raises(KeyboardInterrupt):
        study.study(request_, run, lambda line: None)
    monkeypatch.undo()
    at_work, said = Queue(), []
    monkeypatch.setattr(slurm, "called", at_work)
    found, _ = gone_on(lambda: asked(request_, run, far_tools.DEBUG, said), run)
    assert numbers(found) == numbers(want) and len(at_work.begun) == 5
    assert any(line.startswith("random:length=2, seed 0: found before, dev") for line in said)


def test_a_worker_refuses_other_rows_and_a_search_of_another_identity(tmp_path, monkeypatch):
    model, data = tinyrun.write(tmp_path / "material")
    plan = Plan(model=model, data=data, task={"kind": "classification"}, seeds=(0,))
    request_, run = study.SearchRequest(plan, ("random:length=2",), 330), tmp_path / "run"
    monkeypatch.setattr(slurm, "called", lambda command: 0)  # taken, and never begun
    with pytest.raises(far_tools.Submitted, match=r"jobs: 1 handed in\. To go on .* type the same command again"):
        asked(request_, run, far_tools.DEBUG)
    token = job_folder.shared(run)["token"]
    pieces.begin(far_seeds.opened, run, token)
    (ask,) = [one.asked() for one in job_folder.every(run)]
    JobFolder(run, "0" * 16).ask(ask)
    pieces.do("0" * 16)
    bench, _ = seeds.opened(plan, [RandomPrompts(length=2)])
    mine = seeds.identity(bench, seeds.Seed(RandomPrompts(length=2), 0, 330, 1))
    told = JobFolder(run, "0" * 16).outcome(ask)["error"]
    assert told == f"search {'0' * 16} comes out as {mine} here; install the same tunescope on every machine."
    with open(data["test"], "a") as file:
        file.write('{"text": "film", "label": "pos"}\n')
    with pytest.raises(UserError, match=r"test\.jsonl \(test\) had the hash .* put it back and type the same command"):
        pieces.begin(far_seeds.opened, run, token)
