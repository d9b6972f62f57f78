"""Artifacts as folders: whole or absent, checked, and never taken for another model's."""

import copy
import json
import threading
import warnings
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import manifests
import pytest
import tiny
import torch
import transformers as tf
from safetensors.torch import load_file

import tunescope as ts
from tunescope.attachment import artifact_folder
from tunescope.attachment.initial_artifacts import initialised
from tunescope.errors import Note
from tunescope.exchange import convert
from tunescope.methods.artifact import Artifact
from tunescope.models.fingerprint import fingerprint
from tunescope.system import files


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model = tiny.make("gpt2")
    artifacts = initialised(model, [ts.Prefix(length=2), ts.LoRA(rank=2)], None, 0)
    return ts.save(tmp_path / "saved", artifacts, model=model, tokenizer=tiny.tokenizer(), about={"score": 0.5})


def changed(folder: Path, **values: Any) -> Path:
    manifest = json.loads((folder / artifact_folder.MANIFEST).read_text())
    return manifests.write(folder, manifest | values)


def test_a_folder_says_what_it_holds(saved: Path) -> None:
    assert {path.name for path in saved.iterdir()} == {artifact_folder.TENSORS, artifact_folder.MANIFEST}
    manifest = json.loads((saved / artifact_folder.MANIFEST).read_text())
    assert [entry["method"] for entry in manifest["artifacts"]] == ["prefix", "lora"]
    assert manifest["artifacts"][1]["fields"]["rank"] == 2
    assert manifest["about"] == {"score": 0.5}
    assert manifest["base"] == {"fingerprint": fingerprint(tiny.make("gpt2")), "model_type": "gpt2"}
    tensors = load_file(saved / artifact_folder.TENSORS)
    assert {name.partition("/")[0] for name in tensors} == {"0", "1"}
    assert str(saved.parent) not in (saved / artifact_folder.MANIFEST).read_text()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_tensors_come_back_in_the_precision_that_they_have(dtype: torch.dtype, tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    (made,) = tiny.away(model, "lora:rank=2")
    given = Artifact(made.spec, {name: value.to(dtype) for name, value in made.tensors.items()})
    for mapped in (False, True):
        folder = ts.save(tmp_path / str(mapped), given, model=model)
        (again,) = ts.load(folder, mapped=mapped)
        assert all(again.tensors[name].dtype == dtype for name in given.tensors)
        assert all(torch.equal(again.tensors[name], value) for name, value in given.tensors.items())


def test_nothing_is_overwritten_and_a_failed_save_leaves_nothing(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.make("gpt2")
    artifact = initialised(model, [ts.LoRA(rank=2)], None, 0)[0]
    with pytest.raises(ts.UserError, match=r"exists: an artifact is never overwritten. Name a new folder"):
        ts.save(saved, artifact, model=model)
    before = sorted(saved.parent.iterdir())

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        ts.save(saved.parent / "other", artifact, model=model)
    assert sorted(saved.parent.iterdir()) == before


def test_what_is_no_artifact_is_not_saved(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    lora = tiny.away(model, "lora:rank=2")
    with ts.attach(model, ts.Bank({"a": lora})) as banked:
        others = [([], "none"), (banked, "Banked"), ([*lora, ts.LoRA()], "LoRA"), ("text", "str")]
        for given, told in others:
            with pytest.raises(ts.UserError, match=rf"^save\(\) takes .* was given {told}\.$"):
                ts.save(tmp_path / "out", given, model=model)
    assert not (tmp_path / "out").exists()
    assert len(ts.load(ts.save(tmp_path / "one", lora[0], model=model))) == 1


def test_another_base_or_tokenizer_or_shape_is_refused(saved: Path) -> None:
    artifacts = ts.load(saved)
    with ts.attach(tiny.make("gpt2"), *artifacts, tokenizer=tiny.tokenizer()):
        pass
    with pytest.raises(
        ts.UserError, match=r"made for another base model \(weights [0-9a-f]{12}, these are [0-9a-f]{12}\)"
    ):
        ts.attach(tiny.make("gpt2", seed=1), *artifacts)
    other = tiny.tokenizer()
    other.add_tokens(["new"])
    with pytest.raises(ts.UserError, match=r"another tokenizer \(other vocabulary\): load that one"):
        ts.attach(tiny.make("gpt2"), *artifacts, tokenizer=other)
    for artifact in artifacts:
        artifact.base = None
    with pytest.raises(
        ts.UserError, match=r"does not fit this model: 'decoder.0.self.* made for a model of another shape"
    ):
        ts.attach(tiny.make("llama"), artifacts[0])
    missing = Artifact(ts.LoRA(rank=2), dict(list(artifacts[1].tensors.items())[1:]))
    with pytest.raises(ts.UserError, match="is absent and should be"):
        ts.attach(tiny.make("gpt2"), missing)
    with pytest.raises(ts.UserError, match=r"should be \(3, 24\)"):
        ts.attach(tiny.make("gpt2"), Artifact(ts.LoRA(rank=3), artifacts[1].tensors))


def test_weights_in_float16_are_taken_with_a_note_and_known_again_in_float32(saved: Path, tmp_path: Path) -> None:
    """Rounded to float16 first, numbers are rounded otherwise to bfloat16, and the smallest are lost."""
    half = tiny.make("gpt2").to(torch.float16)
    with torch.no_grad():
        half.base_model.wte.weight[0] = 1e-7
    given = ts.load(saved)
    with pytest.warns(Note, match="in float16, in which it cannot be told whether they are those") as told:
        ts.attach(half, *given).detach()
    assert {str(one.message).partition(":")[0] for one in told} == {str(one.spec) for one in given}
    whole = tiny.make("gpt2").float()
    with torch.no_grad():
        whole.base_model.wte.weight[0] = 1e-7
    with pytest.raises(ts.UserError, match=r"another base model .*: load the model it was tuned on\.$"):
        ts.attach(whole, *given)
    made = tiny.away(half, "lora:rank=2")
    again = ts.load(ts.save(tmp_path / "half", made, model=half))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ts.attach(half, *again).detach()
        ts.attach(whole, *again).detach()
    with pytest.raises(ts.UserError, match=r"tuned on; if it was in float16, in that or in float32\.$"):
        ts.attach(whole.to(torch.bfloat16), *again)
    with pytest.raises(ts.UserError, match="another base model"):
        ts.attach(tiny.make("gpt2", seed=1).float(), *again)


def test_what_was_merged_is_not_saved_as_if_it_were_of_the_merged_weights(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    artifacts = ts.load(ts.save(tmp_path / "first", tiny.away(model, "lora:rank=2"), model=model))
    ts.merge(model, *artifacts)
    with pytest.raises(ts.UserError, match="made for another base model"):
        ts.save(tmp_path / "second", artifacts, model=model)
    assert not (tmp_path / "second").exists()


def test_a_tokenizer_that_an_artifact_knows_need_not_be_given_again(saved: Path) -> None:
    model, artifacts = tiny.make("gpt2"), ts.load(saved)
    again = ts.load(ts.save(saved.parent / "again", artifacts, model=model))
    assert [one.tokenizer for one in again] == [one.tokenizer for one in artifacts] != [None, None]
    other = tiny.tokenizer()
    other.add_tokens(["new"])
    with pytest.raises(ts.UserError, match="was made with another tokenizer"):
        ts.save(saved.parent / "other", artifacts, model=model, tokenizer=other)
    artifacts[0].tokenizer = "another"
    with pytest.raises(ts.UserError, match=r"made with different tokenizers, and a folder names one: save them apart"):
        ts.save(saved.parent / "other", artifacts, model=model)


def test_what_is_attached_twice_is_saved_twice(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    (lora,) = tiny.away(model, "lora:rank=2")
    with ts.attach(model, lora, lora) as tuned:
        wanted = model(tiny.ids()).logits
        folder = ts.save(tmp_path / "twice", tuned.artifacts, model=model)
    with ts.attach(model, *ts.load(folder)):
        assert torch.equal(model(tiny.ids()).logits, wanted)
    shared = Artifact(lora.spec, dict(lora.tensors))
    assert len(ts.load(ts.save(tmp_path / "shared", [lora, shared], model=model))) == 2


def test_a_list_of_sites_is_a_tuple_of_them_before_and_after_saving(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    listed = ts.LoRA(rank=2, sites=["attn.q", "attn.v"])  # type: ignore[arg-type]
    with ts.attach(model, listed, seed=0) as tuned:
        assert tuned.artifacts[0].spec == ts.LoRA(rank=2, sites=("attn.q", "attn.v"))
    text = Artifact(ts.Text(text="w4"), {"ids": torch.tensor([4])})
    lowered = ts.lower(model, listed, text)
    kept = ts.load(ts.save(tmp_path / "low", lowered, model=model))
    with ts.attach(model, *kept):
        pass
    made = Artifact(listed, tuned.artifacts[0].tensors)
    with ts.attach(model, *ts.load(ts.save(tmp_path / "made", ts.lower(model, made, text), model=model))):
        pass
    with ts.attach(tiny.make("bert"), ts.Head(n_labels=2, sites=["pooled"])):  # type: ignore[call-arg]
        pass


def test_damage_is_named(saved: Path) -> None:
    tensors = saved / artifact_folder.TENSORS
    data = bytearray(tensors.read_bytes())
    data[-1] ^= 1
    tensors.write_bytes(bytes(data))
    for mapped in (False, True):
        with pytest.raises(ts.UserError, match=r"is damaged: its sha256 is not the one in tunescope.json"):
            ts.load(saved, mapped=mapped)
    (saved / artifact_folder.MANIFEST).write_text("{")
    with pytest.raises(ts.UserError, match="not readable as JSON: the folder is damaged"):
        ts.load(saved)
    tensors.unlink()
    with pytest.raises(ts.UserError):
        ts.load(saved)
    with pytest.raises(ts.UserError, match=r"is no saved artifact: tunescope\.json is not there"):
        ts.load(saved.parent)
    with pytest.raises(ts.UserError, match=r"tunescope\.json is no saved artifact, which is a folder: it is a file"):
        ts.load(saved / artifact_folder.MANIFEST)


def test_a_newer_format_and_a_method_that_is_not_here_are_refused(saved: Path) -> None:
    with pytest.raises(ts.UserError, match=r"newer tunescope \(format 99\): upgrade to read it"):
        ts.load(changed(saved, format=99))
    entry = {"method": "hyperadapter", "fields": {}, "in_force": None}
    with pytest.raises(ts.UserError, match="is a 'hyperadapter', which this tunescope does not have: upgrade"):
        ts.load(changed(saved, format=1, artifacts=[entry]))


def test_attaching_twice_nothing_or_something_else_is_refused() -> None:
    model = tiny.make("gpt2")
    with ts.attach(model, ts.LoRA(rank=2)) as tuned:
        with pytest.raises(ts.UserError, match=r"attached already: detach\(\) first, or attach all in one call"):
            ts.attach(model, ts.Soft(length=2))
        with pytest.raises(ts.UserError, match=r"has artifacts attached: detach\(\) first"):
            ts.merge(model, *tuned.artifacts)
    with pytest.raises(ts.UserError, match="nothing to attach"):
        ts.attach(model)
    with pytest.raises(ts.UserError, match="takes methods and artifacts, not str"):
        ts.attach(model, "lora")  # type: ignore[arg-type]
    tuned.detach()
    tuned.detach()


def test_what_was_trained_is_tuned_on_another_device_too() -> None:
    """Torch is the oracle: a leaf alone has a gradient, and takes it off again."""
    model = tiny.make("gpt2")
    tuned = ts.attach(model, ts.LoRA(rank=2)).train()
    (artifact,) = tuned.artifacts
    elsewhere = tiny.make("gpt2").to("meta")
    with ts.attach(elsewhere, artifact) as moved:
        leaves = moved.train().parameters()
        assert {(value.device.type, value.is_leaf) for value in leaves} == {("meta", True)}
        moved.eval()
    assert all(value.requires_grad and value.device.type == "cpu" for value in artifact.tensors.values())
    loss = model(tiny.ids(), labels=tiny.ids()).loss
    tuned.detach()
    loss.backward()  # what was asked for before is not lost
    assert all(value.grad is not None for value in artifact.tensors.values())


@pytest.mark.parametrize("family", ["gpt2", "bert", "t5", "bart"])
def test_the_fingerprint_is_of_the_base_whatever_is_attached(family: str, tmp_path: Path) -> None:
    model = tiny.make(family)
    own = fingerprint(tiny.make(family))
    (change,) = initialised(model, [ts.Full()], None, 0)
    change.tensors = {name: value + 0.1 for name, value in change.tensors.items()}
    for delta in (change, *initialised(model, [ts.LoRA(rank=2)], None, 0)):
        with ts.attach(model, delta) as tuned:
            assert fingerprint(model) == own
            with torch.no_grad():
                inside = tiny.output(model, tiny.batch(model))
            assert fingerprint(model) == own
            ts.save(tmp_path / f"{type(delta.spec).__name__}", tuned.artifacts, model=model)
        assert fingerprint(model) == own
        with ts.attach(model, *ts.load(tmp_path / f"{type(delta.spec).__name__}")), torch.no_grad():
            assert torch.equal(tiny.output(model, tiny.batch(model)), inside)
    with torch.no_grad():
        next(model.base_model.parameters()).add_(1)
    assert fingerprint(model) != own


def test_the_fingerprint_is_the_same_in_every_precision_and_without_the_head() -> None:
    model = tiny.make("gpt2", dtype=torch.float32)
    assert fingerprint(model) == fingerprint(tiny.make("gpt2", dtype=torch.float32).to(torch.bfloat16))
    assert fingerprint(model) == fingerprint(model.base_model)
    assert fingerprint(model) != fingerprint(tiny.make("gpt2", seed=1))


def on_another_head(family: str) -> tuple[Any, Any]:
    """A model for classes, and one of the same base around which the head was drawn anew."""
    model = tiny.build(tf.AutoModelForSequenceClassification, tiny.configs()[family])
    other = copy.deepcopy(model)
    inside = {id(value) for value in other.base_model.parameters()}
    with torch.no_grad():
        for value in other.parameters():
            if id(value) not in inside:
                value.copy_(torch.randn_like(value))
    return model, other


@pytest.mark.parametrize("family", ["bert", "bart", "roberta"])
@pytest.mark.parametrize("spec", [ts.Full(), ts.Bias(), ts.LoRA(rank=2), ts.Prefix(length=2)])
def test_what_stands_on_the_model_s_own_head_is_refused_by_another(spec: Any, family: str, tmp_path: Path) -> None:
    model, other = on_another_head(family)
    (made,) = initialised(model, [spec], None, 0)
    made.tensors = {name: value + 0.1 for name, value in made.tensors.items()}
    given = tiny.batch(model) if family != "bart" else {"input_ids": torch.tensor([[5, 6, 2], [7, 8, 2]])}
    with ts.attach(model, made) as tuned, torch.no_grad():
        inside = model(**given).logits
        ts.save(tmp_path / "saved", tuned.artifacts, model=model)
    with ts.attach(model, *ts.load(tmp_path / "saved")), torch.no_grad():
        assert torch.equal(model(**given).logits, inside)
    again = ts.load(tmp_path / "saved")
    with pytest.raises(ts.UserError, match=r"was saved on another head \([0-9a-f]{12}\) than this .*lassification has"):
        ts.attach(other, *again)
    again[0].head = None
    with ts.attach(other, *again), torch.no_grad():
        assert not torch.allclose(other(**given).logits, inside)


def test_a_head_of_one_s_own_a_base_alone_and_folders_of_before_ask_for_no_other_head(tmp_path: Path) -> None:
    model, other = on_another_head("roberta")
    lora = initialised(model, [ts.LoRA(rank=2)], None, 0)
    ts.save(tmp_path / "alone", lora, model=model)
    ts.save(tmp_path / "headed", initialised(model, [ts.LoRA(rank=2), ts.Head(n_labels=2)], None, 0), model=model)
    ts.save(tmp_path / "base", lora, model=model.base_model)
    ts.attach(other, *ts.load(tmp_path / "headed")).detach()
    ts.attach(other, *ts.load(tmp_path / "alone"), ts.Head(n_labels=2)).detach()
    ts.attach(other, *ts.load(tmp_path / "base")).detach()
    ts.attach(other.base_model, *ts.load(tmp_path / "alone")).detach()
    with pytest.raises(ts.UserError, match="saved on another head"):
        ts.merge(other, *ts.load(tmp_path / "alone"))
    told = json.loads((tmp_path / "alone" / artifact_folder.MANIFEST).read_text())["base"]
    with pytest.raises(ts.UserError, match="or the base's fingerprint, cannot be used"):
        ts.load(changed(tmp_path / "alone", base=told | {"head": 3}))
    del told["head"]
    ts.attach(other, *ts.load(changed(tmp_path / "alone", base=told))).detach()


def test_what_was_tuned_beside_the_model_s_own_head_is_taken_by_the_head_that_it_was_tuned_with(tmp_path: Path) -> None:
    model = tiny.build(tf.AutoModelForSequenceClassification, tiny.configs()["bert"])
    ts.save(tmp_path / "before", initialised(model, [ts.LoRA(rank=2)], None, 0), model=model)
    before = ts.load(tmp_path / "before")
    tuned = ts.attach(model, *before)
    with torch.no_grad():
        model.classifier.weight.add_(1.0)  # as an optimizer does
    tuned.detach()
    ts.attach(model, *tuned.artifacts).detach()
    ts.save(tmp_path / "after", tuned.artifacts, model=model)
    ts.attach(model, *ts.load(tmp_path / "after")).detach()
    with pytest.raises(ts.UserError, match="saved on another head"):
        ts.attach(model, *before)
    ts.merge(model, *tuned.artifacts)


def test_another_base_is_told_as_such_whatever_its_head(tmp_path: Path) -> None:
    model = tiny.build(tf.AutoModelForSequenceClassification, tiny.configs()["bert"])
    ts.save(tmp_path / "saved", initialised(model, [ts.LoRA(rank=2)], None, 0), model=model)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.1)
    again = ts.load(tmp_path / "saved")
    for asked in (
        lambda: ts.attach(model, *again),
        lambda: ts.merge(model, *again),
        lambda: convert.export(tmp_path / "out", again, to="peft", model=model, tokenizer=tiny.tokenizer()),
    ):
        with pytest.raises(ts.UserError, match="was made for another base model"):
            asked()


@pytest.mark.parametrize("arm", ["lora:rank=2", "bias", "full:only=transformer.h.0.attn.c_attn.weight"])
def test_what_was_merged_acts_once_also_where_it_was_never_saved(arm: str, tmp_path: Path) -> None:
    model, given = tiny.make("gpt2"), tiny.batch(tiny.make("gpt2"))
    untouched, copied = copy.deepcopy(model), copy.deepcopy(model)
    artifacts = tiny.away(model, arm, 0)
    with ts.attach(model, *artifacts), torch.no_grad():
        expected = model(**given).logits
    assert [one.base for one in artifacts] == [None]

    convert.export(tmp_path / "merged", artifacts, to="merged", model=model, tokenizer=tiny.tokenizer())
    assert [one.base for one in artifacts] == [None]  # a copy was written, and they act on this model as before
    ts.merge(copied, *artifacts)
    ts.merge(model, *artifacts)
    torch.testing.assert_close(model(**given).logits, expected, rtol=0, atol=1e-10)
    for again in (
        lambda: ts.attach(model, *artifacts),
        lambda: ts.merge(model, *artifacts),
        lambda: ts.attach(copied, *artifacts),
        lambda: convert.export(tmp_path / "twice", artifacts, to="merged", model=model, tokenizer=tiny.tokenizer()),
    ):
        with pytest.raises(ts.UserError, match="was made for another base model"):
            again()
    with ts.attach(untouched, *artifacts), torch.no_grad():
        torch.testing.assert_close(untouched(**given).logits, expected, rtol=0, atol=1e-10)


def test_a_pooler_that_was_drawn_anew_is_another_head_and_no_other_base(tmp_path: Path) -> None:
    model = tiny.build(tf.AutoModelForSequenceClassification, tiny.configs()["bert"])
    ts.save(tmp_path / "saved", initialised(model, [ts.LoRA(rank=2)], None, 0), model=model)
    ts.attach(model, *ts.load(tmp_path / "saved")).detach()
    with torch.no_grad():
        model.bert.pooler.dense.weight.copy_(torch.randn_like(model.bert.pooler.dense.weight))
    with pytest.raises(ts.UserError, match="was saved on another head"):
        ts.attach(model, *ts.load(tmp_path / "saved"))
    ts.attach(model.bert, *ts.load(tmp_path / "saved")).detach()
    ts.attach(model, *ts.load(tmp_path / "saved"), ts.Head(n_labels=2)).detach()


def test_a_saved_artifact_goes_on_training_where_it_was(saved: Path, tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    artifacts = initialised(model, [ts.Prefix(length=2, mlp=3)], None, 0)
    ts.save(tmp_path / "unfolded", artifacts, model=model)
    (again,) = ts.load(tmp_path / "unfolded")
    assert again.tensors.keys() == artifacts[0].tensors.keys()
    assert again.fold().tensors.keys() != again.tensors.keys()
    with ts.attach(model, again) as tuned:
        tuned.train()
        model(input_ids=tiny.ids()).logits.square().mean().backward()
        assert all(leaf.grad is not None for leaf in tuned.parameters())


@pytest.mark.parametrize(
    "change", [{"format": None}, {"artifacts": [{"method": "lora"}]}, {"base": {}}, {"sha256": {}}]
)
def test_a_manifest_that_does_not_describe_its_folder_is_named(saved: Path, change: dict[str, object]) -> None:
    with pytest.raises(ts.UserError, match=r"tunescope.json does not describe its folder .* it is damaged"):
        ts.load(changed(saved, **change))


def test_a_manifest_with_an_unknown_field_of_a_method_is_named(saved: Path) -> None:
    entry = {"method": "lora", "fields": {"rang": 3}, "in_force": None}
    with pytest.raises(ts.UserError, match="does not describe its folder"):
        ts.load(changed(saved, artifacts=[entry]))


@pytest.mark.parametrize("about", [["x"], "x", {"task": "x"}])
def test_an_about_that_is_none_is_named(saved: Path, about: object) -> None:
    with pytest.raises(ts.UserError, match=r"does not describe its folder \(base, or about\): it is damaged"):
        ts.load(changed(saved, about=about))


def test_a_newer_format_is_called_so_whatever_else_it_has(saved: Path) -> None:
    with pytest.raises(ts.UserError, match=r"was written by a newer tunescope \(format 9\): upgrade"):
        ts.load(changed(saved, format=9, about=["another"], base=[]))


def test_an_error_while_a_folder_is_filled_is_its_own(tmp_path: Path) -> None:
    def fill(meanwhile: Path) -> None:
        with files.new_folder(tmp_path / "one") as beside:
            (beside / "x").write_text("mine")
            meanwhile.mkdir(parents=True)
            (beside / "x").mkdir() if meanwhile.name == "other" else (meanwhile / "y").write_text("theirs")

    with pytest.raises(FileExistsError):
        fill(tmp_path / "other")
    (tmp_path / "other").rmdir()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ts.UserError, match="one was made by somebody else meanwhile"):
        fill(tmp_path / "one")
    assert [path.name for path in tmp_path.rglob("*")] == ["one", "y"]


def test_tensors_that_are_a_folder_are_named(saved: Path) -> None:
    (saved / artifact_folder.TENSORS).unlink()
    (saved / artifact_folder.TENSORS).mkdir()
    with pytest.raises(ts.UserError, match=r"tensors.safetensors cannot be read \(Is a directory\): it is damaged"):
        ts.load(saved)


def test_a_name_that_no_disk_has_is_named() -> None:
    with pytest.raises(ts.UserError, match=r"cannot be read \(File name too long\)"):
        ts.load("x" * 300)


@pytest.mark.parametrize("value", [float("nan"), Path("x"), {1, 2}])
def test_an_about_that_json_cannot_hold_is_refused_before_anything_is_there(value: object, tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    with pytest.raises(ts.UserError, match="about= holds what JSON cannot"):
        ts.save(tmp_path / "one", initialised(model, [ts.LoRA(rank=2)], None, 0), model=model, about={"x": value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("about", [["x"], "x", {"task": "sst2"}, {"task": ["a"]}])
def test_an_about_that_could_not_be_loaded_is_not_saved(about: Any, tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    artifacts = initialised(model, [ts.LoRA(rank=2)], None, 0)
    with pytest.raises(ts.UserError, match=r"save\(about=\.\.\.\) is a dict, and its 'task' is one too"):
        ts.save(tmp_path / "one", artifacts, model=model, about=about)
    assert list(tmp_path.iterdir()) == []
    assert ts.load(ts.save(tmp_path / "one", artifacts, model=model, about={"task": {"name": "sst2"}}))


def test_what_is_no_artifact_is_not_merged() -> None:
    model = tiny.make("gpt2")
    artifacts = initialised(model, [ts.LoRA(rank=2)], None, 0)
    for given in (artifacts, "folder", ts.LoRA(rank=2)):
        with pytest.raises(
            ts.UserError, match=r"merge\(model, \*tunescope.load\(FOLDER\)\), and was given (list|str|LoRA)"
        ):
            ts.merge(model, given)  # type: ignore[arg-type]


def test_merging_nothing_changes_nothing() -> None:
    model = tiny.make("gpt2")
    assert ts.merge(model) is model


def test_a_link_to_nowhere_is_not_written_through(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ts.UserError, match="link exists"):
        ts.save(tmp_path / "link", initialised(model, [ts.LoRA(rank=2)], None, 0), model=model)


def test_of_threads_that_save_under_one_name_one_is_told_that_it_did(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    made = [initialised(model, [ts.LoRA(rank=2)], None, seed) for seed in range(4)]
    fingerprint(model)
    for turn in range(12):
        told: dict[int, str] = {}
        start = threading.Barrier(len(made))

        def run(
            index: int, place: Path = tmp_path / str(turn), told: dict[int, str] = told, start: Any = start
        ) -> None:
            start.wait()
            try:
                ts.save(place, made[index], model=model)
                told[index] = "saved"
            except ts.UserError:
                told[index] = "refused"

        threads = [threading.Thread(target=run, args=(index,)) for index in range(len(made))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = [index for index, word in told.items() if word == "saved"]
        assert len(told) == len(made)
        (kept,) = ts.load(tmp_path / str(turn))
        assert all(torch.equal(value, made[winner][0].tensors[name]) for name, value in kept.tensors.items())
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(str(one) for one in range(turn + 1))


def values_in(one: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of a JSON object stand."""
    inner = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from values_in(value, (*path, key))


def test_no_value_of_a_manifest_can_change_unseen(saved: Path) -> None:
    whole = (saved / artifact_folder.MANIFEST).read_text()
    for path in values_in(json.loads(whole)):
        told = json.loads(whole)
        *outer, last = path
        holder = reduce(lambda inner, key: inner[key], outer, told)
        holder[last] = 9.0 if holder[last] is None else None
        (saved / artifact_folder.MANIFEST).write_text(json.dumps(told))
        with pytest.raises(ts.UserError):
            ts.load(saved)
    told = json.loads(whole)
    told["artifacts"][1]["fields"]["alpha"] = 9.0
    (saved / artifact_folder.MANIFEST).write_text(json.dumps(told))
    with pytest.raises(ts.UserError, match=r"tunescope.json is damaged: its sha256 is not the one that it holds"):
        ts.load(saved)
    (saved / artifact_folder.MANIFEST).write_text(json.dumps(json.loads(whole), indent=4))
    assert len(ts.load(saved)) == 2


def test_a_manifest_of_the_first_format_is_loaded_with_a_note_and_a_digest_cannot_be_left_out(saved: Path) -> None:
    told = json.loads((saved / artifact_folder.MANIFEST).read_text())
    del told["sha256"][artifact_folder.MANIFEST]
    (saved / artifact_folder.MANIFEST).write_text(json.dumps(told))
    with pytest.raises(ts.UserError, match="its sha256 is not the one that it holds"):
        ts.load(saved)
    (saved / artifact_folder.MANIFEST).write_text(json.dumps(told | {"format": 1}))
    with pytest.warns(Note, match=r"older tunescope, whose tunescope.json has no digest: what it says is not verified"):
        assert len(ts.load(saved)) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda value: value.fill_(float("nan")), r"'0/decoder\.0\.self\.key' holds numbers that are not finite"),
        (lambda value: value.to(torch.int64), r"does not describe its folder .* of prefix is of torch.int64"),
        (lambda value: value.to(torch.bool), r"does not describe its folder .* of prefix is of torch.bool"),
    ],
)
def test_tensors_that_no_method_has_are_named(tmp_path: Path, change: Any, message: str) -> None:
    model = tiny.make("gpt2")
    (artifact,) = initialised(model, [ts.Prefix(length=2)], None, 0)
    name = next(iter(artifact.tensors))
    artifact.tensors[name] = change(artifact.tensors[name].detach().clone())
    ts.save(tmp_path / "saved", artifact, model=model)
    with pytest.raises(ts.UserError, match=message):
        ts.load(tmp_path / "saved")


@pytest.mark.parametrize(("field", "value"), [("length", "2"), ("length", True), ("length", 2.0)])
def test_a_number_that_is_written_as_something_else_is_named(saved: Path, field: str, value: object) -> None:
    told = json.loads((saved / artifact_folder.MANIFEST).read_text())
    told["artifacts"][0]["fields"][field] = value
    with pytest.raises(ts.UserError, match=rf"Prefix\({field}={value!r}\): input should be a valid integer"):
        ts.load(manifests.write(saved, told))
