"""What peft trains beside or instead of plain LoRA, on files that it wrote: the same outputs, merged too."""

import json
from pathlib import Path
from typing import Any

import peft
import peftly
import pytest
import tiny
import torch
import transformers
from safetensors.torch import load_file
from zoo import zoo

import tunescope as ts
from tunescope.attachment.initial_artifacts import initialised
from tunescope.exchange import compare_outputs, convert
from tunescope.exchange.export_import import exported, imported
from tunescope.exchange.peft.config import CONFIG, TENSORS, opened
from tunescope.exchange.site_names import ranges


def lora(model: Any, *targets: str, **fields: Any) -> Any:
    return peftly.lora(model, r=3, lora_alpha=5, target_modules=list(targets), **fields)


def ia3(model: Any, **fields: Any) -> Any:
    return peft.IA3Config(task_type=peftly.TASKS[ts.models.anatomy.kind(model)], **fields)


READ = sorted(set(tiny.ids()[0].tolist()), reverse=True)[:3]  # tokens of the texts below, in falling order
WAYS = {
    "biases": ("gpt2", lambda m: lora(m, "c_attn", bias="all"), [ts.Bias()]),
    "biases of LoRA's maps": (
        "gpt2",
        lambda m: lora(m, "c_attn", bias="lora_only"),
        [ts.Full(only=("h.*.attn.c_attn.bias",))],
    ),
    "biases and norms": ("gpt2", lambda m: lora(m, "c_attn", bias="all", modules_to_save=["ln_f"]), None),
    "biases and tokens": ("gpt2", lambda m: lora(m, "c_attn", bias="all", trainable_token_indices={"wte": READ}), None),
    "biases and whole blocks": ("gpt2", lambda m: lora(m, "c_attn", bias="all", modules_to_save=["mlp"]), None),
    "biases of a family without": ("llama", lambda m: lora(m, "q_proj", bias="all"), []),
    "norms and the whole vocabulary": (
        "llama",
        lambda m: lora(m, "q_proj", modules_to_save=["norm", "embed_tokens", "lm_head"]),
        None,
    ),
    "norms": (
        "gpt2",
        lambda m: lora(m, "c_fc", modules_to_save=["ln_f"]),
        [ts.Full(only=("ln_f.bias", "ln_f.weight"))],
    ),
    "a tied embedding": (
        "gemma2",
        lambda m: lora(m, "q_proj", modules_to_save=["embed_tokens"], ensure_weight_tying=True),
        [ts.Full(only=("embed_tokens.weight",))],
    ),
    "tokens": (
        "llama",
        lambda m: lora(m, "q_proj", trainable_token_indices=READ),
        [ts.Full(only=("embed_tokens.weight",), rows=tuple(READ))],
    ),
    "tokens alone": (
        "llama",
        lambda m: peft.TrainableTokensConfig(
            task_type="CAUSAL_LM", token_indices=READ, target_modules=["embed_tokens"]
        ),
        [ts.Full(only=("embed_tokens.weight",), rows=tuple(READ))],
    ),
    "tokens of a tied embedding": (
        "gpt2",
        lambda m: lora(m, "c_attn", trainable_token_indices={"wte": READ}),
        [ts.Full(only=("wte.weight",), rows=tuple(READ))],
    ),
    "a bias of the second factor": (
        "gpt2",
        lambda m: lora(m, "c_attn", lora_bias=True, use_rslora=True),
        [ts.Full(only=("h.*.attn.c_attn.bias",))],
    ),
    "LoRA on a tied embedding": ("gemma2", lambda m: lora(m, "q_proj", "embed_tokens", ensure_weight_tying=True), None),
    "LoRA on a tied head": (
        "gemma2",
        lambda m: lora(m, "q_proj", "lm_head", ensure_weight_tying=True, use_rslora=True),
        [ts.Full(only=("embed_tokens.weight",))],
    ),
    "LoRA on the vocabulary": ("llama", lambda m: lora(m, "q_proj", "embed_tokens", "lm_head"), None),
    "DoRA": ("llama", lambda m: lora(m, "q_proj", "down_proj", use_dora=True), None),
    "DoRA, rank-stabilised, on transposed maps with biases": (
        "gpt2",
        lambda m: lora(m, "c_attn", "c_proj", use_dora=True, use_rslora=True, fan_in_fan_out=True, bias="all"),
        None,
    ),
    "DoRA on transposed maps": ("gpt2", lambda m: lora(m, "c_attn", use_dora=True, fan_in_fan_out=True), None),
    "DoRA of an encoder-decoder": ("t5", lambda m: lora(m, "q", "wo", use_dora=True), None),
    "DoRA with a rank of its own": (
        "bert",
        lambda m: lora(m, "query", "value", use_dora=True, rank_pattern={"query": 2}),
        None,
    ),
    "IA3": ("llama", ia3, None),
    "IA3 on transposed maps": ("gpt2", lambda m: ia3(m, modules_to_save=["ln_f"]), None),
    "IA3 of an encoder-decoder": ("t5", ia3, None),
}


