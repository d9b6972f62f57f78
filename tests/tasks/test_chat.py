"""Rows as turns of a chat have the tokens of `apply_chat_template`, whatever the chat template is like."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tokenizers import ByteLevelBPETokenizer, Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

import tunescope as ts
from tunescope.data.read import read
from tunescope.data.row import value
from tunescope.methods.contexts.text import token_ids
from tunescope.tasks.answers.calibration import contentless
from tunescope.tasks.kinds.choice import Choice
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.prompts.chat_template import head_saying, turns
from tunescope.tasks.prompts.day import FLAGS, LETTERS, on_day
from tunescope.tasks.prompts.templates import ids

MARKS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start|>", "<|end|>", "<|eot|>", "[INST]", "[/INST]", "<think>"]

CHATML = (
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n"
    "{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "<s>{% for m in messages %}<|start|>{{ m.role }}<|end|>\n\n{{ m.content | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant<|end|>\n\n{% endif %}"
)
MISTRAL = (  # the system stands in the first turn, and an answer behind a space
    "<s>{% if messages[0].role == 'system' %}{% set sys = messages[0].content + '\n\n' %}"
    "{% set messages = messages[1:] %}{% else %}{% set sys = '' %}{% endif %}"
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ sys if loop.first else '' }}{{ m.content }} [/INST]"
    "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
)
PHI = (  # what ends a text stands behind the last turn alone
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% else %}</s>{% endif %}"
)
THINKING = (  # the last answer alone has its thoughts, none
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}<think>\n\n"
    "{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PHI4 = (  # an answer directly behind a mark
    "{% for m in messages %}<|start|>{{ m.role }}<think>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant<think>{% endif %}"
)
NEMO = (  # the system stands in the last turn, if that is the user's
    "<s>{% if messages[0].role == 'system' %}{% set sys = messages[0].content + '\n\n' %}"
    "{% set messages = messages[1:] %}{% else %}{% set sys = '' %}{% endif %}"
    "{% for m in messages %}{% if m.role == 'user' %}[INST]{{ sys if loop.last else '' }}{{ m.content }}[/INST]"
    "{% else %}{{ m.content }}</s>{% endif %}{% endfor %}"
)
GEMMA = (  # the system stands in the first turn, in front of the user's words
    "<s>{% if messages[0].role == 'system' %}{% set sys = messages[0].content + '\n\n' %}"
    "{% set messages = messages[1:] %}{% else %}{% set sys = '' %}{% endif %}"
    "{% for m in messages %}<|start|>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ sys if loop.first else '' }}{{ m.content | trim }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>model\n{% endif %}"
)
OSS = (  # the last answer ends otherwise than those before it
    "{% for m in messages %}<|start|>{{ m.role }}<think>{{ m.content }}"
    "{{ '</s>' if loop.last and m.role == 'assistant' else '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant<think>{% endif %}"
)
TEMPLATES = {
    "chatml": CHATML,
    "llama3": LLAMA3,
    "mistral": MISTRAL,
    "phi": PHI,
    "thinking": THINKING,
    "phi4": PHI4,
    "nemo": NEMO,
    "gemma": GEMMA,
    "oss": OSS,
}
ROWS = [{"text": "A gorgeous, witty {film}.", "label": "pos"}, {"text": "Dull </x>\nand long", "label": "neg"}]
WORDS = {"pos": "great", "neg": "terrible"}
ASKED = "Is this good?\n{text}"


def tokenizer(name: str, taught: str = "", **options: Any) -> PreTrainedTokenizerFast:
    made = ByteLevelBPETokenizer()
    texts = [*(row["text"] for row in ROWS), "great terrible user assistant system", taught]
    made.train_from_iterator(texts * 9, 320)
    made.add_special_tokens(MARKS)
    return PreTrainedTokenizerFast(
        tokenizer_object=made._tokenizer, eos_token="</s>", chat_template=TEMPLATES.get(name), **options
    )


PLAIN = (  # Vicuna's
    "{% for m in messages %}{% if m.role == 'user' %}USER: {{ m.content }} {% else %}ASSISTANT: {{ m.content }}</s>"
    "{% endif %}{% endfor %}"
)


def spelled(pieces: str) -> PreTrainedTokenizerFast:
    """Letters alone, cut at spaces as GPT-2's or as Llama's tokenizer cuts."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if pieces == "gpt2" else ["▁", *map(chr, range(10, 127))]
    vocabulary = {one: at for at, one in enumerate(["</s>", *alphabet, "▁U" if pieces == "metaspace" else "ĠU"])}
    made = Tokenizer(models.BPE(vocabulary, [("▁", "U") if pieces == "metaspace" else ("Ġ", "U")]))
    if pieces == "gpt2":
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    made.add_special_tokens(["</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>")


def plainly(row: dict[str, str], answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": row["text"]}, {"role": "assistant", "content": answer}]


def said(row: dict[str, str], answer: str | None = None) -> list[dict[str, str]]:
    turn = [{"role": "user", "content": ASKED.replace("{text}", row["text"])}]
    return turn + ([{"role": "assistant", "content": answer}] if answer is not None else [])


def rendered(words: PreTrainedTokenizerFast, messages: list[dict[str, str]]) -> tuple[int, ...]:
    return tuple(words.apply_chat_template(messages, tokenize=True, return_dict=False))


def prepared(words: PreTrainedTokenizerFast, **fields: Any) -> Any:
    task = Classification(template=ASKED, words=WORDS, chat=True, **fields)
    return task.prepare({"train": ROWS}, words, model_kind="decoder")


@pytest.mark.parametrize("system", ["", "Be {brief}."])
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_row_and_its_answer_are_what_the_chat_template_writes(name: str, system: str) -> None:
    words = tokenizer(name)
    if name == "nemo" and system:
        with pytest.raises(ts.UserError, match="has no place for what a system says, in front of an answer"):
            prepared(words, system=system)
        return
    task = prepared(words, system=system)
    head = [{"role": "system", "content": system}] if system else []
    for row, one in zip(ROWS, task.encode(ROWS, words, model_kind="decoder"), strict=True):
        whole = rendered(words, head + said(row, WORDS[row["label"]]))
        got = one.input_ids + one.target_ids
        assert whole[: len(got)] == got and len(one.target_ids) >= 1


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_written_answer_ends_where_its_turn_does(name: str) -> None:
    words = tokenizer(name)
    task = Generation(template=ASKED, input="text", target="label", chat=True)
    task = task.prepare({"train": ROWS}, words, model_kind="decoder")
    for row, one in zip(ROWS, task.encode(ROWS, words, model_kind="decoder"), strict=True):
        whole = rendered(words, said(row, row["label"]))
        got = one.input_ids + one.target_ids
        assert whole[: len(got)] == got
        assert words.convert_ids_to_tokens(one.target_ids[-1]) in {"<|im_end|>", "<|eot|>", "<|end|>", "</s>"}
    assert not task.blank_ends


@pytest.mark.parametrize("name", [*TEMPLATES])
@pytest.mark.parametrize("system", ["", "Be brief."])
def test_demonstrations_are_earlier_turns(name: str, system: str) -> None:
    words = tokenizer(name)
    if name == "nemo" and system:
        return
    task = prepared(words, system=system)
    shown = task.demonstrated(ROWS, 1, 0)
    order = [next(row for row in ROWS if row["label"] == one.name) for one in shown]
    query = task.encode(ROWS[:1], words, model_kind="decoder", behind="")[0]
    got = ids(words, [task.begins + "".join(map(str, shown))])[0] + query.input_ids + query.target_ids
    head = [{"role": "system", "content": system}] if system else []
    messages = head + [turn for row in order for turn in said(row, WORDS[row["label"]])] + said(ROWS[0], "great")
    assert rendered(words, messages)[: len(got)] == got


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != "nemo"])
def test_a_text_in_front_is_what_the_system_says(name: str) -> None:
    words = tokenizer(name)
    query = prepared(words).encode(ROWS[:1], words, model_kind="decoder", behind="")[0]
    got = ids(words, [head_saying(words, "Be {brief}.", ASKED)])[0] + query.input_ids + query.target_ids
    messages = [{"role": "system", "content": "Be {brief}."}, *said(ROWS[0], "great")]
    assert rendered(words, messages)[: len(got)] == got


