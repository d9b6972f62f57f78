"""What another library would read otherwise than it was meant is refused, or said so that it reads it as meant."""

import copy
import json
from pathlib import Path
from typing import Any

import peft
import peftly
import pytest
import serving_tools as tools
import tiny
import torch
import transformers as tf

import tunescope as ts
from tunescope.exchange import convert
from tunescope.exchange.peft.config import CONFIG
from tunescope.methods.text_form import parse


def export(model: Any, arm: str, folder: Path) -> Any:
    return convert.export(folder, tools.moved(model, *parse(arm)), to="peft", model=model)


def test_a_prefix_for_a_model_that_takes_no_past_keys_is_refused(tmp_path: Path) -> None:
    model = tiny.make("distilbert")
    assert "past_key_values" not in type(model).forward.__code__.co_varnames
    with pytest.raises(ts.UserError, match="DistilBertModel takes none: there it has no effect"):
        export(model, "prefix:length=3,positions=after", tmp_path / "out")


@pytest.mark.parametrize("family", ["roberta", "distilbert"])
def test_a_head_for_a_class_with_another_classifier_is_refused(family: str, tmp_path: Path) -> None:
    model = tiny.make(family)
    if family == "distilbert":  # no pooler, and so no such head
        with pytest.raises(ts.UserError, match="reads the model's pooler, which this one does not have"):
            tools.moved(model, *parse("lora:rank=2+head:n_labels=3,pooler=true"))
        return
    with pytest.raises(ts.UserError, match=r"family 'roberta' has Head\(n_labels=3, .*dense='tanh'.*tune that"):
        export(model, "lora:rank=2+head:n_labels=3,pooler=true", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("auto", [tf.AutoModelForMaskedLM, tf.AutoModelForSequenceClassification])
def test_an_encoder_with_a_head_is_loaded_by_peft_as_the_class_it_was_written_for(auto: Any, tmp_path: Path) -> None:
    made = tiny.build(auto, copy.deepcopy(tiny.make("bert").config))
    made.save_pretrained(tmp_path / "base")
    model = auto.from_pretrained(tmp_path / "base", dtype=torch.float64).eval()
    artifacts = tools.moved(model, *parse("lora:rank=2"))
    done = convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    assert not any("vLLM" in note for note in done.notes)
    given = tiny.batch(model)
    with peftly.quiet(), torch.no_grad(), tiny.Float64():
        theirs = peft.AutoPeftModel.from_pretrained(tmp_path / "out", dtype=torch.float64).eval()
        bare = model(**given).logits
        with ts.attach(model, *artifacts):
            expected = model(**given).logits
        got = theirs(**given).logits
    assert (expected - bare).abs().max() > 1e-3
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sites", ["self", "ffn"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_lora_on_a_whole_block_is_refused_in_every_precision(sites: str, dtype: torch.dtype, tmp_path: Path) -> None:
    with pytest.raises(ts.UserError, match=r"acts on the whole block .* peft's LoRA on single linear maps"):
        export(tiny.make("gpt2", dtype=dtype), f"lora:rank=2,sites={sites}", tmp_path / "out")


def test_where_rounding_is_as_large_as_the_change_a_note_says_so(tmp_path: Path) -> None:
    model = tiny.make("llama", dtype=torch.bfloat16)
    large, small = (tiny.away(model, "lora:rank=2", by=by) for by in (0.5, 1e-3))
    doubt = "in this precision the comparison says little"
    assert not any(doubt in note for note in convert.export(tmp_path / "a", large, to="peft", model=model).notes)
    found = convert.export(tmp_path / "b", small, to="merged", model=model, tokenizer=tiny.tokenizer())
    assert found.difference > 0 and any(doubt in note for note in found.notes)


def test_keys_are_turned_without_the_factor_by_which_yarn_scales_them(tmp_path: Path) -> None:
    config = copy.deepcopy(tiny.make("llama").config)
    config.rope_parameters = {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
    }
    model = tiny.build(tf.AutoModelForCausalLM, config).float()
    assert model.base_model.rotary_emb.attention_scaling > 1.1
    done = convert.export(tmp_path / "out", tools.moved(model, *parse("prefix:length=3")), to="peft", model=model)
    assert done.difference is not None and done.difference < 1e-5


def test_a_head_that_is_not_tied_whatever_the_config_says_is_not_called_so(tmp_path: Path) -> None:
    tokenizer = tools.metaspace()
    for tied in (True, False):
        config = copy.deepcopy(tiny.make("llama").config)
        config.vocab_size, config.tie_word_embeddings = len(tokenizer), True
        model = tiny.build(tf.AutoModelForCausalLM, config).float()
        model.config.name_or_path = "base"
        if not tied:
            model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
        artifacts = tools.moved(model, *parse("soft:length=2"), tokenizer=tokenizer)
        done = convert.export(tmp_path / str(tied), artifacts, to="soft_token", model=model, tokenizer=tokenizer)
        assert any("was tied to the embeddings" in note for note in done.notes) == tied


def test_the_configuration_has_one_way_to_find_the_class(tmp_path: Path) -> None:
    export(tiny.make("bert"), "lora:rank=2", tmp_path / "bare")
    assert json.loads((tmp_path / "bare" / CONFIG).read_text())["task_type"] == "FEATURE_EXTRACTION"
    model = tiny.build(tf.AutoModelForMaskedLM, copy.deepcopy(tiny.make("bert").config))
    export(model, "lora:rank=2", tmp_path / "words")
    config = json.loads((tmp_path / "words" / CONFIG).read_text())
    assert config["task_type"] is None and config["auto_mapping"]["base_model_class"] == "BertForMaskedLM"
    export(model, "soft:length=2", tmp_path / "soft")
    assert json.loads((tmp_path / "soft" / CONFIG).read_text())["task_type"] == "FEATURE_EXTRACTION"
