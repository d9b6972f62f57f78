"""What a comparison opens: parts cut from one file, and a model whose weights are all there."""

import json
import sys
from functools import partial
from hashlib import sha256
from pathlib import Path

import bash
import pytest
import tiny
import tinyrun
import torch
import transformers

import tunescope as ts
from tunescope.comparison import arms, job
from tunescope.errors import UserError
from tunescope.models.load import load_model
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan
from tunescope.trial.provenance import data_of

WHOLE = [
    ("llama", "LlamaModel", "lm_head.weight"),
    ("gpt2", "GPT2Model", ""),  # its head is its embeddings
    ("t5", "T5EncoderModel", "decoder"),
    ("bart", "BartModel", ""),
    ("mbart", "MBartModel", ""),
    ("bert", "BertForMaskedLM", ""),  # a pooler is all that is not there
    ("roberta", "RobertaForMaskedLM", ""),
]


def test_references_of_one_input_are_never_on_both_sides_of_a_cut_where_answers_are_written(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    path = tmp_path / "rows.jsonl"
    rows = [{"input": f"film {'plot ' * (n // 4)}", "target": tinyrun.WORDS[n % 4]} for n in range(80)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    opened = partial(open_bench, Plan(model=model, data={"train": str(path)}, task={"kind": "generation"}))
    inputs = [{row["input"] for row in part} for part in opened().splits.parts().values()]
    assert not inputs[0] & inputs[1] and not inputs[0] & inputs[2] and not inputs[1] & inputs[2]
    assert sum(map(len, inputs)) == 20


@pytest.mark.parametrize(
    ("labels", "own", "message"),
    [
        (
            "xyx",
            (),
            "3 rows with 2 labels are too few for dev and test to .* label 'y' would .*: --dev FILE --test FILE$",
        ),
        (
            "xyz",
            ("test",),
            "3 rows with 3 labels are too few for dev to be cut .* label '[xyz]' would have .*: --dev FILE$",
        ),
        ("xxx", (), "The training rows have one label only, 'x'"),
        ("xyxy", (), ""),
    ],
)
def test_of_too_few_rows_for_a_cut_the_label_that_would_be_lost_is_named(tmp_path, labels, own, message):
    model, _ = tinyrun.write(tmp_path)
    path = tmp_path / "rows.jsonl"
    rows = [{"text": f"film {'plot ' * n}", "label": label} for n, label in enumerate(labels)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = {"x": "good", "y": "bad", "z": "plot"}
    task = {"kind": "classification", "words": {one: words[one] for one in sorted(set(labels))}}
    asked = Plan(model=model, data=dict.fromkeys(("train", *own), str(path)), task=task)
    if not message:
        assert {row["label"] for row in open_bench(asked).splits.train} == set(labels)
        return
    with pytest.raises(UserError, match=message):
        open_bench(asked)


def test_a_template_that_was_typed_with_a_backslash_and_an_n_is_told_and_sent_as_it_is(tmp_path):
    model, data = tinyrun.write(tmp_path)

    def told(template):
        task = {"kind": "classification", "template": template}
        bench = open_bench(Plan(model=model, data=data, task=task))
        return bench.task.template, [note for note in data_of(bench)["notes"] if "backslash" in note]

    template, (note,) = told(r"{text}\nit's")
    assert template == r"{text}\nit's" and "if a new line is meant, type: " in note
    assert bash.words(note.partition("type: ")[2]) == ["--template", "{text}\nit's"]
    assert told("{text}\nit's")[1] == []


def test_rows_cut_out_of_one_file_have_a_hash_of_their_own_and_a_file_of_its_own_has_its_hash_alone(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    path = tmp_path / "rows.jsonl"
    rows = [{"text": f"film {'plot ' * n}", "title": f"was {n}", "label": "ab"[n % 2]} for n in range(60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def told(template, **others):
        task = {"kind": "classification", "words": {"a": "good", "b": "bad"}, "template": template}
        bench = open_bench(Plan(model=model, data={"train": str(path), **others}, task=task))
        return bench.splits.parts(), data_of(bench)

    (first, one), (other, two), (_, again) = (told(f"{{text}} {more}Label:") for more in ("", "{title} ", ""))
    assert one == again and {found["test"]["sha256"] for found in (one, two)} == {one["train"]["sha256"]}
    assert list(first["test"]) != list(other["test"]) and len(first["test"]) == len(other["test"])
    assert one["test"]["cut"] != two["test"]["cut"] and one["dev"]["cut"] != one["test"]["cut"]
    lines = "".join(json.dumps(dict(sorted(row.items()))) + "\n" for row in first["test"])
    assert one["test"]["cut"] == sha256(lines.encode()).hexdigest()
    (path.parent / "own.jsonl").write_text(lines)
    _, own = told("{text} Label:", test=str(path.parent / "own.jsonl"))
    assert "cut" not in one["train"] and "cut" not in own["test"] and "cut" in own["dev"]


def test_a_tokenizer_beside_the_name_of_a_model_is_refused_and_not_left_out(tmp_path):
    model, data = tinyrun.write(tmp_path)
    with pytest.raises(
        UserError, match=r"^A tokenizer is given with a model that is named, .* compare\(model, data, tok"
    ):
        ts.compare(model, data, tokenizer=tinyrun.tokenizer(), arms=["zero-shot"], out=tmp_path / "run", quiet=True)


def test_a_corpus_of_texts_is_scored_by_its_own_metric_where_none_is_named(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    rows = "".join(f'"name[film {n}]",the plot {n}\n' for n in range(30))
    (tmp_path / "e2e").mkdir()
    (tmp_path / "e2e" / "trainset.csv").write_text(f"mr,ref\n{rows}")
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"input": "film {n}", "target": "plot"}}\n' for n in range(30)))
    corpus, rows = f"e2e:{tmp_path / 'e2e'}#train", str(tmp_path / "rows.jsonl")
    for data, task, scored in (
        (corpus, {}, ("bleu", True)),
        (corpus, {"lowercase": False}, ("bleu", False)),
        (corpus, {"metric": "chrf"}, ("chrf", False)),
        (rows, {}, ("exact_match", False)),
    ):
        opened = open_bench(Plan(model=model, data={"train": data}, task={"kind": "generation", **task}))
        assert (opened.task.metric, opened.task.lowercase) == scored


@pytest.mark.parametrize(("whole", "part", "lacks"), WHOLE)
def test_weights_that_a_checkpoint_lacks_are_refused_and_not_made_up(whole, part, lacks, tmp_path):
    config = tiny.configs()[whole]
    config.tie_word_embeddings = whole != "llama"
    getattr(transformers, part)(config).save_pretrained(tmp_path)
    tinyrun.tokenizer().save_pretrained(tmp_path)
    if not lacks:
        model, tokenizer = load_model(str(tmp_path))
        assert model.config.model_type == whole and getattr(model, "pooler", None) is None
        model(**tokenizer("the film was good", return_tensors="pt"))
        return
    with pytest.raises(ts.UserError, match=f"is no whole .*: its checkpoint lacks {lacks}.*, which would be random"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("shots", [None, 3])
def test_one_text_is_never_on_both_sides_whatever_its_id_or_label(tmp_path, shots):
    model, data = tinyrun.write(tmp_path)
    path = tmp_path / "rows.jsonl"
    texts = [f"film {'plot ' * (n % 8)}{tinyrun.WORDS[n // 8 % 8]}" for n in range(64)]
    rows = [
        {"id": n, "text": text, "label": "neg" if k % 2 else "pos"}
        for n, (k, text) in enumerate([*enumerate(texts)] * 2)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"train": str(path)} | ({} if shots is None else {"test": data["test"]})
    opened = open_bench(Plan(model=model, data=given, task={"kind": "classification"}, k_shot=shots, seeds=(0, 1)))
    for splits in opened.draws.values() or [opened.splits]:
        parts = [
            {row["text"] for row in part}
            for name, part in splits.parts().items()
            if name in ("train", "dev") or not shots
        ]
        assert sum(map(len, parts)) == len(set().union(*parts))
    if shots is None:
        assert "rows with equal text stay together" in " ".join(opened.splits.notes)


def test_a_run_depends_on_tokenizer_config_and_output_layer(tmp_path):
    model, data = tinyrun.write(tmp_path)

    def ids():
        asked = Plan(model=model, data=data, task={"kind": "classification"}, arms=("zero-shot",))
        opened = open_bench(asked)
        return job.job(opened, arms.ready(arms.planned_arms(opened)[0], opened), (), 0).id

    first = ids()
    assert ids() == first
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    seen = {first}
    for name, change in (
        ("config.json", json.dumps(config | {"rope_theta": 5.0, "layer_norm_epsilon": 0.1})),
        ("tokenizer.json", (tmp_path / "model" / "tokenizer.json").read_text().replace("plot", "plott")),
    ):
        path = tmp_path / "model" / name
        before = path.read_text()
        path.write_text(change)
        seen.add(ids())
        path.write_text(before)
    assert len(seen) == 3 and ids() == first


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's list of what is mapped")
def test_weights_on_the_cpu_stay_in_the_mapped_file_also_in_training_so_that_processes_share_them(tmp_path):
    model, data = tinyrun.write(tmp_path)
    bench = open_bench(Plan(model=model, data=data, task={"kind": "classification"}))
    with ts.attach(bench.model, ts.LoRA(rank=2)) as tuned:
        tuned.train()
        rows = bench.encoded("train", room=None)[:4]
        bench.task.loss(bench.model, rows, bench.tokenizer).backward()
        torch.optim.SGD(tuned.parameters(), lr=0.1).step()
    file = str(Path(model) / "model.safetensors")
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(file)]
    spans = [tuple(int(end, 16) for end in words[0].split("-")) for words in lines]
    assert spans
    for name, weight in bench.model.named_parameters():
        assert any(low <= weight.data_ptr() < high for low, high in spans), name


def test_a_loaded_model_that_is_spread_or_quantised_stays_where_it_is(tmp_path, monkeypatch):
    def moved(self, *where):
        raise AssertionError(f"moved to {where}")

    name, data = tinyrun.write(tmp_path)
    asked = Plan(model="loaded", data={"train": data["train"]}, task={"kind": "classification"}, device="cpu")
    spread, quantised, plain = (load_model(name) for _ in range(3))
    spread[0].hf_device_map = {"transformer.h.0": 0, "transformer.h.1": 1}
    wte = quantised[0].transformer.wte
    wte.register_parameter("codes", torch.nn.Parameter(torch.zeros(8, 1, dtype=torch.uint8), requires_grad=False))
    plain[0].hf_device_map = {"": "cpu"}
    monkeypatch.setattr(transformers.PreTrainedModel, "to", moved)
    monkeypatch.setattr("tunescope.system.machine.device_named", lambda name: torch.device("meta"))
    for model, tokenizer in (spread, quantised):
        assert open_bench(asked, model, tokenizer).device == torch.device("cpu")  # rows go to where it is
    with pytest.raises(AssertionError, match=r"moved to .*meta"):
        open_bench(asked, *plain)
    plain[0].hf_device_map = {"transformer.h.0": 0, "transformer.h.1": "disk"}
    with pytest.raises(UserError, match=r"^a part of this model was put on 'disk'"):
        open_bench(asked, *plain)


def test_numbers_on_a_scale_are_told_to_be_names_of_classes(tmp_path):
    model, _ = tinyrun.write(tmp_path)
    path = tmp_path / "rows.jsonl"
    for wholes in (False, True):
        labels = [n if wholes else round(0.3 + n / 7, 3) for n in range(12)]
        path.write_text("".join(json.dumps({"text": f"film {n}", "label": n}) + "\n" for n in labels))
        with pytest.raises(UserError, match="12 rows with 12 labels are too few") as told:
            open_bench(Plan(model=model, data={"train": str(path)}, task={"kind": "classification"}))
        assert ("sort them into classes first, as low, middle and high" in str(told.value)) == (not wholes)
