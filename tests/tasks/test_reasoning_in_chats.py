"""In a chat the words that ask for an answer begin the assistant's turn, with the tokens of `apply_chat_template`."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from test_chat import ASKED, TEMPLATES, rendered, said, tokenizer

from tunescope.tasks.answers import decode
from tunescope.tasks.kinds.reasoning import Reasoning
from tunescope.tasks.prompts.chain import Chain
from tunescope.tasks.prompts.templates import ids

ROWS = [
    {"text": "A gorgeous film.", "label": "great", "why": "It is.\n\nSo it is."},
    {"text": "Dull\nand long", "label": "terrible", "why": "No."},
]
FIRST = {"text": ROWS[0]["text"]}


def prepared(words: Any, **fields: Any) -> Reasoning:
    task = Reasoning(input="text", target="label", steps="why", template=ASKED, chat=True, **fields)
    return task.prepare({"train": ROWS}, words, model_kind="decoder")


@pytest.mark.parametrize("system", ["", "Be {brief}."])
@pytest.mark.parametrize("name", TEMPLATES)
def test_an_answer_is_asked_for_in_the_assistants_turn(name: str, system: str) -> None:
    if name == "nemo" and system:
        return
    words = tokenizer(name)
    task = prepared(words, system=system)
    head = [{"role": "system", "content": system}] if system else []
    for row, one in zip(ROWS, task.encode(ROWS, words, model_kind="decoder", train=True), strict=True):
        whole = rendered(words, head + said(row, f"The answer is {row['label']}"))
        got = one.input_ids + one.target_ids
        assert whole[: len(got)] == got
        assert words.convert_ids_to_tokens(one.target_ids[-1]) in {"<|im_end|>", "<|eot|>", "<|end|>", "</s>"}


@pytest.mark.parametrize("name", TEMPLATES)
def test_steps_are_begun_and_asked_again_within_one_turn(name: str) -> None:
    words = tokenizer(name)
    task = replace(prepared(words, lead="So it is"), chain=Chain(tokens=60))
    encoded = task.encode(ROWS[:1], words, model_kind="decoder")
    whole = rendered(words, said(FIRST, "Let's think step by step. It is."))
    assert whole[: len(encoded[0].input_ids)] == encoded[0].input_ids
    (again,) = task._asked_again(encoded, ["It is.\n\nSo it is."], words)
    text = "Let's think step by step. It is.\n\nSo it is. Therefore, the answer is"
    whole = rendered(words, said(FIRST, text))
    assert whole[: len(again.input_ids)] == again.input_ids
    assert words.decode(again.input_ids).endswith(text)


@pytest.mark.parametrize("name", TEMPLATES)
def test_steps_that_are_taught_are_the_assistants_turn(name: str) -> None:
    words = tokenizer(name)
    task = replace(prepared(words), chain=Chain(), taught=True)
    asked = task.encode(ROWS, words, model_kind="decoder")
    for row, one, query in zip(ROWS, task.encode(ROWS, words, model_kind="decoder", train=True), asked, strict=True):
        whole = rendered(words, said(row, f"{row['why']} The answer is {row['label']}"))
        got = one.input_ids + one.target_ids
        assert whole[: len(got)] == got and one.input_ids == query.input_ids
        assert words.convert_ids_to_tokens(one.target_ids[-1]) in {"<|im_end|>", "<|eot|>", "<|end|>", "</s>"}


@pytest.mark.parametrize("name", TEMPLATES)
def test_behind_demonstrations_steps_stand_in_their_turns(name: str) -> None:
    words = tokenizer(name)
    task = replace(prepared(words), chain=Chain(), shown=True)
    shown = task.demonstrations(ROWS[1:], 1, 0)
    (query,) = task.encode(ROWS[:1], words, model_kind="decoder", behind="")
    got = ids(words, [task.begins + shown])[0] + query.input_ids
    whole = rendered(words, said(ROWS[1], "No. The answer is terrible") + said(FIRST, "It is."))
    assert whole[: len(got)] == got and len(query.input_ids) > len(ids(words, [ROWS[0]["text"]])[0])


@pytest.mark.parametrize("chain", [None, Chain(tokens=9), Chain(samples=2, temperature=0.7, tokens=9)], ids=str)
def test_what_is_written_ends_with_the_turn_and_not_at_a_blank_line(monkeypatch: Any, chain: Chain | None) -> None:
    words = tokenizer("chatml")
    task = replace(prepared(words), chain=chain)
    stops = []

    def written(model: Any, rows: Any, *given: Any) -> list[str]:
        stops.append(given[-1])
        return ["that\n\nis great."] * len(rows)

    monkeypatch.setattr(decode, "greedy", written)
    monkeypatch.setattr(decode, "sampled", written)
    task = replace(task, read="great,terrible")
    found = task.predict(SimpleNamespace(), task.encode(ROWS, words, model_kind="decoder"), words)
    assert [one.text for one in found] == ["great", "great"]
    assert set(stops) == {words.convert_tokens_to_ids("<|im_end|>")}


def test_the_usual_template_of_a_chat_is_the_question() -> None:
    assert Reasoning.usual({"chat": True}, "decoder") == {"template": "{input}"}
    assert Reasoning.usual({}, "decoder") == {"template": "Q: {input}\nA:"}
