"""What a finished run answers to new rows: to its own test rows just what it answered when they were scored."""

import json
import shutil
from pathlib import Path

import masked
import pytest
import tinyrun
import torch

import tunescope as ts
from tunescope.comparison import predict
from tunescope.data.read import read
from tunescope.data.scores import aggregate
from tunescope.errors import Note, UserError
from tunescope.models.load import load_model
from tunescope.report.verdict import stats
from tunescope.system import files, run_folder, sealed_json
from tunescope.trial import questions

SHORT = {"budget": 256, "seeds": 2, "trials": 1, "steps": 4, "batch_size": 8, "eval_every": 2, "beyond": 0}


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    return tinyrun.write(tmp_path_factory.mktemp("material"))


def compared(material, folder, arms, **fields):
    model, data = material
    return ts.compare(model, data, arms=arms, out=folder, quiet=True, **SHORT, **fields)


LABELLED = (
    "zero-shot",
    "demos:k=1",
    "demos:k=1,calibrate=true",
    "demos:k=1,choose=similar,sets=2",
    "lora",
    "soft+lora",
    "demos:k=1+prefix:length=2",
)


@pytest.fixture(scope="module")
def done(material, tmp_path_factory):
    return compared(material, tmp_path_factory.mktemp("done") / "run", LABELLED)


def kept(found, name):
    """The arm's best run on the development rows, and what its folder keeps of the test rows."""
    arm = next(one for one in found.results["arms"] if one["name"] == name)
    run = max(arm["runs"], key=lambda one: one["dev"])
    return run, json.loads((found.folder / "arms" / run["id"] / "test.json").read_text())


@pytest.mark.parametrize("name", LABELLED)
def test_each_arm_answers_the_test_rows_as_when_it_was_scored_with_their_labels_or_without(done, material, name):
    run, before = kept(done, name)
    rows = read(material[1]["test"])
    labels = done.results["task"]["labels"]
    expected = [labels[int(one[2])] for one in run["stats"]]
    answered = done.predict(material[1]["test"], arm=name)
    assert [row["prediction"] for row in answered] == expected
    shares = [row["prediction_probability"] for row in answered]
    assert shares == [own[label] for own, label in zip(before["shares"], expected, strict=True)]
    assert [{key: row[key] for key in ("text", "label")} for row in answered] == rows
    bare = [{"text": row["text"], "id": index} for index, row in enumerate(rows)]
    assert done.predict(bare, arm=name, field="said") == [
        row | {"said": label, "said_probability": share}
        for row, label, share in zip(bare, expected, shares, strict=True)
    ]


def test_the_best_on_dev_answers_where_no_arm_is_named(done, material):
    name = done.results["best"]["arm"]
    assert done.predict(material[1]["test"]) == ts.predict(done.folder, material[1]["test"], arm=name)


def test_the_score_is_that_of_the_run_alone_with_an_interval_over_rows(done, material):
    run, _ = kept(done, "lora")
    with predict.asked(done.folder, material[1]["test"], arm="lora") as question:
        assert question.todo.seed == run["seed"] and question.without == 0
        list(question.answered())
        metric, found = question.score()
    assert metric == "accuracy" and found.value == pytest.approx(aggregate(metric, run["stats"])[metric], abs=1e-12)
    expected = stats.interval({0: run["stats"]}, stats.scorer(metric))
    assert (found.low, found.high) == (expected.low, expected.high)
    rows = read(material[1]["test"])
    rows[3]["label"] = " "
    with predict.asked(done.folder, rows, arm="lora") as question:
        list(question.answered())
        assert question.without == 1 and question.score() is None


def test_an_input_that_stands_twice_counts_once_in_the_interval(done, material):
    rows = read(material[1]["test"])
    with predict.asked(done.folder, [*rows, *rows[:12]], arm="lora") as question:
        list(question.answered())
        _, found = question.score()
    run, _ = kept(done, "lora")
    table = [*run["stats"], *run["stats"][:12]]
    expected = stats.interval({0: table}, stats.scorer("accuracy"), inputs=[*range(len(rows)), *range(12)])
    assert (found.value, found.low, found.high) == (expected.value, expected.low, expected.high)
    assert found.low != stats.interval({0: table}, stats.scorer("accuracy")).low


