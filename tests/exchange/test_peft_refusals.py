"""What peft has and tunescope has not, newer and older files, damaged and altered ones: a line each, nothing run."""

import json
import pickle
import re
from pathlib import Path
from typing import Any

import peft
import peftly
import pytest
import tiny
import torch
from safetensors.torch import load_file

import tunescope as ts
from tunescope.attachment.initial_artifacts import initialised
from tunescope.exchange import convert
from tunescope.exchange.peft import config as peft_config
from tunescope.exchange.peft.config import CONFIG, TENSORS
from tunescope.exchange.peft.starts import without_start

Q = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.fixture
def lora(tmp_path: Path) -> Path:
    model = tiny.make("llama")
    return peftly.written(peftly.wrapped(model, peftly.lora(model, r=2, target_modules=["q_proj"])), tmp_path / "lora")


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    model = tiny.make("llama")
    return peftly.written(peftly.wrapped(model, peftly.prefix(model)), tmp_path / "prefix")


@pytest.fixture
def prompt(tmp_path: Path) -> Path:
    model = tiny.make("llama")
    return peftly.written(peftly.wrapped(model, peftly.prompt(model)), tmp_path / "prompt")


def read(folder: Path, family: str = "llama") -> Any:
    return convert.read(folder, form="peft", model=tiny.make(family))


def refused(folder: Path, told: str, family: str = "llama") -> None:
    with pytest.raises(ts.UserError, match=told) as caught:
        read(folder, family)
    assert "\n" not in str(caught.value)


PEFT_HAS = {
    "alora": (
        {"alora_invocation_tokens": [5, 6]},
        r"alora_invocation_tokens=\[5, 6\] is aLoRA, which acts from certain",
    ),
    "layer_replication": (
        {"layer_replication": [[0, 2], [1, 2]]},
        r"layer_replication=\[\[0, 2\], \[1, 2\]\] is layers",
    ),
    "pissa": (
        {"init_lora_weights": "pissa_niter_2"},
        r"init_lora_weights='pissa_niter_2' changed the base weights before training by what is not in the file.*"
        r"save_pretrained\(OUT, path_initial_model_for_weight_conversion=START\)",
    ),
    "lora_bias": ({"lora_bias": True}, r"second map \(lora_bias\), and the map in this model has none that it could"),
}


@pytest.mark.parametrize("which", PEFT_HAS)
def test_what_peft_has_and_we_have_not_is_refused_by_name(which: str, tmp_path: Path) -> None:
    fields, told = PEFT_HAS[which]
    model = tiny.make("llama", dtype=torch.float32)
    made = peftly.wrapped(model, peftly.lora(model, r=2, target_modules=["q_proj"], **fields))
    refused(peftly.written(made, tmp_path / "peft"), told)


def test_dora_on_an_embedding_or_beside_a_start_of_its_own_is_refused(tmp_path: Path) -> None:
    model = tiny.make("llama")
    made = peftly.wrapped(model, peftly.lora(model, r=2, target_modules=["embed_tokens"], use_dora=True))
    folder = peftly.written(made, tmp_path / "peft")
    refused(folder, "DoRA on an embedding has no place here. Merge it in peft")
    refused(peftly.configured(folder, init_lora_weights="olora"), "init_lora_weights='olora' under DoRA has no place")


@pytest.mark.parametrize("start", [False, None, "gaussian", "eva", "orthogonal", "mica"])
def test_a_start_that_left_the_base_as_it_was_makes_no_difference(start: Any, lora: Path) -> None:
    expected = read(lora).artifacts
    found = read(peftly.configured(lora, init_lora_weights=start))
    assert not found.notes and [one.spec for one in found.artifacts] == [one.spec for one in expected]
    for name, value in expected[0].tensors.items():
        assert torch.equal(found.artifacts[0].tensors[name], value)


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ("loftq", r"'loftq' changed the base weights before training .* Merge it in peft"),
        ("corda", r"'corda' changed .* path_initial_model_for_weight_conversion=START"),
        ("lora_ga", r"'lora_ga' changed .* path_initial_model_for_weight_conversion=START"),
        ("new", r"'new' changed the base weights before training by what is not in the file"),
    ],
)
def test_a_start_that_changed_the_base_by_what_is_not_in_the_file_is_refused(start: str, told: str, lora: Path) -> None:
    refused(peftly.configured(lora, init_lora_weights=start), told)


