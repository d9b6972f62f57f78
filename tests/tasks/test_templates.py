import pytest
from task_tools import byte_level, sentence_piece

from tunescope.errors import UserError
from tunescope.tasks.prompts import templates
from tunescope.tasks.prompts.label_words import notes, shared_first_tokens, word_tokens

TOKENIZERS = {
    "byte-level": byte_level,
    "llama-like": lambda: sentence_piece(bos=True),
    "t5-like": lambda: sentence_piece(bos=False),
}


@pytest.fixture(params=TOKENIZERS, scope="module")
def tokenizer(request):
    return TOKENIZERS[request.param]()


def plain(tokenizer, text):
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize(
    ("template", "names", "tail", "space"),
    [
        ("{text}\nLabel:", ("text",), "\nLabel:", " "),
        ("{a} and {b}. {{x}} {a}", ("a", "b"), "", " "),
        ("{text}\n", ("text",), "\n", ""),
        ("{a b}{{}}", ("a b",), "{}", " "),
    ],
)
def test_a_template_knows_its_fields_and_its_end(template, names, tail, space):
    assert templates.fields(template) == names
    assert templates.tail(template) == tail
    assert templates.separator(template) == space
    values = dict.fromkeys(names, "{text} {0} {")
    assert templates.fill(template, values) == template.format(**values)


@pytest.mark.parametrize("template", ["", "no field", "{}", "{text:>3}", "{text!r}", "{text", "text}"])
def test_a_template_that_cannot_be_filled_is_refused(template):
    with pytest.raises(UserError, match=r"^Template "):
        templates.fields(template)


@pytest.mark.parametrize("read", [templates.fields, templates.tail, templates.separator])
def test_braces_that_do_not_pair_are_told_by_whoever_reads_the_template_first(read):
    with pytest.raises(UserError, match=r"^Template '\{text It was': .* Write \{field\}, and \{\{ for a brace"):
        read("{text It was")


def test_the_words_continue_the_prompt_token_for_token(tokenizer):
    template, words = "{text}\nLabel:", {"neg": "bad", "pos": "great", "odd": "terrible film"}
    got = word_tokens(tokenizer, template, words, "decoder")
    for label, word in words.items():
        for text in ("The film is great", "", "not bad at all."):
            prompt = templates.fill(template, {"text": text})
            assert plain(tokenizer, prompt) + got[label] == plain(tokenizer, f"{prompt} {word}")


@pytest.mark.parametrize("template", ["{text}", "{text} It is:\n", "{text} It is: "])
def test_words_come_out_again_as_text_whatever_the_template_ends_in(tokenizer, template):
    words = {"a": "great", "b": "bad"}
    got = word_tokens(tokenizer, template, words, "decoder")
    for label, word in words.items():
        assert tokenizer.decode(list(got[label])).strip() == word


def test_in_an_encoder_decoder_the_word_begins_the_decoders_text(tokenizer):
    got = word_tokens(tokenizer, "{text}\nLabel:", {"a": "great", "b": "bad"}, "encoder-decoder")
    assert got == {"a": plain(tokenizer, "great"), "b": plain(tokenizer, "bad")}


def test_words_that_cannot_be_told_apart_are_refused():
    tokenizer, template = byte_level(), "{text}:"
    with pytest.raises(UserError) as caught:
        word_tokens(tokenizer, template, {"x": "bad", "y": "bad"}, "decoder")
    assert str(caught.value) == (
        "The words of labels 'x' ('bad') and 'y' ('bad') are the same tokens, so they cannot be told apart. "
        "Choose others: --words x=WORD,y=WORD"
    )
    with pytest.raises(UserError) as caught:
        word_tokens(tokenizer, template, {"y": "bad bad", "x": "bad"}, "decoder")
    assert str(caught.value) == (
        "The words of labels 'y' ('bad bad') and 'x' ('bad') collide: all tokens of 'x' begin 'y', "
        "so 'x' would always score higher. Choose others: --words y=WORD,x=WORD"
    )
    many = {"a": "one", "b": "two", "c": "three", "d": "bad", "e": "bad"}
    with pytest.raises(UserError, match=r"labels 'd' .* and 'e' .* Choose others: --words d=WORD,e=WORD,\.\.\.$"):
        word_tokens(tokenizer, template, many, "decoder")
    with pytest.raises(UserError, match=r"Label 'y' has the word ' ', which comes to no token. Choose another"):
        word_tokens(tokenizer, template, {"x": "bad", "y": " "}, "decoder")


