import json

import pytest
import sacrebleu
import tiny
import torch
from task_tools import byte_level, model, sentence_piece
from zoo import zoo

from tunescope.data.row import Row
from tunescope.data.scores import aggregate
from tunescope.errors import UserError
from tunescope.tasks.answers import decode
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.prompts.templates import ids

ROWS = [
    Row({"input": i, "target": t}, "train.jsonl", line)
    for line, (i, t) in enumerate(
        [
            ("name[The Cast]", "The cast is good."),
            ("food[bad]", "A terrible way"),
            ("name[The Cast]", "the good cast"),
            ("film, long and not so great in every way", "not bad."),
            ("name[The Cast]", "A great cast"),
        ],
        start=1,
    )
]


def prepared(tokenizer, kind="decoder", rows=ROWS, **settings):
    return Generation(**settings).prepare({"train": rows}, tokenizer, model_kind=kind)


def test_a_training_row_is_prompt_answer_and_end():
    for tokenizer in (byte_level(), sentence_piece(bos=True)):
        task = prepared(tokenizer)
        items = task.encode(ROWS, tokenizer, model_kind="decoder", train=True)
        assert len(items) == len(ROWS)
        for row, item in zip(ROWS, items, strict=True):
            whole = tokenizer(f"{row['input']}\n{row['target']}")["input_ids"]
            assert list(item.input_ids + item.target_ids) == [*whole, tokenizer.eos_token_id]
            assert list(item.input_ids) == tokenizer(f"{row['input']}\n")["input_ids"]
            assert (item.row, item.label, item.source) == (row.line, None, row["input"])


def test_behind_a_template_without_space_the_answer_gets_one():
    tokenizer = byte_level()
    task = prepared(tokenizer, template="{input} ->")
    item = task.encode(ROWS, tokenizer, model_kind="decoder", train=True)[1]
    assert item.input_ids + item.target_ids[:-1] == ids(tokenizer, ["food[bad] -> A terrible way"])[0]


def test_in_an_encoder_decoder_either_side_has_the_tokenizers_own_ends():
    tokenizer = sentence_piece(bos=False)
    task = prepared(tokenizer, "encoder-decoder")
    item = task.encode(ROWS, tokenizer, model_kind="encoder-decoder", train=True)[1]
    assert list(item.input_ids) == tokenizer("food[bad]\n")["input_ids"]
    assert list(item.target_ids) == tokenizer(text_target="A terrible way")["input_ids"]
    assert item.target_ids.count(tokenizer.eos_token_id) == 1


def test_an_input_is_scored_once_with_all_references_of_its_file():
    tokenizer = byte_level()
    task = prepared(tokenizer)
    items = task.encode(ROWS, tokenizer, model_kind="decoder")
    assert [item.row for item in items] == [1, 2, 4]
    assert items[0].references == ("The cast is good.", "the good cast", "A great cast")
    assert [len(item.references) for item in items[1:]] == [1, 1]


def test_inputs_with_tabs_in_them_are_inputs_of_their_own():
    tokenizer = byte_level()
    rows = [{"a": a, "b": b, "target": y} for a, b, y in (("x\ty", "z", "good"), ("x", "y\tz", "bad"))]
    task = prepared(tokenizer, rows=rows, template="{a}: {b}\n", input="a")
    items = task.encode(rows, tokenizer, model_kind="decoder")
    assert [item.references for item in items] == [("good",), ("bad",)]
    assert [tokenizer.decode(item.input_ids) for item in items] == ["x\ty: z\n", "x: y\tz\n"]


