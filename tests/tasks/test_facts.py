import pytest
import torch
import transformers
from task_tools import byte_level, config, sentence_piece
from tokenizers import normalizers

from tunescope.data.row import Row
from tunescope.errors import UserError
from tunescope.tasks import facts
from tunescope.tasks.facts import Found, Lengths, inspect, positions
from tunescope.tasks.kinds.choice import Choice
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.kinds.reasoning import Reasoning


def rows(file, *pairs):
    return [Row({"text": t, "label": y}, file, line) for line, (t, y) in enumerate(pairs, start=2)]


SPLITS = {
    "train": rows("a", ("good film", "pos"), ("bad", "neg"), ("good film", "pos"), (" ", "neg"), ("film " * 70, "neg")),
    "test": rows("b", ("bad", "neg"), ("bad", "pos"), ("a <|end|> b", "pos")),
}


def test_the_facts_are_those_counted_by_hand():
    tokenizer = byte_level()
    facts = inspect(Classification(words={"neg": "bad", "pos": "great"}), SPLITS, tokenizer, config("gpt2"))
    train, test = facts.parts["train"], facts.parts["test"]
    counts = sorted(len(tokenizer(row["text"] + "\nLabel:")["input_ids"]) for row in SPLITS["train"])
    assert (train.rows, train.labels) == (5, {"pos": 2, "neg": 3})
    assert train.inputs == Lengths(counts[0], counts[2], counts[4], counts[4])
    assert train.too_long == Found(1, (6,))
    assert train.repeated == Found(1, (4,))
    assert train.empty == Found(1, (5,))
    assert train.special == Found(0, ())
    assert train.in_train == train.input_in_train == Found(0, ())
    assert test.in_train == Found(1, (2,))
    assert test.input_in_train == Found(2, (2, 3))
    assert test.special == Found(1, (4,))
    assert facts.positions == 64
    assert "".join(facts.words["neg"]) == "Ġbad"
    for note in (
        "1 of 5 train rows are longer than the model's 64 positions; what is too much of them will be cut (lines 6).",
        "1 of 5 train rows repeat an earlier row exactly (lines 4).",
        "1 of 5 train rows have an empty input field (lines 5).",
        "1 of 3 test rows are also in train, exactly (lines 2).",
        "2 of 3 test rows have an input that is also in train, case, blanks and forms of characters aside "
        "(lines 2, 3).",
        "1 of 3 test rows contain the mark of a special or added token, which the tokenizer will read as that token "
        "(lines 4).",
    ):
        assert note in facts.notes


def test_marks_that_were_added_are_found_and_added_words_are_not():
    tokenizer, task = byte_level(), Classification(words={"neg": "bad", "pos": "great"})
    texts = ["a <|user|> b", "so <think>", "[INST] b", "a film", "a < b", "a | b [c]", "<unknown>"]
    before = {text: tokenizer(text)["input_ids"] for text in texts}
    tokenizer.add_tokens(["<|user|>", "<think>", "[INST]", "film", "<", "|"])
    found = inspect(
        task, {"train": rows("a", *((text, "pos") for text in texts), ("c", "neg"))}, tokenizer, config("gpt2")
    )
    assert found.parts["train"].special == Found(3, (2, 3, 4))
    for text in texts[:3]:  # each mark is one token now
        assert len(tokenizer(text)["input_ids"]) < len(before[text])
    note = "3 of 8 train rows contain the mark of a special or added token, which the tokenizer will read as that token"
    assert f"{note} (lines 2, 3, 4)." in found.notes


def test_an_input_that_differs_by_case_blanks_and_forms_of_characters_is_told_as_shared():
    parts = {"train": SPLITS["train"], "test": rows("b", ("Good  \uff26ilm ", "pos"), ("worse", "neg"))}
    words = Classification(words={"neg": "bad", "pos": "great"})
    notes = inspect(words, parts, byte_level(), config("gpt2")).notes
    assert (
        "1 of 2 test rows have an input that is also in train, case, blanks and forms of characters aside (lines 2)."
        in notes
    )
    assert not any("exactly" in note and "test" in note for note in notes)