def test_nothing_is_shown_in_front_where_its_end_makes_a_token_with_the_users_words() -> None:
    words = tokenizer("mistral", taught=" a a a a")  # as most tokenizers have it, and "[INST] " ends in the space
    assert len(ids(words, [" a"])[0]) == 1
    reason = "with this tokenizer a token between two turns may hold the end of one and the beginning of the next"
    with pytest.raises(ts.UserError, match=f"is what its system says, and {reason}"):
        head_saying(words, "Be brief.", "{text}")
    assert turns(words, "Be brief.", "{text}").single == reason
    assert not turns(words, "", "{text}").single
    assert not turns(words, "Be brief.", "Is {text}").single  # " I" is no token


@pytest.mark.parametrize("name", ["marked", "lined", "unmarked"])
@pytest.mark.parametrize("pieces", ["gpt2", "metaspace"])
def test_turns_without_marks_have_demonstrations_where_tokens_are_of_one_turn_alone(name: str, pieces: str) -> None:
    words = spelled(pieces)
    words.chat_template = {
        "lined": PLAIN.replace("USER:", "{{ '\\n' }}USER:"),
        "unmarked": PLAIN.replace("</s>", "\n\n"),
    }.get(name, PLAIN)
    for answer in ("good", "good.", "1"):
        task = Classification(template="{text}", words={"pos": answer, "neg": "bad"}, chat=True)
        task = task.prepare({"train": ROWS}, words, model_kind="decoder")
        shown = task.demonstrated(ROWS, 1, 0)
        rows = [next(row for row in ROWS if row["label"] == one.name) for one in shown]
        messages = [turn for row in rows for turn in plainly(row, task.words[row["label"]])] + plainly(ROWS[0], "good")
        query = task.encode(ROWS[:1], words, model_kind="decoder", behind="")[0]
        got = tuple(token_ids(words, task.begins + "".join(map(str, shown)))) + query.input_ids
        assert not task.turns.single and rendered(words, messages)[: len(got)] == got