@pytest.mark.parametrize("lowercase", [True, False])
def test_bleu_over_ragged_references_is_sacrebleus(monkeypatch, lowercase):
    tokenizer = byte_level()
    task = prepared(tokenizer, metric="bleu", lowercase=lowercase)
    items = task.encode(ROWS, tokenizer, model_kind="decoder")
    said = ["the cast is very good .", "A terrible, terrible way", "not bad."]
    monkeypatch.setattr(decode, "written", lambda *given: said)
    predictions = task.predict(None, items, tokenizer)
    references = [["The cast is good.", "A terrible way", "not bad."], ["the good cast", None, None]]
    references.append(["A great cast", None, None])
    expected = sacrebleu.corpus_bleu(said, references, lowercase=lowercase).score
    assert expected > 1
    got = aggregate("bleu", [prediction.stats for prediction in predictions])
    assert got["bleu"] == pytest.approx(expected, abs=1e-9)
    assert [(p.row, p.text) for p in predictions] == list(zip([1, 2, 4], said, strict=True))


def greedily(network, prompt, end, most):
    """One row, no cache, no padding: the likeliest token, again and again."""
    start = getattr(network.config, "decoder_start_token_id", None)
    answer: list[int] = []
    with torch.no_grad():
        while len(answer) < most and (not answer or answer[-1] != end):
            if network.config.is_encoder_decoder:
                given = {"input_ids": torch.tensor([prompt]), "decoder_input_ids": torch.tensor([[start, *answer]])}
            else:
                given = {"input_ids": torch.tensor([[*prompt, *answer]])}
            answer.append(int(network(**given, use_cache=False).logits[0, -1].argmax()))
    return answer[:-1] if end is not None and answer[-1] == end else answer


def unruly(network):
    """Defaults of a checkpoint, none of which may matter."""
    for name, value in {
        "num_beams": 3,
        "repetition_penalty": 7.0,
        "no_repeat_ngram_size": 1,
        "min_new_tokens": 9,
        "forced_eos_token_id": 5,
        "suppress_tokens": list(range(20, 90)),
        "do_sample": True,
        "temperature": 3.0,
        "eos_token_id": 7,
    }.items():
        setattr(network.generation_config, name, value)
    return network


@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "t5", "bart"])
def test_answers_are_greedy_whatever_the_padding_and_the_checkpoints_own_settings(name, end):
    kind = "encoder-decoder" if name in ("t5", "bart") else "decoder"
    tokenizer = byte_level(eos=end) if name == "gpt2" else sentence_piece(bos=kind == "decoder")
    if not end:
        tokenizer.eos_token = None
    network = unruly(model(name, len(tokenizer)))
    own = network.generation_config
    task = prepared(tokenizer, kind, max_new_tokens=7)
    items = task.encode(ROWS, tokenizer, model_kind=kind)
    if end:  # make the end likely enough to be met
        network.get_output_embeddings().weight.data[tokenizer.eos_token_id] *= 3
    expected = [greedily(network, item.input_ids, tokenizer.eos_token_id, 7) for item in items]
    got = [p.text for p in task.predict(network, items, tokenizer, batch_size=2)]
    assert got == [tokenizer.decode(answer, skip_special_tokens=True).strip() for answer in expected]
    assert network.generation_config is own


@pytest.mark.parametrize("name", ["rwkv", "recurrent_gemma", "minimax"])
def test_what_a_recurrent_decoder_writes_does_not_hang_on_the_batch(name):
    network, tokenizer = unruly(zoo(name, dtype=torch.float32)), tiny.tokenizer()
    rows = [
        Row({"input": text, "target": "w5"}, "train.jsonl", line)
        for line, text in enumerate(
            ["w5 w17 w23 w8 w61", "w90 w91 w92", "w3 w4 w5 w6 w7 w8 w9", "w11 w12", "w40 w41"], start=1
        )
    ]
    task = prepared(tokenizer, rows=rows, template="{input}", max_new_tokens=6)
    items = task.encode(rows, tokenizer, model_kind="decoder")
    assert len({len(item.input_ids) for item in items}) == 4  # two of one length
    got = [p.text for p in task.predict(network, items, tokenizer, batch_size=4)]
    expected = [greedily(network, item.input_ids, tokenizer.eos_token_id, 6) for item in items]
    assert got == [tokenizer.decode(answer, skip_special_tokens=True) for answer in expected]
    assert got == [p.text for p in task.predict(network, items, tokenizer, batch_size=1)]