def test_words_with_one_first_token_are_named():
    facts = inspect(Classification(words={"neg": "bad film", "pos": "bad cast"}), SPLITS, byte_level(), config("llama"))
    assert facts.shared_first_tokens == (("neg", "pos"),)
    assert "The words of neg, pos begin with the same token; they differ later." in facts.notes


def test_generation_counts_its_targets_and_long_findings_are_cut_short():
    tokenizer = sentence_piece(bos=False)
    some = [Row({"input": "the film", "target": "good"}, "a", line) for line in range(1, 21)]
    facts = inspect(Generation(), {"train": some}, tokenizer, config("t5"))
    part = facts.parts["train"]
    assert part.labels is None
    assert facts.words is None
    n = len(tokenizer("good")["input_ids"])
    assert part.targets == Lengths(n, n, n, n)
    assert part.repeated == Found(19, (2, 3, 4, 5, 6))
    assert "19 of 20 train rows repeat an earlier row exactly (lines 2, 3, 4, 5, 6, ...)." in facts.notes
    assert facts.positions is None


def test_the_positions_are_the_models_or_the_tokenizers_smaller_ones():
    tokenizer = byte_level()
    assert positions(config("gpt2"), tokenizer) == 64
    tokenizer.model_max_length = 50
    assert positions(config("gpt2"), tokenizer) == 50
    assert positions(config("t5"), tokenizer) is None
    roberta = transformers.RobertaConfig(max_position_embeddings=18)
    tokenizer.model_max_length = 10**30
    assert positions(roberta, tokenizer) == 16


def test_what_would_stop_a_run_stops_the_check():
    with pytest.raises(UserError, match="have one label only"):
        inspect(Classification(), {"train": SPLITS["train"][:1]}, byte_level(), config("gpt2"))


@pytest.mark.parametrize("family", sorted(facts.BEHIND_PADDING))
def test_families_that_count_from_behind_padding_take_as_many_tokens_as_are_told(family):
    sizes = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    more = {"lilt": {"channel_shrink_ratio": 2}, "luke": {"entity_vocab_size": 9, "entity_emb_size": 8}}
    sizes |= {"intermediate_size": 32, "max_position_embeddings": 20, "pad_token_id": 1} | more.get(family, {})
    sizes |= {
        "longformer": {"attention_window": [4], "max_position_embeddings": 22},
        "xmod": {"languages": ["en"], "default_language": "en"},
    }.get(family, {})
    own = transformers.AutoConfig.for_model(family, **sizes)
    model = transformers.AutoModel.from_config(own).eval()
    tokenizer = byte_level()
    tokenizer.model_max_length = int(1e30)
    most = positions(own, tokenizer)
    assert most == own.max_position_embeddings - 2
    ids = torch.randint(5, 50, (1, most + 1))
    model(input_ids=ids[:, :most])
    with pytest.raises((IndexError, RuntimeError)):
        model(input_ids=ids)


def test_a_row_is_too_long_from_the_first_token_over_the_positions():
    tokenizer = byte_level()
    task, some = Classification(words={"neg": "bad", "pos": "good"}), SPLITS["train"][:2]
    used = [len(tokenizer(f"{row['text']}\nLabel: {task.words[row['label']]}")["input_ids"]) - 1 for row in some]
    for limit in range(min(used) - 1, max(used) + 2):  # the last token of an answer is never fed
        tokenizer.model_max_length = limit
        found = inspect(task, {"train": some}, tokenizer, config("gpt2")).parts["train"].too_long
        assert found.lines == tuple(row.line for row, n in zip(some, used, strict=True) if n > limit)


