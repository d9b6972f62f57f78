"""Questions asked at once, in two passes, and behind steps: against greedy loops over plain forwards."""

import re
from collections import Counter

import pytest
import tinyrun
import torch

import tunescope as ts
from tunescope.tasks.answers import decode
from tunescope.tasks.answers.decode import Sampling, sampled
from tunescope.tasks.kinds.reasoning import Reasoning
from tunescope.tasks.prompts.chain import Chain
from tunescope.tasks.task import Encoded

TASK = Reasoning(
    input="text", target="label", steps="why", template="{text} Label:", lead="was", read="good,bad,film,plot,dull"
)
THINK = {"think": "film a", "then": "plot was"}


def rows(count=12):
    return [
        {"text": row["text"], "label": ["good", "bad"][row["label"] == "neg"], "why": f"the {row['text'].split()[0]}"}
        for row in tinyrun.rows(count, seed=5)
    ]


@pytest.fixture(scope="module")
def model():
    made = tinyrun.model(seed=1)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        made.lm_head.weight = torch.nn.Parameter(torch.randn(16, 16))  # untied and lively: answers differ by row
    return made.eval()


@pytest.fixture(scope="module")
def task():
    return TASK.prepare({"train": rows()}, tinyrun.tokenizer(), model_kind="decoder")


@torch.no_grad()
def goes_on(model, prompt, count):
    """The likeliest `count` tokens behind a text, as text; up to the end token, special tokens left out."""
    tokenizer = tinyrun.tokenizer()
    ids, written = tokenizer(prompt)["input_ids"], []
    for _ in range(count):
        written.append(int(model(input_ids=torch.tensor([ids + written])).logits[0, -1].argmax()))
        if written[-1] == tokenizer.eos_token_id:
            break
    return tokenizer.decode(written, skip_special_tokens=True)


def first_choice(text):
    found = re.findall(r"\b(?:good|bad|film|plot|dull)\b", text)
    return found[0] if found else ""


def ask(task, model):
    tokenizer = tinyrun.tokenizer()
    return task.predict(model, task.encode(rows(), tokenizer, model_kind="decoder"), tokenizer, batch_size=5)


def test_at_once_the_answer_is_what_follows_the_lead(model, task):
    expected = [first_choice(goes_on(model, f"{row['text']} Label: was", task.max_new_tokens)) for row in rows()]
    found = ask(task, model)
    assert [one.text for one in found] == expected
    assert len(set(expected)) > 1
    right = [float(text == row["label"]) for text, row in zip(expected, rows(), strict=True)]
    assert [one.stats for one in found] == [(one,) for one in right]
    assert [one.figures["unread"] for one in found] == [float(text == "") for text in expected]


def test_in_two_passes_the_steps_stand_in_the_second_prompt(model, task):
    asked = Reasoning(**{**vars(task), "chain": Chain(tokens=4, **THINK)})
    expected = []
    for row in rows():
        prompt = f"{row['text']} Label: film a"
        steps = goes_on(model, prompt, 4)
        expected.append(first_choice(goes_on(model, f"{prompt} {steps} plot was", task.max_new_tokens)))
    found = [one.text for one in ask(asked, model)]
    assert found == expected
    assert found != [one.text for one in ask(task, model)]


def test_steps_that_are_longer_read_than_they_were_written_are_cut(model, task, monkeypatch):
    """What was written is read anew as text, which can have more tokens; only as many as were paid for are read."""
    asked = Reasoning(**{**vars(task), "chain": Chain(tokens=4, **THINK)})
    tokenizer, given, longer = tinyrun.tokenizer(), [], "film plot dull film bad bad bad"

    def written(_model, read, *_):
        given.append([one.input_ids for one in read])
        return [longer] * len(read)

    monkeypatch.setattr(decode, "greedy", written)
    ask(asked, model)
    first, second = given
    steps, then = (tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (longer, "plot was"))
    assert len(steps) > 4
    assert second == [prompt + steps[:4] + then for prompt in first]