def test_mbart_begins_its_answers_with_the_token_it_was_trained_to_begin_with():
    tokenizer = sentence_piece(bos=False)
    network = model("mbart", len(tokenizer))
    task = prepared(tokenizer, "encoder-decoder", max_new_tokens=5)
    items = task.encode(ROWS, tokenizer, model_kind="encoder-decoder")
    network.config.decoder_start_token_id = items[0].target_ids[-1]  # for the oracle: mBART rolls the last token
    expected = [greedily(network, item.input_ids, tokenizer.eos_token_id, 5) for item in items]
    network.config.decoder_start_token_id = None
    got = [p.text for p in task.predict(network, items, tokenizer)]
    assert got == [tokenizer.decode(answer, skip_special_tokens=True).strip() for answer in expected]


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_what_is_trained_is_what_is_written(name):
    kind = "encoder-decoder" if name == "t5" else "decoder"
    tokenizer = sentence_piece(bos=name == "gpt2")
    network, rows = model(name, len(tokenizer)).float(), [ROWS[0], ROWS[1], ROWS[3]]
    task = prepared(tokenizer, kind, rows)
    items = task.encode(rows, tokenizer, model_kind=kind, train=True)
    optimizer = torch.optim.Adam(network.parameters(), 5e-3)
    for _ in range(150):
        optimizer.zero_grad()
        task.loss(network, items, tokenizer).backward()
        optimizer.step()
    predictions = task.predict(network, task.encode(rows, tokenizer, model_kind=kind), tokenizer)
    assert [p.text for p in predictions] == [row["target"] for row in rows]
    assert aggregate("exact_match", [p.stats for p in predictions]) == {"exact_match": 1.0}


@pytest.mark.parametrize("train", [True, False])
def test_room_is_shared_with_the_answer_in_a_decoder(train):
    tokenizer = byte_level()
    task = prepared(tokenizer, max_new_tokens=9)
    whole = task.encode(ROWS, tokenizer, model_kind="decoder", train=train)
    answers = [len(item.target_ids) if train else 9 for item in whole]
    room = max(len(item.input_ids) + n - 1 for item, n in zip(whole, answers, strict=True)) - 4
    items = task.encode(ROWS, tokenizer, model_kind="decoder", train=train, room=room)
    assert any(item.cut for item in items)
    assert task.encode(ROWS, tokenizer, model_kind="decoder", train=train, room=room + 4) == whole  # which just fit
    assert all(len(item.input_ids) + n - 1 <= room for item, n in zip(items, answers, strict=True))
    assert [item.target_ids for item in items] == [item.target_ids for item in whole]
    assert all(tokenizer.decode(list(item.input_ids)).endswith("\n") for item in items)