@pytest.mark.parametrize(
    ("task", "row"),
    [
        (Classification(words={"neg": "a film " * 4, "pos": "good"}), {"text": "the film " * 4, "label": "pos"}),
        (Choice(), {"input": "the film " * 4, "choices": ["a film " * 4, "good"], "answer": 1}),
    ],
)
def test_a_row_is_too_long_where_the_longest_of_its_answers_has_no_room(task, row):
    tokenizer, some = byte_level(), [Row(row, "a", 1)]
    other = [Row(row | {"label": "neg", "answer": 0}, "a", 2)]
    task = task.prepare({"train": some + other}, tokenizer, model_kind="decoder")
    (one,) = task.encode(some, tokenizer, model_kind="decoder")
    longest = len(tokenizer(" a film a film a film a film")["input_ids"])
    assert longest > len(one.target_ids) + 2
    full = len(one.input_ids) + longest - 1  # the last token of an answer is never fed
    for limit in (full - 2, full - 1, full, full + 1):
        tokenizer.model_max_length = limit
        found = inspect(task, {"train": some + other}, tokenizer, config("gpt2")).parts["train"].too_long
        (one,) = task.encode(some, tokenizer, model_kind="decoder", room=limit)
        assert (1 in found.lines) == (one.cut > 0) == (limit < full)


def test_an_input_is_too_long_where_it_leaves_no_room_for_the_longest_answer_that_may_be_written():
    tokenizer, task = byte_level(), Generation(max_new_tokens=9)
    some = [Row({"input": "the film", "target": "good"}, "a", 1)]
    n = len(tokenizer("the film\n")["input_ids"])
    for limit in (n + 7, n + 8):
        tokenizer.model_max_length = limit
        parts = inspect(task, {"train": some, "test": some}, tokenizer, config("gpt2")).parts
        given = task.prepare({"train": some}, tokenizer, model_kind="decoder")
        cut = len(given.encode(some, tokenizer, model_kind="decoder", train=False, room=limit)[0].input_ids) < n
        assert (parts["train"].too_long.lines, bool(parts["test"].too_long.lines)) == ((), cut) and cut == (
            limit < n + 8
        )


def test_targets_that_cannot_be_written_are_told():
    """An answer of the very tokens that are learned, as transformers decodes it up to the end, is another text."""
    tokenizer = byte_level()
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    texts = ["good", "cafe\u0301", " a  good\nfilm ", "caf\u00e9", "bad <|end|> film", "bad<|end|>"]
    some = [Row({"input": "the film", "target": text}, "a", line) for line, text in enumerate(texts, start=1)]
    facts = inspect(Generation(), {"train": some, "test": some[1:3]}, tokenizer, config("gpt2"))
    train = facts.parts["train"]
    assert (train.ended, train.unlike) == (Found(1, (5,)), Found(2, (2, 6)))
    for item, text in zip(facts.task.encode(some, tokenizer, model_kind="decoder", train=True), texts, strict=True):
        said = tokenizer.decode(item.target_ids[: item.target_ids.index(tokenizer.eos_token_id)])
        assert (" ".join(said.split()) == " ".join(text.split())) == (item.row in (1, 3, 4))
    for note in (
        "1 of 6 train rows have a target that holds the end of an answer, so that what stands behind it is never "
        "written (lines 5).",
        "2 of 6 train rows have a target that the tokenizer cannot write: its tokens come back as another text "
        "(lines 2, 6).",
        "1 of 2 test rows have a target that the tokenizer cannot write: its tokens come back as another text "
        "(lines 2).",
    ):
        assert note in facts.notes


@pytest.mark.parametrize("family", ["llama", "t5"])
@pytest.mark.parametrize("kind", [Generation, Reasoning])
def test_an_unknown_target_is_told_and_a_known_one_is_not(family, kind):
    tokenizer = sentence_piece(bos=family == "llama")
    some = [Row({"input": "the film", "target": text}, "a", line) for line, text in enumerate(("good", "\u6f22"), 1)]
    task = kind(read="line") if kind is Reasoning else kind()
    train = inspect(task, {"train": some}, tokenizer, config(family)).parts["train"]
    assert (train.ended, train.unlike) == (Found(0, ()), Found(1, (2,)))


def test_case_that_the_tokenizer_takes_away_counts_where_it_is_compared():
    tokenizer = byte_level()
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    some = [Row({"input": "a", "target": "Good"}, "a", 1)]
    for lowercase, found in ((True, Found(0, ())), (False, Found(1, (1,)))):
        task = Generation(metric="bleu", lowercase=lowercase)
        assert inspect(task, {"train": some}, tokenizer, config("gpt2")).parts["train"].unlike == found
