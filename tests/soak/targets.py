"""What is mutated: files as the tests' tools make them, how a user reads them, and what changed ones may give."""

import csv
import gzip
import io
import json
import shutil
import sys
from pathlib import Path

import manifests
import mutate
import report_example
import tiny
import tinyrun
import torch
from safetensors.torch import load_file

import tunescope as ts
from tunescope.attachment.initial_artifacts import initialised
from tunescope.cli import comparisons
from tunescope.comparison import procedure
from tunescope.data.read import read
from tunescope.exchange import convert
from tunescope.methods.text_form import parse
from tunescope.models.load import load_model
from tunescope.system import run_folder

FIXTURES = Path(__file__).parents[1] / "exchange" / "adapters_fixtures"
ARMS = "prefix:length=2+lora:rank=2,sites=attn.q+text:text=w5 w6"


class Target:
    """Files in a folder. `read` reads them all, `judge` says "same", "changed" or "fault" of what came of it."""

    names = ()

    def __init__(self, folder):
        self.folder = folder
        self.make()
        self.names = self.names or sorted(path.name for path in self.folder.iterdir() if path.is_file())
        self.first = self.read()

    def changed(self, name, data, draw):
        return mutate.in_file(name, data, draw)

    def was_run(self):
        return False


class Data(Target):
    """Rows; the oracle is Python's own json and csv."""

    def make(self):
        rows = [row | {"number": 1.5, "why": 'a "quoted", \n word'} for row in tinyrun.rows(6, 0)]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        (self.folder / "rows.jsonl").write_bytes(lines)
        (self.folder / "rows.jsonl.gz").write_bytes(gzip.compress(lines))
        out = io.StringIO()
        table = csv.DictWriter(out, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        (self.folder / "rows.csv").write_text(out.getvalue())
        (self.folder / "rows.tsv").write_text("text\tlabel\na film\tpos\nthe plot\tneg\n")

    def changed(self, name, data, draw):
        self.name = name
        return super().changed(name, data, draw)

    def read(self):
        return read(self.folder / getattr(self, "name", "rows.jsonl"))

    def judge(self, found):
        data = (self.folder / self.name).read_bytes()
        text = (gzip.decompress(data) if self.name.endswith(".gz") else data).decode("utf-8-sig")
        return ("changed", "") if list(found) == self.oracle(text) else ("fault", f"read as {found!r}"[:200])

    def oracle(self, text):
        if "jsonl" in self.name:
            return [json.loads(line) for line in text.split("\n") if line.strip()]
        if self.name.endswith("csv"):
            return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
        lines = [line.removesuffix("\r").split("\t") for line in text.split("\n") if line.removesuffix("\r")]
        return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


class Saved(Target):
    """An artifact as it was saved: nothing that was changed is read."""

    def make(self):
        self.model, self.folder = tiny.make("gpt2"), self.folder / "saved"
        made = initialised(self.model, parse(ARMS), tiny.tokenizer(), 0)
        ts.save(self.folder, made, model=self.model, tokenizer=tiny.tokenizer(), about={"task": {"by": "words"}})

    def read(self):
        artifacts = ts.load(self.folder)
        with ts.attach(self.model, *artifacts, tokenizer=tiny.tokenizer()), torch.no_grad():
            out = tiny.output(self.model, tiny.batch(self.model))
        return [(str(one.spec), one.in_force, one.tokenizer) for one in artifacts], out, self.said()

    def said(self):
        return json.loads((self.folder / manifests.NAME).read_text())

    def judge(self, found):
        is_same = found[0] == self.first[0] and torch.equal(found[1], self.first[1]) and found[2] == self.first[2]
        return ("same", "") if is_same else ("fault", "a damaged artifact was taken")


class Resealed(Saved):
    """One whose manifest somebody changed who knows the digest: what it says is read, or refused."""

    names = (manifests.NAME,)

    def changed(self, name, data, draw):
        return json.dumps(manifests.sealed(mutate.in_json(json.loads(data), draw))).encode()

    def judge(self, found):
        return "changed", ""


class Results(Target):
    """results.json of a run. Where it holds a digest nothing that was changed is read."""

    names = ("results.json",)

    def make(self):
        procedure.finish(self.folder, report_example.example())

    def read(self):
        comparisons.report(str(self.folder))
        return run_folder.read_results(self.folder)

    def judge(self, found):
        said = json.loads((self.folder / "results.json").read_bytes())
        if found == self.first:
            return "same", ""
        return ("fault", "damaged results were taken") if "digest" in said else ("changed", "")


class Checkpoint(Target):
    """A model's folder. It has no digest: numbers may be others, names and shapes may not."""

    names = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")

    def make(self):
        model, _ = tinyrun.write(self.folder.parent / "run")
        shutil.copytree(model, self.folder, dirs_exist_ok=True)
        self.ran = self.folder / "ran"
        (self.folder / "evil.py").write_text(f"open({str(self.ran)!r}, 'w')\nclass Evil: pass\n")

    def read(self):
        model, tokenizer = load_model(str(self.folder))
        given = tokenizer("the film was good", return_tensors="pt")
        with ts.attach(model, ts.LoRA(rank=2)), torch.no_grad():
            model(input_ids=given["input_ids"])
        return set(load_file(self.folder / "model.safetensors"))

    def judge(self, found):
        return ("changed", "") if found == self.first else ("fault", f"others than the model's tensors: {found}"[:200])

    def was_run(self):
        return self.ran.exists()


class Foreign(Target):
    """A folder of another library: all of its tensors are used, and they are finite."""

    def read(self):
        with torch.no_grad():
            artifacts = convert.read(self.folder, form=self.form, model=self.model).artifacts
            with ts.attach(self.model, *artifacts):
                out = tiny.output(self.model, self.given)
        assert len(out)
        numbers = [value for artifact in artifacts for value in artifact.tensors.values()]
        return all(bool(value.isfinite().all()) for value in numbers), set(load_file(self.folder / self.tensors))

    def judge(self, found):
        return ("changed", "") if found == self.first else ("fault", "others than the adapter's tensors, or no numbers")


class Peft(Foreign):
    form, tensors = "peft", "adapter_model.safetensors"
    names = ("adapter_config.json", "adapter_model.safetensors")

    def make(self):
        self.model, self.folder = tiny.make("llama", dtype=torch.float32), self.folder / "peft"
        made, self.given = tiny.away(self.model, "lora:rank=2"), tiny.batch(self.model)
        convert.export(self.folder, made, to="peft", model=self.model, tokenizer=tiny.tokenizer())


class Adapters(Foreign):
    form, tensors = "adapters", "pytorch_adapter.safetensors"

    def make(self):
        sys.path.append(str(FIXTURES.parent))
        import theirs

        self.model, self.given = theirs.model("gpt2", torch.float32), theirs.inputs("gpt2")
        shutil.copytree(FIXTURES / "gpt2" / "lora", self.folder, dirs_exist_ok=True)
        self.tensors = next(path.name for path in self.folder.glob("*.safetensors"))


TARGETS = {
    "data": Data,
    "artifact": Saved,
    "artifact with a digest that holds": Resealed,
    "results": Results,
    "checkpoint": Checkpoint,
    "peft": Peft,
    "adapters": Adapters,
}
