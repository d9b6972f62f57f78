"""The driver of formats: whole folders or none, compared before they are there; and the two verbs."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import tinyrun
import torch
import transformers
from safetensors.torch import save_file

import tunescope as ts
from tunescope.attachment.initial_artifacts import initialised
from tunescope.attachment.made_for import tokenizer_hash
from tunescope.cli import app
from tunescope.exchange import compare_outputs, convert, formats, outgoing
from tunescope.exchange.export_import import exported
from tunescope.exchange.foreign_files import read_json, read_tensors
from tunescope.exchange.format import find_format, format_lines, format_names, format_outline
from tunescope.methods.artifact import Artifact
from tunescope.models.fingerprint import fingerprint

OWN = '''
"""Made for the test."""
import torch
from tunescope.methods.artifact import Artifact
from tunescope.errors import UserError
from tunescope.exchange.outgoing import Incoming, Outgoing

ABOUT = "made for the test"
SERVES = "the test"

def write(given, folder):
    if len(given.artifacts) > 1:
        raise UserError("made holds one artifact.")
    (folder / "rank").write_text(str(given.artifacts[0].spec.rank))
    torch.save(given.artifacts[0].tensors, folder / "tensors")
    return [f"about {given.about}"]

def read(folder, model, tokenizer):
    from tunescope.methods.deltas.lora import LoRA
    spec = LoRA(rank=int((folder / "rank").read_text()))
    return Incoming([Artifact(spec, torch.load(folder / "tensors", weights_only=True))], ["a note"])
'''
CHECKED = '''
"""Written alone."""
ABOUT = "written alone"
SERVES = "nobody"

def write(given, folder):
    (folder / "one").write_text("1")
    return []

def check(given, folder):
    assert (folder / "one").read_text() == "1"
    return given.about["apart"]
'''
READ = '''
"""Read alone."""
ABOUT = "read alone"
SERVES = "nobody"

def read(folder, model, tokenizer):
    raise RuntimeError
'''


@pytest.fixture(autouse=True)
def _forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, text in (("made", OWN), ("checked", CHECKED), ("onlyread", READ)):
        (tmp_path / "forms").mkdir(exist_ok=True)
        (tmp_path / "forms" / f"{name}.py").write_text(text)
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path / "forms")])
    yield
    format_outline.cache_clear()
    for name in ("made", "checked", "onlyread"):
        sys.modules.pop(f"tunescope.exchange.formats.{name}", None)


def lora(model: Any, rank: int = 2) -> Artifact:
    (made,) = initialised(model, [ts.LoRA(rank=rank)], None, 0)
    draw = torch.Generator().manual_seed(3)
    tensors = {
        name: torch.randn(value.shape, generator=draw, dtype=value.dtype) for name, value in made.tensors.items()
    }
    return Artifact(made.spec, tensors)


def test_what_is_exported_comes_back_and_knows_its_base_and_tokenizer(tmp_path: Path) -> None:
    model, words = tiny.make("gpt2"), tiny.tokenizer()
    given = lora(model)
    done = convert.export(tmp_path / "out", given, to="made", model=model, tokenizer=words, about={"score": 1})
    assert done == outgoing.Exported(tmp_path / "out", None, "the test", ("about {'score': 1}",))
    found = convert.read(tmp_path / "out", form="made", model=model, tokenizer=words)
    (artifact,) = found.artifacts
    assert found.notes == ["a note"]
    assert (artifact.base, artifact.tokenizer) == (fingerprint(model), tokenizer_hash(words))
    assert all(torch.equal(artifact.tensors[name], value) for name, value in given.tensors.items())
    assert convert.read(tmp_path / "out", form="made", model=model).artifacts[0].tokenizer is None


def test_the_form_for_inference_is_what_goes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.make("gpt2")
    seen: list[Any] = []
    form = find_format("checked", "write")
    monkeypatch.setattr(form, "check", lambda given, folder: None)
    monkeypatch.setattr(form, "write", lambda given, folder: seen.append(given) or [])
    convert.export(
        tmp_path / "out", initialised(model, [ts.Prefix(length=2, mlp=5)], None, 0), to="checked", model=model
    )
    assert seen[0].artifacts[0].spec == ts.Prefix(length=2)
    assert seen[0].model is model


def test_a_difference_that_may_be_rounding_says_how_to_be_sure(tmp_path: Path) -> None:
    told = []
    for dtype, apart in ((torch.float32, 3e-4), (torch.float32, 0.1), (torch.float64, 3e-9)):
        model = tiny.make("gpt2", dtype=dtype)
        with pytest.raises(ts.UserError) as problem:
            convert._check_difference(apart, "checked", model, 0.0)
        told.append("So little may be rounding: export from the model loaded in float64." in str(problem.value))
    assert told == [True, False, False]


def test_too_large_a_difference_or_a_failure_leaves_nothing(tmp_path: Path) -> None:
    for dtype, allowed, refused in (
        (torch.float64, 1e-10, 1e-8),
        (torch.float32, 1e-5, 1e-3),
        (torch.float16, 5e-3, 0.05),
        (torch.bfloat16, 0.02, 0.2),
    ):
        model = tiny.make("gpt2", dtype=dtype)
        folder = tmp_path / str(dtype)
        for apart in (refused, float("nan"), float("inf")):
            with pytest.raises(ts.UserError, match=r"'checked' differs from the attached model by .* nothing was kept"):
                convert.export(folder / "no", lora(model), to="checked", model=model, about={"apart": apart})
        with pytest.raises(ts.UserError, match="made holds one artifact"):
            convert.export(folder / "no", [lora(model), lora(model)], to="made", model=model)
        assert list(folder.iterdir()) == []
        done = convert.export(folder / "yes", lora(model), to="checked", model=model, about={"apart": allowed})
        assert done.difference == allowed
        assert [path.name for path in folder.iterdir()] == ["yes"]


def test_what_cannot_be_exported_or_read_is_refused_in_a_line(tmp_path: Path) -> None:
    model = tiny.make("gpt2")

    def export(*artifacts: Artifact, to: str = "made", model: Any = model) -> None:
        convert.export(tmp_path / "new", artifacts, to=to, model=model)

    with pytest.raises(ts.UserError, match=r"There is no format 'mode'. Did you mean 'made'\? Formats: .*checked"):
        export(lora(model), to="mode")
    with pytest.raises(ts.UserError, match=r"Format 'onlyread' is not written here. These are: .*checked, .*made"):
        export(lora(model), to="onlyread")
    with pytest.raises(ts.UserError, match=r"Format 'checked' is not read here. These are: .*made, onlyread"):
        convert.read(tmp_path, form="checked", model=model)
    with pytest.raises(ts.UserError, match=r"export\(\) takes an artifact, or a list .* was given none"):
        export()
    with pytest.raises(ts.UserError, match="does not fit this model"):
        export(lora(model), model=tiny.make("llama"))
    with ts.attach(model, ts.LoRA(rank=2)), pytest.raises(ts.UserError, match=r"attached: detach\(\) first"):
        export(lora(model))
    with ts.attach(model, ts.LoRA(rank=2)), pytest.raises(ts.UserError, match=r"attached: detach\(\) first"):
        convert.read(tmp_path, form="made", model=model)
    (tmp_path / "new").mkdir()
    with pytest.raises(ts.UserError, match=r"new exists: nothing is ever overwritten. Name a new folder"):
        export(lora(model))
    with pytest.raises(ts.UserError, match=r"There is no folder .*absent to read made files from"):
        convert.read(tmp_path / "absent", form="made", model=model)


def test_another_tokenizer_and_another_head_than_the_artifact_s_are_refused(tmp_path: Path) -> None:
    model, words = tiny.make("gpt2"), tiny.tokenizer()
    given = replace(lora(model), tokenizer=tokenizer_hash(words))
    convert.export(tmp_path / "same", given, to="made", model=model, tokenizer=words)
    words.add_tokens(["more"])
    with pytest.raises(ts.UserError, match=r"was made with another tokenizer \(other vocabulary\): load that one"):
        convert.export(tmp_path / "out", given, to="made", model=model, tokenizer=words)
    model = tiny.build(transformers.AutoModelForSequenceClassification, tiny.configs()["bert"])
    given = replace(lora(model), head="0" * 64)
    with pytest.raises(ts.UserError, match=r"was saved on another head \(0{12}\) than this BertForSequenceClassif"):
        convert.export(tmp_path / "out", given, to="made", model=model)
    assert not (tmp_path / "out").exists()


def test_what_is_read_is_checked_against_the_model(tmp_path: Path) -> None:
    convert.export(tmp_path / "out", lora(tiny.make("gpt2")), to="made", model=tiny.make("gpt2"))
    with pytest.raises(ts.UserError, match="does not fit this model"):
        convert.read(tmp_path / "out", form="made", model=tiny.make("llama"))


@pytest.mark.parametrize("family", ["gpt2", "roberta", "t5", "bert"])
def test_the_sample_runs_everywhere_and_sees_what_is_attached(family: str) -> None:
    model = tiny.make(family).train()
    bare = compare_outputs.outputs(model)
    assert torch.equal(compare_outputs.outputs(model), bare)
    assert model.training
    assert compare_outputs.difference(compare_outputs.outputs(model, [lora(model)]), bare) > 1e-6
    long = initialised(model, [ts.Soft(length=60)], None, 0)  # of 64 positions
    assert compare_outputs.outputs(model, long).isfinite().all()


def test_the_sample_says_when_there_is_no_room_for_it() -> None:
    with pytest.raises(ts.UserError, match="A context of 64 positions leaves no room for a text in this model of 64"):
        compare_outputs.sample(tiny.make("gpt2"), 64)


def test_the_difference_is_relative_and_infinite_for_what_cannot_be_compared() -> None:
    assert compare_outputs.difference(torch.tensor([1.0, 5.0]), torch.tensor([2.0, -4.0])) == 9 / 4
    assert compare_outputs.difference(torch.zeros(2), torch.ones(3)) == float("inf")
    assert compare_outputs.difference(torch.tensor([float("nan")]), torch.ones(1)) == float("inf")


def test_the_files_of_others_are_read_or_refused_by_name(tmp_path: Path) -> None:
    tmp_path = tmp_path / "folder"
    tmp_path.mkdir()
    with pytest.raises(ts.UserError, match=r"has no a.json: it is not what was asked for. It holds: nothing."):
        read_json(tmp_path / "a.json")
    with pytest.raises(ts.UserError, match=r"none has no a.json: there is no such folder. Check the path."):
        read_json(tmp_path / "none" / "a.json")
    for text in ("{", "\xff", ""):
        (tmp_path / "a.json").write_text(text, "latin-1")
        with pytest.raises(ts.UserError, match=r"a.json is not readable as JSON: it is damaged"):
            read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(ts.UserError, match=r"a.json does not hold a JSON object"):
        read_json(tmp_path / "a.json")
    with pytest.raises(ts.UserError, match=r"has no t.safetensors. It holds: a.json."):
        read_tensors(tmp_path / "t.safetensors")
    save_file({"x": torch.arange(4.0)}, tmp_path / "t.safetensors")
    assert torch.equal(read_tensors(tmp_path / "t.safetensors")["x"], torch.arange(4.0))
    whole = (tmp_path / "t.safetensors").read_bytes()
    (tmp_path / "t.safetensors").write_bytes(whole[:-3])
    with pytest.raises(ts.UserError, match=r"t.safetensors cannot be read \(.*\): it is cut short or damaged"):
        read_tensors(tmp_path / "t.safetensors")
    save_file({"x": torch.tensor([1.0, float("nan")])}, tmp_path / "t.safetensors")
    with pytest.raises(ts.UserError, match="'x' holds numbers that are not finite"):
        read_tensors(tmp_path / "t.safetensors")


@pytest.fixture
def tunescope(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    def call(*words: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tunescope", *map(str, words)])
        code = 0
        try:
            app.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *capsys.readouterr()

    return call


def test_the_verbs_write_and_read_folders(tunescope: Any, tmp_path: Path) -> None:
    name, _ = tinyrun.write(tmp_path / "run")
    model = tinyrun.model()
    saved = ts.save(tmp_path / "own", lora(model), model=model, tokenizer=tinyrun.tokenizer(), about={"apart": 0.0})
    code, out, _ = tunescope("export", saved, "--to", "checked", "--model", name, "--out", tmp_path / "made")
    assert code == 0
    assert out.splitlines() == [
        f"written: {tmp_path / 'made'}",
        "read back, it differs from the attached model by 0.0e+00 of the largest output",
        "serves: nobody",
    ]
    tunescope("export", saved, "--to", "made", "--model", name, "--out", tmp_path / "other")
    code, out, _ = tunescope(
        "import", tmp_path / "other", "--from", "made", "--model", name, "--out", tmp_path / "back"
    )
    assert (code, out.splitlines()) == (0, ["read: lora:rank=2", "note: a note", f"written: {tmp_path / 'back'}"])
    (again,) = ts.load(tmp_path / "back")
    (own,) = ts.load(saved)
    assert again.spec == own.spec and again.base == own.base and again.tokenizer == own.tokenizer
    assert all(torch.equal(again.tensors[key], value) for key, value in own.tensors.items())
    about = json.loads((tmp_path / "back" / "tunescope.json").read_text())["about"]
    assert about == {"imported": {"from": "made", "notes": ["a note"]}}


def test_the_verbs_say_what_is_wrong_in_a_line(tunescope: Any, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for words, told in (
        (("export", "x", "--to", "nothing", "--model", "m", "--out", "y"), "There is no format 'nothing'."),
        (("export", "x", "--to", "made", "--model", "m", "--out", "y"), "x is no saved artifact"),
        (("import", "x", "--from", "checked", "--model", "m", "--out", "y"), "Format 'checked' is not read here."),
        (("import", "x", "--from", "made", "--model", "m", "--out", tmp_path / "there"), "there exists"),
        (("export", "x", "--model", "m", "--out", "y"), "--to"),
    ):
        code, _, err = tunescope(*words)
        assert code == 2
        assert told in err
        assert len(err.splitlines()) == 1


def test_a_disk_that_takes_nothing_is_told_in_a_line(tunescope: Any, tmp_path: Path) -> None:
    name, _ = tinyrun.write(tmp_path / "run")
    model = tinyrun.model()
    saved = ts.save(tmp_path / "own", lora(model), model=model, tokenizer=tinyrun.tokenizer(), about={"apart": 0.0})
    (tmp_path / "file").write_text("")
    words = ("export", saved, "--to", "checked", "--model", name, "--out", tmp_path / "file" / "under")
    code, _, err = tunescope(*words)
    assert code == 2
    assert err.splitlines()[-1].startswith(f"error: {tmp_path / 'file'} cannot be a folder: a file has that name")


def test_help_lists_the_forms_that_a_verb_takes() -> None:
    assert "made: made for the test" in format_lines("write")
    assert "onlyread: read alone" not in format_lines("write")
    assert "onlyread: read alone" in format_lines("read")


@pytest.mark.parametrize("name", format_names())
def test_every_form_says_what_it_is_and_where_it_serves(name: str) -> None:
    told = format_outline(name)
    assert told["ABOUT"] and told["SERVES"]
    assert "write" in told or "read" in told
    for does in {"write", "read"} & told.keys():
        assert hasattr(find_format(name, does), does)


def test_an_artifact_of_another_family_is_told_before_a_head_that_its_model_lacks(tmp_path: Path) -> None:
    model = tiny.make("gpt2", dtype=torch.float32)
    about = {"task": {"kind": "classification", "by": "words"}}
    ts.save(tmp_path / "lora", tiny.away(model, "lora:rank=2", 0), model=model, about=about)
    config = transformers.BertConfig(vocab_size=40, hidden_size=24, num_hidden_layers=1, num_attention_heads=2)
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    tiny.tokenizer().save_pretrained(tmp_path / "bert")
    with pytest.raises(ts.UserError, match=r"was made for another base model \(a gpt2, this is a bert\)"):
        [*exported(str(tmp_path / "lora"), "peft", str(tmp_path / "bert"), str(tmp_path / "out"))]
