"""Every probe in the folder, unasked, on every family: a finding that is plain data, or one clear line."""

import re
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import pytest
import tiny
import torch
import transformers
from apple import SaysSo
from probe_tools import FAMILIES
from zoo import inputs, zoo

import tunescope as ts
from tunescope.attachment.attention.record import record
from tunescope.probes import looks, names, study
from tunescope.probes import see as seeing
from tunescope.probes.looks import pattern, prefix_bias, second_layer
from tunescope.probes.mechanism import mechanism
from tunescope.probes.see import see
from tunescope.probes.seen import attention_map
from tunescope.report import findings_page
from tunescope.report.finding import Finding
from tunescope.reproduce.recipes._prefix_use import prefix_use
from tunescope.system import plugins

NAMES = plugins.names(names.LOOKS)


def plain(value):
    """Whether it is made of what JSON has words for."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(map(plain, value))
    return value is None or type(value) in (str, int, float, bool)


def is_refused(name, arm, model, seen):
    """The refusals that are meant."""
    return {
        "prefix_bias": arm.startswith("lora"),
        "neighbours": not arm.startswith("soft"),
        "pattern": bool(seen.no_bare),
        "second_layer": arm.startswith("lora") or not tiny.is_decoder(model),
        "subspace": arm.startswith("lora") or (arm.startswith("soft") and not tiny.is_decoder(model)),
    }.get(name, False)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("arm", ["prefix:length=2", "soft:length=2", "lora:rank=2"])
def test_every_probe_finds_plain_data_or_says_in_one_line_why_not(family, arm):
    model = tiny.make(family)
    seen = see(model, tiny.away(model, arm), tiny.batch(model), tiny.tokenizer())
    for name in NAMES:
        look = import_module(f"tunescope.probes.looks.{name}").look
        if is_refused(name, arm, model, seen):
            with pytest.raises(ts.UserError, match=rf"^Probe {name}.*[:.] .*tunescope probe \w+[^\n]*$"):
                look(seen)
            continue
        found = look(seen)
        assert isinstance(found, Finding)
        assert plain(asdict(found)), name
        assert all(len(row) == len(found.columns) for row in found.rows)
        assert found.rows and found.says.endswith(".") and found.not_said.endswith(".")
        assert findings_page.page([found], {"model": family, "attached": arm}).endswith("</html>")


@pytest.mark.parametrize("family", ["longt5", "pegasus_x"])
def test_cross_attention_is_drawn_over_the_rows_own_tokens_where_an_encoder_attends_by_itself(family):
    """Its own layers are not reached, and so are not asked which tokens are padding."""
    model = zoo(family, attention="eager")
    given = {name: value.flip(0) for name, value in inputs(family, model, "right").items()}  # the padded row first
    artifacts = tiny.away(model, "soft:length=3")
    seen = see(model, artifacts, given)
    assert "encoder.0.self" not in seen.along and prefix_bias.look(seen).pictures
    with ts.attach(model, *artifacts), torch.no_grad():
        weights = model(**given, output_attentions=True, use_cache=False).cross_attentions[1]
    row = int(next(iter(seen.along.values())).real.sum(-1).argmin())
    assert not given["attention_mask"][row].all()
    text = given["input_ids"][row][given["attention_mask"][row].bool()]
    for head in range(weights.shape[1]):
        drawn = attention_map(seen, "along", "decoder.1.cross", head)
        assert drawn.keys == ["c0", "c1", "c2", *(f"token {int(token)}" for token in text)]
        expected = weights[row, head, :, : 3 + len(text)]
        torch.testing.assert_close(torch.tensor(drawn.values).to(expected), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_probe_has_a_function_of_its_name_that_takes_tensors_and_no_model(name):
    module = import_module(f"tunescope.probes.looks.{name}")
    own = getattr(module, name)
    assert own.__doc__.count("\n") >= 4
    assert "model" not in own.__annotations__
    text = Path(module.__file__).read_text()
    words = ("attach(", "record(", "transformers", "tunescope.attachment")
    assert not any(word in text for word in words)
    assert set(re.findall(r"tunescope\.report\.\w+", text)) <= {"tunescope.report.finding"}


def test_a_new_file_is_a_new_probe(tmp_path, monkeypatch):
    body = '"""How many queries there are."""\n\ndef count(weights):\n    return weights.shape[2]\n'
    (tmp_path / "count.py").write_text(body)
    monkeypatch.setattr(looks, "__path__", [*looks.__path__, str(tmp_path)])
    assert "count" in plugins.names(names.LOOKS)
    assert "count: How many queries there are." in names.lines()
    assert names.known_probe("count") == "count"
    with pytest.raises(ts.UserError, match=r"^probes/looks/count\.py has no function look\(seen\) -> Finding\.$"):
        study.run(study.ProbeRequest("count", "model", "artifact", ("a text",)))


def test_the_list_is_the_folder():
    assert [line.partition(":")[0] for line in names.lines()] == NAMES
    assert all(line.endswith(".") or line.endswith(")") for line in names.lines())
    with pytest.raises(ts.UserError, match=r"no probe 'patern'. Did you mean 'pattern'\? Probes: neighbours, pattern,"):
        names.known_probe("patern")


def test_what_a_device_without_float64_recorded_is_seen_on_the_cpu(monkeypatch):
    model = tiny.make("gpt2", dtype=torch.float32)
    batch, artifacts = tiny.batch(model), tiny.away(model, "prefix:length=2")
    expected = see(model, artifacts, batch)
    recorded = seeing.record
    there = lambda tensors: {name: value.detach().as_subclass(SaysSo) for name, value in tensors.items()}  # noqa: E731
    monkeypatch.setattr(seeing, "record", lambda *given: there(recorded(*given)))
    layers, real = seeing._layers, seeing._real
    monkeypatch.setattr(seeing, "_real", lambda *given: there(real(*given)))
    monkeypatch.setattr(seeing, "_layers", lambda kept, joined, mask: layers(there(kept), joined, mask))
    found = see(model, artifacts, batch)
    for run in ("along", "bare", "held"):
        for name, layer in getattr(found, run).items():
            assert type(layer.weights) is torch.Tensor and layer.weights.dtype == torch.float64
            own, theirs = dict(vars(layer)), dict(vars(getattr(expected, run)[name]))
            assert own.pop("made_in") == theirs.pop("made_in") == torch.float32
            torch.testing.assert_close(own, theirs, rtol=0, atol=0)


def test_long_texts_are_cut_in_pictures_to_their_last_tokens():
    model = tiny.make("llama")
    seen = see(model, tiny.away(model, "prefix:length=2"), {"input_ids": tiny.ids(1, 60)}, tiny.tokenizer())
    grid, attention = import_module("tunescope.probes.looks.prefix_bias").look(seen).pictures
    assert (len(attention.queries), len(attention.keys)) == (48, 50)
    assert torch.tensor(attention.values).shape == (48, 50)
    assert len(grid.rows) == 2


def test_padding_is_in_no_picture():
    model = tiny.make("t5")
    seen = see(model, tiny.away(model, "prefix:length=2"), tiny.batch(model), tiny.tokenizer())
    _, attention = import_module("tunescope.probes.looks.prefix_bias").look(seen).pictures
    assert "<pad>" not in [*attention.keys, *attention.queries]
    assert attention.marked == len(attention.queries) - 1


def sinking(dtype=torch.float32):
    """A tiny model whose queries may give a part of their attention to nothing."""
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.GptOssConfig(
        **sizes, num_hidden_layers=2, vocab_size=97, head_dim=8, num_local_experts=4, num_experts_per_tok=2
    )
    model = tiny.build(transformers.AutoModelForCausalLM, config).float()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.sinks.copy_(torch.tensor([0.0, 1.0, 3.0, -1.0]))
    return model.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_with_sinks_too_a_context_alone_moves_no_pattern_in_any_precision(dtype):
    model = sinking(dtype)
    found = mechanism(model, tiny.away(model, "prefix:length=3"), {"input_ids": tiny.ids(2, 9)})
    assert found["reason"] == ""
    assert found["content_pattern_shift"] < 1e-9
    assert all(layer["held_max"] < 1e-9 for layer in found["by_layer"])


def test_what_goes_to_a_sink_goes_to_no_context():
    model = sinking()
    rows = tiny.ids(3, 9).tolist()
    with ts.attach(model, *tiny.away(model, "prefix:length=3")):
        kept = record(model, {"input_ids": torch.tensor(rows)}, "weights")
        used = prefix_use(model, rows)
    for name, one in used.items():
        share = kept[f"{name}.weights"][:, :, -1, :3].sum(-1).mean(0)
        torch.testing.assert_close(one.share, share.double(), rtol=0, atol=1e-6)
        assert kept[f"{name}.weights"].sum(-1).max() < 1 - 1e-3


@pytest.mark.parametrize("given", ["ids", "embeddings"])
def test_without_a_tokenizer_tokens_have_numbers(given):
    model = tiny.make("gpt2")
    ids = tiny.ids(2, 5)
    batch = {"input_ids": ids} if given == "ids" else {"inputs_embeds": model.get_input_embeddings()(ids).detach()}
    seen = see(model, tiny.away(model, "prefix:length=2"), batch)
    for probe in (prefix_bias, pattern):
        assert probe.look(seen).rows
    assert seen.tokens["decoder"][0][0] == (f"token {int(ids[0, 0])}" if given == "ids" else "place 0")


@pytest.mark.parametrize("family", ["t5", "bart"])  # BART's decoder begins with the token that ends a text
def test_of_an_answer_that_ends_at_once_nothing_behind_its_end_is_looked_at(family, monkeypatch):
    model = tiny.make(family)
    end, plain = model.config.eos_token_id, type(model).forward

    def forward(self, *args, **kwargs):
        out = plain(self, *args, **kwargs)
        out.logits[..., end] = 1e9
        return out

    monkeypatch.setattr(type(model), "forward", forward)
    made = study._answers(model, {"input_ids": tiny.ids(), "attention_mask": torch.ones_like(tiny.ids())})
    start = model.config.decoder_start_token_id
    assert made["decoder_input_ids"][:, :2].tolist() == [[start, end]] * 2
    assert made["decoder_attention_mask"].sum(1).tolist() == [2, 2]


@pytest.mark.parametrize("probe", [prefix_bias, pattern, second_layer])
def test_where_no_text_was_run_the_probes_of_texts_say_so(probe):
    model = tiny.make("gpt2")
    with pytest.raises(ts.UserError, match="looks at what running a text left, and none was"):
        probe.look(see(model, tiny.away(model, "prefix:length=2"), None))


def test_shares_above_one_are_explained():
    model = tiny.make("gpt2")
    artifacts = tiny.away(model, "text:text=w5 w6 w7 w8+reweight:anchors=1,2/3", by=3.0)
    for artifact in artifacts:
        if artifact.spec.__class__.__name__ == "Reweight":
            artifact.tensors = {name: value.abs() + 2 for name, value in artifact.tensors.items()}
    batch = {"input_ids": tiny.ids(1, 6), "output_start": torch.tensor([2])}
    found = prefix_bias.look(see(model, artifacts, batch, tiny.tokenizer()))
    assert "need not sum to 1: shares reach" in found.says
    (grid, _) = found.pictures
    assert grid.high == max(1.0, max(map(max, grid.values)))
    plain = prefix_bias.look(see(model, tiny.away(model, "prefix:length=2"), {"input_ids": tiny.ids(1, 6)}))
    assert "need not sum" not in plain.says
