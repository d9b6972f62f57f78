"""What a comparison opens: parts cut from one file, and a model whose weights are all there."""

import json
from functools import partial

import pytest
import tiny
import tinyrun
import transformers

import tunescope as ts
from tunescope.comparing.bench import open_bench
from tunescope.comparing.plan import Plan
from tunescope.loading import load_model

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
