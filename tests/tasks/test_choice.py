"""Choices of a row's own: scored one by one by the bare model, which is slow and cannot mix them up."""

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import tinyrun
import torch
import warm
from task_tools import byte_level, sentence_piece

from tunescope.data.row import Row
from tunescope.errors import UserError
from tunescope.tasks.facts import facts
from tunescope.tasks.kinds.choice import Choice
from tunescope.trial.open import _cut

ROWS = [
    {"input": "The film is", "choices": ["great", "a terrible film", "bad"], "answer": 2},
    {"input": "The cast is not bad at all, and the film is", "choices": ["good", "bad in every way"], "answer": "good"},
    {"input": "The film is", "choices": ["the cast", "good at all"], "answer": 1},
    {"input": "not", "choices": ["terrible", "bad", "great", "in every way"], "answer": 0},
]


def prepared(tokenizer: Any, kind: str = "decoder", **fields: Any) -> Choice:
    return Choice(template="{input} so", **fields).prepare({"train": ROWS}, tokenizer, model_kind=kind)


def model(family: str, tokenizer: Any) -> Any:
    made = tiny.make(family)
    made.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    return made


def alone(decoder: Any, tokenizer: Any, prompt: str, choice: str) -> float:
    """log p of one choice: one row, no padding, the whole text tokenised at once."""
    start = tokenizer(prompt)["input_ids"]
    whole = tokenizer(f"{prompt} {choice}")["input_ids"]
    assert whole[: len(start)] == start
    with torch.no_grad():
        logs = decoder(torch.tensor([whole])).logits[0].log_softmax(-1)
    return sum(float(logs[at - 1, whole[at]]) for at in range(len(start), len(whole)))


@pytest.mark.parametrize("make", [byte_level, lambda: sentence_piece(bos=True)])
@pytest.mark.parametrize("batch_size", [1, 3, 32])
def test_the_answer_is_the_most_probable_choice_of_the_row_itself(make: Any, batch_size: int) -> None:
    tokenizer = make()
    task, decoder = prepared(tokenizer), model("llama", tokenizer)
    encoded = task.encode(ROWS, tokenizer, model_kind="decoder")
    got = task.predict(decoder, encoded, tokenizer, batch_size=batch_size)
    for row, one in zip(ROWS, got, strict=True):
        choices: Any = row["choices"]
        scores = [alone(decoder, tokenizer, f"{row['input']} so", choice) for choice in choices]
        assert one.text == choices[scores.index(max(scores))]
        right = row["answer"] if isinstance(row["answer"], str) else choices[row["answer"]]
        assert one.stats == (float(one.text == right),)
    assert len({one.text for one in got}) > 1


def test_trained_on_is_the_right_choice_alone() -> None:
    tokenizer = byte_level()
    task, decoder = prepared(tokenizer), model("llama", tokenizer)
    encoded = task.encode(ROWS, tokenizer, model_kind="decoder", train=True)
    got = task.row_losses(decoder, encoded, tokenizer)
    wanted = [
        -alone(decoder, tokenizer, f"{row['input']} so", row["choices"][row["answer"]] if index != 1 else "good")
        for index, row in enumerate(ROWS)
        for row in [dict[str, Any](row)]
    ]
    torch.testing.assert_close(got, torch.tensor(wanted, dtype=got.dtype), rtol=1e-6, atol=1e-6)
    tokens = sum(len(one.target_ids) for one in encoded)
    torch.testing.assert_close(task.loss(decoder, encoded, tokenizer), got.sum() / tokens)


@pytest.mark.parametrize(("family", "front"), [("t5", ""), ("bart", "<s>")])
def test_an_encoder_decoder_writes_the_choice_behind_what_it_begins_with(family: str, front: str) -> None:
    tokenizer = sentence_piece(bos=False, front=front)
    task, both = prepared(tokenizer, "encoder-decoder"), model(family, tokenizer)
    encoded = task.encode(ROWS, tokenizer, model_kind="encoder-decoder")
    got = [one.text for one in task.predict(both, encoded, tokenizer, batch_size=3)]
    begun = [both.config.decoder_start_token_id, *([tokenizer.bos_token_id] if front else [])]
    losses = task.row_losses(both, encoded, tokenizer).tolist()
    for row, text, item, loss in zip(ROWS, got, encoded, losses, strict=True):
        choices: Any = row["choices"]
        scores = []
        for choice in choices:
            ids = tokenizer(choice, add_special_tokens=False)["input_ids"]
            given = tokenizer(f"{row['input']} so", return_tensors="pt")["input_ids"]
            with torch.no_grad():
                out = both(input_ids=given, decoder_input_ids=torch.tensor([[*begun, *ids[:-1]]]))
            logs = out.logits[0, len(begun) - 1 :].log_softmax(-1)
            scores.append(sum(float(logs[at, one]) for at, one in enumerate(ids)))
        assert text == choices[scores.index(max(scores))]
        assert loss == pytest.approx(-scores[item.label or 0], abs=1e-5)


