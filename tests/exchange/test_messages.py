"""Words as messages and as a prefix: the ids are those of the attached context, or it is said that they are not."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import serving_tools as tools
import tiny
import torch
from tokenizers.processors import TemplateProcessing

import tunescope as ts
from tunescope.exchange import convert
from tunescope.exchange.serving.chat_template import messages
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.prompts.turns import Turns

ROWS = [{"text": f"{how} film", "label": how, "line": how} for how in ("good", "bad", "good", "bad")]
SYSTEM = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}x{% endfor %}"
)


def exported(model: Any, text: str, tokenizer: Any, folder: Path, about: Any = None) -> tuple[Any, list[Any]]:
    artifacts = tools.moved(model, ts.Text(text=text), tokenizer=tokenizer)
    return convert.export(folder, artifacts, to="messages", model=model, tokenizer=tokenizer, about=about), artifacts


@pytest.mark.parametrize("family", tools.DECODERS)
@pytest.mark.parametrize("make", [tools.byte_level, tools.metaspace], ids=["bytes", "words"])
def test_prefix_and_text_as_one_string_give_the_logits_of_the_attached_model(
    family: str, make: Any, tmp_path: Path
) -> None:
    tokenizer = make(start=True)
    model = tools.loaded(family, tmp_path / "base", vocabulary=len(tokenizer))
    with tiny.Float64(), torch.no_grad():
        done, artifacts = exported(model, "Good: the film.\nBad: a plot.", tokenizer, tmp_path / "out")
        prefix = (tmp_path / "out" / "prefix.txt").read_text()
        ids, plain = tokenizer(prefix + "A dull plot")["input_ids"], tokenizer("A dull plot", add_special_tokens=False)
        got = model(input_ids=torch.tensor([ids])).logits[0, -len(plain["input_ids"]) :]
        with ts.attach(model, *artifacts):
            expected = model(input_ids=torch.tensor([plain["input_ids"]])).logits[0]
    assert ids == [*artifacts[0].tensors["ids"].tolist(), *plain["input_ids"]]
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    assert done.difference < 1e-12
    assert prefix.endswith(" ") == (make is tools.metaspace)


def test_a_blank_line_at_the_end_has_the_tokens_that_it_has_in_the_string(tmp_path: Path) -> None:
    tokenizer = tools.byte_level()
    model = tools.loaded("gpt2", tmp_path / "base", vocabulary=len(tokenizer))
    text = "A bad film.\nLabel: bad\n\n"
    done, artifacts = exported(model, text, tokenizer, tmp_path / "out")
    assert done.difference is not None and done.difference < 1e-12
    kept = json.loads((tmp_path / "out" / "tunescope-export.json").read_text())["prompt"]["ids"]
    assert kept == artifacts[0].tensors["ids"].tolist() != tokenizer(text)["input_ids"]
    assert tokenizer(text + "The")["input_ids"] == kept + tokenizer("The")["input_ids"]


def test_a_token_that_the_tokenizer_puts_at_an_end_is_none_of_the_prefix(tmp_path: Path) -> None:
    tokenizer = tools.byte_level()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    model = tools.loaded("gpt2", tmp_path / "base", vocabulary=len(tokenizer))
    done, _ = exported(model, "Good: the film.\n", tokenizer, tmp_path / "out")
    assert done.difference is not None and done.difference < 1e-12
    kept = json.loads((tmp_path / "out" / "tunescope-export.json").read_text())["prompt"]["ids"]
    assert kept[0] == 1 and kept[-1] != 2


def test_where_the_string_has_other_tokens_than_its_parts_that_is_said_and_nothing_compared(tmp_path: Path) -> None:
    tokenizer = tools.byte_level()
    model = tools.loaded("gpt2", tmp_path / "base", vocabulary=len(tokenizer))
    text = "A bad film.\nLabel: "  # a space that the next word takes along
    done, artifacts = exported(model, text, tokenizer, tmp_path / "out")
    assert done.difference is None
    assert any("have other tokens than apart" in note and "of 4 samples, such as '" in note for note in done.notes)
    kept = json.loads((tmp_path / "out" / "tunescope-export.json").read_text())["prompt"]["ids"]
    assert kept == artifacts[0].tensors["ids"].tolist() == tokenizer(text)["input_ids"]
    assert tokenizer(text + "a plot")["input_ids"] != kept + tokenizer("a plot")["input_ids"]


def test_demonstrations_become_turns_that_say_the_same_text(tmp_path: Path) -> None:
    tokenizer = tools.byte_level()
    model = tools.loaded("gpt2", tmp_path / "base", vocabulary=len(tokenizer))
    task = Classification().prepare({"train": ROWS}, tokenizer, model_kind="decoder")
    text = task.demonstrations(ROWS, 1, 0)
    done, _ = exported(model, text, tokenizer, tmp_path / "out", {"task": task.describe()})
    said = json.loads((tmp_path / "out" / "messages.json").read_text())
    assert [one["role"] for one in said] == ["user", "assistant"] * 2
    assert "".join(one["content"] + (" " if one["role"] == "user" else "\n\n") for one in said) == text
    assert {one["content"] for one in said if one["role"] == "assistant"} == {"good", "bad"}
    assert any("2 demonstrations as turns" in note for note in done.notes)
    assert any("filled template: '{text}\\nLabel:'" in note for note in done.notes)
    assert any("no chat template: use prefix.txt" in note for note in done.notes)
    assert json.loads((tmp_path / "out" / "tunescope-export.json").read_text())["query"] == "{text}\nLabel:"
    assert (tmp_path / "out" / "prefix.txt").read_text() == text


@pytest.mark.parametrize("note", ["", "the server begins answers otherwise"])
def test_behind_a_chat_s_turns_the_query_is_a_turn_too(note: str, tmp_path: Path) -> None:
    template = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }};{% endfor %}"
    tokenizer = tools.byte_level(template=template)
    model = tools.loaded("gpt2", tmp_path / "base", vocabulary=len(tokenizer))
    turns = Turns(head="", before="[user]", lead=";[assistant]", shown=";[assistant]", end=";", note=note)
    about = {"task": {"chat": asdict(turns), "template": "{text} film"}}
    done, _ = exported(model, "[user]A dull film;[assistant]bad;", tokenizer, tmp_path / "out", about)
    said = json.loads((tmp_path / "out" / "messages.json").read_text())
    assert said == [{"role": "user", "content": "A dull film"}, {"role": "assistant", "content": "bad"}]
    manifest = json.loads((tmp_path / "out" / "tunescope-export.json").read_text())
    assert manifest["query"] == "[user]{text} film;[assistant]"
    assert done.notes[0] == f"messages.json: 1 demonstration as turns; in a chat {note or 'as in tuning'}"


def test_written_answers_become_turns_too() -> None:
    task = Generation(input="text", target="line", template="Review: {text}\nIn a word:")
    text = task.demonstrations(ROWS, 2, 0)
    said = messages(text, task.describe(), tiny.tokenizer())
    assert [one["role"] for one in said] == ["user", "assistant"] * 2
    assert all(one["content"].startswith("Review: ") for one in said[::2])
    assert "".join(one["content"] + (" " if one["role"] == "user" else "\n\n") for one in said) == text


LABELS = {"template": "{text}\nLabel:", "words": {"g": "good", "b": "bad"}}


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("Classify the review.", {}),
        ("Classify the review.", LABELS),
        ("a film\nLabel: good\n\nand more", LABELS),  # what follows is no demonstration
        ("a film\nLabel: fine\n\n", LABELS),  # no label word
        ("a film\nLabel: bad\nLabel: good\n\n", LABELS),  # the text holds the template's own end
        ("a film\nLabel: bad\nLabel: good\n\n", {"template": "{text}\nLabel:"}),  # or the answer does
        ("a\n\nfilm\nLabel: good\n\n", LABELS),  # the text holds a blank line
        ("film good\n\n", {"template": "{text}"}),  # nothing marks where the answer begins
        ("Film: a\nLabel: good\n\n", {"template": "Review: {text}\nLabel:"}),  # another template's
        ("a film\nLabel: \n\n", {"template": "{text}\nLabel:"}),  # an empty answer
    ],
)
def test_what_cannot_be_told_apart_for_certain_is_one_message(text: str, task: dict[str, Any]) -> None:
    assert messages(text, task, tiny.tokenizer()) == [{"role": "system", "content": text.strip()}]


def test_several_chat_templates_without_a_default_are_told_and_no_error(tmp_path: Path) -> None:
    tokenizer = tools.byte_level(template=None)
    tokenizer.chat_template = {"one": "x", "two": "y"}
    model = tools.loaded("gpt2", tmp_path / "base", vocabulary=len(tokenizer))
    done, _ = exported(model, "Classify.", tokenizer, tmp_path / "out")
    assert any(
        "the chat template refuses these messages (This model has multiple chat templates" in n for n in done.notes
    )


def test_a_chat_template_that_refuses_the_messages_is_named(tmp_path: Path) -> None:
    tokenizer = tools.byte_level(template=SYSTEM)
    model = tools.loaded("gpt2", tmp_path / "base", vocabulary=len(tokenizer))
    done, _ = exported(model, "Classify.\n\n", tokenizer, tmp_path / "out")
    assert any(r"refuses these messages (no system): put their words into the user's" in note for note in done.notes)


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ((ts.Soft(length=2),), "trained embeddings are none: use --to soft_token or embeds"),
        ((ts.Text(text="w5"), ts.LoRA(rank=2)), "cannot hold lora: it is a change of weights and no context"),
        ((ts.Prefix(length=2),), "cannot hold prefix"),
    ],
)
def test_what_is_not_words_is_refused(specs: tuple[Any, ...], message: str, tmp_path: Path) -> None:
    model, tokenizer = tiny.make("gpt2"), tiny.tokenizer()
    artifacts = tools.moved(model, *specs, tokenizer=tokenizer)
    with pytest.raises(ts.UserError, match=message):
        convert.export(tmp_path / "out", artifacts, to="messages", model=model, tokenizer=tokenizer)


def test_words_that_fill_the_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ts.UserError, match="A prompt of 64 tokens leaves no room for a text in this model of 64"):
        exported(tiny.make("gpt2"), "w7 " * 64, tiny.tokenizer(), tmp_path / "out")
