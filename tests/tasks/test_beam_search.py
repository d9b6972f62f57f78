"""Beam search and its settings, bare and behind contexts: against transformers on the whole sequence, in float64."""

from itertools import pairwise

import pytest
import torch
from task_tools import byte_level, model, sentence_piece
from transformers import GenerationConfig
from zoo import zoo

import tunescope as ts
from tunescope.attachment import context_keys
from tunescope.data.row import Row
from tunescope.errors import UserError
from tunescope.tasks.answers.beam_search import BeamSearch
from tunescope.tasks.answers.decode import Sampling, sampled, written
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.task import Encoded

PROMPTS = [(5, 17, 23, 8, 61), (90,), (3, 4, 5, 6, 7, 8, 9), (11, 12)]
ROWS = [Encoded(1, ids, (7, 2), None, (), "") for ids in PROMPTS]
TEXT = "a terrible film"
BEAMS = BeamSearch(beams=4, length_penalty=0.4, min_new_tokens=2)


class Plain:
    """Token ids as text."""

    pad_token_id, eos_token_id = 0, 2

    def decode(self, ids, **_):
        return " ".join(map(str, ids))


def likely(name):
    """A model that ends its answers at different lengths, but for gpt2, which ends none."""
    network = model(name, 97)
    network.get_output_embeddings().weight.data[2] *= {"gpt2": 1, "llama": 10, "t5": 2.5, "bart": 1.5}[name]
    return network


def oracle(network, given, longest=9, use_cache=True):
    """Each row alone, through transformers' own beam search; only what was written comes back."""
    config = GenerationConfig(
        num_beams=4,
        length_penalty=0.4,
        min_new_tokens=2,
        max_new_tokens=longest,
        do_sample=False,
        use_cache=use_cache,
        eos_token_id=2,
        pad_token_id=0,
        decoder_start_token_id=network.config.decoder_start_token_id if network.config.is_encoder_decoder else None,
    )
    answers = []
    for one in given:
        out = network.generate(**one, generation_config=config)[0].tolist()
        front = 1 if network.config.is_encoder_decoder else one["input_ids"].shape[1] if "input_ids" in one else 0
        answer = out[front:]
        answers.append(" ".join(map(str, answer[: answer.index(2)] if 2 in answer else answer)))
    return answers


def ours(network, search=BEAMS, batch_size=3):
    return written(network, ROWS, Plain(), search, 9, batch_size)


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "bart"])
def test_beams_of_a_padded_batch_are_those_of_each_row_alone(name):
    network = likely(name)
    expected = oracle(network, [{"input_ids": torch.tensor([ids])} for ids in PROMPTS])
    assert ours(network) == expected
    assert expected != ours(network, BeamSearch())
    assert name == "gpt2" or len({len(one.split()) for one in expected}) > 1


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("name", ["rwkv", "minimax"])
def test_beams_of_a_decoder_whose_state_does_not_follow_them_are_had_without_it(name, batch_size):
    network = zoo(name)
    expected = oracle(network, [{"input_ids": torch.tensor([ids])} for ids in PROMPTS], use_cache=False)
    assert ours(network, batch_size=batch_size) == expected


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_beams_behind_a_soft_prompt_are_those_of_its_embeddings_in_front_of_the_text(name):
    network = likely(name)
    spec = ts.Soft(length=3, init_from="normal")
    with ts.attach(network, spec, seed=5) as tuned:
        tuned.artifacts[0].tensors["embeddings"].data *= 3
        got = ours(network)
        rows = tuned.artifacts[0].tensors["embeddings"].double()  # exact: it was float32
    embed = network.get_input_embeddings()
    joined = [torch.cat([rows, embed(torch.tensor(ids))])[None].detach() for ids in PROMPTS]
    given = [{"inputs_embeds": one, "attention_mask": torch.ones(1, one.shape[1])} for one in joined]
    assert got == oracle(network, given)
    assert got != ours(network)


def test_beams_behind_a_prefix_of_a_text_are_those_of_the_text_in_front():
    network, tokenizer = likely("gpt2"), byte_level()
    network.resize_token_embeddings(len(tokenizer))
    front = tokenizer(TEXT)["input_ids"]
    spec = ts.Prefix(length=len(front), init_from="text", text=TEXT, positions="after")
    expected = oracle(network, [{"input_ids": torch.tensor([[*front, *ids]])} for ids in PROMPTS])
    with ts.attach(network, spec, tokenizer=tokenizer):
        assert ours(network) == expected
    assert ours(network) != expected


