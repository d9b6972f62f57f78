"""A checkpoint is used whole: what its configuration has no place for is refused by name, but for heads of encoders."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import tinyrun
import torch
import transformers
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file

import tunescope as ts
from tunescope.models.load import config_of, load_model, load_tokenizer
from tunescope.reproduce.recipes._configs import config_settings

GATED = "^model 'me/it' is gated: ask for access on its page, https://huggingface.co/me/it, and .* Type: hf auth login$"


def checkpoint(folder: Path, family: str, auto: str) -> Path:
    config = tiny.configs()[family]
    getattr(transformers, auto).from_config(config).save_pretrained(folder)
    tinyrun.tokenizer().save_pretrained(folder)
    return folder


def changed(folder: Path, **fields: object) -> str:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))
    return str(folder)


@pytest.mark.parametrize(
    ("family", "auto", "layers"),
    [
        ("gpt2", "AutoModelForCausalLM", "n_layer"),
        ("bert", "AutoModel", "num_hidden_layers"),
        ("bert", "AutoModelForMaskedLM", "num_hidden_layers"),
        ("distilbert", "AutoModelForQuestionAnswering", "n_layers"),
        ("t5", "AutoModelForSeq2SeqLM", "num_decoder_layers"),
    ],
)
def test_a_checkpoint_with_more_layers_than_its_configuration_is_refused(
    family: str, auto: str, layers: str, tmp_path: Path
) -> None:
    folder = checkpoint(tmp_path, family, auto)
    load_model(str(folder))
    message = r"holds more than its config.json says: [\w.]*\.1\.[\w.]+ and \d+ more tensors have no place in a "
    with pytest.raises(ts.UserError, match=message):
        load_model(changed(folder, **{layers: 1}))


@pytest.mark.parametrize("layers", [-1, 10**7])
def test_a_number_of_layers_that_no_model_has_is_refused_at_once(layers: int, tmp_path: Path) -> None:
    with pytest.raises(ts.UserError, match=r"its config.json says|than its config.json says"):
        load_model(changed(checkpoint(tmp_path, "gpt2", "AutoModelForCausalLM"), n_layer=layers))


@pytest.mark.parametrize(
    ("auto", "in_words"), [("AutoModelForPreTraining", True), ("AutoModelForSequenceClassification", False)]
)
def test_heads_that_an_encoder_leaves_off_and_buffers_of_older_versions_are_no_fault(
    auto: str, in_words: bool, tmp_path: Path
) -> None:
    folder = checkpoint(tmp_path, "bert", auto)
    old = load_file(folder / "model.safetensors") | {"bert.embeddings.position_ids": torch.arange(64)[None]}
    save_file(old, folder / "model.safetensors", metadata={"format": "pt"})
    bert = load_model(str(folder), in_words=in_words)[0].base_model
    same = [torch.equal(value, old[f"bert.{name}"]) for name, value in bert.named_parameters() if f"bert.{name}" in old]
    assert len(same) > 20 and all(same)


def test_a_head_of_another_kind_on_a_decoder_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "gpt2", "AutoModelForSequenceClassification")
    with pytest.raises(ts.UserError, match=r"holds more than its config.json says: score.weight has no place"):
        load_model(str(folder))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architectures": 2}, "says architectures '2', which is no list of names"),
        ({"pad_token_id": 10**30}, r"says a pad_token_id of 2\^63 or more, which is no number of a model"),
    ],
)
def test_what_transformers_lets_pass_is_refused(fields: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ts.UserError, match=message):
        load_model(changed(checkpoint(tmp_path, "gpt2", "AutoModelForCausalLM"), **fields))


def test_memory_that_ends_while_a_model_is_loaded_is_no_fault_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*given: object, **named: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    folder = checkpoint(tmp_path, "llama", "AutoModelForCausalLM")
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", short)
    with pytest.raises(torch.OutOfMemoryError, match=r"^CUDA out of memory\.$"):
        load_model(str(folder))


def test_a_tokenizer_that_cannot_be_used_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "gpt2", "AutoModelForCausalLM")
    told = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(told | {"model_max_length": "64"}))
    with pytest.raises(ts.UserError, match=r"^the tokenizer in the folder \S+ cannot be read \(TypeError: "):
        load_model(str(folder))


def test_a_name_on_the_hub_may_say_its_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the hub's cache has it: a snapshot a commit, and the commit of each branch and tag."""
    cache, weights = tmp_path / "models--our--tiny", {}
    for branch, commit in {"main": "a" * 40, "v1": "b" * 40}.items():
        torch.manual_seed(len(weights))
        folder = checkpoint(cache / "snapshots" / commit, "gpt2", "AutoModelForCausalLM")
        weights[branch] = load_file(folder / "model.safetensors")["transformer.wte.weight"]
        (cache / "refs").mkdir(exist_ok=True)
        (cache / "refs" / branch).write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    names = {"our/tiny": "main", "our/tiny@main": "main", "our/tiny@v1": "v1", f"our/tiny@{'b' * 40}": "v1"}
    for name, branch in names.items():
        model, _ = load_model(name)
        assert torch.equal(model.transformer.wte.weight, weights[branch])
        assert config_of(name).model_type == "gpt2"
    assert config_settings("our/tiny@v1")["model_type"] == "gpt2"
    with pytest.raises(ts.UserError, match="--model our/tiny@v2: no config"):
        config_settings("our/tiny@v2")
    assert len(load_tokenizer("our/tiny@v1")) == len(tinyrun.tokenizer())
    with pytest.raises(ts.UserError, match="model 'our/tiny@v2' cannot be loaded"):
        load_model("our/tiny@v2")
    monkeypatch.chdir(cache / "snapshots")
    (cache / "snapshots" / ("a" * 40)).rename("folder@v1")
    assert torch.equal(load_model("folder@v1")[0].transformer.wte.weight, weights["main"])  # it is there


@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        (GatedRepoError, 401, GATED),
        (GatedRepoError, 403, GATED),
        (
            RepositoryNotFoundError,
            401,
            "^there is no model 'me/it' on the hub, or it is private. Check the name; if it",
        ),
        (HfHubHTTPError, 403, r"^the hub does not give model 'me/it' to who asks \(403\)\. .* Type: hf auth login$"),
        (HfHubHTTPError, 500, "^model 'me/it' cannot be loaded: You are trying"),
    ],
)
def test_what_the_hub_refuses_is_told_with_what_to_type(
    kind: Any, code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the hub's own client and transformers raise it."""
    response = SimpleNamespace(status_code=code, headers={}, request=SimpleNamespace(headers={}))

    def asked(*args: object, **keywords: object) -> None:
        raise OSError("You are trying to access it.\nMake sure to have access.") from kind("no", response=response)

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", asked)
    with pytest.raises(ts.UserError, match=message):
        load_model("me/it")


def test_a_model_with_code_of_its_own_is_told_that_it_is_never_run(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "gpt2", "AutoModelForCausalLM")
    own = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    load_model(changed(folder, auto_map=own))  # transformers has a class of its own for it
    (folder / "own.py").write_text("raise SystemExit('it was run')")
    message = (
        r"brings code of its own .*, which is never run here, and transformers has no class for it\. Give a model "
    )
    with pytest.raises(ts.UserError, match=message):
        load_model(changed(folder, model_type="own"))
