"""Conversations of several turns have the tokens of `apply_chat_template`, up to the end of their last answer."""

import json
from pathlib import Path
from typing import Any

import pytest
from test_chat import CHATML, TEMPLATES, rendered, tokenizer
from tokenizers.processors import TemplateProcessing

import tunescope as ts
from tunescope.data.conversations import earlier
from tunescope.data.read import read
from tunescope.data.splits import key_of
from tunescope.tasks.kinds.choice import Choice
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.prompts import templates
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
    said = [("a", "b"), ("a", "e"), ("c", "d")]
    rows = written(tmp_path, *({"messages": talk(one, "great", "And?", answer)} for one, answer in said))
    assert [key_of(row, ["input"]) == key_of(rows[0], ["input"]) for row in rows] == [True, True, False]
    task = Generation(chat=True, template="{input}").prepare({"train": rows}, words, model_kind="decoder")
    found = task.encode(rows, words, model_kind="decoder")
    assert [one.references for one in found] == [("b", "e"), ("d",)]
    assert [words.decode(one.input_ids).count(f"user\n{first}<") for one, first in zip(found, "ac", strict=True)] == [
        1,
        1,
    ]
    assert [one.source.startswith("And?\t") for one in found] == [True, True]


def test_a_message_may_be_a_list_of_one_text(tmp_path: Path) -> None:
    parts = [{**one, "content": [{"type": "text", "text": one["content"]}]} for one in talk(*TALK[:4])]
    (row,) = written(tmp_path, {"messages": parts})
    assert (row["input"], row["target"], earlier(row)) == (TALK[2], TALK[3], [(TALK[0], TALK[1])])
    (own,) = written(tmp_path, {"messages": parts, "input": "mine"})
    assert earlier(own) == []  # it is not what the user of the conversation says


def prepare(folder: Path, *rows: dict[str, Any], name: str = "chatml", written_by: str = "", **fields: Any) -> Any:
    words = tokenizer(name)
    words.chat_template = written_by or words.chat_template
    given = {"chat": True, "template": "{input}", **fields}
    return Generation(**given).prepare({"train": [], "dev": written(folder, *rows)}, words, model_kind="decoder")


def refused(folder: Path, *rows: dict[str, Any], **fields: Any) -> str:
    with pytest.raises(ts.UserError) as caught:
        prepare(folder, *rows, max_new_tokens=4, **fields)
    return str(caught.value)


def test_conversations_are_not_asked_as_plain_text(tmp_path: Path) -> None:
    told = {"messages": talk(*TALK, system="Be.")}
    for row, template in ((told, "{system}\n{input}"), (told, "{input}"), ({"messages": talk("a", "b")}, "{input}")):
        assert refused(tmp_path, row, chat=False, template=template).endswith("as plain text. Type: --chat")
    prepare(
        tmp_path, {"messages": talk("a", "b", system="c")}, chat=False, template="{system} {input}", max_new_tokens=4
    )


def test_a_chat_template_whose_turns_are_others_among_others_has_one_turn_alone(tmp_path: Path) -> None:
    counts = "{{ '<|start|>' if messages | length > 2 }}" + CHATML
    rows = [{"messages": talk(*texts)} for texts in (TALK[:2], TALK)]
    said = refused(tmp_path, *rows, written_by=counts)
    assert "line 2: a conversation of several turns, and its chat template writes a turn otherwise where others" in said
    prepare(tmp_path, rows[0], written_by=counts, max_new_tokens=4)


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != "nemo"])
def test_the_system_of_a_conversation_stands_where_the_chat_template_has_it(tmp_path: Path, name: str) -> None:
    words = tokenizer(name, taught=" a a a a")
    rows = written(tmp_path, *({"messages": talk(*one, system="Be.")} for one in (TALK, TALK[:2])))
    task = Generation(**SAY, system="Be.").prepare({"train": rows}, words, model_kind="decoder")
    for one, texts in zip(task.encode(rows, words, model_kind="decoder", train=True), (TALK, TALK[:2]), strict=True):
        got = one.input_ids + one.target_ids
        assert rendered(words, talk(*texts[:-2], f"Say: {texts[-2]}", texts[-1], system="Be."))[: len(got)] == got


THINKS = CHATML.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}")
REASONS = CHATML.replace("{{ m.content }}", "{{ m.reasoning_content or '' }}{{ m.content }}")


