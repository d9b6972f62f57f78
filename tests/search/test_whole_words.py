import masked
import pytest

from tunescope.search.vocabulary import whole_words
from tunescope.tasks.kinds.classification import Classification

PLACES = {
    "bert": (masked.word_piece, "encoder", "{text} it was {mask}."),
    "roberta": (masked.byte_level, "encoder", "{text} it was {mask}."),
    "t5": (masked.sentence_piece, "encoder-decoder", "{text} it was {mask}."),
    "gpt2": (masked.byte_level, "decoder", "{text}\nLabel:"),
    "llama": (masked.sentence_piece, "decoder", "{text}\nLabel:"),
}


@pytest.mark.parametrize("name", PLACES)
def test_every_word_is_letters_and_one_token_as_a_label_word(name):
    make, kind, template = PLACES[name]
    tokenizer = make()
    words = whole_words(tokenizer, template, kind)
    assert {"great", "bad"} <= set(words.values())
    assert all(word.isalpha() for word in words.values())
    assert len(set(words.values())) == len(words)
    for token, word in words.items():
        other = next(one for one in words.values() if one != word)
        task = Classification(words={"a": word, "b": other}, template=template)
        assert task.word_ids(tokenizer, kind)["a"] == (token,)
    left_out = set(range(len(tokenizer))) - set(words)
    assert set(tokenizer.all_special_ids) <= left_out
    if name == "bert":
        assert {"##g", "."} <= set(tokenizer.convert_ids_to_tokens(sorted(left_out)))
    if name == "roberta":  # a word that stands behind no space is another token
        assert (
            tokenizer.convert_tokens_to_ids("Ġgreat") in words and tokenizer.convert_tokens_to_ids("great") in left_out
        )
