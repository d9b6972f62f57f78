"""Every probe in the folder, unasked, on every family: a finding that is plain data, or one clear line."""

from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import pytest
import tiny
import torch
from probe_tools import FAMILIES

import tunescope as ts
from tunescope import probes, registry
from tunescope.looking import probe_list
from tunescope.looking.finding import Finding
from tunescope.looking.seeing import see
from tunescope.report import probe as page

NAMES = registry.names("probes")


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
        look = import_module(f"tunescope.probes.{name}").look
        if is_refused(name, arm, model, seen):
            with pytest.raises(ts.UserError, match=rf"^Probe {name}.*[:.] .*tunescope probe \w+[^\n]*$"):
                look(seen)
            continue
        found = look(seen)
        assert isinstance(found, Finding)
        assert plain(asdict(found)), name
        assert all(len(row) == len(found.columns) for row in found.rows)
        assert found.rows and found.says.endswith(".") and found.not_said.endswith(".")
        assert page.page([found], {"model": family, "attached": arm}).endswith("</html>")


@pytest.mark.parametrize("name", NAMES)
def test_a_probe_has_a_function_of_its_name_that_takes_tensors_and_no_model(name):
    module = import_module(f"tunescope.probes.{name}")
    own = getattr(module, name)
    assert own.__doc__.count("\n") >= 4
    assert "model" not in own.__annotations__
    text = Path(module.__file__).read_text()
    assert not any(
        word in text for word in ("attach(", "record(", "transformers", "tunescope.reach", "tunescope.report")
    )


def test_a_new_file_is_a_new_probe(tmp_path, monkeypatch):
    body = '"""How many queries there are."""\n\ndef count(weights):\n    return weights.shape[2]\n'
    (tmp_path / "count.py").write_text(body)
    monkeypatch.setattr(probes, "__path__", [*probes.__path__, str(tmp_path)])
    registry.names.cache_clear()
    try:
        assert "count" in registry.names("probes")
        assert "count: How many queries there are." in probe_list.lines()
        assert probe_list.check("count") == "count"
    finally:
        monkeypatch.undo()
        registry.names.cache_clear()


def test_the_list_is_the_folder():
    assert [line.partition(":")[0] for line in probe_list.lines()] == NAMES
    assert all(line.endswith(".") or line.endswith(")") for line in probe_list.lines())
    with pytest.raises(ts.UserError, match=r"no probe 'patern'. Did you mean 'pattern'\? Probes: neighbours, pattern,"):
        probe_list.check("patern")


def test_long_texts_are_cut_in_pictures_to_their_last_tokens():
    model = tiny.make("llama")
    seen = see(model, tiny.away(model, "prefix:length=2"), {"input_ids": tiny.ids(1, 60)}, tiny.tokenizer())
    grid, attention = import_module("tunescope.probes.prefix_bias").look(seen).pictures
    assert (len(attention.queries), len(attention.keys)) == (48, 50)
    assert torch.tensor(attention.values).shape == (48, 50)
    assert len(grid.rows) == 2


def test_padding_is_in_no_picture():
    model = tiny.make("t5")
    seen = see(model, tiny.away(model, "prefix:length=2"), tiny.batch(model), tiny.tokenizer())
    _, attention = import_module("tunescope.probes.prefix_bias").look(seen).pictures
    assert "<pad>" not in [*attention.keys, *attention.queries]
    assert attention.marked == len(attention.queries) - 1
