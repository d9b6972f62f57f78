"""What methods say they add is what they add, on every family; what is said falsely is found; the notation itself."""

import pytest
import tiny
import torch
import torch.nn.functional as F
from extension import DELTA
from unlisted import UNMAPPED, unlisted

import tunescope as ts
from tunescope.attachment.attention.own import find_own
from tunescope.attachment.initial_artifacts import initialised
from tunescope.methods import text_form
from tunescope.methods.form import Form
from tunescope.methods.text_form import parse
from tunescope.models.family import family_names, find_family
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipes import unified_forms as recipe
from tunescope.reproduce.recipes._formula import Names, computed
from tunescope.reproduce.recipes._literal_attention import Added, written_out
from tunescope.reproduce.recipes._literal_forms import OUTPUT, compared, moved
from tunescope.reproduce.run import reproduce

SETTINGS = recipe.settings(Ask("unified-forms"))
KINDS = {"encoder": {"encoder self"}, "decoder": {"decoder self"}}
KINDS["encoder-decoder"] = {"encoder self", "decoder self", "decoder cross"}


@pytest.mark.parametrize("family", family_names())
def test_every_method_adds_what_it_says_and_a_prefix_is_the_gated_multi_head_adapter(family):
    found = recipe.work(SETTINGS, {"family": family})["arms"]
    kind = find_family(family).kind
    refused = {label for label, one in found.items() if "refused" in one}
    has_no_bias = family in ("llama", "mistral", "qwen3", "gemma2", "t5")
    assert refused == ({"infix"} if kind != "decoder" else set()) | ({"bias"} if has_no_bias else set())
    for label, one in found.items():
        if label not in refused:
            deviation, change = one["all"]
            assert deviation < 1e-12 and change > 0.1, label
    heads = {kind: one for kind, one in found["prefix-tuning"].items() if kind != "all"}
    assert heads.keys() == KINDS[kind]
    assert all(deviation < 1e-12 and change > 0.1 for deviation, change in heads.values())


PARALLEL, SEQUENTIAL = (f"ReLU({source} @ down.T + down_bias) @ up.T + up_bias" for source in "xh")
ATTENDED, GATED = "softmax(score(q[i], key[i])) @ value[i]", "(1 - share[i]) * h[i] + share[i] * change[i]"


@pytest.mark.parametrize("family", ["gpt2", "bert", "bart", "llama"])
@pytest.mark.parametrize(
    ("arm", "method", "change", "composition"),
    [
        ("adapter:bottleneck=3", ts.Adapter, PARALLEL, "h + change"),
        ("adapter:bottleneck=3,scale=2.0", ts.Adapter, SEQUENTIAL, "h + change"),
        ("lora:rank=2", ts.LoRA, "x @ a.T @ b.T", "h + 1.01 * change"),
        ("prefix:length=3", ts.Prefix, ATTENDED, "h[i] + change[i]"),
        ("prefix:length=3", ts.Prefix, "softmax(score(q[i], key[i])) @ key[i]", GATED),
        ("soft:length=3", ts.Soft, "embeddings", "join(change, 1.01 * text)"),
    ],
)
def test_a_form_that_is_not_what_the_method_does_is_found(family, arm, method, change, composition, monkeypatch):
    model = tiny.make(family)
    given = recipe._inputs(model, 7)
    artifacts = moved(model, parse(arm))
    assert max(place.deviation for place in compared(model, artifacts, given).values()) < 1e-12
    monkeypatch.setattr(method, "formula", Form(change, "parallel", "", composition))
    assert compared(model, artifacts, given)[OUTPUT].deviation > 1e-4


@pytest.mark.parametrize("family", family_names())
def test_the_written_out_attention_is_transformers_own(family):
    model = tiny.make(family, attention="eager")
    given = tiny.batch(model)
    with torch.no_grad(), tiny.Float64():
        expected = tiny.real(given, tiny.output(model, given))
        with written_out(model, {}):
            got = tiny.real(given, tiny.output(model, given))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("name", [name for name in UNMAPPED if find_own(name) is None])
def test_a_prefix_is_a_gated_adapter_wherever_attention_is_reached(name):
    from tunescope.attachment.attention.reach import reached

    model = unlisted(name)
    given = tiny.batch(model, "none")
    (artifact,) = initialised(model, parse("prefix:length=3"), None, 0)
    form = artifact.spec.formula
    added = {
        found.module: Added(form, artifact.tensors[f"{found.name}.key"], artifact.tensors[f"{found.name}.value"])
        for found in reached(model)
    }
    with torch.no_grad(), tiny.Float64():
        plain = tiny.output(model, given)
        with ts.attach(model, artifact):
            got = tiny.output(model, given)
        with written_out(model, added):
            expected = tiny.output(model, given)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    assert (got - plain).abs().max() > 1e-3
    assert not any("_tunescope_literal" in vars(module) for module in model.modules())