@pytest.mark.parametrize("which", WAYS)
def test_what_peft_trains_beside_lora_gives_peft_s_outputs(which: str, tmp_path: Path) -> None:
    family, config, expected = WAYS[which]
    model = tiny.make(family)
    made = peftly.wrapped(model, config(model))
    found = convert.read(peftly.written(made, tmp_path / "peft"), form="peft", model=model)
    if expected is not None:
        assert [one.spec for one in found.artifacts if not isinstance(one.spec, ts.LoRA)] == expected
    peftly.assert_own_memory(found.artifacts)
    artifacts = ts.load(ts.save(tmp_path / "own", found.artifacts, model=model))
    merged = ts.merge(tiny.make(family), *artifacts)
    for padding in ("none", "left", "right"):
        given = tiny.batch(model, padding)
        theirs = tiny.real(given, peftly.outputs(made, given))
        assert (theirs - tiny.real(given, peftly.outputs(model, given))).abs().max() > 1e-3
        with ts.attach(model, *artifacts):
            got = peftly.outputs(model, given)
        for ours in (got, peftly.outputs(merged, given)):
            torch.testing.assert_close(tiny.real(given, ours), theirs, rtol=0, atol=1e-12)


GO_BACK = (
    "DoRA",
    "DoRA of an encoder-decoder",
    "DoRA with a rank of its own",
    "DoRA on transposed maps",
    "biases",
    "biases and norms",
    "biases and tokens",
    "biases of LoRA's maps",
    "norms",
    "norms and the whole vocabulary",
    "tokens",
    "tokens of a tied embedding",
)


@pytest.mark.parametrize("which", GO_BACK)
def test_what_stands_beside_lora_goes_back_to_peft(which: str, tmp_path: Path) -> None:
    family, config, _ = WAYS[which]
    model = tiny.make(family)
    made = peftly.wrapped(model, config(model))
    found = convert.read(peftly.written(made, tmp_path / "peft"), form="peft", model=model)
    done = convert.export(tmp_path / "out", found.artifacts, to="peft", model=model)
    assert done.difference is not None and done.difference < 1e-12
    again = peftly.loaded(model, tmp_path / "out")
    for padding in ("none", "right"):
        given = tiny.batch(model, padding)
        got, theirs = peftly.outputs(again, given), peftly.outputs(made, given)
        torch.testing.assert_close(tiny.real(given, got), tiny.real(given, theirs), rtol=0, atol=1e-12)


