"""Rows behind words have the ids that the two have as one text, where a tokenizer puts a space before any text."""

import json

import pytest
import torch
from line_ends import llama, pegasus, tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from tunescope.comparison import arms, job, other_text
from tunescope.comparison.problem import attached, specs_of
from tunescope.methods.contexts.text import words_before
from tunescope.probes.anchors.request import AnchorRequest, rounds_of
from tunescope.search import loop
from tunescope.search.frame import Frame
from tunescope.search.objective import objective
from tunescope.search.vocabulary import Vocabulary
from tunescope.tasks.prompts import templates
from tunescope.trial import plan, plan_check, questions
from tunescope.trial.arm import Arm
from tunescope.trial.bench import Bench
from tunescope.trial.open import open_bench
from tunescope.trial.train.settings import Settings

TASK = {"kind": "classification", "by": "words", "template": "Review: {text}\nSentiment:"}
TASK |= {"words": {"neg": "bad", "pos": "good"}}
SHOWN = [
    "demos:k=1",
    "demos:k=1,order=best,calibrate=true",
    "demos:k=1,choose=similar",
    "text:text=Sort.\n",
    "text:text=Sort. ",
]


def ids(made, text):
    return tuple(made(text, add_special_tokens=False)["input_ids"])


@pytest.fixture(scope="module", params=[llama, tokenizer])
def bench(request, tmp_path_factory):
    folder, words = tmp_path_factory.mktemp("lines"), request.param()
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(words), max_position_embeddings=512, **shape))
    model.save_pretrained(folder / "model")
    words.save_pretrained(folder / "model")
    rows = [{"text": text, "label": label} for text, label in zip("abcdefgh", ["neg", "pos"] * 4, strict=True)]
    for part in ("train", "dev", "test"):
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {part: str(folder / f"{part}.jsonl") for part in ("train", "dev", "test")}
    task = TASK | {"words": {"neg": "bad", "pos": "good"}}
    asked = plan.Plan(
        model=str(folder / "model"), data=data, task=task, arms=SHOWN[:1], seeds=(0,), settings=Settings()
    )
    return open_bench(plan_check.check(asked))


