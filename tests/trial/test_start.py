"""A prefix or a soft prompt that begins as demonstrations: which rows, and what it begins as."""

import json
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import tinyrun
import torch
import transformers

import tunescope as ts
from tunescope.attachment.initial_artifacts import initialised, own_keys_values
from tunescope.cli.output import print_run
from tunescope.comparison import preview
from tunescope.comparison.comparison import compare
from tunescope.errors import UserError
from tunescope.methods.contexts.text import last_ids
from tunescope.trial.demos import start
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan

ROWS = [{"text": f"w{4 + index % 9} " * (1 + index % 5), "label": ("w5", "w6")[index % 2]} for index in range(40)]


@dataclass
class Bench:
    """What is asked of a bench: rows, their labels, and how one is shown solved."""

    tokenizer: Any = field(default_factory=tiny.tokenizer)
    splits: Any = field(default_factory=lambda: SimpleNamespace(train=ROWS))
    task: Any = None


@pytest.fixture
def bench(monkeypatch):
    task = SimpleNamespace(is_labelled=True, label_of=lambda row, index: row["label"])
    monkeypatch.setattr(start, "labelled", lambda task: task)
    monkeypatch.setattr(start.draw, "solved", lambda bench, task, rows: "".join(shown(ROWS[row]) for row in rows))
    return Bench(task=task)


def shown(row):
    return f"{row['text'].strip()} {row['label']} w3 "  # w3 ends a demonstration


def whole(text, length):
    """The demonstrations that stand whole among the last `length` words."""
    words = text.split()[-length:]
    parts = " ".join(words).split(" w3")[:-1]
    known = {shown(row).strip().removesuffix(" w3") for row in ROWS}
    return [part.strip() for part in parts if part.strip() in known]


@pytest.mark.parametrize("length", [9, 14, 30])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_rows_of_all_labels_fill_the_length_and_the_last_stand_whole(bench, length, seed):
    text = start.text(bench, length, seed)
    assert len(text.split()) >= length
    labels = [one.split()[-1] for one in whole(text, length)]
    assert {"w5", "w6"} <= set(labels)
    assert abs(labels.count("w5") - labels.count("w6")) <= max(1, len(labels) // 2)


def test_shorter_rows_are_taken_where_four_do_not_fit_otherwise(bench):
    assert len(whole(start.text(bench, 14, 0), 14)) >= 4  # four of the shortest take 12 words, four of all 20


def test_the_seed_draws_the_rows(bench):
    assert start.text(bench, 20, 0) == start.text(bench, 20, 0)
    assert len({start.text(bench, 20, seed) for seed in range(5)}) > 1


def test_only_what_begins_as_demonstrations_without_words_of_its_own_is_given_them(bench):
    own = ts.Prefix(length=4, init_from="demos", text="w5")
    specs = (ts.Prefix(length=4), ts.LoRA(rank=1), own, ts.Soft(length=4, init_from="demos"))
    found = start.begun(specs, bench, 0)
    assert found[:3] == specs[:3]
    assert found[3] == ts.Soft(length=4, init_from="demos", text=start.text(bench, 4, 0))


def test_a_prefix_begins_as_the_models_keys_and_values_of_the_last_tokens(decoder):
    words = tiny.tokenizer()
    (made,) = initialised(decoder, [ts.Prefix(length=3, init_from="demos", text="w9 w5 w6 w7")], words, 0)
    own = own_keys_values(decoder, torch.tensor([5, 6, 7]))
    for name, (key, value) in own.items():
        torch.testing.assert_close(made.tensors[f"{name}.key"], key, rtol=0, atol=0)
        torch.testing.assert_close(made.tensors[f"{name}.value"], value, rtol=0, atol=0)


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "qwen2", "phi"])
@pytest.mark.parametrize("start", ["demos", "text"])
def test_with_rotary_positions_a_prefix_is_at_first_the_words_in_front_of_the_text(family, start):
    """The oracle: the model itself on the words and the text, without anything attached."""
    model, words = tiny.make(family), tiny.tokenizer()
    text, front = tiny.ids(2, 6), torch.tensor([[9, 5, 6, 7]])
    with torch.no_grad():
        expected = model(input_ids=torch.cat([front.expand(2, -1), text], 1)).logits[:, 4:]
        with ts.attach(model, ts.Prefix(length=4, init_from=start, text="w9 w5 w6 w7"), tokenizer=words) as tuned:
            got = model(input_ids=text).logits
        assert tuned.artifacts[0].spec.positions == "after" and tuned.artifacts[0].fold().spec.positions == "after"
        with ts.attach(
            model, ts.Prefix(length=4, init_from=start, text="w9 w5 w6 w7", positions="same"), tokenizer=words
        ):
            other = model(input_ids=text).logits
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)
    assert (other - expected).abs().max() > 1e-6


