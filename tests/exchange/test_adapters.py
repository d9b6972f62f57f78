"""Files that the adapters library wrote, read here: whole outputs against its own."""

import json
from pathlib import Path

import peftly
import pytest
import theirs
import torch
import transformers as tf
from safetensors.torch import load_file

import tunescope as ts
from tunescope.exchange import convert
from tunescope.exchange.adapters import bottleneck, prefix
from tunescope.exchange.adapters.config import CONFIG, TENSORS

REFUSED = {("t5", "prefix_flat"), ("gpt2", "residual"), ("bert", "residual")}
READ = [pair for pair in theirs.compared() if pair not in REFUSED]


@pytest.mark.parametrize("family", theirs.FAMILIES)
def test_the_base_gives_here_what_it_gave_there(family: str) -> None:
    given = theirs.inputs(family)
    expected = theirs.tiny.real(given, theirs.stored(family)["bare"]).double()
    torch.testing.assert_close(theirs.outputs(theirs.model(family), given), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("family", "case"), READ)
def test_an_adapter_gives_the_library_s_outputs(family: str, case: str) -> None:
    """To the rounding of outputs that are stored in float32, and of what transformers computes in it."""
    model, given = theirs.model(family), theirs.inputs(family)
    found = theirs.read(family, theirs.HERE / family / case)
    expected = theirs.tiny.real(given, theirs.stored(family)[case]).double()
    got = theirs.outputs(model, given, found.artifacts)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
    assert (got - theirs.outputs(model, given)).abs().max() > 0.02
    peftly.assert_own_memory(found.artifacts)


@pytest.mark.parametrize(("family", "case"), READ)
def test_an_adapter_gives_the_library_s_outputs_in_float32(family: str, case: str) -> None:
    model, given = theirs.model(family, torch.float32), theirs.inputs(family)
    found = theirs.read(family, theirs.HERE / family / case, torch.float32)
    expected = theirs.tiny.real(given, theirs.stored(family)[case])
    torch.testing.assert_close(theirs.outputs(model, given, found.artifacts), expected, rtol=0, atol=1e-5)
    assert all(value.dtype == torch.float32 for artifact in found.artifacts for value in artifact.tensors.values())


@pytest.mark.parametrize("case", ["houlsby", "lora_all"])
def test_an_adapter_of_an_xlm_roberta_gives_the_library_s_outputs_of_the_same_roberta(
    case: str, tmp_path: Path
) -> None:
    own, given = theirs.model("roberta"), theirs.inputs("roberta")
    config = {key: value for key, value in own.config.to_dict().items() if key != "model_type"}
    model = tf.XLMRobertaModel(tf.XLMRobertaConfig(**config)).double().eval()
    model.load_state_dict(own.state_dict())
    folder = theirs.headed(theirs.copied("roberta", case, tmp_path), model_type="xlm-roberta")
    found = convert.read(folder, form="adapters", model=model)
    expected = theirs.tiny.real(given, theirs.stored("roberta")[case]).double()
    torch.testing.assert_close(theirs.outputs(model, given, found.artifacts), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", ["houlsby", "parallel", "norm_behind"])
def test_an_adapter_of_an_electra_acts_as_in_the_same_bert(case: str, tmp_path: Path) -> None:
    own, given = theirs.model("bert").bert, theirs.inputs("bert")
    config = {key: value for key, value in own.config.to_dict().items() if key != "model_type"}
    model = tf.ElectraModel(tf.ElectraConfig(**config, embedding_size=8)).double().eval()
    model.load_state_dict(own.state_dict(), strict=False)  # it has no pooler
    folder = theirs.headed(theirs.copied("bert", case, tmp_path), model_type="electra")
    theirs.retensored(folder, {key: None for key in load_file(folder / TENSORS) if not key.startswith("bert.")})
    theirs.renamed(folder, "bert.", "electra.")
    found = convert.read(folder, form="adapters", model=model)
    expected = theirs.outputs(own, given, theirs.read("bert", theirs.HERE / "bert" / case).artifacts)
    got = theirs.outputs(model, given, found.artifacts)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-9)
    assert (got - theirs.outputs(model, given)).abs().max() > 0.02