def test_what_guessing_gets_is_told() -> None:
    assert prepared(byte_level()).describe()["chance"] == pytest.approx((1 / 3 + 1 / 2 + 1 / 2 + 1 / 4) / 4)


def test_what_guessing_gets_is_that_of_the_test_rows_which_are_scored() -> None:
    two = [{"input": "a", "choices": ["good", "bad"], "answer": 0}] * 9
    four = [{"input": "a", "choices": ["good", "bad", "great", "terrible"], "answer": 0}]
    for parts, chance in (({"train": two, "test": four}, 0.25), ({"train": two, "test": []}, 0.5)):
        task = Choice(template="{input} so").prepare(parts, byte_level(), model_kind="decoder")
        assert task.describe()["chance"] == chance


def test_choices_of_the_same_tokens_are_counted() -> None:
    tokenizer, twice = byte_level(), {"input": "a", "choices": ["good", "bad", "good "], "answer": 2}
    task = Choice(template="{input} so").prepare({"train": [twice, *ROWS]}, tokenizer, model_kind="decoder")
    said = "rows have two choices of the same tokens, of which the first is taken."
    assert f"1 of 5 {said}" in task.notes
    (one,) = task.encode([twice], tokenizer, model_kind="decoder")
    assert one.references == ("good",) and not any(said in note for note in prepared(tokenizer).notes)


def test_choices_of_unequal_lengths_are_told_and_which_way_that_pulls() -> None:
    tokenizer = byte_level()
    (note,) = prepared(tokenizer).notes
    far, short, long = 0, 0, 0
    for row, right in zip(ROWS, (2, 0, 1, 0), strict=True):
        choices: Any = row["choices"]
        sizes = [len(tokenizer(f" {choice}")["input_ids"]) for choice in choices]
        if max(sizes) >= 2 * min(sizes) and max(sizes) >= min(sizes) + 2:
            far, short, long = far + 1, short + (sizes[right] == min(sizes)), long + (sizes[right] == max(sizes))
    assert 0 < far < 4 and short != long
    assert note == (
        "A choice's score is the sum of the log-probabilities of all its tokens, so longer choices start at a "
        f"disadvantage: in {far} of 4 rows the longest has at least 2 times the tokens of the shortest, and 2 more. Of "
        f"these the right choice is a shortest one in {short}, and a longest in {long}."
    )
    even = [{"input": "a", "choices": ["good", "bad"], "answer": 0}]
    assert not Choice(template="{input} so").prepare({"train": even}, tokenizer, model_kind="decoder").notes


@pytest.mark.parametrize(
    ("choice", "even", "told"), [("good bad good", 9, True), ("good bad good", 10, False), ("good bad", 0, False)]
)
def test_a_few_rows_of_unequal_choices_and_a_token_more_are_not_told(choice: str, even: int, told: bool) -> None:
    tokenizer = sentence_piece(bos=True)
    assert len(tokenizer(choice, add_special_tokens=False)["input_ids"]) == len(choice.split())
    rows: list[dict[str, Any]] = [{"input": "a", "choices": ["good", choice], "answer": 0}]
    rows += [{"input": "a", "choices": ["good", "bad"], "answer": 0}] * even
    notes = Choice(template="{input} so").prepare({"train": rows}, tokenizer, model_kind="decoder").notes
    assert [f"in 1 of {even + 1} rows the longest has at least 2 times" in note for note in notes] == [True] * told


def test_a_fault_of_two_rows_is_told_with_both_lines() -> None:
    bad = ROWS[0] | {"answer": 3}
    rows = [Row(row, "asked.jsonl", line) for line, row in enumerate([ROWS[0], bad, ROWS[1], bad], start=1)]
    with pytest.raises(UserError, match=r"^asked\.jsonl line 2: 'answer' is '3', .* The same holds of line 4\.$"):
        Choice(template="{input} so").prepare({"train": rows}, byte_level(), model_kind="decoder")


