"""Languages that a tokenizer marks: the codes around inputs and answers, and where an answer begins."""

import json

import mbart
import pytest
import tinyrun
import torch
import transformers as tf

import tunescope as ts
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.prompts import languages
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return mbart.write(tmp_path_factory.mktemp("mbart"))


def opened(model, folder, more=0, **languages):
    """more: words of the last answer beside its own."""
    rows = [{"input": f"the film {'was ' * n}good", "target": f"filmul {'era ' * n}bun"} for n in range(1, 9)]
    rows[-1]["target"] += " bun" * more
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {part: str(path) for part in ("train", "dev", "test")}
    task = {"kind": "generation", "template": "{input}", **languages}
    return open_bench(Plan(model=model, data=data, task=task, arms=("zero-shot",)))


def watched(model, monkeypatch):
    """What `generate` gives, kept."""
    kept, generate = [], model.generate

    def spy(**given):
        kept.append(generate(**given))
        return kept[-1]

    monkeypatch.setattr(model, "generate", spy)
    return kept


def test_inputs_end_and_answers_begin_and_end_in_the_languages_that_are_asked(folder, tmp_path, monkeypatch):
    bench = opened(folder, tmp_path, source_language="en", target_language="ro_RO")
    (row, *_) = bench.encoded("test", room=None)
    shown = bench.tokenizer.convert_ids_to_tokens
    assert shown(row.input_ids) == ["▁the", "▁film", "▁was", "▁good", "</s>", "en_XX"]
    assert shown(row.target_ids) == ["▁filmul", "▁era", "▁bun", "</s>", "ro_RO"]
    begun = watched(bench.model, monkeypatch)
    bench.task.predict(bench.model, [row], bench.tokenizer)
    assert shown(begun[0][0, :1].tolist()) == ["ro_RO"]
    assert bench.task.notes[-1] == "Languages, as the tokenizer marks them: en_XX to ro_RO."


@pytest.mark.parametrize(("family", "source", "target"), [("mbart50", "en", "ro_RO"), ("nllb", "eng", "ron_Latn")])
def test_where_answers_begin_with_their_language_decoding_is_told(family, source, target, tmp_path, monkeypatch):
    """As transformers' own use of them has it: forced_bos_token_id; training has it as the first target."""
    model = mbart.write(tmp_path / family, family)
    bench = opened(model, tmp_path, source_language=source, target_language=target.partition("_")[0])
    rows = bench.encoded("test", room=None)
    language = bench.tokenizer.convert_tokens_to_ids(target)
    assert {row.target_ids[0] for row in rows} == {language}
    written = watched(bench.model, monkeypatch)
    bench.task.predict(bench.model, rows[:2], bench.tokenizer)
    assert written[0][:, :2].tolist() == [[2, language]] * 2
    loss = bench.task.loss(bench.model, rows[:1], bench.tokenizer)
    labels = torch.tensor([rows[0].target_ids])
    before = torch.tensor([[2, *rows[0].target_ids[:-1]]])
    logits = bench.model(input_ids=torch.tensor([rows[0].input_ids]), decoder_input_ids=before).logits
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits[0], labels[0]))


def test_an_answer_longer_than_the_decoder_is_refused_with_its_place(folder, tmp_path):
    with pytest.raises(ts.UserError, match=r"Answers of 65 tokens are more than the 64 positions.*--max-new-tokens 64"):
        opened(folder, tmp_path, max_new_tokens=65)
    with pytest.raises(
        ts.UserError, match=r"rows\.jsonl line 8: the answer has 7\d tokens, and the decoder of 'mbart' 64"
    ):
        opened(folder, tmp_path, more=60)


def test_languages_that_are_not_asked_stay_and_are_told(folder, tmp_path):
    bench = opened(folder, tmp_path)
    said = "en_XX to en_XX. If that is wrong, give --source-language and --target-language."
    assert bench.task.notes[-1].endswith(said)
    (row, *_) = bench.encoded("test", room=None)
    assert bench.tokenizer.convert_ids_to_tokens(row.target_ids[-1]) == "en_XX"


def test_the_tokenizer_that_is_given_keeps_its_own_languages(folder):
    given = tf.AutoTokenizer.from_pretrained(folder)
    told = languages.with_languages(given, Generation(target_language="ro"))
    assert (told.tgt_lang, given.tgt_lang) == ("ro_RO", None)


def test_a_language_that_the_tokenizer_lacks_or_does_not_mark_is_refused(folder):
    given = tf.AutoTokenizer.from_pretrained(folder)
    with pytest.raises(ts.UserError, match=r"--target-language xx: the tokenizer of this model knows ar_AR, cs_CZ, "):
        languages.with_languages(given, Generation(target_language="xx"))
    task = Generation(source_language="en", target_language="ro")
    with pytest.raises(ts.UserError, match=r"--source-language and --target-language: .* marks no language"):
        languages.with_languages(tinyrun.tokenizer(), task)