def test_the_length_of_answers_comes_from_the_training_targets():
    tokenizer = byte_level()
    rows = [{"input": "a", "target": "x" * n} for n in [*[5] * 98, 60, 200]]
    lengths = sorted(len(one) + 1 for one in ids(tokenizer, [row["target"] for row in rows]))
    task = prepared(tokenizer, rows=rows)
    assert task.max_new_tokens == lengths[98] + max(4, lengths[98] // 10)
    assert prepared(tokenizer, max_new_tokens=3).max_new_tokens == 3


def test_a_tokenizer_without_an_end_trains_without_it_and_says_so():
    tokenizer = byte_level(eos=False)
    task = prepared(tokenizer)
    item = task.encode(ROWS, tokenizer, model_kind="decoder", train=True)[1]
    assert item.target_ids == ids(tokenizer, ["A terrible way"])[0]
    assert "all 5 training rows are learned without an end" in task.describe()["notes"][1]


def test_describe_is_json_and_states_how_answers_are_compared():
    told = prepared(byte_level(), metric="bleu", lowercase=True).describe()
    assert json.loads(json.dumps(told)) == told
    assert told["compared"] == "corpus BLEU-4 as in sacrebleu: 13a tokenisation, case ignored, exp smoothing, 0 to 100"
    assert "white space runs" in prepared(byte_level()).describe()["compared"]


def test_demonstrations_end_so_that_the_query_can_follow():
    task = Generation()
    block = task.demonstrations(ROWS, 2, seed=1)
    shots = block.removesuffix("\n\n").split("\n\n")
    assert len(set(shots)) == 2
    assert set(shots) <= {f"{row['input']}\n{row['target']}" for row in ROWS}
    assert block == task.demonstrations(ROWS, 2, seed=1)
    assert block.endswith("\n\n")
    with pytest.raises(UserError, match=r"^6 demonstrations are asked for, of 5 rows\. Allowed: 1 to 5\.$"):
        task.demonstrations(ROWS, 6, seed=1)


def test_what_cannot_work_is_refused():
    tokenizer = byte_level()
    with pytest.raises(UserError, match=r"^There is no metric 'rouge1'\. Did you mean 'rouge_1'\? Metrics: bleu, "):
        Generation(metric="rouge1")
    with pytest.raises(UserError, match=r"the first metric decides, and of ter lower is better\. Name another first"):
        Generation(metric="ter", also=("bleu",))
    with pytest.raises(UserError, match=r"the metric 'bleu' is named twice"):
        Generation(metric="bleu", also=("nist", "bleu"))
    with pytest.raises(UserError, match=r"--lowercase has no effect: nist, rouge_l ignore case in any event"):
        Generation(metric="nist", also=("rouge_l",), lowercase=True)
    with pytest.raises(UserError, match=r"--lowercase has no effect: nist ignores case in any event"):
        Generation(metric="nist", lowercase=True)
    with pytest.raises(UserError, match=r"max_new_tokens=0\) must be at least 1"):
        Generation(max_new_tokens=0)
    with pytest.raises(UserError, match=r"contains the target's own field \{target\}"):
        Generation(template="{input} {target}")
    with pytest.raises(UserError, match=r"this model is an encoder"):
        prepared(tokenizer, "encoder")
    with pytest.raises(UserError, match=r"a\.csv line 2: 'target' is empty\. Fill it in or delete the row\."):
        prepared(tokenizer, rows=[Row({"input": "a", "target": " "}, "a.csv", 2)])
    with pytest.raises(UserError, match=r"does not know how long answers are yet\. Type: task = task\.prepare"):
        Generation().predict(None, [], tokenizer)
    with pytest.raises(UserError, match=r"train\.jsonl line 1: there is room for 0 tokens before the answer"):
        prepared(tokenizer).encode(ROWS, tokenizer, model_kind="decoder", train=True, room=2)


@pytest.mark.parametrize(
    ("written", "scored"),
    [
        ("The cast is good.\n\nfood[bad]\nA terrible way", "The cast is good."),
        ("The cast is good.\n \t\n\nfood[bad]", "The cast is good."),
        ("The cast\nis good.", "The cast\nis good."),
        ("", ""),
    ],
)
def test_an_answer_ends_at_its_first_blank_line_as_demonstrations_do(monkeypatch, written, scored):
    tokenizer = byte_level()
    monkeypatch.setattr(decode, "written", lambda model, rows, *rest: [written] * len(rows))
    task = prepared(tokenizer)
    items = task.encode(ROWS, tokenizer, model_kind="decoder")
    assert [one.text for one in task.predict(None, items, tokenizer)] == [scored] * 3
    rows = [*ROWS, Row({"input": "two", "target": "one part\n\nthe other"}, "train.jsonl", 6)]
    whole = prepared(tokenizer, rows=rows)
    assert [one.text for one in whole.predict(None, items, tokenizer)] == [written] * 3
    assert "1 of 6 training targets hold a blank line, so an answer does not end at one" in whole.notes[-1]
    assert (task.describe()["blank_ends"], whole.describe()["blank_ends"]) == (True, False)
    other = Generation(template="{input} is").prepare({"train": ROWS, "test": rows}, tokenizer, model_kind="decoder")
    assert "1 of 6 test targets hold a blank line and no training target does, so an answer ends" in other.notes[-1]
    assert other.describe()["blank_ends"] and not any("blank line" in note for note in task.notes)