def test_demonstrations_of_each_row_s_own_are_found_once_for_all_rows(done, material, monkeypatch):
    answers, calls = questions.predictions, []
    monkeypatch.setattr(predict, "AT_ONCE", 5)
    monkeypatch.setattr(questions, "predictions", lambda *given, **how: calls.append(1) or answers(*given, **how))
    done.predict(material[1]["test"], arm="demos:k=1,choose=similar,sets=2")
    assert len(calls) == 1
    done.predict(material[1]["test"], arm="lora")
    assert len(calls) == 1 + 7


WRITTEN = {"task": "generation", "input_field": "text", "target_field": "label", "template": "{text} Label:"}


def test_texts_are_written_as_when_they_were_scored_and_once_for_rows_that_ask_the_same(
    material, tmp_path, monkeypatch
):
    model, data = material
    test = tmp_path / "test.jsonl"
    lines = Path(data["test"]).read_text().splitlines()
    test.write_text("\n".join([*lines[:9], lines[2], *lines[9:], lines[30]]))
    asked = {"train": data["train"], "dev": data["dev"], "test": test}
    arms = ("demos:k=1,choose=nearest", "lora")
    found = compared((model, asked), tmp_path / "run", arms, max_new_tokens=2, **WRITTEN)
    rows = read(test)
    first = {}
    for row in rows:
        first.setdefault(row["text"], len(first))
    assert len(first) == len(rows) - 2
    monkeypatch.setattr(predict, "AT_ONCE", 5)
    for name in arms:
        _, before = kept(found, name)
        expected = [before["outputs"][first[row["text"]]] for row in rows]
        assert len(before["outputs"]) == len(first)
        assert [row["prediction"] for row in found.predict(test, arm=name)] == expected
        bare = [{"text": row["text"]} for row in rows]
        assert found.predict(bare, arm=name) == [
            row | {"prediction": text} for row, text in zip(bare, expected, strict=True)
        ]
    with predict.asked(found.folder, test, arm="lora") as question:
        list(question.answered())
        metric, score = question.score()
    run, _ = kept(found, "lora")
    assert score.value == pytest.approx(aggregate(metric, run["stats"])[metric], abs=1e-12)


def test_a_metric_that_weighs_by_what_all_rows_have_is_that_of_the_run_however_many_are_answered_at_once(
    material, tmp_path, monkeypatch
):
    parts = {}
    for seed, part in enumerate(("train", "dev", "test")):
        rows = [{"text": f"{n} {row['text']}", "label": row["text"]} for n, row in enumerate(tinyrun.rows(32, seed))]
        parts[part] = tmp_path / f"{part}.jsonl"
        parts[part].write_text("\n".join(map(json.dumps, rows)))
    asked = {"metric": "nist", "max_new_tokens": 8, "learning_rates": [1e-2], "steps": 40, "eval_every": 20}
    found = ts.compare(material[0], parts, arms=["full"], out=tmp_path / "run", **SHORT | asked | WRITTEN, quiet=True)
    monkeypatch.setattr(predict, "AT_ONCE", 5)
    with predict.asked(found.folder, parts["test"], arm="full") as question:
        list(question.answered())
        named, score = question.score()
    run, _ = kept(found, "full")
    assert named == "nist" and score.value == pytest.approx(run["test"]["nist"], abs=1e-12) and score.value > 0


def test_choices_are_answered_row_by_row_without_an_answer(material, tmp_path):
    model, data = material
    made = {}
    for part, path in data.items():
        asked = [
            {"input": row["text"], "choices": ["neg", "pos"][:: -1 if at % 2 else 1], "answer": row["label"]}
            for at, row in enumerate(read(path))
        ]
        made[part] = tmp_path / f"{part}.jsonl"
        made[part].write_text("".join(json.dumps(row) + "\n" for row in asked))
    run = compared((model, made), tmp_path / "run", ("zero-shot", "lora"), task="choice")
    rows = read(made["test"])
    own, _ = kept(run, "lora")
    answers = [row["prediction"] for row in run.predict(rows, arm="lora")]
    right = [float(said == row["answer"]) for said, row in zip(answers, rows, strict=True)]
    assert right == [one[0] for one in own["stats"]]
    bare = [{key: row[key] for key in ("input", "choices")} for row in rows]
    assert [row["prediction"] for row in run.predict(bare, arm="lora")] == answers


