"""A search as an arm of a comparison, and a search as one file."""

import importlib
import json

import pytest
import tinyrun

import tunescope as ts
from tunescope.cli.arms import lines
from tunescope.cli.options import PlanOptions, question
from tunescope.comparison import arms
from tunescope.search import methods, names
from tunescope.trial.arm import Arm
from tunescope.trial.open import open_bench

FOUND = '''
"""A template and words that are known beforehand."""

from dataclasses import dataclass
from tunescope.search.search import Found, Search


@dataclass(frozen=True)
class Known(Search):
    """Finds what it was told."""

    text: str = ""

    def search(self, bench, passes, seed, say):
        return Found(self.text, "a {text} plot", {"neg": "dull", "pos": "bright"}, 0.5, passes)
'''


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    return tinyrun.write(tmp_path_factory.mktemp("material"))


@pytest.fixture
def known(tmp_path, monkeypatch):
    """A search in a file of its own."""
    (tmp_path / "known.py").write_text(FOUND)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    return tmp_path


def run(material, folder, *texts, steps=12, seeds=2):
    model, data = material
    return ts.compare(
        model, data, arms=texts, steps=steps, batch_size=8, seeds=seeds, trials=1, out=folder, quiet=True
    ).results["arms"]


def test_a_search_is_an_arm_of_words_with_the_passes_of_a_trained_run(material, tmp_path):
    arm, soft = run(material, tmp_path / "run", "found=pez:length=2,batch=8", "soft:length=2")
    assert (arm["status"], arm["group"], arm["spec"]) == ("done", "context", "pez:length=2,batch=8")
    assert arm["parameters"] == {"trained": 0, "stored": 0, "live": 0} and arm["trials"] == []
    assert len(arm["runs"]) == len(soft["runs"]) == 2
    assert all(0 < one["found"]["passes"] <= 3 * 12 * 8 for one in arm["runs"])
    for one in arm["runs"]:
        (artifact,) = ts.load(tmp_path / "run" / "arms" / one["id"] / "artifact")
        assert artifact.spec == ts.Text(text=one["found"]["text"])
        assert json.dumps(one["found"]["text"], ensure_ascii=False) in " ".join(arm["remarks"])
    before = json.loads((tmp_path / "run" / "results.json").read_text())["arms"]
    assert ts.resume(tmp_path / "run", quiet=True).results["arms"] == before


def test_a_search_s_run_scores_what_its_text_scores_as_an_arm(material, tmp_path):
    (arm,) = run(material, tmp_path / "one", "gcg:length=2,swaps=4,top=4,batch=8", seeds=1)
    (one,) = arm["runs"]
    (same,) = run(material, tmp_path / "two", f"text:text={one['found']['text']}", seeds=1)
    assert [(run["dev"], run["stats"]) for run in same["runs"]] == [(one["dev"], one["stats"])]


def test_a_template_and_words_that_an_arm_finds_are_what_it_is_tested_with(material, tmp_path, known):
    found, with_text, given = run(material, tmp_path / "run", "known", "known:text=film was", "zero-shot", seeds=1)
    task = ts_task(material)
    assert found["runs"][0]["stats"] == stats(material, task, "") != given["runs"][0]["stats"]
    assert "found: --template 'a {text} plot' --words neg=dull,pos=bright" in found["remarks"]
    assert with_text["runs"][0]["stats"] == stats(material, task, "film was")


def ts_task(material):
    from tunescope.tasks.kinds.classification import Classification

    return Classification(template="a {text} plot", words={"neg": "dull", "pos": "bright"})


def stats(material, task, text):
    from tunescope.search.apply import stats_of

    return stats_of(open_bench(plan_of(material), task=task), text)


def plan_of(material):
    model, data = material
    return question(model, data["train"], PlanOptions(dev=data["dev"], test=data["test"], steps=12, batch_size=8))


def test_a_search_is_one_file(known):
    assert names.searches()["known"].__name__ == "Known"
    assert names.show(names.parse("known:text=a b")) == "known:text=a b"
    assert "  known: Finds what it was told." in list(lines())
    (known / "pair.py").write_text(FOUND + FOUND.replace("Known", "Other"))
    with pytest.raises(RuntimeError, match="has 2 public classes of kind Search; a file is one"):
        names.searches()


def test_an_arm_that_names_a_search_wrongly_ends_the_run_before_it_begins(material, tmp_path):
    with pytest.raises(ts.UserError, match=r"'pez' has no field 'lenght'[.] Did you mean 'length'"):
        run(material, tmp_path / "run", "pez:lenght=3")
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_search_in_front_of_an_encoder_is_a_refused_arm():
    from search_tools import bench

    from tunescope.tasks.kinds.classification import Classification

    task = Classification(template="{text}", words={"a": "a", "b": "b", "c": "c"}, by="head")
    with pytest.raises(ts.UserError, match="an encoder has no answer before its head is trained"):
        arms.ready(Arm("pez", "pez"), bench("bert", task=task))


def test_check_estimates_what_a_search_takes(material):
    from tunescope.comparison.estimate import estimates

    model, data = material
    asked = [PlanOptions(arms=("pez",), seeds=(1,), steps=steps) for steps in (100, 10_000)]
    plans = [question(model, data["train"], one) for one in asked]
    ((one,), (two,)) = (estimates(open_bench(plan)) for plan in plans)
    assert one.problem == "" and two.total_seconds > 5 * one.total_seconds > 0
