"""The laws of the first layer hold for every family and not where they should not; the recipe's refusals."""

import json
from pathlib import Path

import pytest
import tiny
import torch

import tunescope as ts
from tunescope.attachment.attention.record import record
from tunescope.methods.text_form import parse
from tunescope.models.family import family_names
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import check
from tunescope.reproduce.recipes import petrov_attention as recipe
from tunescope.reproduce.recipes._first_layer import FIRST, KEPT, compared, deviation
from tunescope.reproduce.run import reproduce
from tunescope.system import run_folder, sealed_json

SMALL = {"arms": ["prefix:length=3", "inputs:length=2"], "scales": [0.3, 30.0], "seeds": 1, "rows": 3, "model": None}


@pytest.mark.parametrize("family", family_names())
def test_both_laws_hold_in_every_family_at_any_share(family):
    cases = recipe.work(SMALL, {"family": family, "dtype": "float64", "seed": 0})["cases"]
    first = [each for case in cases for each in case["first"].values()]
    assert len(cases) == 4 and len(first) == 4 * (2 if family in ("t5", "bart", "mbart") else 1)
    assert max(each["pattern"] for each in first) < 1e-14
    assert max(each["alone"] for each in first) < 1e-14
    assert max(each["output"] / each["entry"] for each in first) < 1e-14
    assert min(each["share_least"] for each in first) < 0.1 and max(each["share_most"] for each in first) > 0.95
    assert all(mean > 1e-3 and mean < most <= 1 for case in cases for mean, most in case["moved"].values())


@pytest.mark.parametrize("family", ["llama", "gemma2", "bert", "t5", "bart"])
def test_the_bare_pattern_is_that_of_transformers_own_attention(family):
    model = tiny.make(family, attention="eager")
    batch = tiny.batch(model)
    with tiny.Float64(), torch.no_grad():
        out = model(**batch, output_attentions=True)
        kept = record(model, batch, *KEPT)
    sides = {"encoder": "encoder_attentions", "decoder": "decoder_attentions"}
    for stack in _texts(model):
        weights = out[sides[stack] if model.config.is_encoder_decoder else "attentions"][0].transpose(1, 2)
        got = kept[f"{stack}.0.self.weights"].transpose(1, 2)
        real = batch["attention_mask"].bool() if "decoder_input_ids" not in batch or stack == "encoder" else ...
        torch.testing.assert_close(got[real], weights[real], rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "bart"])
@pytest.mark.parametrize(("broken", "laws"), [("attn.q", "pattern alone output"), ("attn.v", "output")])
def test_a_change_of_weights_breaks_the_laws_that_it_touches(family, broken, laws):
    model = tiny.make(family)
    batch = tiny.batch(model, "none")
    bare = record(model, batch, *KEPT)
    with ts.attach(model, *tiny.away(model, f"prefix:length=3+lora:rank=2,sites={broken}")):
        attached = record(model, batch, *KEPT)
    real = {stack: torch.ones(2, batch[name].shape[1], dtype=torch.bool) for stack, name in _texts(model).items()}
    found = compared([bare], [attached], [real])["first"]
    for name in found:
        for law in ("pattern", "alone", "output"):
            assert (found[name][law] > 1e-3) == (law in laws), (name, law)
            assert found[name][law] > 1e-3 or found[name][law] < 1e-12


def _texts(model):
    if model.config.is_encoder_decoder:
        return {"encoder": "input_ids", "decoder": "decoder_input_ids"}
    return {"decoder" if tiny.is_decoder(model) else "encoder": "input_ids"}


def test_behind_the_first_layer_the_laws_do_not_hold_and_padding_does_not_count():
    model = tiny.make("gpt2")
    batch = tiny.batch(model)
    bare = record(model, batch, *KEPT)
    with ts.attach(model, *tiny.away(model, "prefix:length=3")):
        attached = record(model, batch, *KEPT)
    real = batch["attention_mask"].bool()

    def at(layer, mask):
        return deviation(*({k: run[f"decoder.{layer}.self.{k}"] for k in KEPT} for run in (bare, attached)), mask)

    assert at(0, real).pattern < 1e-15 < 1e-4 < at(1, real).pattern
    for run in (bare, attached):
        run["decoder.0.self.weights"][1, :, 5] += 1.0  # a padded query
    assert at(0, real).pattern < 1e-15 < 0.1 < at(0, torch.ones_like(real)).pattern
    assert "decoder.0.self" in FIRST