def test_words_that_a_search_found_are_asked_with(material, tmp_path):
    run = compared(material, tmp_path / "run", ("label_words", "zero-shot"))
    own, _ = kept(run, "label_words")
    labels = run.results["task"]["labels"]
    answers = [row["prediction"] for row in run.predict(material[1]["test"], arm="label_words")]
    assert answers == [labels[int(one[2])] for one in own["stats"]]


def test_rows_of_each_seed_are_shown_where_few_were_drawn(material, tmp_path, monkeypatch):
    model, data = material
    parts = {part: data[part] for part in ("train", "test")}
    run = compared((model, parts), tmp_path / "run", ("demos:k=1,choose=similar", "lora"), k_shot=4)
    labels = run.results["task"]["labels"]
    every = {one["name"]: one["runs"] for one in run.results["arms"]}
    for name, own in ((name, own) for name, runs in every.items() for own in runs):
        monkeypatch.setattr(predict, "_chosen", lambda *_, name=name, own=own: (name, own))
        answers = run.predict(data["test"])
        assert [row["prediction"] for row in answers] == [labels[int(one[2])] for one in own["stats"]]
        before = json.loads((run.folder / "arms" / own["id"] / "test.json").read_text())["shares"]
        shares = [row["prediction_probability"] for row in answers]
        assert shares == [one[row["prediction"]] for row, one in zip(answers, before, strict=True)]
    assert [own["seed"] for runs in every.values() for own in runs] == [0, 1, 0, 1]


def test_a_run_of_a_loaded_model_answers_with_it(material, tmp_path):
    model, tokenizer = tinyrun.model(), tinyrun.tokenizer()
    run = ts.compare(model, material[1], tokenizer=tokenizer, arms=["lora"], out=tmp_path / "run", quiet=True, **SHORT)
    own, _ = kept(run, "lora")
    labels = run.results["task"]["labels"]
    answers = run.predict(material[1]["test"], model=model, tokenizer=tokenizer)
    assert [row["prediction"] for row in answers] == [labels[int(one[2])] for one in own["stats"]]
    with pytest.raises(
        UserError, match=r"begun from Python with a loaded model\. Give it again, from there: run\.pred"
    ):
        run.predict(material[1]["test"])
    with pytest.raises(UserError, match=r"run: .* changed since\. Put back what was there, or compare anew\.$"):
        run.predict(material[1]["test"], model=tinyrun.model(seed=1), tokenizer=tokenizer)


def test_a_loaded_model_answers_for_the_one_that_is_no_longer_where_it_was(tmp_path):
    model, data = tinyrun.write(tmp_path)
    run = compared((model, data), tmp_path / "run", ("lora",))
    before = run.predict(data["test"])
    loaded, tokenizer = load_model(model)
    Path(model).rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"begun with .*model, which is gone"):
        run.predict(data["test"])
    assert run.predict(data["test"], model=loaded, tokenizer=tokenizer) == before
    Path(data["train"]).unlink()
    with pytest.raises(UserError, match=r"train\.jsonl"):
        run.predict(data["test"], model=loaded, tokenizer=tokenizer)


def test_what_cannot_be_answered_is_told(done, material, tmp_path):
    with pytest.raises(UserError, match=r"^'lor' is no arm of .*run, which has: zero-shot, demos:k=1, "):
        done.predict(material[1]["test"], arm="lor")
    with pytest.raises(UserError, match=r"^row 2 has no field 'text'\. It has: review\.$"):
        done.predict([{"text": "a film"}, {"review": "a film"}])
    with pytest.raises(UserError, match=r"'prediction' of their own\. Give the answers another name: --field NAME$"):
        done.predict([{"text": "a film", "prediction": "neg"}])
    assert done.predict([{"text": "a film", "": 5}])[0][""] == 5  # a name that the rows have
    with pytest.raises(UserError, match="--field is empty; give the answers a name: --field NAME"):
        done.predict([{"text": "a film"}], field="")
    with pytest.raises(
        UserError, match=r"^row 2: label 'so-so' is none of the run's: neg, pos\. Correct it, or empty it"
    ):
        done.predict([{"text": "a film", "label": ""}, {"text": "a film", "label": "so-so"}])
    with pytest.raises(UserError, match=r"^row 2: 'text' holds a NUL character"):
        done.predict([{"text": "a film"}, {"text": "a\0film"}])
    with pytest.raises(UserError, match=r"^There are no rows to answer\."):
        done.predict([])
    with pytest.raises(UserError, match=r"is not the folder of a run\.$"):
        ts.predict(tmp_path, [{"text": "a film"}])
    with pytest.raises(UserError, match="cuda:99"):
        done.predict([{"text": "a film"}], device="cuda:99")