@pytest.mark.parametrize("is_lowered", [True, False])
def test_a_text_in_front_is_run_once_for_all_batches_beams_and_steps(monkeypatch, is_lowered):
    network, tokenizer = likely("llama"), sentence_piece(bos=True)
    spec = ts.Text(text=TEXT)
    given = ts.lower(network, spec, tokenizer=tokenizer) if is_lowered else [spec]
    front = tokenizer(TEXT)["input_ids"]
    expected = oracle(network, [{"input_ids": torch.tensor([[*front, *ids]])} for ids in PROMPTS])
    runs, run = [], context_keys.run_tokens
    monkeypatch.setattr(context_keys, "run_tokens", lambda *of: runs.append(of) or run(*of))
    with ts.attach(network, *given, tokenizer=tokenizer):
        runs.clear()
        assert ours(network, batch_size=2) == expected
    assert len(runs) == (0 if is_lowered else 1)


def test_no_run_of_tokens_is_written_twice_but_the_inputs_own_may_be():
    network = likely("gpt2")
    network.get_output_embeddings().weight.data[2] = 0  # no end
    free = [one.split() for one in ours(network, BeamSearch())]
    got = [one.split() for one in ours(network, BeamSearch(no_repeat_ngram=2))]
    expected = [greedily(network, ids) for ids in PROMPTS]
    assert got == expected
    assert got != free
    # an input in which the answer's first pair stands already
    again = (*PROMPTS[0], *map(int, free[0][:2]), *PROMPTS[0])
    row = [Encoded(1, again, (7, 2), None, (), "")]
    assert written(network, row, Plain(), BeamSearch(no_repeat_ngram=2), 9, 1)[0].split() == greedily(network, again)


def greedily(network, prompt):
    """The likeliest token that does not end a pair which the answer has."""
    answer = []
    while len(answer) < 9:
        logits = network(input_ids=torch.tensor([[*prompt, *answer]]), use_cache=False).logits[0, -1]
        pairs = set(pairwise(answer))
        order = logits.argsort(descending=True).tolist()
        answer.append(next(one for one in order if not answer or (answer[-1], one) not in pairs))
    return [str(one) for one in answer]


def test_settings_without_effect_or_sense_are_refused():
    with pytest.raises(UserError, match=r"^Generation\(beams=0\) must be at least 1; 1 is greedy\.$"):
        Generation(beams=0)
    with pytest.raises(UserError, match=r"length_penalty=nan\) is no number; type: --length-penalty 1"):
        Generation(length_penalty=float("nan"), beams=2)
    with pytest.raises(UserError, match=r"length_penalty=2\) has no effect on one beam; type: --beams 5"):
        Generation(length_penalty=2.0)
    with pytest.raises(UserError, match=r"min_new_tokens=-1, no_repeat_ngram=0\): neither may be below 0"):
        Generation(min_new_tokens=-1)
    rows = {"train": [Row({"input": "a", "target": "bad"}, "train.jsonl", 1)]}
    with pytest.raises(UserError, match=r"min_new_tokens=9\) is more than max_new_tokens=4; type: --max-new-tokens 9"):
        Generation(min_new_tokens=9, max_new_tokens=4).prepare(rows, byte_level(), model_kind="decoder")
    with pytest.raises(UserError, match=r"min_new_tokens=2\) has no effect: the tokenizer has no end-of-sequence"):
        Generation(min_new_tokens=2).prepare(rows, byte_level(eos=False), model_kind="decoder")


def test_results_tell_how_answers_were_looked_for():
    rows = {"train": [Row({"input": "a", "target": "bad"}, "train.jsonl", 1)]}
    task = Generation(beams=5, min_new_tokens=2, no_repeat_ngram=3, max_new_tokens=20)
    told = task.prepare(rows, byte_level(), model_kind="decoder").describe()
    assert told["notes"][0] == (
        "Beam search, 5 beams, length penalty 1, of at least 2 and at most 20 tokens; no 3 tokens in a row twice."
    )
    asked = {name: told[name] for name in ("beams", "length_penalty", "min_new_tokens", "no_repeat_ngram")}
    assert asked == {"beams": 5, "length_penalty": None, "min_new_tokens": 2, "no_repeat_ngram": 3}
    assert BeamSearch().note(7) == "Greedy decoding of at most 7 tokens."


def test_texts_are_drawn_from_the_whole_vocabulary_and_not_from_its_likeliest_fifty():
    texts = sampled(model("gpt2", 97), ROWS[1:2] * 900, Plain(), 1, 900, Sampling(1e6, 0))  # any token about as often
    assert len(set(texts)) > 90