def test_what_ends_a_system_and_what_follows_it_are_read_as_the_whole_is() -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({one: at for at, one in enumerate(["</s>", *letters, ".Ċ"])}, [(".", "Ċ")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.add_special_tokens(["</s>"])
    words = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>")
    words.chat_template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% elif m.role == 'user' %}{{ '\n' }}USER: "
        "{{ m.content }} {% else %}ASSISTANT: {{ m.content }}</s>{% endif %}{% endfor %}"
    )
    assert len(ids(words, [".\n"])[0]) == 1
    query = prepared(words).encode(ROWS[:1], words, model_kind="decoder", behind="")[0]
    got = ids(words, [head_saying(words, "Be brief.", ASKED)])[0] + query.input_ids
    assert rendered(words, [{"role": "system", "content": "Be brief."}, *said(ROWS[0], "great")])[: len(got)] == got


def test_what_the_system_says_in_every_turn_is_no_text_in_front() -> None:
    words = tokenizer("gemma")
    words.chat_template = words.chat_template.replace("sys if loop.first else ''", "sys if m.role == 'user' else ''")
    with pytest.raises(ts.UserError, match="is what its system says, and its chat template writes a turn otherwise"):
        head_saying(words, "Be brief.", ASKED)


def test_a_chat_template_that_changes_what_is_within_the_words_is_refused() -> None:
    words = tokenizer("chatml")
    words.chat_template = CHATML.replace("{{ m.content }}", "{{ m.content | replace('\n\n', '\n') }}")
    with pytest.raises(ts.UserError, match="does not write the words of a turn as they are"):
        turns(words)


def test_no_demonstrations_in_a_chat_without_the_start_token_of_other_texts() -> None:
    begun = tokenizer("chatml", bos_token="<s>")
    begun._tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 320)])
    assert turns(begun).single.startswith("its chat template leaves out the start token")


def test_a_row_that_is_too_long_is_cut_within_its_turn() -> None:
    words = tokenizer("chatml")
    task = prepared(words)
    whole = task.encode(ROWS, words, model_kind="decoder")[1]
    cut = task.encode(ROWS, words, model_kind="decoder", room=len(whole.input_ids) - 3)[1]
    assert cut.cut > 0 and len(cut.input_ids) <= len(whole.input_ids) - 3
    assert cut.input_ids[-6:] == whole.input_ids[-6:]
    assert cut.input_ids[:6] == whole.input_ids[:6]


def dated() -> PreTrainedTokenizerFast:
    words = tokenizer("chatml")
    words.chat_template = words.chat_template.replace("You help.", "It is {{ strftime_now('%d %b %Y') }}.")
    return words