@pytest.mark.parametrize("only", ["h.*.ln_1.bias", "h.0.attn.c_attn.bias"])
def test_some_biases_beside_lora_go_to_peft_with_those_of_its_maps(only: str, tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    artifacts = tiny.away(model, f"lora:rank=2,sites=attn.q+full:only={only}")
    done = convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    assert done.difference is not None and done.difference < 1e-12
    assert json.loads((tmp_path / "out" / CONFIG).read_text())["bias"] == "all"  # which peft goes by when it trains on
    given = tiny.batch(model, "right")
    with ts.attach(model, *artifacts):
        wanted = peftly.outputs(model, given)
    got = peftly.outputs(peftly.loaded(model, tmp_path / "out"), given)
    torch.testing.assert_close(tiny.real(given, got), tiny.real(given, wanted), rtol=0, atol=1e-12)


def test_what_is_written_whole_is_told_by_name(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    artifacts = tiny.away(model, "lora:rank=2,sites=attn.q+full:only=ln_f.*+full:only=wpe.weight")
    done = convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    assert any(note.startswith("transformer.ln_f, transformer.wpe: written as they are") for note in done.notes)


def test_what_peft_cannot_say_beside_lora_is_not_written(tmp_path: Path) -> None:
    for family, which, told in (
        ("gemma2", "a tied embedding", r"which is tied, and peft's whole modules are not: merge all of it into the we"),
        (
            "gpt2",
            "DoRA, rank-stabilised, on transposed maps with biases",
            r"is none that DoRA has over the base's own bi",
        ),
    ):
        model = tiny.make(family)
        folder = peftly.written(peftly.wrapped(model, WAYS[which][1](model)), tmp_path / family)
        found = convert.read(folder, form="peft", model=model)
        with pytest.raises(ts.UserError, match=told):
            convert.export(tmp_path / "out", found.artifacts, to="peft", model=model)
    model = tiny.make("llama")
    given = initialised(model, [ts.LoRA(rank=2), ts.Full(only=("*.q_proj.weight",))], None, 0)
    with pytest.raises(ts.UserError, match=r"'layers.0.self_attn.q_proj.weight', whose map has LoRA, and peft has one"):
        convert.export(tmp_path / "out", given, to="peft", model=model)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("which", ["biases", "tokens", "DoRA", "DoRA on transposed maps", "IA3"])
def test_the_same_in_float32(which: str, tmp_path: Path) -> None:
    family, config, _ = WAYS[which]
    model = tiny.make(family, dtype=torch.float32)
    made = peftly.wrapped(model, config(model))
    found = convert.read(peftly.written(made, tmp_path / "peft"), form="peft", model=model)
    given = tiny.batch(model)
    with ts.attach(model, *found.artifacts):
        got, expected = peftly.outputs(model, given), peftly.outputs(made, given)
    assert got.dtype == torch.float32
    torch.testing.assert_close(tiny.real(given, got), tiny.real(given, expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("family", "start"), [("llama", "pissa"), ("gpt2", "pissa"), ("llama", "olora")])
def test_a_start_that_changed_the_base_is_undone(family: str, start: str, tmp_path: Path) -> None:
    model = tiny.make(family, dtype=torch.float32)  # peft has them in float32 alone
    targets = ("c_attn", "c_proj") if family == "gpt2" else ("q_proj", "k_proj", "down_proj")
    made = peftly.wrapped(model, lora(model, *targets, init_lora_weights=start, fan_in_fan_out=family == "gpt2"))
    found = convert.read(peftly.written(made, tmp_path / "peft"), form="peft", model=model)
    assert f"init_lora_weights={start!r} took a product out of the base" in found.notes[0]
    given = tiny.batch(model)
    expected = peftly.outputs(made, given)
    with ts.attach(model, *found.artifacts):
        torch.testing.assert_close(peftly.outputs(model, given), expected, rtol=0, atol=1e-5)
    plain = convert.read(peftly.configured(tmp_path / "peft", init_lora_weights=True), form="peft", model=model)
    with ts.attach(model, *plain.artifacts):
        assert (peftly.outputs(model, given) - expected).abs().max() > 0.1


def test_a_pissa_that_peft_converted_is_plain_lora(tmp_path: Path) -> None:
    model = tiny.make("llama", dtype=torch.float32)
    with peftly.quiet():
        made = peft.get_peft_model(
            tiny.make("llama", dtype=torch.float32), lora(model, "q_proj", init_lora_weights="pissa")
        )
        made.peft_config["default"].init_lora_weights = True
        made.save_pretrained(tmp_path / "start")
        with torch.no_grad():
            for name, value in made.named_parameters():
                if ".lora_" in name:
                    value += 0.3 * torch.randn(value.shape, generator=torch.Generator().manual_seed(2))
        made.peft_config["default"].init_lora_weights = "pissa"
        made.save_pretrained(tmp_path / "out", path_initial_model_for_weight_conversion=str(tmp_path / "start"))
    assert json.loads((tmp_path / "out" / CONFIG).read_text())["init_lora_weights"] is True
    found = convert.read(tmp_path / "out", form="peft", model=model)
    assert [one.spec.rank for one in found.artifacts] == [6]
    given = tiny.batch(model)
    with ts.attach(model, *found.artifacts):
        got = peftly.outputs(model, given)
    torch.testing.assert_close(got, peftly.outputs(made.eval(), given), rtol=0, atol=1e-5)


Q = "base_model.model.model.layers.0.self_attn.q_proj"
FAULTS = {
    "no magnitude": ("DoRA", {f"{Q}.lora_magnitude_vector": None}, "q_proj' lacks lora_magnitude_vector"),
    "magnitudes": ("DoRA", {f"{Q}.lora_magnitude_vector": torch.ones(23)}, "another number of magnitudes than rows"),
    "one factor": ("DoRA", {f"{Q}.lora_A.weight": None}, r"q_proj' has lora_B alone"),
    "no second bias": (
        "a bias of the second factor",
        {"base_model.model.transformer.h.0.attn.c_attn.lora_B.bias": None},
        "c_attn' has no bias in LoRA's second map, and lora_bias is True",
    ),
    "a second bias": (
        "DoRA",
        {f"{Q}.lora_B.bias": torch.ones(24)},
        "q_proj' has a bias in LoRA's second map, and lora_b",
    ),
    "a vector": (
        "IA3",
        {"base_model.model.model.layers.0.self_attn.k_proj.ia3_l": torch.ones(24, 1)},
        r"k_proj' has ia3_l \(24, 1\) and should have \(12, 1\) or, of a map that feedforward_modules names, \(1, 24\)",
    ),
    "not IA3's": ("IA3", {"extra": torch.ones(1)}, r"'extra' does not belong to \(IA\)3"),
    "fewer tokens": (
        "tokens",
        {"base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta": torch.ones(1, 24)},
        r"3 tokens of 'model.embed_tokens' are \(1, 24\) and should be \(3, 24\), of 97",
    ),
    "no tokens": (
        "tokens",
        {"base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta": None},
        "lacks trained tokens, which its configuration says",
    ),
    "a bias": (
        "biases of LoRA's maps",
        {"base_model.model.transformer.h.0.attn.c_attn.base_layer.bias": None},
        r"has no bias of 'transformer.h.0.attn.c_attn', which its configuration says was trained \(bias='lora_only'",
    ),
    "a module": (
        "norms",
        {f"base_model.model.transformer.ln_f.{end}": None for end in ("weight", "bias")},
        "lacks ln_f,",
    ),
    "a wider vocabulary": (
        "norms and the whole vocabulary",
        {"base_model.model.model.embed_tokens.weight": torch.ones(99, 24)},
        r"embed_tokens.weight is \(99, 24\) and here \(97, 24\). Was the vocabulary resized, then: Merge it in peft",
    ),
}


@pytest.mark.parametrize("which", FAULTS)
def test_a_part_that_is_missing_or_altered_is_refused(which: str, tmp_path: Path) -> None:
    of, change, told = FAULTS[which]
    family, config, _ = WAYS[of]
    model = tiny.make(family)
    folder = peftly.written(peftly.wrapped(model, config(model)), tmp_path / "peft")
    peftly.retensored(folder, change)
    with pytest.raises(ts.UserError, match=told) as caught:
        convert.read(folder, form="peft", model=model)
    assert "\n" not in str(caught.value)


def test_modules_that_the_model_has_not_were_not_trained_and_are_not_missed(tmp_path: Path) -> None:
    model = tiny.make("llama")
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["lm_head", "embed_out"])
    theirs = peftly.wrapped(model, config)
    folder = peftly.written(theirs, tmp_path / "peft")
    given = {"input_ids": torch.tensor([[*READ, 9]])}
    with ts.attach(model, *convert.read(folder, form="peft", model=model).artifacts):
        assert torch.allclose(peftly.outputs(model, given), peftly.outputs(theirs, given), atol=1e-12)
    peftly.retensored(folder, {"base_model.model.lm_head.weight": None})
    with pytest.raises(ts.UserError, match="lacks lm_head, which its configuration says was trained"):
        convert.read(folder, form="peft", model=model)


@pytest.mark.parametrize("which", ["DoRA", "IA3", "tokens", "biases"])
def test_a_number_changed_in_the_file_is_seen_in_the_outputs(which: str, tmp_path: Path) -> None:
    """What the tests above compare hangs on every kind of tensor that the file has."""
    family, config, _ = WAYS[which]
    model = tiny.make(family)
    folder = peftly.written(peftly.wrapped(model, config(model)), tmp_path / "peft")
    given = {"input_ids": torch.tensor([[*READ, 9]])}
    before = convert.read(folder, form="peft", model=model)
    with ts.attach(model, *before.artifacts):
        expected = peftly.outputs(model, given)
    for name, value in load_file(folder / TENSORS).items():
        peftly.retensored(folder, {name: value * 1.01})
        found = convert.read(folder, form="peft", model=model)
        with ts.attach(model, *found.artifacts):
            apart = (peftly.outputs(model, given) - expected).abs().max()
        assert apart > 1e-6, name
        peftly.retensored(folder, {name: value})


def test_a_bias_whose_own_path_has_the_words_of_peft_s_copies_is_kept(tmp_path: Path) -> None:
    """Left out is one that stands there under its own name too."""
    model = tiny.make("llama")
    folder = peftly.written(peftly.wrapped(model, lora(model, "q_proj")), tmp_path / "peft")
    own = [f"base_model.model.{path}.bias" for path in ("a.original_module.map", "a.modules_to_save.map", "b.map")]
    copies = ("b.original_module.map", "b.modules_to_save.default.map", "a.original_module.original_module.map")
    saved = dict.fromkeys([*own, *(f"base_model.model.{path}.bias" for path in copies)], torch.ones(2))
    peftly.retensored(folder, {name: value.clone() for name, value in saved.items()})
    assert [key for key in opened(folder)[1] if key.endswith(".bias")] == sorted(own)


def test_an_ia3_that_is_not_there_is_told_and_none_at_all_is_refused(tmp_path: Path) -> None:
    model = tiny.make("llama")
    folder = peftly.written(peftly.wrapped(model, ia3(model)), tmp_path / "peft")
    assert not any("has no (IA)3" in note for note in convert.read(folder, form="peft", model=model).notes)
    peftly.retensored(folder, {"base_model.model.model.layers.1.self_attn.k_proj.ia3_l": None})
    told = "the file has no (IA)3 for model.layers.1.self_attn.k_proj, which target_modules names"
    assert told in convert.read(folder, form="peft", model=model).notes
    peftly.retensored(folder, dict.fromkeys(load_file(folder / TENSORS)))
    with pytest.raises(ts.UserError, match=r"holds no ia3_l: it is no \(IA\)3 checkpoint of peft"):
        convert.read(folder, form="peft", model=model)


def test_an_embedding_trained_apart_from_what_it_is_tied_to_is_refused(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    of_wte = {"modules_to_save": ["wte"]}
    configs = (
        lora(model, "c_attn", **of_wte),
        lora(model, "c_attn", **of_wte, ensure_weight_tying=True),
        lora(model, "wte"),
    )
    for index, config in enumerate(configs):  # the second too: peft ties what is called embed_tokens alone
        folder = peftly.written(peftly.wrapped(model, config), tmp_path / str(index))
        with pytest.raises(
            ts.UserError, match=r"'transformer.wte' was trained apart .* ensure_weight_tying=True trains both"
        ):
            convert.read(folder, form="peft", model=model)


@pytest.mark.parametrize("fields", [{"alpha_pattern": {"lm_head": 3}}, {"rank_pattern": {"embed_tokens": 2}}], ids=str)
def test_a_lora_that_peft_scales_otherwise_at_the_tied_head_is_refused(fields: Any, tmp_path: Path) -> None:
    model = tiny.make("gemma2")
    made = peftly.wrapped(model, lora(model, "q_proj", "embed_tokens", ensure_weight_tying=True, **fields))
    folder = peftly.written(made, tmp_path / "peft")
    with pytest.raises(ts.UserError, match=r"'lm_head' was trained apart .* target_modules, with one rank and alpha"):
        convert.read(folder, form="peft", model=model)


def test_a_tied_lora_with_one_copy_altered_or_without_its_head_is_refused(tmp_path: Path) -> None:
    model, key = tiny.make("gemma2"), "base_model.model.lm_head.lora_A.weight"
    folder = peftly.written(peftly.wrapped(model, WAYS["LoRA on a tied embedding"][1](model)), tmp_path / "peft")
    with pytest.raises(ts.UserError, match=r"lm_head.*, which this model does not have"):
        convert.read(folder, form="peft", model=model.model)
    whole = load_file(folder / TENSORS)[key]
    for other in (whole * 1.01, whole[:, 1:].clone(), whole[None].clone(), whole[0, 0].clone()):
        peftly.retensored(folder, {key: other})
        with pytest.raises(ts.UserError, match="'lm_head' was trained apart from what it is tied to"):
            convert.read(folder, form="peft", model=model)


def test_a_lora_of_the_tied_head_that_peft_drops_on_loading_is_refused(tmp_path: Path) -> None:
    """It ties GPT-2's wte when the head is asked for, and writes a configuration by which it does not do so again."""
    model = tiny.make("gpt2")
    made = peftly.wrapped(model, lora(model, "c_attn", "lm_head", ensure_weight_tying=True))
    folder, given = peftly.written(made, tmp_path / "peft"), tiny.batch(model)
    assert (peftly.outputs(peftly.loaded(model, folder), given) - peftly.outputs(made, given)).abs().max() > 1e-3
    with pytest.raises(ts.UserError, match="'lm_head' was trained apart from what it is tied to"):
        convert.read(folder, form="peft", model=model)


@pytest.mark.parametrize("feedforward", [[], r".*\.key", ["y"]], ids=str)
def test_ia3_on_square_maps_lies_as_the_configuration_says(feedforward: Any, tmp_path: Path) -> None:
    """peft compares ends of names, dots or not; a vector that lies otherwise does not fit it, nor us."""
    model = tiny.make("bert")
    targets = r".*\.(query|key)" if feedforward else ["query", "key"]
    made = peftly.wrapped(model, ia3(model, target_modules=targets, feedforward_modules=feedforward))
    folder = peftly.written(made, tmp_path / "peft")
    found, given = convert.read(folder, form="peft", model=model), tiny.batch(model)
    with ts.attach(model, *found.artifacts):
        torch.testing.assert_close(peftly.outputs(model, given), peftly.outputs(made, given), rtol=0, atol=1e-12)
    peftly.retensored(folder, {name: value.T.contiguous() for name, value in load_file(folder / TENSORS).items()})
    with pytest.raises(RuntimeError, match="size mismatch"):
        peftly.loaded(model, folder)
    with pytest.raises(ts.UserError, match=r"has ia3_l .* of a map that feedforward_modules names"):
        convert.read(folder, form="peft", model=model)
    peftly.configured(folder, feedforward_modules="(")
    with pytest.raises(ts.UserError, match=r"feedforward_modules has '\(', which is no pattern"):
        convert.read(folder, form="peft", model=model)


def test_tokens_that_the_configuration_does_not_name_are_refused(tmp_path: Path) -> None:
    model = tiny.make("llama")
    folder = peftly.written(peftly.wrapped(model, WAYS["tokens"][1](model)), tmp_path / "peft")
    for indices in ({"other": READ}, [3, 3, 5], [True, 5, 7], {"embed_tokens": "3"}):
        with pytest.raises(ts.UserError, match="and its configuration does not say which"):
            convert.read(peftly.configured(folder, trainable_token_indices=indices), form="peft", model=model)
    for rows in ([3, 5, 97], [-1, 5, 7]):
        with pytest.raises(ts.UserError, match=r"3 tokens of 'model.embed_tokens' are .* of 97"):
            convert.read(peftly.configured(folder, trainable_token_indices=rows), form="peft", model=model)


def test_a_head_over_words_that_the_model_lacks_is_asked_for(tmp_path: Path) -> None:
    model = tiny.make("llama")
    folder = peftly.written(
        peftly.wrapped(model, lora(model, "q_proj", modules_to_save=["lm_head"])), tmp_path / "peft"
    )
    with pytest.raises(ts.UserError, match=r"lm_head.weight, which this model does not have: load it with the head"):
        convert.read(folder, form="peft", model=model.model)


def test_full_tuning_of_some_parameters_changes_them_alone() -> None:
    model = tiny.make("gpt2")
    given = tiny.batch(model)
    for spec, names in (
        (
            ts.Full(only=("h.0.ln_*", "wpe.*")),
            {"h.0.ln_1.weight", "h.0.ln_1.bias", "h.0.ln_2.weight", "h.0.ln_2.bias", "wpe.weight"},
        ),
        (ts.Full(only=("wte.weight",), rows=tuple(READ)), {"wte.weight"}),
    ):
        itself = tiny.make("gpt2")
        with ts.attach(model, spec) as tuned:
            tuned.train()
            leaves = {name.partition(".")[2]: leaf for name, leaf in tuned.named_parameters().items()}
            assert leaves.keys() == names
            with torch.no_grad():
                own = dict(itself.transformer.named_parameters())
                for name, leaf in leaves.items():
                    leaf += torch.arange(len(leaf)).view(-1, *[1] * (leaf.dim() - 1)) / 10
                    own[name][list(spec.rows) or slice(None)] += leaf
            tiny.output(model, given).square().mean().backward()
            tiny.output(itself, given).square().mean().backward()
            for name, leaf in leaves.items():
                grad = own[name].grad[list(spec.rows) or slice(None)]
                torch.testing.assert_close(leaf.grad, grad, rtol=0, atol=1e-12)
            assert torch.equal(tiny.output(model, given), tiny.output(itself, given))
    for rows in ((97,), (-1,), (2, 2)):
        with pytest.raises(ts.UserError, match=r"'wte.weight' has rows 0 to 96, to be named once each"):
            ts.attach(model, ts.Full(only=("wte.weight",), rows=rows))
    with pytest.raises(ts.UserError, match=r"'anna' holds a full tuning, which is a model of its own: merge it"):
        ts.Bank({"anna": ts.Full(only=("h.0.*",))})


def test_each_row_of_a_bank_has_its_own_dora(tmp_path: Path) -> None:
    model, bank, made = tiny.make("gpt2"), ts.Bank(), {}
    for seed, (name, rank) in enumerate((("anna", 2), ("ben", 3))):
        config = peftly.lora(model, r=rank, target_modules=["c_attn"], use_dora=True, fan_in_fan_out=True)
        made[name] = peftly.wrapped(model, config, seed=seed)
        bank.add(name, convert.read(peftly.written(made[name], tmp_path / name), form="peft", model=model).artifacts)
    given = {"input_ids": tiny.ids(3, 7)}
    with ts.attach(model, bank) as tuned, peftly.quiet(), torch.no_grad(), tiny.Float64():
        got = tuned.model(**given, rows=["ben", None, "anna"]).logits
    alone = [peftly.outputs(one, given) for one in (made["ben"], model, made["anna"])]
    expected = torch.stack([one[row] for row, one in enumerate(alone)])
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sites", [("attn.q", "attn.v"), ("all-linear",)])
def test_a_gain_that_was_trained_here_on_maps_without_a_bias_is_a_dora(sites: Any, tmp_path: Path) -> None:
    model = tiny.make("llama")
    (made,) = initialised(model, [ts.LoRA(rank=2, gain=True, sites=sites)], None, 0)
    given = {"input_ids": tiny.ids(2, 7)}
    plain = peftly.outputs(model, given)
    with ts.attach(model, made):
        assert torch.equal(peftly.outputs(model, given), plain)  # fresh, it changes nothing
    for name, value in moved([made])[0].tensors.items():
        if name.endswith(":gain"):
            value.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(1))
    with ts.attach(model, made):
        ours = peftly.outputs(model, given)
    assert (ours - plain).abs().max() > 0.05
    done = convert.export(tmp_path / "out", [made], to="peft", model=model)
    assert done.difference is not None and done.difference < 1e-12
    theirs = peftly.outputs(peftly.loaded(model, tmp_path / "out"), given)
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-12)
    other = initialised(model, [ts.LoRA(rank=2)], None, 0)
    with pytest.raises(ts.UserError, match=r"and another LoRA act at '.*q.*': keep tunescope's own folder"):
        convert.export(tmp_path / "none", [made, *other], to="peft", model=model)


@pytest.mark.parametrize("beside", [(), ("ffn.in",), ("attn.o", "ffn.out")])
def test_a_dora_of_a_part_of_a_map_leaves_the_other_rows_and_maps_as_they_were(beside: Any, tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    parts = [ts.LoRA(rank=2, gain=True, sites=("decoder.0.self.q",))]
    given = moved(initialised(model, parts + [ts.LoRA(rank=3, alpha=5.0, sites=beside)] * bool(beside), None, 1))
    own, site = given[0].tensors, "decoder.0.self.q"
    own[f"{site}:gain"].uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(1))
    own[f"{site}:shift"] = (1 - own[f"{site}:gain"]) * model.transformer.h[0].attn.c_attn.bias.detach()[:24]
    done = convert.export(tmp_path / "out", given, to="peft", model=model)
    assert done.difference is not None and done.difference < 1e-12
    ids = tiny.batch(model, "right")
    with ts.attach(model, *given):
        ours = peftly.outputs(model, ids)
    theirs = peftly.outputs(peftly.loaded(model, tmp_path / "out"), ids)
    torch.testing.assert_close(tiny.real(ids, theirs), tiny.real(ids, ours), rtol=0, atol=1e-12)
    own[f"{site}:gain"][0] = 0.0
    own[f"{site}:shift"][0] = model.transformer.h[0].attn.c_attn.bias.detach()[0]
    with pytest.raises(ts.UserError, match=r"gain or shift at 'transformer.h.0.attn.c_attn' is none that DoRA has"):
        convert.export(tmp_path / "none", given, to="peft", model=model)


def test_modules_of_one_layer_that_were_trained_are_changed_there_alone(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    made = peftly.wrapped(model, lora(model, "c_attn", modules_to_save=["h.1.ln_2"]))
    found = convert.read(peftly.written(made, tmp_path / "peft"), form="peft", model=model)
    assert found.artifacts[0].spec == ts.Full(only=("h.1.ln_2.bias", "h.1.ln_2.weight"))
    given = tiny.batch(model, "none")
    with ts.attach(model, *found.artifacts):
        torch.testing.assert_close(peftly.outputs(model, given), peftly.outputs(made, given), rtol=0, atol=1e-12)


@pytest.mark.parametrize("only", ["ln_f.weight", "h.0.ln_1.weight"])
def test_a_weight_beside_lora_goes_to_peft_with_the_bias_that_its_module_has(only: str, tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    artifacts = tiny.away(model, f"lora:rank=2,sites=attn.q+full:only={only}")
    convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    given = tiny.batch(model, "none")
    with ts.attach(model, *artifacts):
        wanted = peftly.outputs(model, given)
    got = peftly.outputs(peftly.loaded(model, tmp_path / "out"), given)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_names_are_shown_in_ranges() -> None:
    names = [f"decoder.{layer}.self.{part}" for layer in (0, 1, 2, 5) for part in ("q", "v")]
    assert ranges(names) == "decoder 0-2,5: self.q, self.v"
    assert ranges([*names[:-1], "encoder.0.ffn"]) == "decoder 0-2,5: self.q; decoder 0-2: self.v; encoder 0: ffn"
    assert ranges(["h.*.ln_1.bias", "wte.weight"]) == "h.*.ln_1.bias, wte.weight"
    experts = [f"layers.{layer}.experts.{expert}.up" for layer in (0, 1) for expert in (0, 1, 2)]
    assert ranges(experts) == "layers 0-1: experts.0-2.up"
    assert ranges([*experts[:-1]]).startswith("layers 0: experts.0.up, experts.1.up")


def test_import_is_short_and_takes_a_decoder_s_head(tmp_path: Path) -> None:
    import transformers as tf

    base = tiny.make("llama", dtype=torch.float32)
    base.save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    whole = tf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model", num_labels=3).eval()
    config = peft.LoraConfig(
        task_type="SEQ_CLS",
        r=2,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "up_proj"],
        layers_to_transform=[1],
    )
    made = peftly.wrapped(whole, config)
    peftly.written(made, tmp_path / "theirs")
    name = str(tmp_path / "model")
    out = list(imported(str(tmp_path / "theirs"), "peft", name, str(tmp_path / "mine")))
    assert out[0] == (
        "read: lora:rank=2,alpha=8.0 at decoder 1: self.q, self.k, self.v, self.o, ffn.in"
        " + head:n_labels=3,token=last,bias=False"
    )
    bare = tf.AutoModel.from_pretrained(tmp_path / "model").eval()
    given = tiny.batch(base)
    given.pop("position_ids")
    with ts.attach(bare, *ts.load(tmp_path / "mine")):
        torch.testing.assert_close(peftly.outputs(bare, given), peftly.outputs(made, given), rtol=0, atol=1e-5)
    list(exported(str(tmp_path / "mine"), "peft", name, str(tmp_path / "back")))
    again = peftly.loaded(whole, tmp_path / "back")
    torch.testing.assert_close(peftly.outputs(again, given), peftly.outputs(made, given), rtol=0, atol=1e-5)


def test_what_docs_say_of_peft_itself_is_so(tmp_path: Path) -> None:
    """A random decomposition is another one when peft loads the file, and of GPT-2's tied pair it trains one alone."""
    model = tiny.make("llama", dtype=torch.float32)
    made = peftly.wrapped(model, lora(model, "q_proj", init_lora_weights="pissa_niter_4"))
    given = tiny.batch(model)
    again = peftly.loaded(model, peftly.written(made, tmp_path / "pissa"))
    assert (peftly.outputs(again, given) - peftly.outputs(made, given)).abs().max() > 0.1
    tied = tiny.make("gpt2")
    assert tied.lm_head.weight is tied.transformer.wte.weight
    both = peftly.wrapped(
        tied, lora(tied, "c_attn", modules_to_save=["wte"], ensure_weight_tying=True)
    ).get_base_model()
    assert both.lm_head.weight is both.transformer.wte.original_module.weight
    assert not torch.equal(both.lm_head.weight, both.transformer.wte.modules_to_save["default"].weight)


TIED = {"gpt2": ("wte", "c_attn"), "gemma2": ("embed_tokens", "q_proj"), "t5": ("shared", "q")}


@pytest.mark.parametrize("family", TIED)
def test_tokens_of_a_tied_embedding_are_added_once_and_of_one_place_alone_refused(family: str, tmp_path: Path) -> None:
    model, (table, target) = tiny.make(family), TIED[family]
    task = peftly.TASKS[ts.models.anatomy.kind(model)]
    alone = peft.TrainableTokensConfig(task_type=task, token_indices=READ, target_modules=[table])
    made = peftly.wrapped(model, alone)
    found = convert.read(peftly.written(made, tmp_path / "alone"), form="peft", model=model)
    given = tiny.batch(model, "none")
    with ts.attach(model, *found.artifacts):
        torch.testing.assert_close(peftly.outputs(model, given), peftly.outputs(made, given), rtol=0, atol=1e-11)
    head = lora(model, target, trainable_token_indices={"lm_head": READ})
    apart = peftly.written(peftly.wrapped(model, head), tmp_path / "apart")
    with pytest.raises(ts.UserError, match="were trained apart from what it is tied to in this model"):
        convert.read(apart, form="peft", model=model)


def moved(artifacts: Any, seed: int = 3) -> Any:
    """Off where they start."""
    draw = torch.Generator().manual_seed(seed)
    for value in (value for one in artifacts for value in one.tensors.values()):
        value += 0.3 * torch.randn(value.shape, generator=draw, dtype=value.dtype)
    return artifacts


def test_tokens_that_several_artifacts_change_all_go_to_peft(tmp_path: Path) -> None:
    model = tiny.make("llama")
    table = "embed_tokens.weight"
    given = initialised(
        model, [ts.LoRA(rank=2), *(ts.Full(only=(table,), rows=rows) for rows in ((5, 14), (14, 9)))], None, 1
    )
    given = moved(given)
    done = convert.export(tmp_path / "out", given, to="peft", model=model)
    assert done.difference is not None and done.difference < 1e-12
    ids = {"input_ids": torch.tensor([[5, 14, 9, 8]])}
    with ts.attach(model, *given):
        ours = peftly.outputs(model, ids)
    torch.testing.assert_close(peftly.outputs(peftly.loaded(model, tmp_path / "out"), ids), ours, rtol=0, atol=1e-12)
    whole = [*given, *moved(initialised(model, [ts.Full(only=(table,))], None, 2))]
    done = convert.export(tmp_path / "whole", whole, to="peft", model=model)
    with ts.attach(model, *whole):
        ours = peftly.outputs(model, ids)
    torch.testing.assert_close(peftly.outputs(peftly.loaded(model, tmp_path / "whole"), ids), ours, rtol=0, atol=1e-12)


def test_tokens_go_to_peft_at_the_place_that_it_ties_the_others_to(tmp_path: Path) -> None:
    """Marian's table is that of its encoder, and not the first of the places where the weight stands."""
    model, rows = zoo("marian"), (1, 3, 7)
    specs = [ts.LoRA(rank=2, sites=("attn.v",)), ts.Full(only=("shared.weight",), rows=rows)]
    artifacts = moved(initialised(model, specs, None, 1))
    convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    ids = torch.tensor([[*rows, 9, 3]])
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "decoder_input_ids": ids.flip(1)}
    with ts.attach(model, *artifacts):
        ours = peftly.outputs(model, given)
    torch.testing.assert_close(peftly.outputs(peftly.loaded(model, tmp_path / "out"), given), ours, rtol=0, atol=1e-12)


def test_a_token_whose_row_is_wrong_in_the_file_is_seen_whichever_it_is() -> None:
    model = tiny.make("llama")
    size = model.config.vocab_size
    rows = [ts.Full(only=("embed_tokens.weight",), rows=(row,)) for row in range(size)]
    for one in moved(initialised(model, rows, None, 1)):
        also = compare_outputs.changed_ids(model, [one])
        assert also == list(one.spec.rows)
        bare, changed = (compare_outputs.outputs(model, given, also) for given in ((), [one]))
        assert compare_outputs.difference(bare, changed) > 1e-3


@pytest.mark.parametrize(
    ("family", "name", "rows"),
    [
        ("llama", "norm.weight", (0, 1)),
        ("gpt2", "h.0.mlp.c_fc.weight", (1, 2)),
        ("opt", "*.embed_positions.weight", (3, 4)),
    ],
)
def test_rows_that_are_no_tokens_to_peft_are_not_written(tmp_path: Path, family: str, name: str, rows: Any) -> None:
    model = tiny.make(family)
    given = initialised(model, [ts.LoRA(rank=2), ts.Full(only=(name,), rows=rows)], None, 1)
    with pytest.raises(
        ts.UserError, match=r"changes rows of '.*', of \w+, which peft has no trainable tokens for: merge"
    ):
        convert.export(tmp_path / "out", given, to="peft", model=model)


def test_tokens_that_a_head_with_a_bias_reads_are_neither_read_nor_written(tmp_path: Path) -> None:
    model = tiny.make("phi")
    assert model.lm_head.bias is not None
    config = lora(model, "q_proj", trainable_token_indices={"lm_head": READ})
    with pytest.raises(ts.UserError, match="peft leaves out the bias of the head over them"):
        convert.read(peftly.written(peftly.wrapped(model, config), tmp_path / "a"), form="peft", model=model)
    model = transformers.BertForMaskedLM(tiny.make("bert").config).double().eval()
    rows = ts.Full(only=("*.word_embeddings.weight",), rows=tuple(READ))
    beside = [*tiny.away(model, "lora:rank=2"), *initialised(model, [rows], tiny.tokenizer(), 1)]
    with pytest.raises(ts.UserError, match="rows that a head with a bias reads, and peft leaves that bias out"):
        convert.export(tmp_path / "b", beside, to="peft", model=model)


@pytest.mark.parametrize("start", ["pissa", "olora"])
def test_a_start_is_taken_off_maps_that_are_no_site_too(start: str, tmp_path: Path) -> None:
    """The pooler, and the head over words where it is not saved whole."""
    bert, llama = (tiny.make(family, dtype=torch.float32) for family in ("bert", "llama"))
    classes = transformers.BertForSequenceClassification(bert.config).eval()
    config = peft.LoraConfig(
        task_type="SEQ_CLS", r=3, lora_alpha=5, target_modules="all-linear", init_lora_weights=start
    )
    made = peftly.wrapped(classes, config)
    for parameter in (p for name, p in made.named_parameters() if "lora_" in name):
        parameter.data.mul_(0.2)
    found = convert.read(peftly.written(made, tmp_path / "heads"), form="peft", model=classes.base_model)
    ids = tiny.ids()
    with ts.attach(classes.base_model, *found.artifacts), torch.no_grad():
        got = classes.base_model(input_ids=ids).logits
    with torch.no_grad():
        torch.testing.assert_close(got, made(input_ids=ids).logits, rtol=1e-4, atol=1e-4)
    config = peftly.lora(llama, r=3, lora_alpha=5, target_modules=["q_proj", "lm_head"], init_lora_weights=start)
    made = peftly.wrapped(llama, config)
    made.save_pretrained(tmp_path / "words", save_embedding_layers=False)
    found = convert.read(tmp_path / "words", form="peft", model=llama)
    with ts.attach(llama, *found.artifacts), torch.no_grad():
        got = llama(input_ids=ids).logits
    with torch.no_grad():
        torch.testing.assert_close(got, made(input_ids=ids).logits, rtol=1e-3, atol=1e-3)


def test_biases_that_are_tied_are_written_at_each_of_their_places(tmp_path: Path) -> None:
    model = transformers.BertForMaskedLM(tiny.make("bert").config).double().eval()
    artifacts = tiny.away(model, "lora:rank=2+bias", 1)
    convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    theirs, ids = peftly.loaded(model, tmp_path / "out"), tiny.ids()
    with ts.attach(model, *artifacts), torch.no_grad():
        got = model(input_ids=ids).logits
    with torch.no_grad():
        torch.testing.assert_close(got, theirs(input_ids=ids).logits, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("family", "name"),
    [("deberta", "encoder.layer.0.attention.self.q_bias"), ("gpt_oss", "layers.0.mlp.experts.gate_")],
)
def test_biases_that_peft_does_not_save_are_refused_in_words(family: str, name: str, tmp_path: Path) -> None:
    model = zoo(family)
    artifacts = tiny.away(model, "lora:rank=2,sites=all-linear+bias", 1)
    with pytest.raises(
        ts.UserError, match=rf"Bias\(\) changes '{name}.*whole parameters that are called weight or bias"
    ):
        convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    assert not (tmp_path / "out").exists()


def test_lora_of_a_decoder_without_its_head_is_loaded_by_peft_as_such(tmp_path: Path) -> None:
    model = tiny.make("llama").model
    artifacts = tiny.away(model, "lora:rank=2", 1)
    convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    theirs, given = peftly.loaded(model, tmp_path / "out"), {"input_ids": tiny.ids()}
    with ts.attach(model, *artifacts), torch.no_grad():
        got = model(**given).last_hidden_state
    with torch.no_grad():
        torch.testing.assert_close(got, theirs(**given).last_hidden_state, rtol=0, atol=1e-11)