def saved(folder: Path, family: str) -> str:
    tiny.make(family, dtype=torch.float32).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("family", ["llama", "bert", "t5"])
@pytest.mark.parametrize("suffix", [".txt", ".jsonl"])
def test_a_given_model_reads_texts_in_either_form(family, suffix, tmp_path):
    data = tmp_path / f"texts{suffix}"
    lines = ["w4 w5 w6", "", "w7", " ".join(f"w{i}" for i in range(5, 90))]
    data.write_text("\n".join(json.dumps({"text": line}) if suffix == ".jsonl" else line for line in lines))
    ask = Ask("petrov-attention", quick=True, model=saved(tmp_path / "model", family), data=str(data))
    settings = recipe.settings(ask) | {"arms": ["prefix:length=2"], "scales": [1.0]}
    assert recipe.units(settings) == [{"dtype": "float32", "seed": 0}]
    found = [(unit, recipe.work(settings, unit)) for unit in recipe.units(settings)]
    assert found[0][1]["rows"] == 3
    table = recipe.table(settings, found)
    label, cells = table.rows[0]
    assert label == "this model, float32"
    assert 0 < cells[0].mean < 1e-6 and 0 < cells[1].mean < 1e-5 and 0 <= cells[2].mean < 1e-6
    behind = [label for label, _ in table.rows[1:-1]]
    assert len(behind) == (4 if family == "t5" else 1) and behind[-1].startswith(("decoder.1", "encoder.1"))
    assert table.rows[-1][1][0].paper == "4.88e-4"


def test_the_result_holds_names_and_no_paths(tmp_path):
    model = saved(tmp_path / "secret" / "llama", "llama")
    (tmp_path / "secret" / "texts.txt").write_text("w4 w5\nw6\n")
    ask = Ask("petrov-attention", quick=True, model=model, data=str(tmp_path / "secret" / "texts.txt"))
    (tmp_path / "run" / "units").mkdir(parents=True)
    settings = recipe.settings(ask)
    for unit in recipe.units(settings):  # done beforehand, so that no process need be started
        done = recipe.work(settings, unit) | {"seconds": 0.0}
        sealed_json.put(tmp_path / "run" / "units" / f"{run_folder.identity(unit)}.json", done)
    reproduce(ask, tmp_path / "run", 1, lambda line: None)
    text = (tmp_path / "run" / "result.json").read_text()
    result = json.loads(text)
    assert "secret" not in text
    assert (result["settings"]["model"], result["settings"]["data"]) == ("llama", "texts.txt")
    assert result["command"] == "tunescope reproduce petrov-attention --quick --model llama --data texts.txt"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": "x.txt"}, "reads texts with a given model only: add --model MODEL"),
        ({"model": "./nowhere"}, "there is no folder ./nowhere"),
        ({"model": "{model}", "data": "nowhere.txt"}, "Cannot read nowhere.txt: No such file or directory"),
        ({"model": "{model}", "data": "{empty}"}, "is empty. Give a file with at least one row"),
    ],
)
def test_what_will_not_do_is_said_in_one_line(given, message, tmp_path):
    (tmp_path / "empty.txt").write_text("\n \n")
    names = {"model": saved(tmp_path / "m", "llama"), "empty": str(tmp_path / "empty.txt")}
    with pytest.raises(ts.UserError, match=message) as caught:
        recipe.settings(Ask("petrov-attention", **{key: value.format(**names) for key, value in given.items()}))
    assert "\n" not in str(caught.value)


def test_it_has_no_use_for_other_protocols():
    with pytest.raises(ts.UserError, match="has no use for --protocol"):
        check(Ask("petrov-attention", protocol="paper"), recipe)
    assert all(parse(arm) for arm in recipe.ARMS)