def test_a_chat_template_that_writes_the_day_is_told() -> None:
    assert not turns(tokenizer("chatml")).note
    assert turns(dated()).note == (
        "The chat template writes the day: here that of each call, and a server writes its own."
    )


HOURS = "cHIklMpPrRsSTXzZ"  # a kept day has none
FORMS = " ".join(f"%{flag}{letter}" for flag in FLAGS for letter in LETTERS if letter not in HOURS) + " 100%%"


@pytest.mark.parametrize("begun_by", ["", "\n", "  ", "\n\n  ", "{#- a note #}\n ", "{{ bos_token }}\n"])
def test_a_kept_day_leaves_the_rest_of_a_chat_template_as_it_is(begun_by: str) -> None:
    words = tokenizer("chatml")
    day = f"{{{{ strftime_now('{FORMS}') }}}}{{% set at = strftime_now(format='%Y') %}}{{{{ at }}}}"
    words.chat_template = f"{begun_by}  {{% if true %}}{day}{{% endif %}}\n" + CHATML
    said = [{"role": "user", "content": "'%d' 2020"}]
    kept = on_day(on_day(words, "2020-02-29"), date.today().isoformat())  # the last one counts
    for given in ({}, {"add_generation_prompt": True}):
        text = words.apply_chat_template(said, tokenize=False, **given)
        assert kept.apply_chat_template(said, tokenize=False, **given) == text


def test_a_day_that_is_kept_is_the_one_that_is_written() -> None:
    words = dated()
    kept = turns(on_day(words, "2020-02-29"))
    assert (kept.head, kept.day) == ("<|im_start|>system\nIt is 29 Feb 2020.<|im_end|>\n", "2020-02-29")
    assert kept.note == "The chat template writes the day: here 2020-02-29, and a server writes its own."
    assert date.today().strftime("%Y") in turns(words).head  # the tokenizer that was given is as it was
    assert on_day(words, "") is words
    assert turns(on_day(tokenizer("chatml"), "2020-02-29")) == turns(tokenizer("chatml"))  # no day is written


def test_the_day_is_asked_of_what_the_system_says() -> None:
    words, day = tokenizer("chatml"), "{{ strftime_now('%Y') }}"
    words.chat_template = CHATML.replace("You help.", day)  # where the system says nothing
    kept = on_day(words, "2020-02-29")
    assert (turns(kept).note[:39], turns(kept, "Be kind.").note) == ("The chat template writes the day: here ", "")
    assert (turns(kept).day, turns(kept, "Be kind.").day) == ("2020-02-29", "")
    words.chat_template = CHATML.replace(
        "{{ m.content }}", f"{{{{ m.content }}}}{{% if m.role == 'system' %}}{day}{{% endif %}}"
    )
    kept = on_day(words, "2020-02-29")
    assert turns(kept).note == "" and turns(kept, "Be kind.").note.startswith(
        "The chat template writes the day: here 2020"
    )
    assert turns(kept).day == "2020-02-29"  # of a hard prompt, which is what the system says


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"system": "Be brief."}, "is what the system of a chat says. Type: --chat --system TEXT"),
        ({"chat": True, "template": "{text} It was {mask}"}, "in a chat the answer is the turn that follows"),
    ],
)
def test_what_a_chat_cannot_be_is_said(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ts.UserError, match=message):
        Classification(words=WORDS, **fields).prepare({"train": ROWS}, tokenizer("chatml"), model_kind="decoder")


def test_what_no_chat_can_be_had_of_is_said(tmp_path: Path) -> None:
    task = Classification(words=WORDS, chat=True, template="{text}")
    with pytest.raises(ts.UserError, match=r"and this one has none\. Leave it out, or take the model that was tuned"):
        task.prepare({"train": ROWS}, tokenizer("none"), model_kind="decoder")
    with pytest.raises(ts.UserError, match="in the turns that a decoder goes on with, and this is an encoder"):
        task.prepare({"train": ROWS}, tokenizer("chatml"), model_kind="encoder")
    with pytest.raises(ts.UserError, match="does not know the chat's turns yet"):
        task.encode(ROWS, tokenizer("chatml"), model_kind="decoder")
    loud = tokenizer("chatml")
    loud.chat_template = "{% for m in messages %}{{ m.content | upper }}{% endfor %}"
    with pytest.raises(ts.UserError, match="does not write the words of a turn as they are"):
        task.prepare({"train": ROWS}, loud, model_kind="decoder")
    loud.chat_template = "{{ raise_exception('no chats today') }}"
    with pytest.raises(ts.UserError, match="refuses a plain conversation: no chats today"):
        task.prepare({"train": ROWS}, loud, model_kind="decoder")