def specs(family: str, case: str) -> list[object]:
    return [artifact.spec for artifact in theirs.read(family, theirs.HERE / family / case).artifacts]


def test_each_method_becomes_ours() -> None:
    assert specs("gpt2", "prefix") == [ts.Prefix(length=3)]
    assert specs("gpt2", "prefix_relu") == [ts.Prefix(length=2)]
    assert specs("gpt2", "lora") == [ts.LoRA(rank=2, alpha=6.0, sites=("self.q", "self.v"))]
    assert specs("gpt2", "lora_k") == [ts.LoRA(rank=1, alpha=3.0, sites=("decoder.1.self.k",))]
    assert specs("llama", "houlsby") == [ts.Adapter(bottleneck=2, sites=("self", "ffn"), activation="silu")]
    assert specs("bert", "mam") == [
        ts.Prefix(length=3),
        ts.Adapter(bottleneck=2, placement="parallel", scale=4.0),
    ]
    assert specs("bert", "seq_bn") == specs("gpt2", "seq_bn") == [ts.Adapter(bottleneck=2, source="stream")]
    assert specs("gpt2", "mam") == [
        ts.Prefix(length=3),
        ts.Adapter(bottleneck=2, placement="parallel", scale=4.0, source="stream"),
    ]
    assert specs("gpt2", "prefix_and_lora") == [
        ts.Prefix(length=3),
        ts.LoRA(rank=2, alpha=1.0, sites=("self.q", "self.v")),
    ]


def test_widths_placements_and_scales_that_differ_are_adapters_of_their_own() -> None:
    assert specs("gpt2", "widths") == [
        ts.Adapter(bottleneck=2, sites=("decoder.0.self", "decoder.0.ffn"), activation="gelu", norm="in"),
        ts.Adapter(bottleneck=4, sites=("decoder.1.self", "decoder.1.ffn"), activation="gelu", norm="in"),
    ]
    assert specs("bert", "two_kinds") == [
        ts.Adapter(bottleneck=2, sites=("self",)),
        ts.Adapter(bottleneck=4, placement="parallel", scale=0.5),
    ]
    assert specs("bert", "parallel_everywhere") == [
        ts.Adapter(bottleneck=2, placement="parallel", scale="learned", sites=("encoder.0.self", "encoder.0.ffn"))
    ]


def test_a_decoder_s_layers_are_counted_after_the_encoder_s() -> None:
    """BART with two layers and one: leave_out=[0] is the encoder's first and not the decoder's, which is 2."""
    sites = ("encoder.1.self", "decoder.self", "encoder.1.ffn", "decoder.ffn")
    assert specs("bart", "left_out_first") == [ts.Adapter(bottleneck=2, sites=sites)]
    assert specs("bart", "cross") == [ts.Adapter(bottleneck=2, sites=("self", "ffn", "cross"))]


@pytest.mark.parametrize(
    ("case", "spec", "numbers"),
    [
        (
            "compacter",
            ts.Adapter(bottleneck=4, sites=("self", "ffn"), activation="gelu"),
            "Compacter's maps were written out: 304 numbers where",
        ),
        (
            "compacter_shared",
            ts.Adapter(bottleneck=4, sites=("self", "ffn"), activation="gelu", scale=8.0),
            "Compacter's maps were written out: 304 numbers where",
        ),
        (
            "vera",
            ts.LoRA(rank=1, alpha=8.0, sites=("self.q", "self.v")),
            "VeRA's maps were written out: 64 numbers where",
        ),
    ],
)
def test_maps_that_are_stored_in_parts_are_written_out_and_said_to_be(case: str, spec: object, numbers: str) -> None:
    found = theirs.read("bert", theirs.HERE / "bert" / case)
    assert [artifact.spec for artifact in found.artifacts] == [spec]
    assert found.notes[0].startswith(numbers) and len(found.notes) == 1


