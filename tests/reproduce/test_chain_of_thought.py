"""The quick size, run whole: steps are needed for hops and not for plus one; its table, at once; and a given model."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from smaller import smaller

import tunescope as ts
from tunescope.data.read import read
from tunescope.lab.worlds import models, procedures
from tunescope.lab.worlds.world import part_of
from tunescope.report.cells import Cell
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import find
from tunescope.reproduce.run import reproduce
from tunescope.trial.train import loop


def ran(folder, patch, **size):
    smaller(patch, find("chain-of-thought"), **size)
    return reproduce(Ask("chain-of-thought", quick=True), folder / "run", workers=1, say=lambda line: None)


def test_its_last_column_is_what_steps_gain_over_as_many_tokens(tmp_path, in_process, monkeypatch):
    result = ran(tmp_path, monkeypatch, rows=64, test_rows=40, steps=2)
    found = {tuple(piece["unit"][key] for key in ("procedure", "arm", "seed")): piece for piece in result["units"]}
    answers = {key: piece["outcome"]["answer"] for key, piece in found.items()}
    rows = {row["label"]: row["cells"] for row in result["table"]["rows"]}
    gains = [answers["hops", "steps", seed] - answers["hops", "tokens", seed] for seed in (0, 1)]
    assert rows["hops three times, 1 layer"][-1]["values"] == gains and len(found) == len(result["units"])


@pytest.mark.slow
def test_steps_are_what_a_layer_needs_to_hop_and_not_to_add(tmp_path, in_process, monkeypatch):
    result = ran(tmp_path, monkeypatch, rows=2**13, test_rows=250)
    found = {
        (unit["procedure"], unit["arm"], unit["seed"]): outcome
        for unit, outcome in ((piece["unit"], piece["outcome"]) for piece in result["units"])
    }
    for seed in (0, 1):
        assert all(found["plus-one", arm, seed]["answer"] > 0.95 for arm in ("at once", "tokens", "steps"))
        assert found["hops", "steps", seed]["answer"] > 0.9
        assert found["hops", "tokens", seed]["answer"] < 0.6
        assert found["hops", "tokens", seed]["tokens"] == found["hops", "steps", seed]["tokens"]
        assert found["hops", "steps", seed]["all"] <= found["hops", "steps", seed]["answer"]


def test_every_arm_has_the_same_seeds_and_the_whole_size_has_more_of_all():
    recipe = find("chain-of-thought")
    whole, quick = (recipe.settings(Ask("chain-of-thought", quick=each)) for each in (False, True))
    units = recipe.units(whole)
    assert len(units) == 5 * 5 * 3 and len({str(unit) for unit in units}) == len(units)
    assert all(whole[key] > quick[key] for key in ("seeds", "steps", "rows", "test_rows"))


def test_a_question_in_words_has_the_states_that_follow_from_its_digits():
    recipe = find("chain-of-thought-model")
    (one,) = recipe._rows("plus-one", "test", 1)
    start = [int(digit) for digit in one["input"].split(": ")[1].split()]
    states = [" ".join(str((digit + n) % 10) for digit in start) for n in (1, 2, 3)]
    assert one["steps"] == f"{states[0]}, then {states[1]}, then {states[2]}." and one["target"] == states[2]
    (hop,) = recipe._rows("hops", "test", 1)
    *order, at = [int(digit) for digit in hop["input"].split(": ")[1].split()]
    read = [at := order[at] for _ in range(3)]
    assert hop["steps"] == "{}, then {}, then {}.".format(*read) and hop["target"] == str(read[-1])


@pytest.mark.parametrize(("name", "count"), [("hops", 50), ("hops", 400), ("plus-one", 800)])
def test_as_many_questions_are_asked_as_are_told_and_each_once(name, count):
    """Of the first fifty places that are drawn two are the same."""
    for part in ("dev", "train"):
        asked = [row["input"] for row in find("chain-of-thought-model")._rows(name, part, count)]
        assert len(asked) == len(set(asked)) == count


def test_at_once_is_trained_until_it_had_as_many_tokens_as_the_steps(tmp_path, in_process):
    recipe = find("chain-of-thought-model")
    ask = Ask("chain-of-thought-model", quick=True, steps=3, model=tiny_decoder(tmp_path / "model"))
    settings = recipe.settings(ask)
    once, tokens, steps = (
        recipe.work(settings, {"procedure": "hops", "way": way}, tmp_path / way)
        for way in (recipe.ONCE, recipe.TOKENS, recipe.STEPS)
    )
    # in bytes: " 7" and the end, and " 1, then 2, then 7. The answer is 7" and the end
    assert (once["updates"], once["tokens"], steps["updates"]) == (3, 3 * 8 * 3, 3)
    assert steps["tokens"] == 3 * 8 * 36
    assert tokens["updates"] == 3 * 36 / 3 and tokens["tokens"] == steps["tokens"]
    assert 280 < tokens["train"] <= 36 * 8 and once["train"] == steps["train"] == 3 * 8  # the same question once


def test_demonstrations_that_the_model_has_no_room_for_leave_the_rest_of_the_table(tmp_path, in_process):
    ask = Ask("chain-of-thought-model", quick=True, model=tiny_decoder(tmp_path / "model", positions=400))
    result = reproduce(ask, tmp_path / "run", workers=1, say=lambda line: None)
    (row,) = result["table"]["rows"]
    shown, tuned = row["cells"][:2], row["cells"][3:6]
    assert all("positions and the model has 400" in cell["text"] and not cell["values"] for cell in shown)
    assert all(cell["values"] for cell in tuned)
    drawn = (tmp_path / "run" / "right.svg").read_text()
    assert "tuned with steps" in drawn and "shown with steps" in drawn and "gain" not in drawn


def test_what_could_not_be_read_and_rates_at_an_end_are_told():
    recipe = find("chain-of-thought-model")
    arm, trials = "cot+lora", [(0.001, 0.1), (0.005, 0.4), (0.02, 0.6)]
    outcome = {"unread": {arm: [0.0, 0.5]}, "rates": {arm: 0.02}, "trials": {arm: trials}}
    unit = {"procedure": "hops", "way": "steps"}
    assert recipe._unread([(unit, outcome)]) == ["No answer could be read, which counts as wrong: hops, cot+lora: 25%."]
    assert recipe._at_an_edge([(unit, outcome)]) == ["The largest rate tried was chosen for hops, steps."]
    inside = {"unread": {arm: [0.0, 0.0]}, "rates": {arm: 0.005}, "trials": {arm: trials}}
    assert recipe._unread([(unit, inside)]) == recipe._at_an_edge([(unit, inside)]) == []
    shown = {"unread": {}, "rates": {"demos:k=8": None}, "trials": {"demos:k=8": []}}
    assert recipe._at_an_edge([(unit, shown)]) == []


def test_digits_are_right_in_their_place(tmp_path, monkeypatch):
    recipe = find("chain-of-thought-model")
    monkeypatch.setattr(recipe.corpus_line, "tested", lambda run, folder: {"outputs": ["1 2 3", "1 3", ""]})
    assert recipe._digits({}, ["1 2 4", "1 2 3", "1 2 3"], tmp_path) == 3 / 9


def test_a_given_decoder_is_prompted_and_tuned_and_gains_are_by_seed(tmp_path, in_process):
    ask = Ask("chain-of-thought-model", quick=True, seeds=2, model=tiny_decoder(tmp_path / "model"))
    result = reproduce(ask, tmp_path / "run", workers=1, say=lambda line: None)
    (row,) = result["table"]["rows"]
    assert row["label"] == "hops three times" and len(result["table"]["notes"]) >= 2
    assert all(cell["seeds"] == 2 for cell in row["cells"]) and str(tmp_path) not in str(result)
    for once, steps, gain in ((0, 1, 2), (4, 5, 6)):
        pairs = zip(row["cells"][steps]["values"], row["cells"][once]["values"], strict=True)
        assert row["cells"][gain]["values"] == [one - other for one, other in pairs]
    cells = [Cell((0.25, 0.75)), Cell((0.5, 1.0)), Cell((0.25, 0.25)), *[Cell((0.125,))] * 3, Cell((0.0,))]
    drawn = str(find("chain-of-thought-model")._picture(result["table"]["columns"], [("hops three times", cells)]))
    assert re.findall(r">(0\.\d+)<", drawn) == ["0.500", "0.750", "0.125", "0.125", "0.125"]  # and no gain
    with pytest.raises(ts.UserError, match="chain-of-thought-model needs --model MODEL, a decoder"):
        find("chain-of-thought-model").settings(Ask("chain-of-thought-model"))


def test_procedures_are_chosen_by_name(tmp_path):
    given = {"model": tiny_decoder(tmp_path / "model")}
    recipe, some = find("chain-of-thought-model"), [(), ("hops",), ("HOPS", "plus")]
    cases = [recipe.settings(Ask("chain-of-thought-model", lines=lines, **given))["cases"] for lines in some]
    assert cases == [["plus-one", "neighbour-sums", "hops"], ["hops"], ["plus-one", "hops"]]
    with pytest.raises(ts.UserError, match=r"none has .jumps. in its name\. They are: plus-one three times; n"):
        recipe.settings(Ask("chain-of-thought-model", lines=("jumps",), **given))


def test_it_is_tuned_in_the_precision_that_was_asked_for(tmp_path, in_process, monkeypatch):
    from tunescope.comparison import comparison

    whole, taken = comparison.compare, set()

    def compare(*given, settings, **more):
        taken.add(settings.precision)
        return whole(*given, settings=settings, **more)

    monkeypatch.setattr(comparison, "compare", compare)
    ask = Ask("chain-of-thought-model", quick=True, model=tiny_decoder(tmp_path / "model"), precision="bfloat16")
    result = reproduce(ask, tmp_path / "run", workers=1, say=lambda line: None)
    assert taken == {"bfloat16"} and any("in bfloat16" in note for note in result["table"]["notes"])


def tiny_decoder(folder, positions=4096):
    """A GPT-2 that reads bytes."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = ["<|end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    words = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>", bos_token="<|end|>")
    words.model_max_length = positions
    config = transformers.GPT2Config(vocab_size=len(words), n_embd=8, n_layer=1, n_head=1, n_positions=positions)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