def test_what_a_result_says_of_it_can_be_read_again() -> None:
    told = prepared(tokenizer("chatml")).describe()
    assert json.loads(json.dumps(told))["chat"]["head"] == "<|im_start|>system\nYou help.<|im_end|>\n"
    plain = Classification(words=WORDS).prepare({"train": ROWS}, tokenizer("chatml"), model_kind="decoder")
    assert "chat" not in plain.describe()


def conversation(system: str = "", **more: Any) -> dict[str, Any]:
    head = [{"role": "system", "content": system}] if system else []
    return {"messages": head + said(ROWS[0], "It is.\n\nVery."), **more}


def written(folder: Path, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read(folder / "rows.jsonl")


@pytest.mark.parametrize("system", ["", "Be brief."])
def test_a_row_of_messages_is_asked_and_answered_as_the_chat_template_has_it(tmp_path: Path, system: str) -> None:
    words, row = tokenizer("chatml"), conversation(system)
    split = {"prompt": row["messages"][:-1], "completion": row["messages"][-1:]}
    for (one,) in (written(tmp_path, row), written(tmp_path, split)):
        assert (one["system"], one["target"]) == (system, "It is.\n\nVery.")
        task = Generation(chat=True, system=system, template="{input}")
        task = task.prepare({"train": [one]}, words, model_kind="decoder")
        (item,) = task.encode([one], words, model_kind="decoder", train=True)
        whole = rendered(words, row["messages"])
        got = item.input_ids + item.target_ids
        assert whole[: len(got)] == got and whole[len(got) :] == ids(words, ["\n"])[0]
    assert written(tmp_path, {**row, "input": "mine"})[0]["input"] == "mine"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"messages": [*said(ROWS[0], "a"), *said(ROWS[0])]}],
            r"line 1: a conversation of user, assistant, user\. A row is a question and its answer, or several",
        ),
        ([{"messages": [{"role": "user", "content": [{"type": "image"}]}]}], "with text alone"),
        ([{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 2}]}], "with text alone"),
        ([{"messages": []}], r"a conversation of no messages\."),
        ([{"messages": [{"role": "user", "content": ["a"]}]}], "with text alone. Correct it, or leave the row out"),
        ([{"messages": ["a"]}], "a message is 'a', and is to be"),
    ],
)
def test_a_conversation_of_another_form_is_refused(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ts.UserError, match="has no field 'input'"):
        value(conversation(), "input", 0)  # of a row that was not read from a file
    (row,) = written(tmp_path, *rows)  # its other fields can be asked for
    with pytest.raises(ts.UserError, match=message):
        value(row, "input", 0)


