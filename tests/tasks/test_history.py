"""Conversations of several turns have the tokens of `apply_chat_template`, up to the end of their last answer."""

import json
from pathlib import Path
from typing import Any

import pytest
from test_chat import CHATML, TEMPLATES, rendered, tokenizer

import tunescope as ts
from tunescope.data.conversations import earlier
from tunescope.data.read import read
from tunescope.data.splits import key_of
from tunescope.tasks.kinds.choice import Choice
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.prompts.templates import ids

TALK = ["Is it {good}?", "great", "Dull\nfilm?", "Long </x>", "And witty?", "terrible"]


def talk(*texts: str, system: str = "") -> list[dict[str, str]]:
    head = [{"role": "system", "content": system}] if system else []
    return head + [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]


def written(folder: Path, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read(folder / "rows.jsonl")


SAY: dict[str, Any] = {"chat": True, "template": "Say: {input}"}
WORDS = {"great": "great", "terrible": "terrible"}
TASKS = [
    Generation(**SAY),
    Classification(**SAY, text="input", label="target", words=WORDS),
    Choice(**SAY, answer="target"),
]


@pytest.mark.parametrize("task", TASKS, ids=["generation", "classification", "choice"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_all_turns_are_read_and_the_last_is_answered(tmp_path: Path, name: str, task: Any) -> None:
    words = tokenizer(name)
    rows = written(tmp_path, *({"messages": talk(*one), "choices": list(WORDS)} for one in (TALK, TALK[:2])))
    task = task.prepare({"train": rows}, words, model_kind="decoder")
    assert any("1 of 2 rows are conversations of several turns" in note for note in task.notes)
    for one, texts in zip(task.encode(rows, words, model_kind="decoder", train=True), (TALK, TALK[:2]), strict=True):
        whole = rendered(words, talk(*texts[:-2], f"Say: {texts[-2]}", texts[-1]))
        got = one.input_ids + one.target_ids
        assert whole[: len(got)] == got
        assert all(text in one.source for text in texts[:-1])


@pytest.mark.parametrize("task", TASKS, ids=["generation", "classification", "choice"])
def test_a_conversation_that_is_shown_is_shown_whole(tmp_path: Path, task: Any) -> None:
    words = tokenizer("chatml")
    rows = written(tmp_path, *({"messages": talk(*one), "choices": list(WORDS)} for one in (TALK, TALK[:2])))
    task = task.prepare({"train": rows}, words, model_kind="decoder")
    shown = task.demonstrations(rows, 1 if task.kind == "classification" else 2, 0)
    both = [[*TALK[:4], f"Say: {TALK[4]}", TALK[5]], [f"Say: {TALK[0]}", TALK[1]]]
    got = ids(words, [task.begins + shown])[0]
    assert got in [rendered(words, talk(*first, *second)) for first, second in (both, both[::-1])]


def test_the_oldest_turns_go_first_where_the_room_is_too_small(tmp_path: Path) -> None:
    words = tokenizer("chatml")
    (row,) = written(tmp_path, {"messages": talk(*TALK, system="Be brief.")})
    task = Generation(chat=True, template="{input}", system="Be brief.", max_new_tokens=1)
    task = task.prepare({"train": [row]}, words, model_kind="decoder")

    def asked(*texts: str) -> tuple[int, ...]:
        return rendered(words, talk(*texts, system="Be brief.")) + ids(words, ["<|im_start|>assistant\n"])[0]

    whole, later, last = asked(*TALK[:5]), asked(*TALK[2:5]), asked(TALK[4])
    turn = [len(task.turns.turn(*TALK[at : at + 2])) for at in (0, 2)]
    for room, want, cut in (
        (len(whole), whole, 0),
        (len(whole) - 1, later, turn[0]),
        (len(later), later, turn[0]),
        (len(later) - 1, last, sum(turn)),
        (len(last), last, sum(turn)),
    ):
        (one,) = task.encode([row], words, model_kind="decoder", room=room)
        assert (one.input_ids, one.cut) == (want, cut)
    (one,) = task.encode([row], words, model_kind="decoder", room=len(last) - 1)
    assert one.cut > sum(turn) and len(one.input_ids) < len(last)


def test_what_the_user_said_before_makes_another_input(tmp_path: Path) -> None:
    words = tokenizer("chatml")
    said = [("a", "b"), ("c", "d"), ("a", "e")]
    rows = written(tmp_path, *({"messages": talk(one, "great", "And?", answer)} for one, answer in said))
    assert [key_of(row, ["input"]) == key_of(rows[0], ["input"]) for row in rows] == [True, False, True]
    task = Generation(chat=True, template="{input}").prepare({"train": rows}, words, model_kind="decoder")
    assert [one.references for one in task.encode(rows, words, model_kind="decoder")] == [("b", "e"), ("d",)]


def test_a_message_may_be_a_list_of_one_text(tmp_path: Path) -> None:
    parts = [{**one, "content": [{"type": "text", "text": one["content"]}]} for one in talk(*TALK[:4])]
    (row,) = written(tmp_path, {"messages": parts})
    assert (row["input"], row["target"], earlier(row)) == (TALK[2], TALK[3], [(TALK[0], TALK[1])])
    (own,) = written(tmp_path, {"messages": parts, "input": "mine"})
    assert earlier(own) == []  # it is not what the user of the conversation says


def test_turns_that_would_be_read_otherwise_are_refused(tmp_path: Path) -> None:
    def prepare(*rows: dict[str, Any], name: str = "chatml", **fields: Any) -> Any:
        given = {"chat": True, "template": "{input}", **fields}
        return Generation(**given).prepare({"train": written(tmp_path, *rows)}, tokenizer(name), model_kind="decoder")

    row = {"messages": talk(*TALK)}
    with pytest.raises(ts.UserError, match=r"would be asked as plain text\. Type: --chat"):
        prepare({"messages": talk(*TALK, system="Be.")}, chat=False, template="{system}\n{input}")
    with pytest.raises(
        ts.UserError, match="line 2: a conversation of several turns, and its chat template writes a later"
    ):
        prepare(
            *[{"messages": talk(*texts, system="Be brief.")} for texts in (TALK[:2], TALK)],
            name="mistral",
            system="Be brief.",
        )
    prepare(row, name="llama3")
    prepare({"messages": talk(" a ", " b ", "c", "d")}, name="llama3")  # which takes white space everywhere
    thoughts = CHATML.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}")
    words = tokenizer("chatml")
    words.chat_template = thoughts
    rows = written(tmp_path, {"messages": talk("a", "<think>hm</think>b", "c", "d")})
    with pytest.raises(
        ts.UserError, match="line 1: the chat template writes earlier turns of this conversation otherwise"
    ):
        Generation(chat=True, template="{input}").prepare({"train": rows}, words, model_kind="decoder")