def test_a_new_method_s_form_is_a_row_and_is_checked(plugin_folder):
    said = "\n    @property\n    def formula(self):\n        from tunescope.methods.form import Form\n"
    said += '        return Form("h * by", "sequential", "ffn", "change")\n'
    (plugin_folder / "deltas" / "scaling.py").write_text(DELTA + said)
    text_form.methods.cache_clear()
    arms = recipe.settings(Ask("unified-forms"))["arms"]
    assert arms["scaling"] == "scaling"
    outcome = recipe.work({**SETTINGS, "arms": {"scaling": "scaling"}}, {"family": "gpt2"})["arms"]
    assert outcome["scaling"]["all"][0] < 1e-12 < 0.1 < outcome["scaling"]["all"][1]


def test_the_table_prints_what_the_files_say_beside_the_paper(tmp_path, monkeypatch, in_process):
    monkeypatch.setattr(recipe, "family_names", lambda: ["bert"])
    result = reproduce(Ask("unified-forms"), tmp_path / "run", workers=1, say=lambda line: None)
    rows = {row["label"]: row["cells"] for row in result["table"]["rows"]}
    for label, arm in SETTINGS["arms"].items():
        assert rows[label][0]["text"] == "; ".join(spec.formula.change for spec in parse(arm))
        assert rows[label][3]["text"] == "; ".join(spec.formula.composition for spec in parse(arm))
    assert [cell["paper"] for cell in rows["LoRA"][:4]] == [
        "x W_down W_up",
        "parallel",
        "attn key / val",
        "h + s change",
    ]
    assert rows["LoRA"][2]["text"] == "attn.q, attn.v"
    assert rows["infix"][4]["text"] == "0" and rows["bert"][4]["text"] == "13 of 14 forms"
    assert rows["prefix = gated multi-head adapter, encoder self"][5]["mean"] < 1e-12
    assert result["table"]["notes"][-1].endswith("anchors, text, full, head, reweight.")


def test_formulas_are_computed_as_written():
    g = torch.Generator().manual_seed(0)
    x, h = (torch.randn(2, 3, 6, generator=g, dtype=torch.float64) for _ in range(2))
    p = {"down": torch.randn(2, 5, 3, generator=g, dtype=torch.float64), "s": torch.tensor(3.0, dtype=torch.float64)}
    p["w"] = torch.randn(6, generator=g, dtype=torch.float64)
    names = Names({"x": x, "h": h}, p, n_heads=2)
    cases = {
        "h - 2 * x / s": h - 2 * x / 3,
        "ReLU(x)": F.relu(x),
        "SiLU(x)": F.silu(x),
        "GELU(x)": F.gelu(x),
        "softmax(x)": F.softmax(x, -1),
        "LN(x, w, w)": F.layer_norm(x, (6,), p["w"], p["w"]),
        "x[i] @ down[i].T": torch.cat([x[..., :3] @ p["down"][0].T, x[..., 3:] @ p["down"][1].T], -1),
        "join(w, x)": torch.cat([p["w"].expand(2, 1, 6), x], 1),
    }
    for text, expected in cases.items():
        if text.startswith("join"):
            names = Names({"x": x}, {"w": p["w"][None]})
        torch.testing.assert_close(computed(text, names), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("activation", ["relu", "silu", "gelu", "softmax"])
def test_an_adapter_says_its_activation(activation):
    model = tiny.make("gpt2")
    artifacts = moved(model, parse(f"adapter:bottleneck=3,activation={activation}"))
    found = compared(model, artifacts, recipe._inputs(model, 7))
    assert max(place.deviation for place in found.values()) < 1e-12


@pytest.mark.parametrize("text", ["x.dtype", "x[0]", "x ** x", "exit()", "(lambda: x)()", "x if x else x", "'x'", "2"])
def test_what_is_not_of_the_notation_is_refused(text):
    with pytest.raises((ValueError, KeyError)):
        computed(text, Names({"x": torch.ones(2)}, {}))


def test_what_states_no_form_is_refused():
    model = tiny.make("gpt2")
    with pytest.raises(ValueError, match=r"Full\(only=\(\), rows=\(\)\) states no form"):
        compared(model, moved(model, [ts.Full()]), recipe._inputs(model, 7))
