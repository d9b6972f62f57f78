"""Which token stands for what: every tokenizer's own offsets, and nothing guessed."""

import pytest
import tiny
import transformers as tf
from anchor_tools import ROWS, TASK, demonstrated
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import tunescope as ts
from tunescope.methods.contexts.text import last_ids, token_ids
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.prompts.demonstrations import PARTS, joined
from tunescope.tasks.prompts.spans import spans

REVIEWS = Classification(
    template="Review: {title} - {text}\nSentiment:", words={"0": "very bad", "1": "great"}, text="text"
)
FILMS = [
    {"title": "Été", "text": "nice  one 😀 great", "label": "1"},
    {"title": "B", "text": "Sentiment: great\n\nReview: no", "label": "0"},  # holds the template's own words
]


def trained(kind: str) -> tf.PreTrainedTokenizerFast:
    """A tokenizer of a kind, trained on a few lines; its vocabulary is all bytes or letters and some words."""
    text = [joined(REVIEWS.demonstrated(FILMS, 1, seed)) for seed in range(2)] * 3
    if kind == "byte-level":
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=330, special_tokens=["<s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        )
    elif kind == "sentencepiece":
        made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=False))
        lines = pre_tokenizers.Split("\n", "isolated")
        made.pre_tokenizer = pre_tokenizers.Sequence([lines, pre_tokenizers.Metaspace(prepend_scheme="first")])
        made.decoder = decoders.Metaspace()
        trainer = trainers.BpeTrainer(vocab_size=160, special_tokens=["<unk>", "<s>"])
    made.train_from_iterator(text, trainer)
    return tf.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>")


@pytest.mark.parametrize("kind", ["byte-level", "sentencepiece"])
def test_every_part_decodes_to_its_own_words(kind):
    tokenizer = trained(kind)
    shown = REVIEWS.demonstrated(FILMS, 1, 0)
    found = spans(tokenizer, shown)
    assert found.ids == tuple(token_ids(tokenizer, joined(shown)))
    for demonstration, place in zip(shown, found.places, strict=True):
        for part in PARTS:
            decoded = tokenizer.decode([found.ids[at] for at in place[part]])
            assert decoded.split() == getattr(demonstration, part).split(), part
    everything = sorted(at for place in found.places for part in PARTS for at in place[part])
    assert everything == list(range(len(found.ids))) and found.notes == ()
    assert found.names == tuple(one.name for one in shown)


@pytest.mark.parametrize("kind", ["byte-level", "sentencepiece"])
def test_what_a_chat_begins_with_is_in_no_part(kind):
    tokenizer, head = trained(kind), "great\n\nReview: "
    shown = REVIEWS.demonstrated(FILMS, 1, 0)
    found = spans(tokenizer, shown, head)
    assert found.ids == tuple(token_ids(tokenizer, head + joined(shown)))
    for demonstration, place in zip(shown, found.places, strict=True):
        assert tokenizer.decode([found.ids[at] for at in place["label"]]).split() == demonstration.label.split()
    first = min(found.of(*PARTS))
    assert tokenizer.decode(found.ids[:first]).split() == head.split()
    assert sorted(found.of(*PARTS)) == list(range(first, len(found.ids)))


def merging(*pairs: tuple[str, str]) -> tf.PreTrainedTokenizerFast:
    """Letters, and what these pairs merge to."""
    letters = sorted({*joined(REVIEWS.demonstrated(FILMS, 1, 0))})
    vocabulary = {token: index for index, token in enumerate([*letters, *(a + b for a, b in pairs)])}
    return tf.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(vocabulary, list(pairs))))


def test_the_label_is_found_by_place_though_its_word_stands_in_a_text():
    tokenizer = trained("byte-level")
    shown = REVIEWS.demonstrated(FILMS, 1, 0)
    found = spans(tokenizer, shown)
    great = [tokenizer.decode([found.ids[at] for at in word]).strip() for word in found.labels]
    assert great == [one.label for one in shown]
    assert len(found.of("label")) == sum(map(len, found.labels))


def test_a_start_token_stands_for_nothing():
    tokenizer = trained("byte-level")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.bos_token_id)]
    )
    found = spans(tokenizer, REVIEWS.demonstrated(FILMS, 1, 0))
    assert found.ids[0] == tokenizer.bos_token_id
    assert 0 not in found.of(*PARTS)


@pytest.mark.parametrize("single", ["<s> <l> $A", "<l> $A <s>"])
def test_all_that_a_tokenizer_begins_with_stands_in_front_of_a_text(single):
    """As in GLM, which begins with two tokens, and in NLLB, with the language."""
    tokenizer = trained("byte-level")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<l>"]})
    ends = [(one, tokenizer.convert_tokens_to_ids(one)) for one in ("<s>", "<l>")]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=ends)
    whole = tokenizer("nice film")["input_ids"]
    whole = whole[:-1] if single.endswith("<s>") else whole
    front = whole[: len(whole) - len(tokenizer("nice film", add_special_tokens=False)["input_ids"])]
    assert token_ids(tokenizer, "nice film") == whole and len(front) == single.split().index("$A")
    assert token_ids(tokenizer, tokenizer.decode(front) + "nice film") == whole  # it has it already
    assert last_ids(tokenizer, "nice film", len(whole) - 1) == front + whole[len(front) + 1 :]
    assert last_ids(tokenizer, "nice film", 1) == front[:1]
    assert spans(tokenizer, REVIEWS.demonstrated(FILMS, 1, 0)).ids[: len(front)] == tuple(front)


def test_a_label_that_merges_with_its_neighbour_is_noted_and_has_the_token():
    shown = REVIEWS.demonstrated(FILMS, 1, 0)
    found = spans(merging(("t", "\n")), shown)
    assert found.notes == ("The label word 'great' shares the token 't\\n'.",)
    great = next(place for place, one in zip(found.places, shown, strict=True) if one.label == "great")
    assert len(great["label"]) == 5 and len(great["end"]) == 1


def test_a_label_that_merges_with_what_stands_before_it_has_the_token_too():
    shown = REVIEWS.demonstrated(FILMS, 1, 0)
    found = spans(merging((":", " "), (": ", "v")), shown)
    bad = next(place for place, one in zip(found.places, shown, strict=True) if one.label == "very bad")
    assert found.notes == ("The label word 'very bad' shares the token ': v'.",)
    assert len(bad["label"]) == len("very bad") and len(bad["separator"]) == len("\nSentiment")


def test_the_parts_joined_are_the_demonstrations():
    for seed in range(3):
        shown = TASK.demonstrated(ROWS, 1, seed)
        assert joined(shown) == TASK.demonstrations(ROWS, 1, seed)
        assert demonstrated(seed).ids == tuple(token_ids(tiny.tokenizer(), joined(shown)))


def test_what_cannot_be_spanned_is_one_clear_line():
    one = TASK.demonstrated(ROWS, 1, 0)[:1]
    with pytest.raises(ts.UserError, match="one label only"):
        spans(tiny.tokenizer(), one)

    class Slow:
        is_fast = False

    with pytest.raises(ts.UserError, match="tells no offsets"):
        spans(Slow(), TASK.demonstrated(ROWS, 1, 0))