def test_a_field_may_be_as_long_as_in_the_run(material, tmp_path):
    given = {**SHORT, "arms": ["zero-shot"], "longest_field": 300}
    run = ts.compare(material[0], material[1], out=tmp_path / "run", quiet=True, **given)
    long = tmp_path / "long.jsonl"
    long.write_text(json.dumps({"text": "a film " * 50}) + "\n")
    for rows in (long, [{"text": "a film " * 50}]):
        with pytest.raises(UserError, match="350 characters"):
            run.predict(rows)


def test_rows_too_long_for_the_model_are_cut_and_counted(done):
    rows = [{"text": "a film"}, {"text": "a film " * 40}, {"text": "the plot " * 50}]
    with pytest.warns(
        Note, match=r"^2 of 3 inputs are cut to fit the model's positions; the end of the template stays"
    ):
        assert len(done.predict(rows, arm="lora")) == 3


def test_an_arm_whose_artifact_is_gone_does_not_answer_as_the_bare_model(material, tmp_path):
    run = compared(material, tmp_path / "run", ("lora",))
    own, _ = kept(run, "lora")
    files.remove(run.folder / "arms" / own["id"] / "artifact")
    with pytest.raises(
        UserError, match=r"^What lora has saved in .*run is gone or damaged\. .* tunescope resume .*run$"
    ):
        run.predict(material[1]["test"])


def test_a_text_to_be_forgotten_is_not_asked_for(material, tmp_path):
    (tmp_path / "other.txt").write_text("the plot was dull and the film was bright " * 20)
    run = compared(material, tmp_path / "run", ("demos:k=1",), forgetting=str(tmp_path / "other.txt"))
    (tmp_path / "other.txt").unlink()
    assert ts.predict(run.folder, [{"text": "a film"}])[0]["prediction"] in ("neg", "pos")