def test_demonstrations_end_in_the_right_choice() -> None:
    text = prepared(byte_level()).demonstrations(ROWS, 4, 0)
    assert "The film is so bad\n\n" in text and "not so terrible\n\n" in text
    assert "all, and the film is so good\n\n" in text and text.count("\n\n") == 4


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"choices": "good"}, r"^row 1: 'choices' is no list of two texts or more\. Type: --choices-field FIELD"),
        ({"choices": ["good"]}, r"^row 1: 'choices' is no list of two texts or more\."),
        (
            {"answer": 3},
            r"^row 1: 'answer' is '3', which is none of the 3 choices, nor the number of one, from 0 to 2\.",
        ),
        ({"answer": "3"}, r"^row 1: 'answer' is '3', which is none of the 3 choices"),
        ({"answer": True}, r"^row 1: 'answer' is 'True', which is none of the 3 choices"),
        ({"answer": "GREAT"}, r"^row 1: 'answer' is 'GREAT', which is none of the 3 choices"),
        ({"choices": ["good", " "], "answer": 0}, r"^row 1: 'choices' is no list of two texts or more\."),
    ],
)
def test_a_row_that_cannot_be_asked_is_refused_in_one_line(row: dict[str, Any], said: str) -> None:
    tokenizer = byte_level()
    with pytest.raises(UserError, match=said):
        prepared(tokenizer).encode([ROWS[0] | row], tokenizer, model_kind="decoder")


def test_the_number_of_a_choice_is_read_from_text_too_where_no_choice_is_that_text() -> None:
    task, tokenizer = prepared(byte_level()), byte_level()
    rows = [ROWS[3] | {"answer": " 2"}, ROWS[3] | {"choices": ["2", "1"], "answer": "1"}]
    assert [row.label for row in task.encode(rows, tokenizer, model_kind="decoder")] == [2, 1]


def test_rows_of_other_choices_are_other_questions() -> None:
    asked = [{"input": "Which is right?", "choices": [str(n), "no"], "answer": 0} for n in range(20)]
    parts = _cut(prepared(byte_level()), {"train": [*asked, *asked]})
    sides = {part: {row["choices"][0] for row in rows} for part, rows in parts.parts().items()}
    assert len(set.union(*sides.values())) == 20 == sum(map(len, sides.values()))
    tokenizer, config = byte_level(), tiny.make("gpt2").config
    found = facts(prepared(tokenizer), {"train": asked[:10], "dev": asked[10:12], "test": asked[9:]}, tokenizer, config)
    assert found.parts["test"].input_in_train.rows == 1


def test_an_encoder_and_a_template_with_the_answer_are_refused() -> None:
    with pytest.raises(
        UserError, match=r"^Choices are continued with, and this model is an encoder: take a decoder\.$"
    ):
        prepared(byte_level(), "encoder")
    with pytest.raises(UserError, match=r"contains the field \{answer\}: the choice follows it\.$"):
        Choice(template="{input} {answer}")


def test_it_is_compared_from_the_command_line(tmp_path: Path) -> None:
    folder, _ = tinyrun.write(tmp_path)
    rows = [
        {"question": row["text"], "options": ["dull film", "bright film", "plot"][: 2 + index % 2], "right": 0}
        for index, row in enumerate(tinyrun.rows(48, 0))
    ]
    parts = {"asked": rows[:40], "tested": rows[40::2]}  # these have two options each
    for name, some in parts.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    words = "--task choice --input-field question --choices-field options --answer-field right --steps 6 --seeds 1"
    more = "--trials 1 --workers 1 --arms zero-shot demos:k=2 lora:rank=2 --out"
    files = [folder, tmp_path / "asked.jsonl", "--test", tmp_path / "tested.jsonl"]
    asked = ["compare", *files, *words.split(), *more.split(), tmp_path / "run"]
    done = warm.run(["-m", "tunescope", *asked])
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [arm["status"] for arm in results["arms"]] == ["done"] * 3, done.stderr
    assert results["task"]["chance"] == 0.5
    assert "--task choice --input-field question --choices-field options --answer-field right" in results["command"]
