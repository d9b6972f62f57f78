"""LoRA between peft and here: peft's own files give peft's own outputs, and ours give ours when peft loads them."""

import json
from pathlib import Path
from typing import Any

import peftly
import pytest
import tiny
import torch
from safetensors.torch import load_file
from torch import Tensor

import tunescope as ts
from tunescope.attachment.initial_artifacts import initialised
from tunescope.attachment.sites.site_map import sites_of
from tunescope.exchange import convert
from tunescope.exchange.peft import lora_out
from tunescope.exchange.peft.config import CONFIG, TENSORS
from tunescope.exchange.site_names import selectors
from tunescope.methods.artifact import Artifact
from tunescope.models.sites import select

NAMES = {
    "gpt2": ("c_attn", "c_proj", "c_fc"),
    "gpt_neox": ("query_key_value", "dense_h_to_4h"),
    "opt": ("q_proj", "out_proj", "fc1"),
    "llama": ("q_proj", "k_proj", "down_proj"),
    "mistral": ("v_proj", "gate_proj"),
    "qwen2": ("q_proj", "up_proj"),
    "qwen3": ("q_proj", "v_proj", "o_proj"),
    "gemma2": ("k_proj", "gate_proj"),
    "phi": ("q_proj", "dense", "fc2"),
    "t5": ("q", "v", "wo"),
    "bart": ("q_proj", "fc1"),
    "bert": ("query", "value", "dense"),
    "roberta": ("key", "value"),
    "distilbert": ("q_lin", "lin2"),
}
FAMILIES = sorted(NAMES)


def attached(model: Any, artifacts: Any, given: dict[str, Tensor]) -> Tensor:
    with ts.attach(model, *artifacts):
        return peftly.outputs(model, given)


def imported(model: Any, folder: Path) -> Any:
    return convert.read(folder, form="peft", model=model, tokenizer=tiny.tokenizer())


def drawn(model: Any, *specs: Any, seed: int = 7) -> list[Artifact]:
    draw = torch.Generator().manual_seed(seed)
    return [
        Artifact(
            made.spec,
            {name: 0.3 * torch.randn(v.shape, generator=draw, dtype=v.dtype) for name, v in made.tensors.items()},
        )
        for made in initialised(model, specs, None, 0)
    ]


def assert_imports(model: Any, config: Any, folder: Path, tolerance: float = 1e-12) -> Any:
    made = peftly.wrapped(model, config)
    found = imported(model, peftly.written(made, folder))
    peftly.assert_own_memory(found.artifacts)
    for padding in ("none", "right"):
        given = tiny.batch(model, padding)
        expected, got = peftly.outputs(made, given), attached(model, found.artifacts, given)
        torch.testing.assert_close(tiny.real(given, got), tiny.real(given, expected), rtol=0, atol=tolerance)
        assert (tiny.real(given, expected) - tiny.real(given, peftly.outputs(model, given))).abs().max() > 1e-3
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_peft_s_lora_gives_peft_s_outputs(family: str, tmp_path: Path) -> None:
    model = tiny.make(family)
    exclude = ["pooler.dense"] if family == "bert" else None
    config = peftly.lora(model, r=3, lora_alpha=7, target_modules=list(NAMES[family]), exclude_modules=exclude)
    found = assert_imports(model, config, tmp_path / "peft")
    (artifact,) = found.artifacts
    assert artifact.spec.rank == 3
    assert artifact.spec.scale == pytest.approx(7 / 3, rel=1e-15)


@pytest.mark.parametrize("family", ["gpt2", "llama", "t5", "bert"])
def test_peft_s_lora_gives_peft_s_outputs_in_float32(family: str, tmp_path: Path) -> None:
    model = tiny.make(family, dtype=torch.float32)
    config = peftly.lora(model, r=4, lora_alpha=4, target_modules=list(NAMES[family][:2]), use_rslora=True)
    assert_imports(model, config, tmp_path / "peft", tolerance=1e-6)


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3", "t5"])
def test_rank_stabilised_scales_and_patterns_are_read_as_peft_reads_them(family: str, tmp_path: Path) -> None:
    model = tiny.make(family)
    first, second, third = (*NAMES[family], "fc1")[:3]
    layer = {"gpt2": "h.1", "t5": "block.1.layer.0"}.get(family, "layers.1")
    config = peftly.lora(
        model,
        r=4,
        lora_alpha=6,
        use_rslora=True,
        target_modules=[first, second, third],
        rank_pattern={rf".*\.{layer}\..*{first}": 2, second: 5},
        alpha_pattern={first: 3},
    )
    found = assert_imports(model, config, tmp_path / "peft")
    assert len(found.artifacts) > 2
    assert f"{len(found.artifacts)} combinations of rank and scale: one LoRA for each" in found.notes
    scales = {artifact.spec.rank: set() for artifact in found.artifacts}
    for artifact in found.artifacts:
        scales[artifact.spec.rank].add(round(artifact.spec.scale, 12))
    assert scales[2] == {round(3 / 2**0.5, 12)}