def test_a_start_that_cannot_be_done_again_here_is_refused(tmp_path: Path) -> None:
    model = tiny.make("gpt2", dtype=torch.float32)
    how = peftly.lora(model, r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    folder = peftly.written(peftly.wrapped(model, how), tmp_path / "gpt2")
    peftly.configured(folder, init_lora_weights="olora")
    refused(folder, "'olora', and the weights here are stored transposed, where peft takes another product", "gpt2")
    quantised = torch.nn.Linear(6, 4)
    quantised.weight = torch.nn.Parameter(torch.zeros(4, 6, dtype=torch.int8), requires_grad=False)
    for start in ("pissa", "olora"):
        with pytest.raises(ts.UserError, match=f"'{start}', and the weights here are quantised. Save it as plain LoRA"):
            without_start({"init_lora_weights": start}, quantised, 1.0, torch.ones(2, 6), torch.ones(4, 2))


def test_what_stands_on_an_embedding_is_named_by_the_configuration_and_has_no_start_of_its_own(tmp_path: Path) -> None:
    model = tiny.make("llama")
    how = peftly.lora(model, r=2, target_modules=["q_proj", "embed_tokens"])
    folder = peftly.written(peftly.wrapped(model, how), tmp_path / "peft")
    for start in ("pissa", "olora"):
        peftly.configured(folder, init_lora_weights=start)
        refused(folder, f"'model.embed_tokens' is an embedding, and init_lora_weights='{start}' takes a product out of")
    peftly.configured(folder, init_lora_weights=True, target_modules=["q_proj"])
    refused(folder, "'model.embed_tokens' does not belong: target_modules names q_proj")


def test_an_ia3_that_the_configuration_does_not_name_is_refused(tmp_path: Path) -> None:
    model = tiny.make("llama")
    how = peft.IA3Config(task_type="CAUSAL_LM", target_modules=["k_proj", "v_proj"], feedforward_modules=[])
    folder = peftly.written(peftly.wrapped(model, how), tmp_path / "peft")
    peftly.configured(folder, target_modules=["k_proj"])
    refused(folder, "'model.layers.0.self_attn.v_proj' does not belong: target_modules names k_proj")


def test_a_whole_weight_that_nothing_says_was_trained_is_refused_unless_it_is_the_base_s(tmp_path: Path) -> None:
    model = tiny.make("llama")
    made = peftly.wrapped(model, peftly.lora(model, r=2, target_modules=["q_proj"]))
    with peftly.quiet():
        made.save_pretrained(tmp_path / "peft", save_embedding_layers=True)
    found = read(tmp_path / "peft")
    assert len(found.artifacts) == 1
    assert "model.embed_tokens is saved as it is in the base: it is left out" in found.notes
    name = "base_model.model.model.embed_tokens.weight"
    changed = load_file(tmp_path / "peft" / TENSORS)[name] + 1e-3
    peftly.retensored(tmp_path / "peft", {name: changed})
    refused(
        tmp_path / "peft",
        "'model.embed_tokens.weight' is a whole weight beside LoRA that its configuration does not say was trained",
    )


def test_other_methods_are_refused_by_name(tmp_path: Path, lora: Path) -> None:
    config = peft.VeraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"], r=2)
    folder = peftly.written(peftly.wrapped(tiny.make("llama", dtype=torch.float32), config), tmp_path / "vera")
    told = "peft's 'VERA' has no place here; these have: LORA, IA3, TRAINABLE_TOKENS, PREFIX_TUNING, PROMPT_TUNING, P_T"
    refused(folder, told)
    for kind in ("NEW_METHOD", None, ["LORA"]):
        refused(peftly.configured(lora, peft_type=kind), rf"peft's {re.escape(repr(kind))} has no place here")


def test_every_refused_field_is_one_that_counts_when_it_is_set(lora: Path) -> None:
    for field in peft_config.REFUSED:
        refused(peftly.configured(lora, **{field: {"a": 1}}), f"{field}={re.escape(str({'a': 1}))} is ")
        read(peftly.configured(lora, **{field: None}))


def test_the_fields_of_the_installed_peft_are_known(lora: Path, prefix: Path, prompt: Path) -> None:
    for folder in (lora, prefix, prompt):
        assert not [note for note in read(folder).notes if "another peft version" in note]


@pytest.mark.parametrize("which", ["lora", "prefix", "prompt"])
def test_a_newer_version_s_fields_are_named_and_refused_only_where_they_may_count(
    which: str, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(which)
    expected = read(folder).artifacts[0].tensors
    found = read(peftly.configured(folder, use_new=False, other=None, third=[], fourth={}, fifth=""))
    assert (
        "fields of another peft version, all at rest, were left out: fifth, fourth, other, third, use_new"
        in found.notes
    )
    assert all(torch.equal(found.artifacts[0].tensors[name], value) for name, value in expected.items())
    told = r"fields that this version does not know and that may count: use_new='fast' \(peft [0-9].*\)\."
    refused(peftly.configured(folder, use_new="fast"), told)


class Payload:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("opened"),))