@pytest.mark.parametrize("typed", SHOWN)
def test_what_the_model_reads_are_the_ids_of_the_one_text(bench, typed):
    arm = arms.ready(Arm("shown", typed), bench)
    todo = job.job(bench, arm, (), 0)
    with attached(bench, todo, specs_of(bench, todo)) as tuned:
        asked = questions.rows_of(arm, bench, tuned, "test", 0)
        front = [token for one in tuned.artifacts for token in one.tensors["ids"].tolist()]
    for row, given in zip(asked, bench.splits.test, strict=True):
        read = (*front, *row.input_ids)
        text = bench.tokenizer.decode(read, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert text.endswith(f"Review: {given['text']}\nSentiment:")
        begins = tuple(bench.tokenizer("a")["input_ids"])[: -len(ids(bench.tokenizer, "a"))]
        assert read == begins + ids(bench.tokenizer, text)


def test_own_demonstrations_behind_a_line_are_read_as_one_text_too(bench):
    arm = arms.ready(Arm("shown", "demos:k=1,choose=similar+text:text=Sort.\n"), bench)
    todo = job.job(bench, arm, (), 0)
    with attached(bench, todo, specs_of(bench, todo)) as tuned:
        asked = questions.rows_of(arm, bench, tuned, "test", 0)
        front = tuned.artifacts[0].tensors["ids"].tolist()
    for row in asked:
        text = bench.tokenizer.decode(row.input_ids, clean_up_tokenization_spaces=False)
        assert text.startswith("Review: ") and text.count("\n\n") == 2
        begins = len(front) - len(ids(bench.tokenizer, "Sort.\n"))
        assert (*front[begins:], *row.input_ids) == ids(bench.tokenizer, "Sort.\n" + text)


def test_anchors_asks_the_queries_as_lines(bench):
    (found,) = rounds_of(AnchorRequest(plan=bench.plan, k=1, rows=2), bench)
    for one in found.prompts:
        text = bench.tokenizer.decode(one.ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert tuple(one.ids)[-len(ids(bench.tokenizer, text)) :] == ids(bench.tokenizer, text)


@pytest.mark.parametrize("room", range(22, 30))
def test_a_row_behind_a_line_is_cut_to_the_room_as_it_is_read_there(room):
    made, layout = llama(), templates.Layout("Review: {text}\nSentiment:", "text", "decoder", "Sort.\n")
    [(got, cut)] = layout.encode(made, [{"text": "good film"}], [room], ["row 1"])
    kept = "good film"[: 9 - cut]
    assert ids(made, "\n") + got == ids(made, f"\nReview: {kept}\nSentiment:")
    assert len(got) == min(room, 28)


@pytest.mark.parametrize(("text", "end"), [("a\n", "\n"), ("a\t", "\t"), ("a\n ", ""), ("a.", ""), ("", "")])
def test_a_line_ends_where_its_last_sign_is_white_space_and_no_space(text, end):
    assert templates.line_end(text) == end


def test_behind_words_or_a_space_a_row_keeps_its_space():
    made = llama()
    for before in (None, "", "Sort.", "Sort. "):
        assert templates.ids_after(made, before, ["Review"]) == [ids(made, "Review")]
    assert templates.ids_after(made, "Sort.\n", ["Review", ""]) == [ids(made, "Review")[1:], ()]


@pytest.mark.parametrize("made", [llama(), pegasus(), tokenizer()])
@pytest.mark.parametrize("front", ["a: b\n\n", "a: b\n", "a: b\n\n\n"])
@pytest.mark.parametrize("row", ["日本: a", "Review: b", "a"])
def test_a_row_behind_lines_has_its_ids_of_the_one_text(made, front, row):
    (behind,) = templates.ids_after(made, front, [row])
    assert (*words_before(made, front), *behind) == ids(made, front + row)


def asked_behind(monkeypatch):
    """What rows were asked behind, call by call, of every part."""
    seen, encoded = [], Bench.encoded

    def spy(self, part, *, behind=None, **more):
        seen.append((part, behind))
        return encoded(self, part, behind=behind, **more)

    monkeypatch.setattr(Bench, "encoded", spy)
    return seen


def test_orders_are_tried_on_rows_behind_the_demonstrations_themselves(bench, monkeypatch):
    arm, seen = arms.ready(Arm("shown", "demos:k=1,order=best"), bench), asked_behind(monkeypatch)
    monkeypatch.setattr(bench.demos, "blocks", {})
    questions.demos_shown(arm.demos, None, bench, 0)
    tried = {behind for part, behind in seen if part == "dev"}
    assert len(tried) == 2 and all(text.startswith("Review: ") and text.endswith("\n\n") for text in tried)


def test_a_search_asks_rows_behind_what_its_frame_ends_in(bench, monkeypatch):
    seen = asked_behind(monkeypatch)
    loop.scored(bench, "Sort.", ids(bench.tokenizer, "Sort.\n"), [0, 1], "\n")
    words = Vocabulary(bench.tokenizer, (5, 6), (), {}, frame=Frame(behind=".\n"))
    with objective(bench, words, 2) as goal:
        assert [row.input_ids for row in goal.rows] == [
            templates.ids_after(bench.tokenizer, "\n", [f"Review: {row['text']}\nSentiment:"])[0]
            for row in bench.splits.train
        ]
    assert seen == [("dev", "\n"), ("train", ".\n")]


def test_other_text_behind_words_has_no_start_token_of_its_own(bench, monkeypatch):
    seen, windows = [], [ids(bench.tokenizer, "Sort. Review")]
    monkeypatch.setattr(other_text, "window_losses", lambda *_given, bos: seen.append(bos) or [0.0])
    for typed in ("zero-shot", "text:text=Sort.\n"):
        todo = job.job(bench, arms.ready(Arm("one", typed), bench), (), 0)
        with attached(bench, todo, specs_of(bench, todo)) as tuned:
            other_text.losses(bench, todo, tuned, windows)
    assert seen == [True, False]