@pytest.mark.parametrize(
    ("messages", "template"),
    [
        (talk("a", "<think>hm</think>b", "c", "d"), THINKS),
        (talk("a", "b", "c", "<think>hm</think>d"), THINKS),
        (talk("a", "<think>hm</think>b"), THINKS),
        ([talk("a")[0], {"role": "assistant", "content": "b", "reasoning_content": "hm"}], REASONS),
        ([{"role": "system", "content": ""}, *talk("a", "b")], CHATML),  # which else says something of its own
        (
            talk("a", "b", " c", "d"),
            CHATML.replace("m.content }}", "m.content | trim if loop.index == 3 else m.content }}"),
        ),
    ],
)
def test_a_conversation_that_the_chat_template_writes_otherwise_is_refused(
    tmp_path: Path, messages: list[dict[str, Any]], template: str
) -> None:
    first = {"messages": talk("a", "b")}
    assert "line 2: the chat template writes this conversation otherwise" in refused(
        tmp_path, first, {"messages": messages}, written_by=template
    )


def test_what_the_chat_template_takes_is_no_difference(tmp_path: Path) -> None:
    prepare(tmp_path, {"messages": talk(" a ", " b ", "c", " d ")}, name="llama3", max_new_tokens=4)
    prepare(tmp_path, {"messages": talk("a", "b", " c", " d\n")}, max_new_tokens=4)  # an answer's own edges are cut off
    developer = [{"role": "developer", "content": "Be."}, *talk("a", "b")]
    prepare(tmp_path, {"messages": developer}, system="Be.", max_new_tokens=4)


def test_what_the_system_says_is_that_of_the_messages(tmp_path: Path) -> None:
    for own in ({"system": ""}, {"system": None}, {}):
        said = refused(tmp_path, {"messages": talk("a", "b", system="Be."), **own})
        assert said.endswith("Type: --system Be.")
    rows = [{"messages": talk("a", "b", system=system)} for system in ("", "Be.")]
    assert "says 2 different things" in refused(tmp_path, *rows)


def test_messages_that_are_not_read_are_counted(tmp_path: Path) -> None:
    rows = [{"messages": talk("a", "b")}, {"messages": talk("a", "b", "c", "d"), "input": "mine"}]
    assert "1 of 2 rows have messages that are not read" in str(prepare(tmp_path, *rows, max_new_tokens=4).notes)
    asked = prepare(tmp_path, {"messages": talk("a", "b"), "text": "x"}, template="{text}", max_new_tokens=4)
    assert "1 of 1 rows have messages that are not read" in str(asked.notes)


def test_a_start_token_that_the_chat_template_leaves_out_hinders_demonstrations_alone(tmp_path: Path) -> None:
    words = tokenizer("chatml", bos_token="<s>")
    words.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    words.add_special_tokens({"bos_token": "<s>"})
    (row,) = written(tmp_path, {"messages": talk(*TALK)})
    task = Generation(chat=True, template="{input}").prepare({"train": [row]}, words, model_kind="decoder")
    assert task.turns.single.startswith("its chat template leaves out the start token")
    (one,) = task.encode([row], words, model_kind="decoder", train=True)
    got = one.input_ids + one.target_ids
    assert rendered(words, talk(*TALK))[: len(got)] == got


def test_many_turns_are_cut_in_few_tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = tokenizer("chatml")
    (row,) = written(tmp_path, {"messages": talk(*(f"word {at}" for at in range(258)))})
    task = Generation(chat=True, template="{input}", max_new_tokens=1)
    task = task.prepare({"train": [row]}, words, model_kind="decoder")
    tries, whole = [], templates.ids
    monkeypatch.setattr(templates, "ids", lambda *given, **more: tries.append(1) or whole(*given, **more))
    (one,) = task.encode([row], words, model_kind="decoder", room=60)
    assert 30 < len(one.input_ids) <= 60 and len(tries) < 16


@pytest.mark.parametrize("said", ["a\0", "\ud800"])
def test_what_is_no_character_is_found_in_messages(tmp_path: Path, said: str) -> None:
    with pytest.raises(ts.UserError, match=r"line 1: 'messages' holds (a NUL character|half of a surrogate)"):
        written(tmp_path, {"messages": talk(said, "b", "c", "d")})


def test_a_message_of_a_book_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(ts.UserError, match="line 1: 'messages' has 1,000,001 characters"):
        written(tmp_path, {"messages": talk("a" * 1_000_001, "b", "c", "d")})