def test_a_part_that_is_missing_or_fits_no_other_is_named(tmp_path: Path) -> None:
    folder = theirs.copied("bert", "compacter", tmp_path)
    tensors = load_file(folder / TENSORS)
    rule = "bert.shared_parameters.compacter.phm_rule"
    for changed, told in (
        (None, r"adapter_down\.0' has no phm_rule: the file was altered or cut\.$"),
        (tensors[rule][:1], r"the parts of '.*adapter_down\.0' do not fit each other: the file was altered\.$"),
    ):
        theirs.retensored(folder, {rule: changed})
        with pytest.raises(ts.UserError, match=told):
            theirs.read("bert", folder)


def test_a_compacter_without_biases_is_one_whose_biases_are_nothing(tmp_path: Path) -> None:
    """As phm_bias=False leaves them out."""
    found = {}
    for name in ("zero", "absent"):
        folder = theirs.copied("bert", "compacter", tmp_path / name)
        biases = {key: value for key, value in load_file(folder / TENSORS).items() if key.endswith(".b")}
        assert biases
        changed = {key: torch.zeros_like(value) if name == "zero" else None for key, value in biases.items()}
        (found[name],) = theirs.read("bert", theirs.retensored(folder, changed)).artifacts
    assert found["zero"].spec == found["absent"].spec
    assert all(torch.equal(value, found["absent"].tensors[key]) for key, value in found["zero"].tensors.items())


def test_a_norm_behind_a_parallel_adapter_is_of_what_it_adds_alone() -> None:
    """The library norms the block's output too where one in sequence has adapter_residual_before_ln."""
    fields = {"ln_after": True, "adapter_residual_before_ln": True}
    bottleneck.check_exact(fields | {"is_parallel": True})
    with pytest.raises(ts.UserError, match="adapter_residual_before_ln=True norms the block's output too"):
        bottleneck.check_exact(fields)


def test_the_network_of_a_prefix_has_the_activation_that_the_file_says(tmp_path: Path) -> None:
    active = {"leakyrelu": torch.nn.functional.leaky_relu, "relu": torch.relu, "gelu": torch.nn.functional.gelu}
    for name, function in (active | {"tanh": torch.tanh}).items():
        folder = theirs.configured(theirs.copied("gpt2", "prefix", tmp_path / name), non_linearity=name)
        parts = {".".join(key.split(".")[-3:]): value.double() for key, value in load_file(folder / TENSORS).items()}
        table, up = parts["self_prefix.wte.weight"], parts["control_trans.2.weight"]
        hidden = function(table @ parts["control_trans.0.weight"].T + parts["control_trans.0.bias"])
        flat = (hidden @ up.T + parts["control_trans.2.bias"]).view(3, 4, 2, 4)
        (artifact,) = theirs.read("gpt2", folder).artifacts
        expected = flat[:, 2].transpose(0, 1)
        torch.testing.assert_close(artifact.tensors["decoder.1.self.key"], expected, rtol=0, atol=1e-12)


def test_chosen_parts_of_a_fused_map_stand_as_the_map_has_them_whatever_the_order_of_their_names(
    tmp_path: Path,
) -> None:
    folder = theirs.configured(theirs.copied("gpt2", "lora", tmp_path), attn_matrices=["v", "q"])
    (got,), (expected,) = (theirs.read("gpt2", at).artifacts for at in (folder, theirs.HERE / "gpt2" / "lora"))
    assert got.spec == expected.spec
    assert all(torch.equal(got.tensors[name], value) for name, value in expected.tensors.items())


def test_a_prefix_comes_with_the_library_s_own_condition() -> None:
    (note,) = theirs.read("gpt2", theirs.HERE / "gpt2" / "prefix").notes
    assert note.startswith("in that library a decoder's prefix takes part as meant with attn_implementation='eager'")
    assert theirs.read("bert", theirs.HERE / "bert" / "prefix_flat").notes == []


def test_the_prefix_of_t5_would_give_other_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix, "_is_shifted", lambda model: False)
    model, given = theirs.model("t5"), theirs.inputs("t5")
    found = theirs.read("t5", theirs.HERE / "t5" / "prefix_flat")
    got = theirs.outputs(model, given, found.artifacts)
    assert (got - theirs.stored("t5")["prefix_flat"]).abs().max() > 1e-2


