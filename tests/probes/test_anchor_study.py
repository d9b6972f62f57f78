"""`tunescope anchors` as a person meets it, and its numbers taken apart again with transformers alone."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import tiny
import tinyrun
import torch
from commands import call
from scipy.stats import t as student
from transformers import AutoModelForCausalLM, AutoTokenizer, GPTNeoXJapaneseConfig

import tunescope as ts
from tunescope.data.read import read
from tunescope.probes.anchors import study
from tunescope.probes.anchors.importance import importance
from tunescope.probes.anchors.request import AnchorRequest, rounds_of
from tunescope.probes.demonstrations import compress
from tunescope.probes.names import DEMONSTRATIONS
from tunescope.system import plugins
from tunescope.tasks.kinds.classification import Classification
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan

SECTIONS = ["auc", "compress", "diagnose", "flow", "isolate"]


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    return tinyrun.write(tmp_path_factory.mktemp("material"))


@pytest.fixture(scope="module")
def studied(material):
    model, data = material
    plan = Plan(model=model, data=data, task={"kind": "classification"}, seeds=(0, 1))
    return study.study(AnchorRequest(plan, k=1, rows=12), lambda line: None)


@pytest.mark.parametrize("rows", [1, 4])
def test_importance_is_told_of_where_there_were_other_rows_to_weigh_by(rows, material):
    model, data = material
    plan = Plan(model=model, data=data, task={"kind": "classification"}, seeds=(0,))
    found = study.study(AnchorRequest(plan, k=1, rows=rows, only=("compress",)), lambda line: None).findings["compress"]
    ways = [row[0] for row in found.rows]
    assert ("by saliency" in ways) == ("by saliency" in found.says) == ("by the others" in found.says) == (rows > 1)


@pytest.fixture
def anchors(material, monkeypatch, capsys, tmp_path):
    def run(*words):
        model, data = material
        place = ["--test", data["test"], "--rows", "6", "--seeds", "2", "--workers", "1", "--out", tmp_path / "out"]
        return call(monkeypatch, capsys, "anchors", model, data["train"], *place, *words)

    return run


def test_the_sections_are_the_folder_and_stand_in_their_order(studied):
    assert plugins.names(DEMONSTRATIONS) == SECTIONS
    assert list(studied.findings) == ["flow", "isolate", "auc", "compress", "diagnose"]


def test_accuracy_and_facts_are_those_of_the_prompts_in_full(material, studied):
    """The demonstrations of the first draw and the query as one text, read by transformers' own attention."""
    name, data = material
    model, tokenizer = AutoModelForCausalLM.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    task = Classification(words={"neg": "neg", "pos": "pos"})
    train, test = read(data["train"]), read(data["test"])
    rows = [test[i] for i in sorted(Random(0).sample(range(len(test)), 12))]
    said = []
    for row in rows:
        text = task.demonstrations(train, 1, 0) + f"{row['text']}\nLabel:"
        with torch.no_grad():
            logits = model(torch.tensor([tokenizer(text)["input_ids"]])).logits[0, -1]
        said.append(
            "pos" if logits[tokenizer("pos")["input_ids"][0]] > logits[tokenizer("neg")["input_ids"][0]] else "neg"
        )
    right = sum(one == row["label"] for one, row in zip(said, rows, strict=True)) / len(rows)
    assert studied.draws["isolate"][0]["accuracy"] == pytest.approx(right)
    assert studied.draws["auc"][0]["predicted"] == [said.count("neg"), said.count("pos")]
    assert studied.facts["rows"] == 12 and studied.facts["draws"] == 2
    assert studied.facts["accuracy of each draw"].startswith(f"{right:.3f}, ")


def test_the_shares_of_flow_sum_to_one_and_the_table_has_their_interval(studied):
    draws = studied.draws["flow"]
    for draw in draws:
        assert all(sum(layer) == pytest.approx(1) for layer in draw["shares"])
    values = torch.tensor([draw["shares"][0][0] for draw in draws], dtype=torch.float64)
    half = float(student.ppf(0.975, 1) * values.std() / 2**0.5)
    low, high = max(0.0, float(values.mean()) - half), min(1.0, float(values.mean()) + half)
    assert studied.findings["flow"].rows[0][1] == f"{float(values.mean()):.3f} [{low:.3f}, {high:.3f}]"


def test_what_is_compressed_to_all_positions_is_wholly_loyal(studied):
    for draw in studied.draws["compress"]:
        assert draw["ways"]["full"]["label_loyalty"] == draw["ways"]["prompt"]["label_loyalty"] == 1
        assert draw["curves"]["by saliency"][-1] == draw["curves"]["at random"][-1] == 1
        assert draw["ways"]["by saliency"]["kept"] == draw["ways"]["anchors"]["kept"]
        assert draw["rows"] == 6  # the other half was for importance