def test_a_pickle_is_never_opened(lora: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (lora / TENSORS).unlink()
    (lora / "adapter_model.bin").write_bytes(pickle.dumps(Payload()))
    refused(
        lora, r"adapter_model.bin is a pickle, which can run code .* save_pretrained\(folder, safe_serialization=True\)"
    )
    assert not Path("opened").exists()
    (lora / "adapter_model.bin").unlink()
    refused(lora, "has no adapter_model.safetensors. It holds: README.md, adapter_config.json")


def test_damaged_files_are_told_apart(lora: Path) -> None:
    whole = (lora / TENSORS).read_bytes()
    for cut in (whole[:-5], whole[:100], b"", b"\xff" * 64):
        (lora / TENSORS).write_bytes(cut)
        refused(lora, r"adapter_model.safetensors cannot be read \(.*\): it is cut short or damaged")
    (lora / CONFIG).write_text((lora / CONFIG).read_text()[:40])
    refused(lora, "adapter_config.json is not readable as JSON")
    (lora / CONFIG).unlink()
    refused(lora, "has no adapter_config.json: it is not what was asked for")


A, B = f"{Q}.lora_A.weight", f"{Q}.lora_B.weight"
ALTERED_TENSORS = {
    "one factor": ({A: None}, "'model.layers.0.self_attn.q_proj' has lora_B alone"),
    "shape": (
        {A: torch.zeros(2, 23)},
        r"lora_A \(2, 23\) and lora_B \(24, 2\), and should have \(2, 24\) and \(24, 2\)",
    ),
    "a vector": ({B: torch.zeros(24)}, r"lora_A \(2, 24\) and lora_B \(24,\), and should have"),
    "rank": ({A: torch.zeros(3, 24), B: torch.zeros(24, 3)}, r"lora_A \(3, 24\) and .* should have \(2, 24\)"),
    "foreign": ({"extra": torch.zeros(1)}, "'extra' does not belong to LoRA on linear maps"),
    "magnitude": ({f"{Q}.lora_magnitude_vector": torch.ones(24)}, "'.*lora_magnitude_vector' does not belong to LoRA"),
    "no layer": (
        {A.replace("0", "7"): torch.zeros(2, 24), B.replace("0", "7"): torch.zeros(24, 2)},
        "LoRA on 'model.layers.7.self_attn.q_proj', which this model does not have",
    ),
    "not a target": (
        {A.replace("q_", "k_"): torch.zeros(2, 24), B.replace("q_", "k_"): torch.zeros(12, 2)},
        "'model.layers.0.self_attn.k_proj' does not belong: target_modules names q_proj",
    ),
    "one map twice": (
        {
            A.replace("model.model.", "model."): torch.zeros(2, 24),
            B.replace("model.model.", "model."): torch.zeros(24, 2),
        },
        "'model.layers.0.self_attn.q_proj' and 'layers.0.self_attn.q_proj' are one map: the file was altered",
    ),
    "a number that is none": ({A: torch.full((2, 24), float("inf"))}, "holds numbers that are not finite"),
}


@pytest.mark.parametrize("which", ALTERED_TENSORS)
def test_altered_tensors_are_refused(which: str, lora: Path) -> None:
    change, told = ALTERED_TENSORS[which]
    refused(peftly.retensored(lora, change), told)


def test_a_layer_that_was_taken_out_of_the_file_is_told(lora: Path) -> None:
    assert not read(lora).notes
    found = read(peftly.retensored(lora, {A: None, B: None}))
    told = "the file has no LoRA for model.layers.0.self_attn.q_proj, which target_modules names"
    assert found.notes == [told]
    assert found.artifacts[0].spec.sites == ("decoder.1.self.q",)
    assert not read(peftly.configured(lora, layers_to_transform=[1])).notes
    alone = peftly.configured(lora, layers_to_transform=None, exclude_modules=["model.layers.0.self_attn.q_proj"])
    assert not read(alone).notes


def test_another_base_than_the_file_names_is_told_and_its_revision(lora: Path) -> None:
    model = tiny.make("llama")
    model.config.name_or_path = "/models/tiny-llama"
    model.config._commit_hash = "0a1b"
    for named, revision, told in (
        ("org/other", None, ["its configuration names 'org/other'; this model is 'tiny-llama'"]),
        ("org/other", "v2", ["its configuration names 'org/other' at revision 'v2'; this model is 'tiny-llama'"]),
        (
            "org/tiny-llama",
            "v2",
            ["its configuration names its base at revision 'v2': whether this model is that is not"],
        ),
        ("org/tiny-llama", None, []),
        ("org/tiny-llama", "0a1b", []),  # the one that the model was loaded at
        (None, None, []),
    ):
        peftly.configured(lora, base_model_name_or_path=named, revision=revision)
        notes = convert.read(lora, form="peft", model=model).notes
        assert len(notes) == len(told) and all(note.startswith(one) for note, one in zip(notes, told, strict=True))
    assert not read(peftly.configured(lora, base_model_name_or_path="org/other")).notes  # a model without a name


def test_a_snapshot_in_the_hub_s_cache_is_the_repository_that_it_is_of(lora: Path) -> None:
    model, cached = tiny.make("llama"), f"/home/me/hub/models--org--tiny-llama/snapshots/{'0a' * 20}"
    for own, named, is_told in (
        (cached, "org/tiny-llama", False),
        ("org/tiny-llama", cached, False),
        (cached, "org/other", True),
    ):
        model.config.name_or_path = own
        peftly.configured(lora, base_model_name_or_path=named, revision="main")
        notes = convert.read(lora, form="peft", model=model).notes
        told = ["its configuration names 'org/other'; this model is 'tiny-llama'"] if is_told else []
        assert len(notes) == len(told) and all(note.startswith(one) for note, one in zip(notes, told, strict=True))


def test_a_file_without_tensors_is_refused(lora: Path, prefix: Path) -> None:
    refused(peftly.retensored(lora, dict.fromkeys(load_file(lora / TENSORS))), "holds no lora_A and lora_B")
    refused(
        peftly.retensored(prefix, {"prompt_embeddings": None}), "holds nothing; prompt_embeddings alone belongs there"
    )


ALTERED_FIELDS = [
    ({"r": 3}, r"lora_A \(2, 24\) .* should have \(3, 24\)"),
    ({"r": "2"}, "r is '2' and should be a positive whole number"),
    ({"r": True}, "r is True and should be a positive whole number"),
    ({"lora_alpha": 0}, "lora_alpha has 0 and should have a positive number"),
    ({"lora_alpha": None}, "lora_alpha has None and should have a positive number"),
    ({"rank_pattern": {"q_proj": 3}}, r"should have \(3, 24\)"),
    ({"rank_pattern": {"(": 3}}, r"rank_pattern has '\(', which is no pattern"),
    ({"alpha_pattern": {"q_proj": "x"}}, "alpha_pattern has 'x' and should have a positive number"),
    ({"alpha_pattern": [1]}, r"alpha_pattern is \[1\], which it cannot be: the file was altered"),
    ({"rank_pattern": ["q_proj"]}, r"rank_pattern is \['q_proj'\], which it cannot be: the file was altered"),
    ({"target_modules": [3, "x"]}, "q_proj' does not belong: target_modules names 3, x"),
    ({"target_modules": []}, "q_proj' does not belong: target_modules names nothing"),
    ({"target_modules": ["proj"]}, "q_proj' does not belong: target_modules names proj"),  # an end, but of no part
    ({"target_modules": 3}, "target_modules is 3, which it cannot be"),
    ({"lora_dropout": "x"}, "lora_dropout is 'x', which it cannot be"),
    ({"lora_dropout": 1.5}, "lora_dropout is 1.5 and should be from 0 to below 1"),
    ({"bias": "some"}, "bias is 'some', and none, all and lora_only are known here. Merge it in peft"),
    ({"bias": ["all"]}, r"bias is \['all'\], which it cannot be"),
    ({"use_dora": 1}, "use_dora is 1, which it cannot be"),
    ({"task_type": ["SEQ_CLS"]}, r"task_type is \['SEQ_CLS'\], which it cannot be"),
    ({"modules_to_save": "head"}, "modules_to_save is 'head', which it cannot be"),
]


@pytest.mark.parametrize(("fields", "told"), ALTERED_FIELDS)
def test_altered_fields_are_refused(fields: dict[str, Any], told: str, lora: Path) -> None:
    refused(peftly.configured(lora, **fields), told)


def test_altered_prompts_are_refused(prefix: Path, prompt: Path) -> None:
    extra = {"other": torch.zeros(1)}
    for folder in (prefix, prompt):
        refused(peftly.configured(folder, num_virtual_tokens=4), r"prompt_embeddings is \(3, .*\) and should be \(4, ")
        refused(
            peftly.configured(folder, num_virtual_tokens=None), "num_virtual_tokens is None and should be a positive"
        )
        peftly.configured(folder, num_virtual_tokens=3)
        refused(
            peftly.retensored(folder, extra), "holds other, prompt_embeddings; prompt_embeddings alone belongs there"
        )
    refused(
        peftly.configured(peftly.retensored(prefix, {"other": None}), token_dim=7),
        "token_dim is 7 and is no multiple of",
    )


def test_files_for_another_model_are_refused(lora: Path, prefix: Path, prompt: Path) -> None:
    refused(lora, "LoRA on 'model.layers.0.self_attn.q_proj', which this model does not have", "gpt2")
    refused(prefix, "is for 2 layers of 2 key heads of 6; this model has 2 of 2 of 8: it was made for another", "qwen3")
    refused(prompt, r"prompt_embeddings is \(3, 24\) and should be \(3, 32\)", "phi")


def test_what_peft_cannot_say_is_not_written(tmp_path: Path) -> None:
    model = tiny.make("llama")
    for specs, told in (
        (
            (ts.Adapter(bottleneck=2),),
            r"peft has no adapter \(.*\): keep tunescope's own folder \(tunescope.save\)",
        ),
        (
            (ts.Full(),),
            r"peft has no full \(Full\(.*\)\): merge it into the weights \(tunescope.merge\) and save the model",
        ),
        ((ts.Infix(length=2),), "peft has no infix"),
        (
            (ts.Prefix(length=2), ts.LoRA(rank=2)),
            r"holds LoRAs, or one prefix, or soft prompts, and not prefix \+ lora",
        ),
        ((ts.Prefix(length=2), ts.Prefix(length=2)), r"and not prefix \+ prefix"),
        ((ts.Soft(length=2), ts.LoRA(rank=2)), r"and not soft \+ lora"),
        ((ts.Text(text="w3 w4"),), "peft has no text"),
        ((ts.Prefix(length=2), ts.Full(only=("norm.weight",))), r"peft has no full \(.*\): merge it into the weights"),
    ):
        artifacts = initialised(model, specs, tiny.tokenizer(), 0)
        with pytest.raises(ts.UserError, match=told):
            convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    bias = initialised(tiny.make("gpt2"), [ts.Bias()], None, 0)
    with pytest.raises(ts.UserError, match="peft has no bias"):
        convert.export(tmp_path / "out", bias, to="peft", model=tiny.make("gpt2"))
    assert list(tmp_path.iterdir()) == []


def test_the_configuration_written_is_one_that_old_and_new_versions_take(tmp_path: Path) -> None:
    """Every field is one that peft's own configuration has today, and none is newer than LoRA itself."""
    model = tiny.make("llama")
    for specs, known in (
        ((ts.LoRA(rank=2),), peft.LoraConfig),
        ((ts.Prefix(length=2, positions="after"),), peft.PrefixTuningConfig),
        ((ts.Soft(length=2),), peft.PromptTuningConfig),
    ):
        folder = tmp_path / known.__name__
        convert.export(folder, initialised(model, specs, None, 0), to="peft", model=model)
        fields = json.loads((folder / CONFIG).read_text())
        assert fields.keys() <= known.__dataclass_fields__.keys()
        assert len(fields) < 13


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.complex64, torch.float8_e4m3fn])
def test_tensors_of_other_kinds_are_refused_by_name(dtype: torch.dtype, lora: Path) -> None:
    refused(peftly.retensored(lora, {A: torch.zeros(2, 24).to(dtype)}), rf"lora_A.weight' is of {dtype}, and what is")


def test_json_that_is_nested_without_end_is_refused(lora: Path) -> None:
    (lora / CONFIG).write_text("[" * 100_000 + "]" * 100_000)
    refused(lora, "adapter_config.json is not readable as JSON")


def test_a_pattern_that_takes_for_ever_is_refused(lora: Path) -> None:
    peftly.configured(lora, rank_pattern={"((.|.)+)+[!?]": 4})
    refused(lora, r"rank_pattern has '.*', which takes more than 1.0 s")
