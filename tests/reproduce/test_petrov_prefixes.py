"""How a prefix is used, against numpy row by row; every head is read; the recipe runs on what anyone has."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

import tunescope as ts
from tunescope.attachment.attention.record import record
from tunescope.lab.worlds.world import World, part_of
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import check
from tunescope.reproduce.recipes import _prefix_use
from tunescope.reproduce.recipes import petrov_prefixes as recipe
from tunescope.reproduce.recipes._prefix_use import prefix_use, use
from tunescope.system import sealed_json


@pytest.mark.parametrize(("family", "place"), [("gpt2", -1), ("llama", -1), ("bert", 0)])
def test_use_is_what_each_input_alone_shows(family, place):
    """Row by row without padding, percentiles and ranks by numpy."""
    model = tiny.make(family)
    rows = [tiny.ids(1, 3 + i % 7, seed=i)[0].tolist() for i in range(19)]
    with ts.attach(model, ts.Prefix(length=5)):
        got = prefix_use(model, rows)
        alone = [record(model, {"input_ids": torch.tensor([row])}, "weights", "context_value") for row in rows]
    assert len(got) == 2
    for name, one in got.items():
        weights = np.stack([run[f"{name}.weights"][0, :, place, :5].numpy() for run in alone])  # (inputs, heads, 5)
        values = alone[0][f"{name}.context_value"].numpy()
        values = values.repeat(weights.shape[1] // len(values), 0)
        among = weights / weights.sum(-1, keepdims=True)
        spread = np.percentile(among, 99, axis=0) - np.percentile(among, 1, axis=0)
        np.testing.assert_allclose(one.spread, spread, rtol=0, atol=1e-12)
        np.testing.assert_allclose(one.share, weights.sum(-1).mean(0), rtol=0, atol=1e-12)
        for head in range(weights.shape[1]):
            bias = weights[:, head] @ values[head]
            singular = np.linalg.svd(bias)[1]
            share = singular / singular.sum()
            entropy = -sum(float(x) * math.log(x) for x in share if x > 0)
            assert float(one.effective_rank[head]) == pytest.approx(math.exp(entropy), abs=1e-9)
            assert int(one.span[head]) == np.linalg.matrix_rank(values[head]) == 5
            assert int(one.rank[head]) <= 5


def test_attention_that_never_varies_has_no_spread_and_one_direction_and_one_that_does_has_more():
    values = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    still = torch.full((50, 2, 4), 0.25, dtype=torch.float64)
    found = use(0.4 * still, still, values)
    assert found.spread.abs().max() == 0
    torch.testing.assert_close(found.effective_rank, torch.ones(2, dtype=torch.float64), rtol=0, atol=1e-6)
    moving = torch.eye(4, dtype=torch.float64).repeat(13, 1)[:50, None].expand(50, 2, 4)
    found = use(0.4 * moving, moving, values)
    assert (found.spread == 1).all() and (found.rank == 4).all() and (found.effective_rank > 2).all()
    torch.testing.assert_close(found.share, torch.full((2,), 0.4, dtype=torch.float64), rtol=0, atol=1e-12)


def saved(folder: Path, family: str) -> str:
    tiny.make(family, dtype=torch.float32).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return str(folder)


def rows_in(path: Path, **names: str) -> str:
    text, label = names.get("text", "text"), names.get("label", "label")
    rows = [{text: f"w{3 + i % 40} w{3 + i % 23}", label: f"w{50 + i % 2}"} for i in range(60)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.mark.parametrize(
    ("family", "fields"), [("llama", {}), ("bert", {}), ("gpt2", {"text": "input", "label": "target"})]
)
def test_every_head_of_every_layer_is_in_the_result(family, fields, tmp_path):
    model, data = saved(tmp_path / "model", family), rows_in(tmp_path / "rows.jsonl", **fields)
    ask = Ask("petrov-prefixes", quick=True, model=model, data=data)
    check(ask, recipe)
    settings = recipe.settings(ask) | {"steps": 2}
    found = [(unit, recipe.work(settings, unit)) for unit in recipe.units(settings)[:1]]
    heads = 4 if family == "llama" else 3
    for layer in found[0][1]["layers"].values():
        assert np.shape(layer["spread"]) == (heads, 10)
        assert len(layer["effective_rank"]) == len(layer["share"]) == len(layer["span"]) == heads
    table = recipe.table(settings, found)
    spread = np.array(found[0][1]["layers"][table.rows[-1][0]]["spread"]).mean(-1)  # of the second layer, by head
    every, least, most, theirs = (cell.mean for cell in table.rows[-1][1][:4])
    assert (every, least, most) == pytest.approx((spread.mean(), spread.min(), spread.max()))
    assert theirs == pytest.approx(spread[1])
    assert ("the commonest label 0.5 of all rows" in table.notes[-1]) == (family != "gpt2")
    assert [cells[3].paper for _, cells in table.rows] == [".0161", ".1021"]


def test_a_layer_in_which_nothing_can_vary_for_every_input_begins_alike_is_left_out():
    layer = {"spread": [[0.0] * 10], "effective_rank": [1.0], "span": [2.0], "share": [0.5]}
    outcome = {"layers": {"a": layer, "b": layer}, "before": {"a": [[0.0] * 10], "b": [[0.2] * 10]}}
    outcome |= {"inputs": 3, "metric": "accuracy", "dev": 0.5}
    rows = recipe.table({}, [({"seed": 0}, outcome)]).rows
    assert [(name, cells[3].paper) for name, cells in rows] == [("b", ".1021")]


def test_a_layer_whose_number_no_head_has_shows_none_of_theirs():
    layer = {"spread": [[0.1] * 10], "effective_rank": [1.0], "span": [2.0], "share": [0.5]}
    outcome = {"layers": {"a": layer, "b": layer}, "before": {"a": [[0.2] * 10], "b": [[0.2] * 10]}}
    outcome |= {"inputs": 3, "metric": "accuracy", "dev": 0.5}
    table = recipe.table({}, [({"seed": 0}, outcome)])
    assert table.rows[0][1][3].mean == pytest.approx(0.1) and table.rows[1][1][3].mean is None


def test_twelve_layers_stand_in_their_order_beside_the_papers_twelve_when_the_piece_is_read_from_its_file(tmp_path):
    names = [f"decoder.{layer}.self" for layer in range(12)]
    layers = {
        name: {"spread": [[layer / 100] * 10] * 12, "effective_rank": [1.0], "span": [2.0], "share": [0.5]}
        for layer, name in enumerate(names)
    }
    outcome = {"layers": layers, "before": {name: [[0.2] * 10] for name in names}}
    sealed_json.put(tmp_path / "piece.json", outcome | {"inputs": 3, "metric": "accuracy", "dev": 0.5})
    rows = recipe.table({}, [({"seed": 0}, sealed_json.read(tmp_path / "piece.json"))]).rows
    assert [name for name, _ in rows] == names
    assert [cells[3].paper for _, cells in rows] == list(recipe.PAPER)
    assert [cells[3].mean for _, cells in rows] == pytest.approx([layer / 100 for layer in range(12)])


def test_anyone_can_run_it_on_the_packaged_model():
    settings = recipe.settings(Ask("petrov-prefixes", quick=True)) | {"steps": 1, "inputs": 8}
    outcome = recipe.work(settings | {"batch_size": 2}, {"seed": 0})
    assert list(outcome["layers"]) == ["decoder.0.self", "decoder.1.self"] and outcome["inputs"] == 8


@pytest.mark.parametrize(
    ("family", "data", "message"),
    [
        ("llama", None, "takes --model and --data together, or neither"),
        ("t5", "{good}", "petrov-prefixes needs a decoder or encoder, and --model .* is an encoder-decoder"),
        ("llama", "nowhere.jsonl", "Cannot read nowhere.jsonl"),
        ("llama", "{bad}", "needed are 'text' and 'label'"),
    ],
)
def test_what_will_not_do_is_said_in_one_line(family, data, message, tmp_path):
    good, bad = rows_in(tmp_path / "good.jsonl"), rows_in(tmp_path / "bad.jsonl", label="emotion")
    given = None if data is None else data.format(good=good, bad=bad)
    with pytest.raises(ts.UserError, match=message) as caught:
        recipe.settings(Ask("petrov-prefixes", model=saved(tmp_path / "model", family), data=given))
    assert "\n" not in str(caught.value)


def test_what_is_looked_at_is_the_test_part(monkeypatch):
    """The last tokens of a prompt are its input's: numbers are their own ids, and a line end stands behind them."""
    seen, whole = [], prefix_use

    def looked(model, inputs):
        seen.extend(inputs)
        return whole(model, inputs)

    monkeypatch.setattr(_prefix_use, "prefix_use", looked)
    settings = recipe.settings(Ask("petrov-prefixes", quick=True)) | {"steps": 1, "inputs": 8, "batch_size": 2}
    recipe.work(settings, {"seed": 0})
    length = World().length
    parts = {part_of(np.array([one for one in ids if one <= World().largest][-length:])) for ids in seen}
    assert parts == {"test"} and len(seen) == 2 * 8  # before training and after
