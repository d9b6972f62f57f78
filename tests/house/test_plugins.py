"""A plugin is one file: dropped into its folder it is used from the command line, and deleted it is gone."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import tiny
import tinyrun
import transformers as tf
import warm
from echo_task import ECHO

import tunescope as ts

BRIEF = "--steps 2 --seeds 1 --trials 1 --workers 1"


@dataclass(frozen=True)
class Case:
    """A made-up file of a folder, the command that uses it, and what is then printed or stands in a file of the run.

    Words in capitals in the command are things of the fixture `things`; OUT is the new folder.
    """

    name: str
    source: str
    command: str
    shown: str = ""
    written: Callable[[Path], Any] = lambda out: True


def results(out: Path) -> Any:
    return json.loads((out / "results.json").read_text())


CASES = {
    "tasks/kinds": Case(
        "echo",
        ECHO,
        "compare MODEL ROWS --task echo --input-field text --echo-times 2 --arms zero-shot lora:rank=2 "
        f"{BRIEF} --out OUT",
        written=lambda out: (
            (results(out)["task"]["kind"], results(out)["task"]["times"]) == ("echo", 2)
            and "--task echo --input-field text --echo-times 2 --arms" in results(out)["command"]
            and json.loads((out / "config.json").read_text())["task"]["times"] == 2
            and [arm["status"] for arm in results(out)["arms"]] == ["done", "done"]
        ),
    ),
    "system/executors": Case(
        "inline",
        '''"""Jobs in this process, one by one."""
from dataclasses import dataclass
from tunescope.system.executor import Event, Executor

@dataclass
class Inline(Executor):
    """Jobs in this process, one by one."""

    is_remote = False

    def begin(self, work, slots, needs):
        self.work, self.left = work, []
        work.start(*work.given)

    def capacity(self):
        return 1

    def submit(self, jobs):
        self.left += jobs

    def poll(self):
        while self.left:
            job = self.left.pop(0)
            yield Event(job, "started")
            yield Event(job, "ended", self.work.do(self.work.payload(job)))

    def close(self):
        pass
''',
        f"compare MODEL ROWS --arms lora:rank=2 {BRIEF.replace('1', '2')} --executor inline --out OUT",
        written=lambda out: (
            [arm["status"] for arm in results(out)["arms"]] == ["done"]
            and json.loads((out / "status.json").read_text())["executor"] == "inline"
        ),
    ),
    "methods/contexts": Case(
        "repeated",
        '''"""One trained embedding, several times over."""
from dataclasses import dataclass
from typing import ClassVar
import torch
from tunescope.methods.artifact import Base, Params, TokenContext

@dataclass(frozen=True)
class Repeated(TokenContext):
    """One trained embedding, several times over."""

    size: ClassVar[str] = "length"
    length: int = 3

    def shapes(self, base: Base) -> dict[str, tuple[int, ...]]:
        return {"embedding": (1, base.width)}

    def init(self, base: Base) -> Params:
        return {"embedding": base.embed(torch.tensor([5]))}

    def embeddings(self, p, embed):
        return p["embedding"].expand(self.length, -1)
''',
        f"compare MODEL ROWS --arms repeated:length=2 {BRIEF} --out OUT",
        written=lambda out: (
            [(arm["spec"], arm["status"]) for arm in results(out)["arms"]] == [("repeated:length=2", "done")]
        ),
    ),
    "methods/deltas": Case(
        "scaling",
        '''"""h times a learned vector, from 1."""
from dataclasses import dataclass
from typing import ClassVar
import torch
from tunescope.methods.artifact import Params, SiteDelta, SiteShape

@dataclass(frozen=True)
class Scaling(SiteDelta):
    """h times a learned vector, from 1."""

    learning_rates: ClassVar[tuple[float, float, float]] = (1e-3, 1e-2, 1e-1)
    sites: tuple[str, ...] = ("attn.k", "attn.v", "ffn.in")

    def init(self, shape: SiteShape) -> Params:
        return {"by": torch.ones(shape.d_out)}

    def apply(self, p, x, h):
        return h * p["by"]
''',
        f"compare MODEL ROWS --arms scaling:sites=ffn.in {BRIEF} --out OUT",
        written=lambda out: (
            [(arm["spec"], arm["status"]) for arm in results(out)["arms"]] == [("scaling:sites=ffn.in", "done")]
        ),
    ),
    "models/families": Case(
        "stablelm",
        '"""StableLM: Llama\'s layout."""\n\nfrom tunescope.models.families.llama import FAMILY as FAMILY\n',
        f"compare STABLELM ROWS --arms lora:rank=2 {BRIEF} --out OUT",
        written=lambda out: [arm["status"] for arm in results(out)["arms"]] == ["done"],
    ),
    "attachment/own_attention": Case(
        "gpt_neox_japanese",
        '''"""GPT-NeoX-Japanese: `_attn`."""
from functools import partial
from tunescope.attachment.attention.function import attention
from tunescope.attachment.attention.own import OwnAttention, StandIn, of_class

def attended(module, query, key, value, mask=None):
    out, weights = attention(module, query, key, value, mask, scaling=1 / module.norm_factor, is_causal=True)
    return out.transpose(1, 2), weights

def stand_ins(model):
    return [StandIn(one, "_attn", partial(attended, one)) for one in of_class(model, "GPTNeoXJapaneseAttention")]

OWN = OwnAttention(stand_ins)
''',
        f"compare JAPANESE ROWS --arms prefix:length=2 {BRIEF} --out OUT",
        written=lambda out: [arm["status"] for arm in results(out)["arms"]] == ["done"],
    ),
    "data/corpora": Case(
        "lined",
        '''"""Lines: a label and a text."""
from tunescope.data.corpus_rows import Found
from tunescope.data.row import Row

SOURCE = "made up"

def splits(folder):
    return {path.stem: (path,) for path in folder.glob("*.txt")}

def rows(files):
    lines = [line.partition(" ") for line in files[0].read_text().splitlines()]
    return Found([Row({"text": text, "label": label}, files[0].name, at) for at, (label, _, text) in enumerate(lines)])
''',
        "check lined:LINES --model MODEL --arms zero-shot",
        shown="train: 64 rows",
    ),
    "data/metrics": Case(
        "length_share",
        '''"""How long an output is beside its first reference."""
from tunescope.data.metric import Metric, mean, per_row

def share(output, references, lowercase):
    return (min(1.0, len(output) / len(references[0])),)

METRIC = Metric(compared="characters, {case}, 0 to 1", best=1.0, width=1, stats=per_row(share), score=mean)
''',
        f"compare MODEL ROWS --task generation --metric length_share --template {{text}} --target label "
        f"--arms zero-shot {BRIEF} --out OUT",
        written=lambda out: (
            (results(out)["task"]["metric"], results(out)["arms"][0]["status"]) == ("length_share", "done")
        ),
    ),
    "search/methods": Case(
        "known",
        '''"""A prompt that is known beforehand."""
from dataclasses import dataclass
from tunescope.search.search import Found, Search

@dataclass(frozen=True)
class Known(Search):
    """Finds what it was told."""

    text: str = "bright film"

    def search(self, bench, passes, seed, say):
        return Found(self.text, "a {text} plot", {"neg": "dull", "pos": "bright"}, 0.5, passes)
''',
        "search MODEL ROWS --method known --passes 100 --seeds 1 --out OUT",
        shown="bright film",
    ),
    "probes/looks": Case(
        "counted",
        '''"""How many queries there are."""
from tunescope.report.finding import Finding

def look(seen):
    count = next(iter(seen.along.values())).weights.shape[2]
    return Finding("Queries counted", "How many.", "Why.", ("count",), [(float(count),)], numbers={"count": count})
''',
        "probe counted --model MODEL --artifact SOFT --text film --out OUT",
        shown="QUERIES COUNTED",
    ),
    "probes/demonstrations": Case(
        "asked",
        '''"""How many rows are asked."""
from tunescope.report.finding import Finding

ORDER = 9

def measure(round):
    return {"rows": len(round.prompts)}

def finding(found):
    return Finding("Rows asked", "How many.", "Why.", ("rows",), [(float(one["rows"]),) for one in found], numbers={})
''',
        "anchors MODEL ROWS --only asked --rows 2 --seeds 1 --out OUT",
        shown="ROWS ASKED",
    ),
    "exchange/formats": Case(
        "named",
        '''"""The methods' names alone."""
ABOUT = "the methods' names"
SERVES = "nobody"

def write(given, folder):
    (folder / "names").write_text(" ".join(type(one.spec).__name__ for one in given.artifacts))
    return ["a note"]
''',
        "export SOFT --to named --model MODEL --out OUT",
        shown="note: a note",
        written=lambda out: (out / "names").read_text() == "Soft",
    ),
    "comparison/loggers": Case(
        "lines",
        '''"""Lines in a file of the run."""
from tunescope.comparison.logger import Logger

class Lines(Logger):
    """A line an event."""

    def __init__(self, begun):
        self.out = open(begun.folder / "lines.txt", "w")
        print("begun", begun.question["model"], file=self.out)

    def ended(self, event):
        print("ended", event.place.name, event.status, file=self.out)

    def concluded(self, event):
        print("concluded", event.answer, file=self.out)

    def close(self):
        self.out.close()
''',
        f"compare MODEL ROWS --arms zero-shot {BRIEF} --report-to lines --out OUT",
        written=lambda out: (
            (out / "lines.txt").read_text() == "begun model\nended zero-shot/seed 0 done\nconcluded no verdict\n"
        ),
    ),
    "reproduce/recipes": Case(
        "eighths_of_seeds",
        '''"""Eighths."""
from tunescope.report.cells import Cell, Table

TITLE, SOURCE, TAKES = "Eighths", "nowhere", ("seeds",)

def settings(ask):
    return {"seeds": ask.seeds}

def worlds(settings):
    return []

def units(settings):
    return [{"seed": seed} for seed in range(settings["seeds"])]

def work(settings, unit):
    return {"a": unit["seed"] / 8}

def table(settings, found):
    return Table(("score",), [("eighths", [Cell.of([outcome for _, outcome in found], "a")])])
''',
        "reproduce eighths-of-seeds --seeds 2 --workers 1 --out OUT",
        written=lambda out: (
            json.loads((out / "result.json").read_text())["table"]["rows"][0]["cells"][0]["values"] == [0.0, 0.125]
        ),
    ),
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, for other tests walk the real folders; the demo's model, of 10 MB, is a link."""
    real = Path(ts.__file__).parent
    made = tmp_path_factory.mktemp("src") / "tunescope"
    shutil.copytree(real, made, ignore=shutil.ignore_patterns("demo_model"))
    (made / "lab" / "demo_model").symlink_to(real / "lab" / "demo_model")
    return made


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What commands are given: a model, two of other families, rows, the same as lines, and a saved artifact."""
    root = tmp_path_factory.mktemp("things")
    model, data = tinyrun.write(root)
    small = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
    others = {
        "stablelm": tf.StableLmConfig(**tiny.LLAMA_LIKE | {"vocab_size": 16}),
        "japanese": tf.GPTNeoXJapaneseConfig(**tiny.DECODER | {"vocab_size": 16}, **small),
    }
    for name, config in others.items():
        tf.AutoModelForCausalLM.from_config(config).save_pretrained(root / name)
        tinyrun.tokenizer().save_pretrained(root / name)
    base = tinyrun.model()
    with ts.attach(base, ts.Soft(length=2), tokenizer=tinyrun.tokenizer()) as tuned:
        ts.save(root / "soft", tuned.artifacts, model=base)
    (root / "lines").mkdir()
    for part, path in data.items():
        rows = map(json.loads, Path(path).read_text().splitlines())
        (root / "lines" / f"{part}.txt").write_text("".join(f"{row['label']} {row['text']}\n" for row in rows))
    places = {"STABLELM": "stablelm", "JAPANESE": "japanese", "LINES": "lines", "SOFT": "soft"}
    return {"MODEL": model, "ROWS": data["train"]} | {word: str(root / place) for word, place in places.items()}


def state(package: Path) -> dict[str, str]:
    """Every file but compiled ones -> its hash."""
    files = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(package)): sha256(path.read_bytes()).hexdigest() for path in files}


def python(package: Path, *words: str) -> CompletedProcess[str]:
    env = {"PYTHONPATH": str(package.parent), "OMP_NUM_THREADS": "1"}
    return warm.run(words, env=env, cwd=package.parent, ours=False)


@pytest.mark.parametrize("folder", CASES)
def test_a_file_is_a_plugin_and_nothing_else_changes(
    folder: str, package: Path, things: dict[str, str], tmp_path: Path
) -> None:
    case, before = CASES[folder], state(package)
    made = package / folder / f"{case.name}.py"
    assert str(made.relative_to(package)) not in before
    words = [
        next((word.replace(key, place) for key, place in given.items() if key in word), word)
        for given in [things | {"OUT": str(tmp_path / "out")}]
        for word in case.command.split()
    ]
    made.write_text(case.source)
    try:
        done = python(package, "-m", "tunescope", *words)
        with_it = state(package)
    finally:
        made.unlink()
    assert done.returncode == 0, done.stderr
    assert case.shown in done.stdout, done.stdout
    assert case.written(tmp_path / "out")
    assert {name for name in with_it if with_it[name] != before.get(name)} == {f"{folder}/{case.name}.py"}
    assert state(package) == before
    find = f"from tunescope.system import plugins; plugins.find({folder.replace('/', '.')!r}, {case.name!r}, 'plugin')"
    assert f"There is no plugin {case.name!r}." in python(package, "-c", find).stderr


def test_every_folder_of_plugins_has_its_case() -> None:
    """A folder that the finder is asked for by name, anywhere in the package, holds plugins."""
    package = Path(ts.__file__).parent
    folders = {f"{path.parent.relative_to(package)}" for path in package.glob("*/*/*.py") if path.stem == "__init__"}
    code = "".join(path.read_text() for path in package.rglob("*.py"))
    named = {name for name in folders if f'"{name.replace("/", ".")}"' in code}
    assert named == set(CASES)