def test_labels_are_in_the_order_in_which_a_head_of_an_earlier_version_learned_them(done, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(done.folder, folder)
    results = run_folder.read_results(folder)
    assert results["task"]["labels"] == ["neg", "pos"]
    results["task"]["labels"] = ["pos", "neg"]
    sealed_json.put(folder / "results.json", results)
    with predict.asked(folder, [{"text": "a film"}]) as question:
        assert question.bench.task.labels == ("pos", "neg") and question.bench.task.words == {
            "pos": "pos",
            "neg": "neg",
        }


def test_rows_that_were_changed_since_are_told(material, tmp_path):
    (tmp_path / "own").mkdir()
    model, data = tinyrun.write(tmp_path / "own")
    run = compared((model, data), tmp_path / "run", ("demos:k=1",))
    Path(data["train"]).write_text(Path(data["train"]).read_text() + '{"text": "a film", "label": "neg"}\n')
    with pytest.raises(UserError, match=r"run: .*train\.jsonl changed since\. Put back what was there"):
        run.predict([{"text": "a film"}])


SAID = [{"role": "user", "content": "bright film"}, {"role": "assistant", "content": "pos"}]


def test_a_conversation_in_which_the_user_has_the_last_word_is_asked(material, tmp_path):
    _, data = material
    template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    folder = tmp_path / "model"
    tinyrun.model().save_pretrained(folder)
    tokenizer = tinyrun.tokenizer()
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    made = {}
    for part, path in data.items():
        turns = [
            [*SAID, {"role": "user", "content": row["text"]}, {"role": "assistant", "content": row["label"]}]
            for row in read(path)
        ]
        made[part] = tmp_path / f"{part}.jsonl"
        made[part].write_text("".join(json.dumps({"messages": one}) + "\n" for one in turns))
    run = compared((folder, made), tmp_path / "run", ("lora",), task="generation", chat=True, max_new_tokens=2)
    _, before = kept(run, "lora")
    rows = [json.loads(line) for line in made["test"].read_text().splitlines()]
    assert run.predict(made["test"]) == [
        row | {"prediction": said} for row, said in zip(rows, before["outputs"], strict=True)
    ]
    bare = [{"id": at, "messages": row["messages"][:-1]} for at, row in enumerate(rows)]
    answered = run.predict(bare)
    assert answered == [row | {"prediction": said} for row, said in zip(bare, before["outputs"], strict=True)]


BY_HEAD = {"by": "head", "template": "{text}"}
BY_WORDS = {"by": "words", "template": "{text} It was {mask}.", "words": {"neg": "bad", "pos": "great"}}
T5_WORDS = {"template": "{text} it is", "words": {"neg": "bad", "pos": "great"}}


@pytest.mark.parametrize(
    ("family", "arms", "asked"),
    [
        ("bert", ("head", "lora:rank=1"), BY_HEAD),
        ("bert", ("zero-shot", "soft:length=2"), BY_WORDS),
        ("t5", ("zero-shot", "lora:rank=1"), T5_WORDS),
    ],
)
def test_encoders_by_a_head_or_in_words_and_encoder_decoders(material, tmp_path, family, arms, asked):
    model, tokenizer = masked.make(family, dtype=torch.float32)
    for one in (model, tokenizer):
        one.save_pretrained(tmp_path / "model")
    _, data = material
    run = compared((tmp_path / "model", data), tmp_path / "run", arms, **asked)
    labels = run.results["task"]["labels"]
    bare = [{"text": row["text"]} for row in read(data["test"])]
    for name in arms:
        own, before = kept(run, name)
        answers = run.predict(bare, arm=name)
        assert [row["prediction"] for row in answers] == [labels[int(one[2])] for one in own["stats"]]
        assert [row["prediction_probability"] for row in answers] == [
            shares[row["prediction"]] for row, shares in zip(answers, before["shares"], strict=True)
        ]


def test_steps_are_asked_for_and_an_answer_that_cannot_be_read_is_empty(material, tmp_path):
    model, data = material
    made = {}
    for part, path in data.items():
        made[part] = tmp_path / f"{part}.jsonl"
        rows = [{"question": row["text"], "answer": row["label"]} for row in read(path)]
        made[part].write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = {"task": "reasoning", "input_field": "question", "target_field": "answer", "max_new_tokens": 3}
    arms = ("zero-shot", "cot:samples=3,temperature=1.0,tokens=8")
    run = compared((model, made), tmp_path / "run", arms, **asked)
    bare = [{"question": row["question"]} for row in read(made["test"])]
    for name in arms:
        own, _ = kept(run, name)
        answers = run.predict(made["test"], arm=name)
        right = [float(row["prediction"] == row["answer"]) for row in answers]
        assert right == [one[0] for one in own["stats"]]
        unread = [row["prediction"] == "" for row in answers]
        assert sum(unread) / len(unread) == pytest.approx(own["reading"]["unread"])
        assert own["reading"]["rows"] == len(answers) == 32
        assert [row["prediction"] for row in run.predict(bare, arm=name)] == [row["prediction"] for row in answers]


def test_a_run_is_its_own_wherever_the_process_goes(material, tmp_path, monkeypatch):
    runs = {}
    for place, rank in (("a", 2), ("b", 4)):
        (tmp_path / place).mkdir()
        monkeypatch.chdir(tmp_path / place)
        runs[place] = compared(material, "run", [f"lora:rank={rank}"])
    rows = [{"text": "a bright film"}]
    answers = runs["b"].predict(rows)
    assert runs["a"].best()[0].spec.rank == 2
    monkeypatch.chdir(tmp_path)
    assert [runs[place].best()[0].spec.rank for place in "ab"] == [2, 4]
    assert runs["b"].predict(rows) == answers
    assert str(runs["a"].folder) == "run"