def test_behind_shown_steps_the_answer_is_read_from_one_pass(model, task):
    asked = Reasoning(**{**vars(task), "chain": Chain(tokens=6), "shown": True})
    expected = []
    for row in rows():
        text = goes_on(model, f"{row['text']} Label:", 6 + 1 + task.max_new_tokens)
        behind = text.rpartition("was")[2] if "was" in text else None
        found = re.findall(r"\b(?:good|bad|film|plot|dull)\b", text if behind is None else behind)
        expected.append((found[-1] if behind is None else found[0]) if found else "")
    assert [one.text for one in ask(asked, model)] == expected


def test_of_samples_the_commonest_answer_is_taken_with_its_share(model, task):
    chain = Chain(samples=5, temperature=1.3, tokens=6)
    asked = Reasoning(**{**vars(task), "chain": chain, "shown": True, "seed": 3})
    tokenizer = tinyrun.tokenizer()
    encoded = asked.encode(rows(), tokenizer, model_kind="decoder")
    rule = asked._rule()
    texts = [
        sampled(model, encoded, tokenizer, 6 + 1 + asked.max_new_tokens, 5, Sampling(1.3, 15 + n)) for n in range(5)
    ]
    found = ask(asked, model)
    for number, one in enumerate(found):
        answers = [rule.answer(texts[sample][number]) for sample in range(5)]
        counts = Counter(answer for answer in answers if answer)
        top = max(counts.values(), default=0)
        expected = next((answer for answer in answers if answer and counts[answer] == top), "")
        assert (one.text, one.figures["vote"]) == (expected, top / 5)
    assert 0 < sum(one.figures["vote"] for one in found) < len(found)


def test_case_is_ignored_in_the_vote_where_it_is_in_the_score(model, task, monkeypatch):
    texts = iter(["was Good", "was bad", "was good", "was GOOD", "was bad"])
    monkeypatch.setattr(decode, "sampled", lambda *_: [next(texts)])
    settings = {"read": "line", "lowercase": True, "shown": True, "chain": Chain(samples=5, temperature=1.0, tokens=6)}
    asked = Reasoning(**{**vars(task), **settings})
    (one,) = asked.predict(model, [Encoded(1, (5,), (6,), None, ("gooD",), "")], tinyrun.tokenizer())
    assert (one.text, one.stats, one.figures["vote"]) == ("Good", (1.0,), 0.6)


def test_demonstrations_show_steps_where_they_are_asked_for(task):
    (row,) = rows(1)
    direct = task.demonstrations([row], 1, 0)
    shown = Reasoning(**{**vars(task), "chain": Chain(), "shown": True}).demonstrations([row], 1, 0)
    assert direct == f"{row['text']} Label: was {row['label']}\n\n"
    assert shown == f"{row['text']} Label: {row['why']} was {row['label']}\n\n"


def test_what_is_taught_is_steps_lead_and_answer_and_the_end(task):
    tokenizer = tinyrun.tokenizer()
    taught = Reasoning(**{**vars(task), "chain": Chain(), "taught": True})
    learned = taught.encode(rows(), tokenizer, model_kind="decoder", train=True)
    for one, row in zip(learned, rows(), strict=True):
        whole = tokenizer(f"{row['text']} Label: {row['why']} was {row['label']}")["input_ids"]
        assert [*one.input_ids, *one.target_ids] == [*whole, tokenizer.eos_token_id]
        assert tokenizer.decode(one.input_ids).endswith("Label:") and one.references == (row["label"],)
    asked = taught.encode(rows(), tokenizer, model_kind="decoder")
    assert [one.input_ids for one in asked] == [one.input_ids for one in learned]
    assert [one.references for one in asked] == [(row["label"],) for row in rows()]
    assert all(len(one.target_ids) < len(other.target_ids) for one, other in zip(asked, learned, strict=True))


def test_what_was_taught_is_written_in_one_pass_and_ends_where_it_ends(model, task):
    taught = Reasoning(**{**vars(task), "chain": Chain(tokens=5), "taught": True})
    expected = []
    for row in rows():
        text = goes_on(model, f"{row['text']} Label:", 5 + 1 + task.max_new_tokens)
        behind = text.rpartition("was")[2] if "was" in text else text
        found = re.findall(r"\b(?:good|bad|film|plot|dull)\b", behind)
        expected.append((found[0] if "was" in text else found[-1]) if found else "")
    assert [one.text for one in ask(taught, model)] == expected and len(set(expected)) > 1