@pytest.mark.parametrize(("one", "other"), [("1", "1.0"), ("Good", "good"), ("e\u0301", "\u00e9")])
def test_labels_that_may_be_one_written_in_two_ways_are_told_as_such(one, other):
    with pytest.raises(UserError) as caught:
        word_tokens(byte_level(), "{text}:", {one: "bad", other: "bad", "third": "good"}, "decoder")
    told = "If the two are one label, write it one way in the rows. Choose others: --words "
    assert f"cannot be told apart. {told}{one}=WORD," in str(caught.value).replace("'", "")


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
@pytest.mark.parametrize("word", ["\u6f22", "good \u6f22"])
def test_a_word_that_the_tokenizer_does_not_know_is_refused(kind, word):
    tokenizer, words = sentence_piece(bos=kind == "decoder"), {"x": "bad", "y": word}
    parts = ", ".join(tokenizer.tokenize(word))
    assert "<unk>" in tokenizer.convert_ids_to_tokens(tokenizer(word)["input_ids"])
    with pytest.raises(UserError) as caught:
        word_tokens(tokenizer, "{text}:", words, kind)
    assert str(caught.value) == (
        f"Label 'y' has the word {word!r}, which this tokenizer reads as {parts}: it does not know it. "
        "Choose another: --words y=WORD,..."
    )
    without = byte_level()  # writes any word
    assert without.unk_token_id is None and len(word_tokens(without, "{text}:", words, kind)) == 2


def test_a_shared_first_token_is_told_and_not_refused():
    tokens = {"a": (1, 2), "b": (3,), "c": (1, 4), "d": (5, 6)}
    assert shared_first_tokens(tokens) == [("a", "c")]
    told = notes(tokens)
    assert told[0].endswith("longer words start at a disadvantage. Tokens: a 2, b 1, c 2, d 2.")
    assert told[1] == "The words of a, c begin with the same token; they differ later."
    assert notes({"a": (1,), "b": (2,)}) == []


@pytest.mark.parametrize("kind", ["decoder", "encoder", "encoder-decoder"])
@pytest.mark.parametrize("bos", [True, False])
def test_special_tokens_stand_where_the_tokenizer_puts_them(tokenizer, kind, bos):
    whole = tuple(tokenizer("The film")["input_ids"])
    front, back = templates.edges(tokenizer)
    assert whole == front + plain(tokenizer, "The film") + back
    layout = templates.Layout("{text}", "text", kind, None if bos else "")
    [(got, cut)] = layout.encode(tokenizer, [{"text": "The film"}], [None], ["row 1"])
    expected = plain(tokenizer, "The film")
    assert (got, cut) == ((front if bos else ()) + expected + (() if kind == "decoder" else back), 0)


@pytest.mark.parametrize("room", range(10, 40, 3))
def test_the_input_is_cut_at_its_end_to_what_fits_and_the_template_survives(tokenizer, room):
    row = {
        "text": "The film is great and the cast is good and grüße 😀 the film goes on and on",
        "other": "bad",
    }
    layout = templates.Layout("{other}: {text}\nLabel:", "text", "decoder")
    front, _ = templates.edges(tokenizer)
    if room == 10:
        room = len(front + plain(tokenizer, "bad: \nLabel:"))
    [(got, cut)] = layout.encode(tokenizer, [row], [room], ["row 1"])
    assert len(got) <= room
    kept = row["text"][: len(row["text"]) - cut]
    assert got == front + plain(tokenizer, f"bad: {kept}\nLabel:")
    if cut:  # one character more would have been too much
        more = row["text"][: len(kept) + 1]
        assert len(front + plain(tokenizer, f"bad: {more}\nLabel:")) > room


def test_without_the_preferred_field_the_longest_is_cut():
    assert templates.cut_field("{a}{b}", "text", {"a": "xx", "b": "xxx"}) == "b"
    assert templates.cut_field("{a}{b}", "a", {"a": "xx", "b": "xxx"}) == "a"


def test_a_template_without_room_and_an_empty_prompt_are_refused(tokenizer):
    layout = templates.Layout("{text}\nLabel:", "text", "decoder")
    with pytest.raises(UserError) as caught:
        layout.encode(tokenizer, [{"text": "long"}], [1], ["a.csv line 4"])
    assert str(caught.value) == (
        "a.csv line 4: there is room for 1 tokens before the answer, and the template alone is longer. "
        "Shorten the template, the context or the row."
    )
    layout = templates.Layout("{text}", "text", "decoder", "")
    with pytest.raises(UserError, match=r"row 1: the filled template is empty, .* Fill in the row"):
        layout.encode(tokenizer, [{"text": ""}], [None], ["row 1"])
