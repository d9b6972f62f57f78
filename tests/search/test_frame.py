"""In a chat a prompt that is looked for is what the system says, with the tokens of `apply_chat_template` around it."""

from dataclasses import replace

import pytest
import tiny
import torch
from reference import searches as literal
from search_tools import WORDS, bench, byte_level, tokenizer

import tunescope as ts
from tunescope.attachment.attached import attach
from tunescope.methods.contexts.text import Text
from tunescope.methods.text_form import parse
from tunescope.search.apply import made, stats_of
from tunescope.search.frame import BARE, Frame, check_frame, frame
from tunescope.search.methods.autoprompt import AutoPrompt
from tunescope.search.methods.gcg import GCG
from tunescope.search.methods.label_words import LabelWords
from tunescope.search.methods.pez import PEZ
from tunescope.search.methods.random import RandomPrompts
from tunescope.search.methods.template import Template
from tunescope.search.objective import objective
from tunescope.search.vocabulary import vocabulary
from tunescope.tasks.kinds.classification import Classification
from tunescope.trial.chats import in_chat

CHAT = (
    "{% for m in messages %}{% if m.role == 'system' %}w90 {{ m.content }} w91{% elif m.role == 'user' %} w92 "
    "{{ m.content }} w93{% else %} {{ m.content }} w94{% endif %}{% endfor %}"
)


@pytest.fixture(autouse=True)
def float64_throughout():
    with tiny.Float64():
        yield


def chat(family="llama", template=CHAT, **fields):
    tokens = tokenizer()
    tokens.chat_template = template
    return bench(family, tokens=tokens, task=Classification(template="{text} w4", words=WORDS, chat=True, **fields))


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


def test_a_start_token_that_the_template_writes_stands_once_in_front():
    tokens = tokenizer(start=True)
    tokens.chat_template = "{{ bos_token }} " + CHAT
    given = bench("llama", tokens=tokens, task=Classification(template="{text} w4", words=WORDS, chat=True))
    words = vocabulary(tokens, 96, (), frame(given))
    text, whole = words.settled((20, 50))
    said = [{"role": "system", "content": text}, {"role": "user", "content": "w40 w4"}]
    asked = tokens.apply_chat_template(said, tokenize=True, return_dict=False)
    assert asked[: len(whole)] == list(whole) and list(whole[:2]) == [1, 90] and asked.count(1) == 1


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_the_loss_and_its_gradient_are_those_of_the_whole_chat(family):
    given = chat(family)
    tokens = given.tokenizer
    with objective(given, vocabulary(tokens, 96, (), frame(given)), 3, 0.3 if family == "gpt2" else 0.0) as goal:
        assert len(goal.rows) == 7
        prompt = torch.randint(len(goal.words.ids), (3,), generator=torch.Generator().manual_seed(3))
        slope = goal.slope(prompt, goal.rows)
        losses = [] if goal.fluency else goal.losses(prompt[None], goal.rows)
        text, whole = goal.words.settled(goal.ids(prompt))
    said = [{"role": "system", "content": text}, {"role": "user", "content": given.splits.train[0]["text"] + " w4"}]
    asked = tokens.apply_chat_template(said, tokenize=True, return_dict=False)
    assert [*whole, *goal.rows[0].input_ids] == asked
    at = tokens.convert_tokens_to_ids(["w90", "w91"])
    rows = [replace(row, input_ids=(at[1], *row.input_ids)) for row in goal.rows]
    expected, gradient = literal.gradient(given.model, goal.ids(prompt), rows, at[:1], goal.fluency)
    assert slope.loss == pytest.approx(expected, abs=1e-10)
    close(slope.gradient, gradient)
    for loss in losses:
        assert float(loss) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    "search", [PEZ(length=3, batch=4), GCG(length=3, batch=4), AutoPrompt(length=3, batch=4), RandomPrompts(length=3)]
)
def test_what_is_found_scores_as_the_arm_that_it_is(search):
    given = chat()
    found = search.search(given, 600, 0, lambda line: None)
    artifact = made(given, found.text)
    assert artifact.spec.text.startswith("w90 ") and artifact.spec.text.endswith(" w91")
    (spec,) = in_chat(parse(f"text:text={found.text}"), given, shown=False)
    assert spec == artifact.spec
    rows = given.encoded("dev", behind="", room=None)
    with attach(given.model, artifact, tokenizer=given.tokenizer):
        told = given.task.predict(given.model, rows, given.tokenizer)
    assert sum(one.stats[0] for one in told) / len(told) == found.dev
    assert stats_of(given, found.text, "dev") == [list(one.stats) for one in told]


def test_outside_a_chat_there_is_no_frame():
    given = bench()
    assert frame(given) == BARE == Frame("", "", False)
    assert made(given, "w20 w21").spec == Text(text="w20 w21")


def test_a_template_that_writes_nothing_before_its_system_is_a_frame_too():
    tokens = tokenizer()
    tokens.chat_template = CHAT.replace("w90 {{", "{{")
    given = bench("llama", tokens=tokens, task=Classification(template="{text} w4", words=WORDS, chat=True))
    around = frame(given)
    assert (around.before, around.behind) == ("", " w91")
    words = vocabulary(tokens, 96, (), around)
    text, whole = words.settled((20, 50))
    assert list(whole) == made(given, text).tensors["ids"].tolist()
    assert tokens.convert_tokens_to_ids("w91") == whole[-1]


def test_a_prompt_that_is_one_token_with_what_stands_around_it_does_not_come_back():
    tokens = byte_level()
    known = tokens.get_vocab()
    around = vocabulary(tokens, len(tokens), (), Frame("ba", "d "))
    alone, merged = [known["g"]], [known["o"], known["bad"]]
    assert around.all_come_back([alone, [known["bad"]]]) == [True, True]
    assert around.whole(alone) == (known["ba"], known["g"], known["d"], known["Ġ"])
    assert around.settled(alone) == ("g", around.whole(alone))
    behind = vocabulary(tokens, len(tokens), (), Frame("go", "d"))
    assert not behind.comes_back([known["o"]]) and behind.settled([known["o"]]) is None  # "good" is one token
    assert behind.comes_back(merged)
    trims = vocabulary(tokens, len(tokens), (), Frame("ba", "d ", trims=True))
    assert (around.comes_back([known["Ġgood"]]), trims.comes_back([known["Ġgood"]])) == (True, False)


def test_a_chat_template_that_takes_white_space_is_known():
    assert not frame(chat()).trims
    assert frame(chat(template=CHAT.replace("w90 {{ m.content }}", "w90 {{ m.content | trim }}"))).trims


def test_what_has_no_place_in_a_chat_is_refused():
    given = chat()
    check_frame(GCG(), given, "gcg")
    check_frame(LabelWords(), given, "label_words")
    with pytest.raises(
        ts.UserError, match=r"template looks for what stands around a row's words, and with --chat a row"
    ):
        check_frame(Template(), given, "template")
    with pytest.raises(
        ts.UserError, match=r"In a chat a text is what the system says: leave --system out, or the text"
    ):
        frame(chat(system="w7"))
    silent = CHAT.replace("w90 {{ m.content }} w91", "w90 w91")
    with pytest.raises(ts.UserError, match="has no place for what a system says"):
        frame(chat(template=silent))