@pytest.mark.parametrize("family", ["gpt2", "bert", "t5", "opt"])
def test_where_positions_are_not_rotary_the_text_keeps_its_own(family):
    model = tiny.make(family)
    with ts.attach(
        model, ts.Prefix(length=4, init_from="demos", text="w9 w5 w6 w7"), tokenizer=tiny.tokenizer()
    ) as tuned:
        assert tuned.artifacts[0].spec.positions is None and tuned.positions == 0


def test_a_soft_prompt_begins_as_their_embeddings_and_is_kept_without_the_words(decoder):
    soft = ts.Soft(length=3, init_from="demos", text="w9 w5 w6 w7")
    (made,) = initialised(decoder, [soft], tiny.tokenizer(), 0)
    assert torch.equal(made.tensors["embeddings"], decoder.get_input_embeddings().weight[[5, 6, 7]])
    assert made.fold().spec == ts.Soft(length=3)


def test_words_that_are_too_few_are_repeated_and_none_are_refused():
    assert last_ids(tiny.tokenizer(), "w5 w6", 5) == [6, 5, 6, 5, 6]
    with pytest.raises(UserError, match=r"init_from='demos' begins as the tokens of text='', which has none"):
        last_ids(tiny.tokenizer(), "", 3)


@pytest.fixture
def decoder():
    from tunescope.lab.worlds.families import random_model

    return random_model("llama")


def opened(folder, model) -> Any:
    """A bench on rows of 5 to 13 tokens with their answer; the model takes 64."""
    _, data = tinyrun.write(folder)
    model.save_pretrained(folder / "model")
    task = {"kind": "classification", "words": {"neg": "bad", "pos": "good"}}
    return open_bench(Plan(model=str(folder / "model"), data=data, task=task))


def llama() -> Any:
    sizes = {"vocab_size": 16, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads))


def usual(bench: Any, *specs: Any) -> Any:
    """How each of them begins, and what is told of all."""
    found, told = start.with_usual(specs, bench)
    return [spec.init_from for spec in found], told


def test_a_prefix_begins_as_demonstrations_where_the_rows_keep_their_text_and_else_says_that_it_is_noise(tmp_path):
    rotary, learned = opened(tmp_path / "llama", llama()), opened(tmp_path / "gpt2", tinyrun.model())

    def starts(bench, **fields):
        return usual(bench, *(ts.Prefix(length=n, **fields) for n in (10, 60, 64, 65)))[0]

    assert starts(rotary) == ["demos", None, None, None]
    assert starts(learned) == ["demos", "demos", "demos", None]  # the text keeps its positions there
    assert starts(rotary, positions="same") == ["demos", "demos", "demos", None]
    assert starts(rotary, init_from="noise") == ["noise"] * 4
    assert usual(rotary, ts.Prefix(length=60))[1] == (
        "begins as noise, not as demonstrations, and so far behind them: its 60 positions would cut 101 rows short, by "
        f"{100 * share_cut(rotary, 3):.1f} % of all text. Make it, or the rows, shorter.",
    )
    (told,) = usual(rotary, ts.Prefix(length=64))[1]
    assert "its 64 positions would leave no room (" in told and told.endswith("). Make it, or the rows, shorter.")
    assert usual(rotary, ts.Prefix(length=60, mlp=8))[1][0].startswith("begins as its network does")