def test_it_prints_every_section_and_writes_one_page_with_all_pictures(anchors, tmp_path):
    code, out, err = anchors()
    assert (code, err) == (0, "")
    page = (tmp_path / "out" / "anchors.html").read_text("utf-8")
    for name in SECTIONS:
        numbers = json.loads((tmp_path / "out" / f"{name}.json").read_text("utf-8"))
        assert numbers["heading"].upper() in out
        assert len(numbers["numbers"]["draws"]) == 2
        assert numbers["command"].startswith("tunescope anchors ")
    assert page.count("<svg ") == len(list((tmp_path / "out").glob("picture-*.svg"))) >= 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--only", "flw"), "no section 'flw'. Did you mean 'flow'? Sections: auc,"),
        (("--k", "20"), r"A prompt has"),
        (("--k", "90"), "90 demonstrations a label are asked for"),
        (("--k", "0"), "0 demonstrations a label are asked for"),
        (("--template", "{txt} it"), "has no field 'txt'"),
        (("--words", "neg=bad,pos=bad"), "cannot be told apart"),
        (("--task", "generation", "--input", "text", "--target", "label"), "Anchors are label words"),
    ],
)
def test_what_cannot_be_asked_is_one_clear_line(anchors, words, message):
    code, out, err = anchors(*words)
    assert code == 2 and message in err
    assert "Traceback" not in out + err


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_of_an_encoder_decoder_only_compression_is_left_out_and_that_is_said(tmp_path, family):
    model = tiny.make(family, dtype=torch.float32)
    model.config.decoder_start_token_id = 1
    model.save_pretrained(tmp_path / family)
    tiny.tokenizer().save_pretrained(tmp_path / family)
    rows = [{"text": f"w{i} w{i + 1}", "label": "abc"[i % 3]} for i in range(5, 35)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {"kind": "classification", "words": {"a": "w5", "b": "w6 w7", "c": "w8"}}
    plan = Plan(model=str(tmp_path / family), data={"train": str(tmp_path / "rows.jsonl")}, task=task, seeds=(0,))
    said = []
    found = study.study(AnchorRequest(plan, rows=3), said.append)
    assert list(found.findings) == ["flow", "isolate", "auc", "diagnose"]
    assert found.facts["left out"].startswith("compress: Demonstrations cannot be compressed in an encoder-decoder")
    assert any(line.startswith("left out, compress") for line in said)
    assert all(sum(layer) == pytest.approx(1) for layer in found.draws["flow"][0]["shares"])
    with pytest.raises(ts.UserError, match="cannot be compressed"):
        study.study(AnchorRequest(plan, rows=3, only=("compress",)), said.append)
    both = study.study(AnchorRequest(plan, rows=3, only=("compress", "flow")), said.append)
    assert list(both.findings) == ["flow"] and both.facts["left out"].startswith("compress: ")


def test_an_encoder_is_refused(material, monkeypatch, capsys, tmp_path):
    import transformers

    config = transformers.BertConfig(
        vocab_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    tinyrun.tokenizer().save_pretrained(tmp_path / "bert")
    code, _, err = call(monkeypatch, capsys, "anchors", tmp_path / "bert", material[1]["train"])
    assert code == 2 and "answered in words, by a decoder" in err


def test_a_model_of_which_no_section_can_be_had_is_refused_with_the_reason(tmp_path):
    _, data = tinyrun.write(tmp_path)
    config = GPTNeoXJapaneseConfig(vocab_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "japanese")
    tinyrun.tokenizer().save_pretrained(tmp_path / "japanese")
    plan = Plan(model=str(tmp_path / "japanese"), data=data, task={"kind": "classification"})
    with pytest.raises(ts.UserError, match="Family 'gpt_neox_japanese' computes attention by itself"):
        study.study(AnchorRequest(plan, rows=4), say=lambda line: None)


def test_a_probe_that_is_a_section_says_what_to_type(monkeypatch, capsys):
    code, _, err = call(monkeypatch, capsys, "probe", "flow", "--model", "m", "--artifact", "a")
    assert code == 2 and "tunescope anchors MODEL DATA --only flow" in err


def test_importance_is_weighed_on_rows_that_the_seed_draws_and_means_are_by_rows(material, tmp_path):
    """Of a file that is sorted by label, too; and of groups that are of one query and of more."""
    rows = [{"text": f"w{20 + i} w{21 + (i * 5) % 60}", "label": "ab"[i >= 30]} for i in range(60)]
    files = {part: str(tmp_path / f"{part}.jsonl") for part in ("train", "test")}
    for path in files.values():
        Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {"kind": "classification", "template": "{text} w4", "words": {"a": "w5", "b": "w8"}}
    plan = Plan(model="tiny", data=files, task=task, seeds=(0, 1), device="cpu")
    bench = open_bench(plan, tiny.make("gpt2", dtype=torch.float32), tiny.tokenizer())
    one, two = rounds_of(AnchorRequest(plan, 1, 0), bench)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compress, "importance", lambda *given: seen.append(given[2]) or importance(*given))
        compress.measure(one)
    assert {prompt.query.label for prompt in seen[0]} == {0, 1} and len(seen[0]) == 16
    alone = [compress.measure(replace(each, prompts=each.prompts[:n])) for each, n in ((one, 4), (two, 1))]
    mixed = compress.measure(replace(one, prompts=[*one.prompts[:4], *two.prompts[:1]]))
    assert "by saliency" not in mixed["ways"] and mixed["rows"] == 3
    accuracy = [each["ways"]["zero-shot"]["accuracy"] for each in alone]
    assert mixed["ways"]["zero-shot"]["accuracy"] == pytest.approx((2 * accuracy[0] + accuracy[1]) / 3)