def test_arms_are_trained_and_asked_as_their_names_say_and_each_seed_draws_its_own(monkeypatch):
    """The first state written wrong and the others right: the answer, which is the last of them, is right."""
    recipe, steps, drawn, asked = find("chain-of-thought"), [], [], []
    settings = recipe.settings(Ask("chain-of-thought", quick=True)) | {"rows": 40, "test_rows": 30}

    def trained(learning, how, seed):
        steps.append((how.steps, seed))
        return SimpleNamespace(step=how.steps, best_score=0.0, curve=[])

    def writes(model, given, count):
        asked.append(given)
        ids, _ = procedures.rows(procedures.find("hops"), "test", len(given), 0, steps=count > 1)
        written = ids[:, -count:].clone()
        written[:, 0] = written[:, 0] if count == 1 else (written[:, 0] + 1) % procedures.BASE
        return written

    whole = models.gpt2
    monkeypatch.setattr(models, "gpt2", lambda *given: drawn.append(given[-1]) or whole(*given))
    monkeypatch.setattr(loop, "train", trained)
    monkeypatch.setattr(procedures, "writes", writes)
    lessons, made = [], procedures.lesson
    monkeypatch.setattr(procedures, "lesson", lambda *given, **more: lessons.append(given[2]) or made(*given, **more))
    arms = ("at once", "tokens", "steps")
    found = {arm: recipe.work(settings, {"procedure": "hops", "layers": 1, "seed": 4, "arm": arm}) for arm in arms}
    once = settings["steps"]
    assert steps == [(once, 4), (3 * once, 4), (once, 4)] and drawn == lessons == [4] * 3
    assert found["tokens"]["tokens"] == found["steps"]["tokens"] == 3 * found["at once"]["tokens"]
    assert {part_of(row.numpy()) for given in asked for row in given} == {"test"}
    assert (found["steps"]["answer"], found["steps"]["all"], found["tokens"]["answer"]) == (1.0, 0.0, 1.0)


def test_questions_to_learn_from_to_choose_by_and_to_be_scored_on_are_of_their_own_parts(tmp_path, monkeypatch):
    recipe = find("chain-of-thought-model")
    settings = recipe.settings(Ask("chain-of-thought-model", quick=True, model=tiny_decoder(tmp_path / "model")))
    monkeypatch.setattr(recipe, "_compared", lambda *_: {})
    recipe.work(settings, {"procedure": "hops", "way": recipe.ONCE}, tmp_path / "piece")
    for part in ("train", "dev", "test"):
        rows = read(str(tmp_path / f"piece/data/{part}.jsonl"))
        digits = [np.array([int(digit) for digit in row["input"].split(": ")[1].split()]) for row in rows]
        assert {part_of(one) for one in digits} == {part}