def test_a_prefix_that_falls_back_does_not_keep_a_text_that_it_would_not_read_and_says_so(tmp_path):
    rotary = opened(tmp_path / "llama", llama())
    (kept,), told = start.with_usual([ts.Prefix(length=10, text="w4 w5")], rotary)
    assert kept == ts.Prefix(length=10, text="w4 w5", init_from="demos") and not told
    (fallen,), (told,) = start.with_usual([ts.Prefix(length=60, text="w4 w5")], rotary)
    assert fallen == ts.Prefix(length=60) and told.endswith("Its own text is not read.")
    initialised(rotary.model, [fallen], rotary.tokenizer, 0)  # which a prefix that does not read its text is refused


def share_cut(bench: Any, left: int) -> float:
    """Counted by words, which are the tokens: of each text so many are left, and the blank behind them."""
    texts = [row["text"] for part in bench.splits.parts().values() for row in part]
    kept = sum(min(len(text), len(" ".join(text.split()[:left])) + 1) for text in texts)
    return 1 - kept / sum(map(len, texts))


def test_a_single_row_that_is_cut_takes_no_demonstrations_from_a_prefix(tmp_path):
    _, data = tinyrun.write(tmp_path)
    asked = {"kind": "classification", "words": {"neg": "bad", "pos": "good"}, "template": "{text} was"}
    with open(data["train"], "a") as file:
        file.write(json.dumps({"text": " ".join(["a"] * 63), "label": "pos"}) + "\n")  # with "was" 64 tokens
    llama().save_pretrained(tmp_path / "model")
    bench = open_bench(Plan(model=str(tmp_path / "model"), data=data, task=asked))
    share = 7 / sum(len(row["text"]) for part in bench.splits.parts().values() for row in part)  # "a a a a"
    told = f"begins as demonstrations, whose 4 positions cut 1 row short, by {100 * share:.1f} % of all text."
    assert usual(bench, ts.Prefix(length=4)) == (["demos"], (told,))


def test_in_a_chat_of_one_turn_contexts_begin_as_sampled_tokens(tmp_path, monkeypatch):
    for model, same in ((llama(), None), (tinyrun.model(), "tokens")):
        bench = opened(tmp_path / str(same), model)
        bench.task = SimpleNamespace(turns=SimpleNamespace(single="its chat template takes one"))
        bench.encoded = lambda part, **how: []
        specs = ts.Prefix(length=4), ts.Prefix(length=4, positions="same"), ts.Soft(length=4)
        starts, told = usual(bench, *specs)
        assert starts == ["tokens", same, None]  # a soft prompt begins as sampled tokens by itself
        assert told[0] == (
            "begins as sampled tokens, not as demonstrations, and so behind them: these are earlier turns of a chat, "
            "and its chat template takes one."
        )
    bench = opened(tmp_path / "cut", llama())
    bench.task = SimpleNamespace(turns=SimpleNamespace(single="its chat template takes one"))
    monkeypatch.setattr(start, "_lost", lambda *given: ("cut 2 rows short, by 0.5 % of all text", 0.005))
    (told,) = usual(bench, ts.Prefix(length=4))[1]
    assert told.endswith("takes one. Its 4 positions cut 2 rows short, by 0.5 % of all text.")


def test_how_a_prefix_begins_is_told_by_check_and_compare(tmp_path, capsys):
    bench = opened(tmp_path, llama())
    given = {"model": bench.plan.model, "data": dict(bench.plan.data), "seeds": 1, "steps": 2, "forgetting": "none"}
    words = {"neg": "bad", "pos": "good"}
    found = compare(**given, words=words, arms=["prefix:length=60"], trials=1, beyond=0, out=tmp_path / "run")
    (arm,) = found.results["arms"]
    told = "begins as noise, not as demonstrations"
    assert arm["spec"] == "prefix:length=60" and arm["remarks"][0].startswith(told)
    print_run(found.folder, found.results)
    printed = " ".join("".join(capsys.readouterr()).split())
    assert printed.count(f"prefix:length=60: {told}") == 1  # under the table, and so at a resume
    bench.plan = replace(bench.plan, arms=("prefix:length=60",), seeds=(0,), forgetting="none")
    assert any(f"prefix:length=60 {told}" in line for line in preview.lines(bench))
