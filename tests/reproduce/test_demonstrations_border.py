"""Demonstrations as one text with the query, and as ids of their own in front of it, against transformers alone."""

import pytest
import tinyrun
import torch
from line_ends import tokenizer
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

import tunescope as ts
from tunescope.probes.anchors import study as anchor_study
from tunescope.probes.anchors.request import AnchorRequest
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import check, find
from tunescope.reproduce.recipes import anchors, demonstrations_border
from tunescope.reproduce.run import reproduce
from tunescope.search import study as search_study
from tunescope.trial.plan import Plan


@torch.no_grad()
def test_both_ways_are_what_transformers_answers_to_their_ids(tmp_path, in_process):
    _, data = tinyrun.write(tmp_path)
    made, model = tokenizer(), str(tmp_path / "lines")
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(vocab_size=len(made), n_positions=512, n_embd=16, n_layer=2, n_head=2)).save_pretrained(
        model
    )
    made.save_pretrained(model)
    asked = Ask("demonstrations-border", quick=True, seeds=2, model=model, data=data["train"], test=data["test"])
    check(asked, find("demonstrations-border"))
    result = reproduce(asked, tmp_path / "run", 1, lambda line: None)
    first = result["units"][0]["outcome"]
    assert first["tokens"]["one"] == first["tokens"]["apart"] + 1

    (round,) = anchors.rounds(demonstrations_border.settings(asked) | {"k": 1}, [0])
    whole = AutoModelForCausalLM.from_pretrained(model).eval()
    text = made.decode(round.prompts[0].spans.ids)
    words = list(round.choices.tokens)
    shares, right = {"one": [], "apart": []}, {"one": 0, "apart": 0}
    for prompt in round.prompts:
        query = made.decode(prompt.query.input_ids)
        for way, ids in {
            "one": made(text + query)["input_ids"],
            "apart": made(text)["input_ids"] + made(query)["input_ids"],
        }.items():
            logits = whole(torch.tensor([[*ids, *round.choices.lead]])).logits[0, -1, words].double()
            shares[way].append(logits.softmax(-1))
            right[way] += int(logits.argmax()) == prompt.query.label
    one, apart = (torch.stack(shares[way]) for way in ("one", "apart"))
    assert first["moved"] == pytest.approx(float((one - apart).abs().sum(1).mean() / 2), abs=1e-6)
    assert first["moved"] > 0
    assert first["accuracy"] == {way: pytest.approx(count / len(round.prompts)) for way, count in right.items()}
    cells = {row["label"]: row["cells"] for row in result["table"]["rows"]}
    assert len(cells["1 demonstration a label, tokenised as one text with the query"][1]["values"]) == 2
    own = cells["1 demonstration a label, tokenised by themselves"]
    assert own[2]["values"][0] == pytest.approx(first["accuracy"]["apart"] - first["accuracy"]["one"])
    assert own[4]["values"][0] == pytest.approx(first["moved"])


def test_it_asks_for_a_model_and_rows():
    with pytest.raises(ts.UserError, match="demonstrations-border asks a given model: give --model and --data"):
        demonstrations_border.settings(Ask("demonstrations-border"))


def test_a_backslash_and_an_n_in_a_template_are_told_where_a_model_is_asked_by_it(tmp_path, in_process):
    """Usual quotes of a shell make no new line of them."""
    model, data = tinyrun.write(tmp_path)
    typed, said = "{text}\\nLabel:", {"recipe": [], "anchors": [], "search": []}
    asked = Ask("demonstrations-border", quick=True, seeds=1, model=model, data=data["train"], template=typed)
    reproduce(asked, tmp_path / "run", 1, said["recipe"].append)
    task = {"kind": "classification", "template": typed}
    plan = Plan(model=model, data=data, task=task, seeds=(0,))
    anchor_study.study(AnchorRequest(plan, rows=3, only=("auc",)), said["anchors"].append)
    search_study.study(
        search_study.SearchRequest(plan, ("random:length=2",), 600), tmp_path / "search", said["search"].append
    )
    for lines in said.values():
        (told,) = [line for line in lines if "backslash" in line]
        assert told.endswith(r"if a new line is meant, type: --template $'{text}\nLabel:'")