@pytest.mark.parametrize(
    ("alphas", "scale"),
    [
        ({"attn": 9, "_attn": 9, "h.0": 9}, 5 / 3),  # ends of a name, but of no part of it; and no end
        ({"c_attn": 2, r".*\.attn\..*": 9}, 2 / 3),  # the first that says so
        ({r".*\.attn\..*": 9, "c_attn": 2}, 9 / 3),
    ],
)
def test_a_pattern_names_whole_parts_of_a_path_and_the_first_that_does_counts(
    alphas: dict[str, int], scale: float, tmp_path: Path
) -> None:
    """In the order of the file: peft sorts them when it saves."""
    model, given = tiny.make("gpt2"), {"input_ids": tiny.ids()}
    config = peftly.lora(model, r=3, lora_alpha=5, target_modules=["c_attn"], fan_in_fan_out=True)
    folder = peftly.written(peftly.wrapped(model, config), tmp_path / "peft", alpha_pattern=alphas)
    (artifact,) = imported(model, folder).artifacts
    assert artifact.spec.scale == pytest.approx(scale, rel=1e-12)
    expected = peftly.outputs(peftly.loaded(model, folder), given)
    torch.testing.assert_close(attached(model, [artifact], given), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("targets", ["all-linear", r".*\.(q_proj|up_proj)", ["q_proj"]])
def test_all_linear_a_regex_and_chosen_layers_are_what_the_keys_say(targets: Any, tmp_path: Path) -> None:
    model = tiny.make("llama")
    layers = {"layers_to_transform": [1]} if isinstance(targets, list) else {}
    found = assert_imports(model, peftly.lora(model, r=2, target_modules=targets, **layers), tmp_path / "peft")
    (artifact,) = found.artifacts
    expected = {
        "all-linear": ("self.q", "self.k", "self.v", "self.o", "ffn.in", "ffn.gate", "ffn.out"),
        "['q_proj']": ("decoder.1.self.q",),
    }.get(str(targets), ("self.q", "ffn.in"))
    assert sorted(artifact.spec.sites) == sorted(expected)


def test_the_fused_map_s_lora_stands_at_q_k_and_v(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    found = assert_imports(
        model, peftly.lora(model, r=2, fan_in_fan_out=True, target_modules=["c_attn"]), tmp_path / "a"
    )
    assert found.artifacts[0].spec.sites == ("self.q", "self.k", "self.v")
    assert any("fused maps: their LoRA stands at the sites of their parts" in note for note in found.notes)


def test_a_rank_above_the_map_s_own_is_cut_to_it_exactly(tmp_path: Path) -> None:
    model = tiny.make("llama")  # k maps 24 to 12
    found = assert_imports(model, peftly.lora(model, r=30, target_modules=["k_proj", "down_proj"]), tmp_path / "peft")
    assert sorted(artifact.spec.rank for artifact in found.artifacts) == [12, 24]


def test_a_rank_above_the_map_s_own_in_float32_is_cut_in_the_model_s_precision(tmp_path: Path) -> None:
    model = tiny.make("llama")
    made = peftly.wrapped(model, peftly.lora(model, r=30, target_modules=["k_proj", "down_proj"]))
    folder = peftly.written(made, tmp_path / "peft")
    single = {name: value.float() for name, value in load_file(folder / TENSORS).items()}
    found = imported(model, peftly.retensored(folder, single))  # its numbers are float32's: nothing is lost so far
    given = tiny.batch(model)
    got, expected = attached(model, found.artifacts, given), peftly.outputs(made, given)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_dropout_is_kept_for_further_training(tmp_path: Path) -> None:
    model = tiny.make("llama")
    found = assert_imports(model, peftly.lora(model, lora_dropout=0.25, target_modules=["q_proj"]), tmp_path / "peft")
    assert found.artifacts[0].spec.dropout == 0.25


def test_a_file_made_around_another_head_is_read(tmp_path: Path) -> None:
    """Names in the file are those of the model that was wrapped: with a head, or the base alone."""
    import transformers as tf

    base = tiny.make("bert")
    config = peftly.lora(base, r=2, target_modules=["query", "value"])
    headed = tf.BertForMaskedLM(base.config).double().eval()
    headed.bert.load_state_dict({k: v for k, v in base.state_dict().items() if "pooler" not in k})
    config.task_type = None
    folder = peftly.written(peftly.wrapped(headed, config), tmp_path / "peft")
    assert any(name.startswith("base_model.model.bert.") for name in load_file(folder / TENSORS))
    found, again = imported(base, folder), imported(headed, folder)
    for name, value in found.artifacts[0].tensors.items():
        assert torch.equal(again.artifacts[0].tensors[name], value)
    made = peftly.loaded(headed, folder)
    given = tiny.batch(base)
    got = attached(headed, again.artifacts, given)
    torch.testing.assert_close(got, peftly.outputs(made, given), rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_written_gives_the_attached_model_s_outputs_in_peft(family: str, tmp_path: Path) -> None:
    model = tiny.make(family)
    artifacts = drawn(model, ts.LoRA(rank=3, alpha=5.0), ts.LoRA(rank=2, sites=("attn.q", "attn.o", "ffn.in")))
    done = convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    assert done.difference is not None and done.difference < 1e-12
    made = peftly.loaded(model, tmp_path / "out")
    for padding in ("none", "right"):
        given = tiny.batch(model, padding)
        expected, got = attached(model, artifacts, given), peftly.outputs(made, given)
        torch.testing.assert_close(tiny.real(given, got), tiny.real(given, expected), rtol=0, atol=1e-12)
        assert (expected - peftly.outputs(model, given)).abs().max() > 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_the_canonical_form_says_the_same_to_a_reader_that_knows_alpha_over_r_alone(
    family: str, tmp_path: Path
) -> None:
    """SGLang and llama.cpp: W + lora_alpha / r B A, whatever else the configuration holds."""
    model = tiny.make(family)
    artifacts = drawn(model, ts.LoRA(rank=3, alpha=5.0), ts.LoRA(rank=2, sites=("attn.k",)))
    convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    config, tensors = json.loads((tmp_path / "out" / CONFIG).read_text()), load_file(tmp_path / "out" / TENSORS)
    given = tiny.batch(model)
    expected = attached(model, artifacts, given)
    with torch.no_grad():
        for name in tensors:
            if name.endswith(".lora_A.weight"):
                module = model.get_submodule(name.removeprefix("base_model.model.").removesuffix(".lora_A.weight"))
                change = tensors[name.replace("lora_A", "lora_B")] @ tensors[name]
                change = config["lora_alpha"] / config["r"] * change
                module.weight += change.T if type(module).__name__ == "Conv1D" else change
    got = peftly.outputs(model, given)
    torch.testing.assert_close(tiny.real(given, got), tiny.real(given, expected), rtol=0, atol=1e-12)


def test_the_configuration_is_small_and_canonical(tmp_path: Path) -> None:
    model = tiny.make("llama")
    specs = (ts.LoRA(rank=5, alpha=3.0), ts.LoRA(rank=4, sites=("attn.q",)))
    done = convert.export(tmp_path / "out", drawn(model, *specs), to="peft", model=model)
    config = json.loads((tmp_path / "out" / CONFIG).read_text())
    assert config == {
        "base_model_name_or_path": None,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "lora_alpha": 16,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": 16,
        "target_modules": ["q_proj", "v_proj"],
        "task_type": "CAUSAL_LM",
    }
    assert {
        value.shape[0 if "lora_A" in name else 1] for name, value in load_file(tmp_path / "out" / TENSORS).items()
    } == {16}
    assert done.notes == (
        "LoRA of rank 16, of which 7 zero on 4 maps, 2 LoRAs in one, the scale inside lora_B",
        "vLLM: --enable-lora --max-lora-rank 16",
    )
    assert "vLLM" in done.serves


@pytest.mark.parametrize("family", ["gpt2", "llama", "t5", "bert"])
def test_a_file_that_says_something_else_is_found_out_before_it_is_there(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny.make(family, dtype=torch.float32)
    padded = lora_out._padded
    monkeypatch.setattr(lora_out, "_padded", lambda factor, rank, axis: 1.01 * padded(factor, rank, axis))
    with pytest.raises(ts.UserError, match=r"differs from the attached model by .* nothing was kept"):
        convert.export(tmp_path / "out", drawn(model, ts.LoRA(rank=2)), to="peft", model=model)
    assert list(tmp_path.iterdir()) == []


def test_what_the_artifact_says_of_its_task_is_told_to_stay_behind(tmp_path: Path) -> None:
    model = tiny.make("llama")
    about = {"task": {"template": "{text} It was"}}
    done = convert.export(tmp_path / "out", drawn(model, ts.LoRA(rank=2)), to="peft", model=model, about=about)
    assert done.notes[-1] == "the task (template, label words) has no place in peft's files: it stays with the artifact"


def test_dropout_is_left_out_and_told(tmp_path: Path) -> None:
    model = tiny.make("llama")
    done = convert.export(tmp_path / "out", drawn(model, ts.LoRA(rank=2, dropout=0.5)), to="peft", model=model)
    assert done.notes[0] == "dropout, which acts in training alone, was left out"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["gpt2", "llama", "t5"])
def test_models_single_precision_are_served_too(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = tiny.make(family, dtype=dtype)
    artifacts = drawn(model, ts.LoRA(rank=3))
    assert artifacts[0].tensors["decoder.0.self.q:a"].dtype == torch.float32
    done = convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    assert done.difference is not None and done.difference < 0.05
    given = tiny.batch(model, "none")
    with torch.no_grad():
        expected = tiny.output(peftly.loaded(model, tmp_path / "out"), given)
        with ts.attach(model, *artifacts):
            got = tiny.output(model, given)
    assert (got - expected).abs().max() < 0.05 * expected.abs().max()


def test_chosen_layers_are_named_in_full(tmp_path: Path) -> None:
    model = tiny.make("llama")
    artifacts = drawn(model, ts.LoRA(rank=8, sites=("decoder.1.self.q", "attn.v")))
    convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    config = json.loads((tmp_path / "out" / CONFIG).read_text())
    assert sorted(config["target_modules"]) == ["model.layers.1.self_attn.q_proj", "v_proj"]
    given = tiny.batch(model)
    got = peftly.outputs(peftly.loaded(model, tmp_path / "out"), given)
    torch.testing.assert_close(got, attached(model, artifacts, given), rtol=0, atol=1e-12)


def test_parts_of_a_fused_map_that_share_their_first_factor_stay_of_its_rank(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    made = peftly.wrapped(model, peftly.lora(model, r=8, fan_in_fan_out=True, target_modules=["c_attn"]))
    peftly.written(made, tmp_path / "theirs")
    found = imported(model, tmp_path / "theirs")
    convert.export(tmp_path / "ours", found.artifacts, to="peft", model=model)
    theirs, ours = load_file(tmp_path / "theirs" / TENSORS), load_file(tmp_path / "ours" / TENSORS)
    assert theirs.keys() == ours.keys()
    assert json.loads((tmp_path / "ours" / CONFIG).read_text())["fan_in_fan_out"] is True
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value.double(), rtol=0, atol=1e-15)


def test_more_than_vllm_takes_is_told(tmp_path: Path) -> None:
    import transformers as tf

    wide = tf.LlamaConfig(**{**tiny.LLAMA_LIKE, "hidden_size": 600, "head_dim": 150, "intermediate_size": 8})
    model = tiny.build(tf.AutoModelForCausalLM, wide, dtype=torch.float32)
    done = convert.export(tmp_path / "out", drawn(model, ts.LoRA(rank=520, sites=("attn.q",))), to="peft", model=model)
    assert done.notes == (
        "LoRA of rank 520 on 2 maps, the scale inside lora_B",
        "not vLLM, whose largest rank is 512",
    )


@pytest.mark.parametrize("family", ["gpt2", "t5", "bart"])
def test_selectors_name_exactly_the_sites_that_were_chosen(family: str) -> None:
    model = tiny.make(family)
    known = sites_of(model)
    draw = torch.Generator().manual_seed(0)
    for share in (0.1, 0.5, 0.9, 1.0):
        chosen = {name for name in known if torch.rand((), generator=draw) <= share}
        found = select(known, selectors(known, chosen), "test", family)
        assert {site.name for site in found} == chosen
    assert selectors(known, [name for name in known if name.endswith("self.q")]) == ("self.q",)