def test_what_the_system_says_in_the_rows_is_never_left_out(tmp_path: Path) -> None:
    def prepare(rows: list[dict[str, Any]], **fields: Any) -> Any:
        return Generation(**{"template": "{input}", **fields}).prepare(
            {"train": rows}, tokenizer("chatml"), model_kind="decoder"
        )

    one, two = written(tmp_path, conversation("Be brief."), conversation("Be kind."))
    with pytest.raises(ts.UserError, match=r"would be asked as plain text\. Type: --chat"):
        prepare([one])
    with pytest.raises(ts.UserError, match=r"says otherwise\. Type: --system 'Be brief\.'"):
        prepare([one], chat=True)
    with pytest.raises(ts.UserError, match="The system says 2 different things in these conversations"):
        prepare([one, two], chat=True)
    prepare([one], chat=True, system="Be brief.")
    (silent, lines) = written(tmp_path, conversation(), conversation("Be\nbrief's."))
    prepare([silent], chat=True, system="Be brief.")
    with pytest.raises(ts.UserError) as caught:
        prepare([lines], chat=True)
    assert str(caught.value).endswith(r"Type: --system $'Be\nbrief\'s.'")
    labelled = [{**one, "label": label} for label in ("neg", "pos")]
    for chat in (False, True):
        with pytest.raises(ts.UserError, match=r"would be asked as plain text|says otherwise"):
            Classification(template="{input}", words=WORDS, chat=chat).prepare(
                {"train": labelled}, tokenizer("chatml"), model_kind="decoder"
            )
    prepare([one, two], chat=True, template="{system}\n\n{input}")


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_choice_of_a_row_s_own_is_the_assistant_s_turn(name: str) -> None:
    words = tokenizer(name)
    rows = [{"input": row["text"], "choices": ["great", "terrible one"], "answer": at} for at, row in enumerate(ROWS)]
    task = Choice(template="Pick.\n{input}", chat=True).prepare({"train": rows}, words, model_kind="decoder")
    for row, one in zip(rows, task.encode(rows, words, model_kind="decoder"), strict=True):
        for choice, tokens in zip(row["choices"], one.tokens, strict=True):
            turn = [{"role": "user", "content": f"Pick.\n{row['input']}"}, {"role": "assistant", "content": choice}]
            got = one.input_ids + tokens
            assert rendered(words, turn)[: len(got)] == got
    shown = task.begins + task.demonstrations(rows, 1, 0) + task.demonstrations(rows, 1, 0)
    if name in ("chatml", "llama3", "phi"):
        said = [one for _ in range(2) for one in solved_turn(rows, task.demonstrations(rows, 1, 0))]
        assert words.apply_chat_template(said, tokenize=False).startswith(shown)


def solved_turn(rows: list[dict[str, Any]], text: str) -> list[dict[str, str]]:
    row = next(row for row in rows if row["input"] in text)
    answer = row["choices"][row["answer"]]
    return [{"role": "user", "content": f"Pick.\n{row['input']}"}, {"role": "assistant", "content": answer}]


def test_white_space_around_what_the_user_says_goes_where_the_chat_template_takes_it() -> None:
    row = {"text": " a film \n", "label": "pos"}
    stripped = MISTRAL.replace("{{ m.content }} [/INST]", "{{ m.content | trim }} [/INST]")  # between spaces of its own
    for name in ("llama3", "chatml", "mistral"):
        words = tokenizer(name)
        words.chat_template = stripped if name == "mistral" else words.chat_template
        task = Classification(template="{text}", words=WORDS, chat=True)
        task = task.prepare({"train": [row, ROWS[1]]}, words, model_kind="decoder")
        (one,) = task.encode([row], words, model_kind="decoder")
        whole = rendered(words, [{"role": "user", "content": row["text"]}, {"role": "assistant", "content": "great"}])
        assert whole[: len(one.input_ids)] == one.input_ids and task.turns.trims == (name != "chatml")


def test_a_chat_template_that_begins_what_is_to_be_written_otherwise_is_told() -> None:
    assert turns(tokenizer("chatml")).note == turns(tokenizer("mistral")).note == turns(tokenizer("phi4")).note == ""
    (note, *_) = prepared(tokenizer("thinking")).describe()["notes"]
    assert note.startswith("The chat template begins an answer that is still to be written otherwise")
    switched = tokenizer("thinking")
    switched.chat_template = THINKING.replace(
        "<|im_start|>assistant\n{% endif %}",
        "<|im_start|>assistant\n{% if enable_thinking is false %}<think>\n\n{% endif %}{% endif %}",
    )
    assert turns(switched).note.endswith("Ask it with enable_thinking=false.")


def test_what_ends_an_answer_may_stand_behind_white_space_and_never_in_words() -> None:
    words = tokenizer("chatml")
    words.chat_template = CHATML.replace("<|im_end|>\n{% endfor %}", "\n<|eot|>\n{% endfor %}")
    assert words.convert_ids_to_tokens(turns(words).stop) == "<|eot|>"
    words.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n\n{% endfor %}"
    assert turns(words).stop is None
    words.chat_template = MISTRAL.replace("{% set sys = messages[0].content + '\n\n' %}", "{{ raise_exception('no') }}")
    with pytest.raises(ts.UserError, match="has no place for what a system says"):
        turns(words, "Be brief.")


def test_a_turn_is_never_empty_for_calibration() -> None:
    words, task = tokenizer("chatml"), Classification(template="{text}", words=WORDS, chat=True)
    task = task.prepare({"train": ROWS}, words, model_kind="decoder")
    assert len(contentless(task, words, model_kind="decoder", behind=None, room=None)) == 3