def test_a_rank_above_a_map_s_width_is_the_same_map_at_one_that_it_can_have(tmp_path: Path) -> None:
    folder = theirs.configured(theirs.copied("llama", "lora_all", tmp_path), r=20, alpha=60)
    tensors, draw = load_file(folder / TENSORS), torch.Generator().manual_seed(0)
    for key, value in tensors.items():
        shape = (20, value.shape[1]) if key.endswith("lora_A") else (value.shape[0], 20)
        tensors[key] = 0.1 * torch.randn(shape, generator=draw)
    theirs.retensored(folder, dict(tensors))
    found = theirs.read("llama", folder)
    assert [(artifact.spec.rank, artifact.spec.scale) for artifact in found.artifacts] == [(4, 3.0), (8, 3.0)]
    tuned, at = {}, {site: artifact for artifact in found.artifacts for site in artifact.tensors}
    for key in at:
        site, _, factor = key.partition(":")
        tuned.setdefault(site, {})[factor] = at[key].tensors[key]
    name = "model.layers.1.self_attn.v_proj.loras.lora_all"
    expected = tensors[f"{name}.lora_B"].double() @ tensors[f"{name}.lora_A"].double()
    got = tuned["decoder.1.self.v"]["b"] @ tuned["decoder.1.self.v"]["a"]
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


def test_an_older_library_s_lora_has_the_scale_that_it_was_computed_with(tmp_path: Path) -> None:
    folder = theirs.headed(theirs.copied("gpt2", "lora", tmp_path), version="adapters.1.0.1")
    found = theirs.read("gpt2", folder)
    assert found.artifacts[0].spec.scale == 1.0
    assert found.notes == [
        "adapters.1.0.1 computed LoRA with the scale 1 whatever alpha said: read so, as the library itself does"
    ]
    for version in ("adapters.1.1.0.dev0", "adapters.1.1.0rc1"):  # which come before it
        assert theirs.read("gpt2", theirs.headed(folder, version=version)).artifacts[0].spec.scale == 1.0
    for version in ("adapters.1.1.0", "3.2.1", "adapters.x"):
        assert theirs.read("gpt2", theirs.headed(folder, version=version)).artifacts[0].spec.scale == 3.0


@pytest.mark.parametrize("case", ["houlsby", "prefix", "mam"])
def test_what_an_older_library_wrote_of_other_kinds_is_read_as_it_is(case: str, tmp_path: Path) -> None:
    found = theirs.read("gpt2", theirs.headed(theirs.copied("gpt2", case, tmp_path), version="adapters.1.0.1"))
    expected = theirs.read("gpt2", theirs.HERE / "gpt2" / case)
    assert found.notes == expected.notes
    assert [one.spec for one in found.artifacts] == [one.spec for one in expected.artifacts]


def test_a_field_of_an_older_file_that_is_absent_has_the_library_s_default(tmp_path: Path) -> None:
    folder = theirs.copied("gpt2", "houlsby", tmp_path)
    whole = json.loads((folder / CONFIG).read_text())
    kept = ("mh_adapter", "output_adapter", "reduction_factor", "non_linearity")
    theirs.headed(folder, config={name: whole["config"][name] for name in kept})
    (found,), (expected,) = (theirs.read("gpt2", at).artifacts for at in (folder, theirs.HERE / "gpt2" / "houlsby"))
    assert found.spec == expected.spec


def test_a_file_without_a_version_has_the_activations_of_its_time(tmp_path: Path) -> None:
    """ "gelu" was the approximation then, which no adapter here has, and "gelu_orig" the function itself."""
    folder = theirs.configured(theirs.copied("gpt2", "houlsby", tmp_path), non_linearity="gelu_orig")
    whole = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({name: value for name, value in whole.items() if name != "version"}))
    assert theirs.read("gpt2", folder).artifacts[0].spec.activation == "gelu"
    theirs.configured(folder, non_linearity="gelu")
    with pytest.raises(ts.UserError, match="non_linearity is 'gelu_new'; an adapter here has relu"):
        theirs.read("gpt2", folder)