def test_a_marker_is_no_part_of_a_word_and_an_answer_holds_none():
    for lead, answer in (("So", "Sofia"), ("A", "a cat"), ("The answer is", "4")):
        task = Reasoning(lead=lead, chain=Chain(), taught=True)
        wanted = "cat" if answer == "a cat" else answer
        if answer == "a cat":
            with pytest.raises(ts.UserError, match="'a cat', which holds the words in front of an answer, 'A'"):
                task._gold({"input": "q", "target": answer}, 0)
        else:
            task._gold({"input": "q", "target": answer}, 0)
        assert task._rule().answer(f"one. {lead} {answer}") == wanted
    with pytest.raises(ts.UserError, match="row 1: 'target' is 'The answer is 42', which holds the words in front"):
        Reasoning()._gold({"input": "q", "target": "The answer is 42"}, 0)


def test_an_encoder_writes_no_answers():
    with pytest.raises(
        ts.UserError, match="An answer is written by a decoder or an encoder-decoder, and this model is"
    ):
        TASK.prepare({"train": rows()}, tinyrun.tokenizer(), model_kind="encoder")


def test_steps_with_blank_lines_are_told(task):
    given = [dict(row, why="one\n\ntwo") for row in rows(2)] + rows()
    notes = TASK.prepare({"train": given}, tinyrun.tokenizer(), model_kind="decoder").notes
    assert "2 of these hold a blank line, where an answer behind demonstrations ends" in notes[-1]
    assert not any("blank line, where" in note for note in task.notes)


def test_taught_steps_may_hold_blank_lines():
    taught = Reasoning(chain=Chain(), taught=True)
    assert taught._rule().answer("one\n\ntwo The answer is 3") == "3"
    assert Reasoning(chain=Chain(), shown=True)._rule().answer("one\n\ntwo The answer is 3") is None


def test_a_prompt_leaves_room_for_all_that_is_written(task):
    """The room is shared by the prompt, the steps, the words that ask again and the answer but for its last token."""
    tokenizer = tinyrun.tokenizer()
    asked = Reasoning(**{**vars(task), "chain": Chain(tokens=4, **THINK)})
    long = [{"text": " ".join(["film"] * 50), "label": "good"}]
    (cut,) = asked.encode(long, tokenizer, model_kind="decoder", room=30)
    assert len(cut.input_ids) + 4 + 2 + task.max_new_tokens - 1 == 30
    assert cut.cut > 0


def test_the_longest_steps_of_training_are_the_room_for_steps(task):
    assert task.step_tokens == 2
    assert "12 of 12 training rows show their steps." in task.notes
    bare = [{"text": row["text"], "label": row["label"]} for row in rows()]
    assert TASK.prepare({"train": bare}, tinyrun.tokenizer(), model_kind="decoder").step_tokens == 128


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Chain(samples=0), "cot:samples=0: samples and tokens are at least 1, and temperature at least 0"),
        (lambda: Chain(samples=3), "at temperature 0 all samples are the same; type cot:samples=8,temperature=0.7"),
        (lambda: Reasoning(template="{input} {target}"), "contains the field {target}, which tells the answer"),
        (lambda: Reasoning(template="{input} {steps}"), "contains the field {steps}, which tells the answer"),
        (
            lambda: TASK.prepare(
                {"train": [{"text": "a", "label": "maybe"}]}, tinyrun.tokenizer(), model_kind="decoder"
            ),
            "'label' is 'maybe', in which --read good,bad,film,plot,dull finds no answer",
        ),
        (
            lambda: TASK.encode([{"text": "a", "label": "good"}], tinyrun.tokenizer(), model_kind="decoder"),
            "Reasoning does not know how long answers are yet: prepare it, or give max_new_tokens=16",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(make, message):
    with pytest.raises(ts.UserError, match=re.escape(message)) as refused:
        make()
    assert "\n" not in str(refused.value)