def test_files_of_the_library_s_own_classes_are_read_too(tmp_path: Path) -> None:
    """T5AdapterModel keeps T5 as its part "transformer", which is in front of every key."""
    folder = theirs.copied("t5", "cross", tmp_path)
    tensors = load_file(folder / TENSORS)
    renamed = {f"transformer.{key}": value for key, value in tensors.items()}
    theirs.retensored(folder, {**dict.fromkeys(tensors), **renamed})
    (expected,) = theirs.read("t5", theirs.HERE / "t5" / "cross").artifacts
    (got,) = theirs.read("t5", folder).artifacts
    assert got.spec == expected.spec
    assert all(torch.equal(got.tensors[name], value) for name, value in expected.tensors.items())


def test_a_model_without_its_head_takes_the_same_files() -> None:
    bare = tf.AutoModel.from_pretrained(theirs.HERE / "gpt2", dtype=torch.float64).eval()
    for case in ("lora_all", "houlsby", "prefix"):
        (artifact,) = convert.read(theirs.HERE / "gpt2" / case, form="adapters", model=bare).artifacts
        (headed,) = theirs.read("gpt2", theirs.HERE / "gpt2" / case).artifacts
        assert artifact.spec == headed.spec
        assert all(torch.equal(artifact.tensors[name], value) for name, value in headed.tensors.items())


def test_what_trains_alone_is_kept_or_told(tmp_path: Path) -> None:
    folder = theirs.configured(theirs.copied("gpt2", "lora", tmp_path), dropout=0.1)
    assert theirs.read("gpt2", folder).artifacts[0].spec.dropout == 0.1
    folder = theirs.configured(theirs.copied("gpt2", "houlsby", tmp_path), dropout=0.1)
    assert theirs.read("gpt2", folder).notes == ["its dropout was left out: it acts in training alone"]


def test_a_head_in_the_folder_is_told(tmp_path: Path) -> None:
    folder = theirs.copied("gpt2", "houlsby", tmp_path)
    (folder / "pytorch_model_head.bin").write_bytes(b"anything: it is not opened")
    assert theirs.read("gpt2", folder).notes == [
        "the prediction head in pytorch_model_head.bin was left out: only the adapter was read. Where it was trained "
        "too, the outputs need it"
    ]


@pytest.mark.parametrize("alpha", [1, 2.5])
def test_ia3_multiplies_every_part_of_a_fused_map_by_alpha(alpha: float, tmp_path: Path) -> None:
    """That library pads the vectors of k and v by 1 where q is, and then multiplies all of it; so in the weights."""
    folder = theirs.configured(theirs.copied("gpt2", "ia3", tmp_path), alpha=alpha)
    model, given, tensors = theirs.model("gpt2"), theirs.inputs("gpt2"), load_file(folder / TENSORS)
    got = theirs.outputs(model, given, theirs.read("gpt2", folder).artifacts)
    for number, block in enumerate(model.transformer.h):
        for name, part in (("attn.c_attn", block.attn.c_attn), ("mlp.c_fc", block.mlp.c_fc)):
            vector = tensors[f"transformer.h.{number}.{name}.loras.ia3.lora_B"].flatten().double()
            whole = alpha * torch.cat([vector.new_ones(part.weight.shape[1] - len(vector)), vector])
            part.weight.data.mul_(whole)
            part.bias.data.mul_(whole)
    torch.testing.assert_close(got, theirs.outputs(model, given), rtol=0, atol=1e-12)


HALF = [("llama", "dora"), ("bert", "dora"), ("gpt2", "widths"), ("bert", "vera"), ("bert", "compacter")]


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("family", "case"), HALF)
def test_what_is_stored_in_half_precision_is_computed_with_in_whole(
    family: str, case: str, half: torch.dtype, tmp_path: Path
) -> None:
    """The library copies it into parameters of float32 first."""
    found = []
    for name, dtype in (("half", half), ("whole", torch.float32)):
        folder = theirs.copied(family, case, tmp_path / name)
        tensors = load_file(folder / TENSORS)
        theirs.retensored(folder, {key: value.to(half).to(dtype) for key, value in tensors.items()})
        found.append(theirs.outputs(theirs.model(family), theirs.inputs(family), theirs.read(family, folder).artifacts))
    torch.testing.assert_close(*found, rtol=0, atol=1e-6)
