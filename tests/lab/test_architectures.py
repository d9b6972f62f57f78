"""Every architecture of the lab is built, saved and loaded by transformers' own classes, and begins to learn."""

import math
from pathlib import Path

import pytest
import torch
import transformers as tf

from tunescope.errors import UserError
from tunescope.lab.worlds.architectures import ARCHITECTURES, INITIAL, Body, new_model
from tunescope.lab.worlds.bases import Base, pretrained
from tunescope.lab.worlds.curriculum import WORDS, WORLD, Curriculum
from tunescope.lab.worlds.pretrain import cosine, train
from tunescope.lab.worlds.sights import sight_loss
from tunescope.lab.worlds.vocabulary import tokenizer_for

AUTO = {"bert": tf.AutoModelForMaskedLM, "t5": tf.AutoModelForSeq2SeqLM, "bart": tf.AutoModelForSeq2SeqLM}
ONES = {"gpt2": 2, "llama": 2, "gpt_neox": 2, "bert": 2, "t5": 5, "bart": 5}  # maps that add to the stream, a layer


def small(architecture: str) -> Base:
    task = "classification" if architecture == "bert" else "generation"
    mix = ("first_high", "has_zero") if task == "classification" else ("add1", "copy_first")
    return Base(Body(architecture, 2, 16, 2), Curriculum(task, mix, True), steps=12, rate=2e-2, seed=3)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_saved_model_is_loaded_by_name_with_the_same_logits(architecture: str, tmp_path: Path) -> None:
    base = small(architecture)
    model = base.new()
    model.save_pretrained(tmp_path)
    base.tokenizer().save_pretrained(tmp_path)
    loaded = AUTO.get(architecture, tf.AutoModelForCausalLM).from_pretrained(tmp_path).eval()
    sight = base.curriculum.test(base.reader(model), base.curriculum.mix[0], count=3, shown=1)
    with torch.no_grad():
        assert torch.equal(loaded(**sight.inputs).logits, model(**sight.inputs).logits)
    words = tf.AutoTokenizer.from_pretrained(tmp_path)
    assert words("3 1\nLabel: yes", add_special_tokens=False)["input_ids"] == [
        *(3, 1),
        *(words.convert_tokens_to_ids(word) for word in ("\n", "Label:", "yes")),
    ]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_short_pretraining_lowers_the_loss(architecture: str) -> None:
    base = small(architecture)
    model = base.new()
    reader = base.reader(model)
    watched = list(base.curriculum.batches(reader, 4, seed=9))

    def loss() -> float:
        return sum(float(sight_loss(model, one).detach()) for one in watched)

    before = loss()
    train(model, base.curriculum.batches(reader, base.steps, base.seed), sight_loss, base.steps, base.rate)
    assert loss() < 0.85 * before


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_is_added_to_the_stream_begins_smaller(architecture: str) -> None:
    model = new_model(Body(architecture, 2, 32, 2), tokenizer_for(WORLD, WORDS), seed=0)
    deviations = [p.std().item() / INITIAL for p in model.parameters() if p.dim() > 1 and p.numel() > 500]
    smaller = [one for one in deviations if one < 0.75]
    assert all(abs(one - 0.5) < 0.06 for one in smaller)  # the root of twice two layers
    assert len(smaller) == 2 * ONES[architecture]
    assert all(abs(one - 1) < 0.1 for one in deviations if one >= 0.75)


def test_an_architecture_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="the architecture 'opt'; there are: gpt2, llama, gpt_neox, bert, t5, bart"):
        new_model(Body("opt", 1, 16, 2), tokenizer_for(WORLD, WORDS), seed=0)


@pytest.mark.parametrize("left", ["whole", "torn"])
def test_of_two_makers_of_one_base_the_first_one_s_stays(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNESCOPE_CACHE", str(tmp_path))

    def made(base: Base, out: Path) -> None:
        """Meanwhile another process was through with it, or had been killed by an older version."""
        place = out.with_name(base.identity)
        for folder, name in ((out, "MANIFEST.json"), (place, "MANIFEST.json" if left == "whole" else "weights")):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("mine" if folder == out else "theirs")

    monkeypatch.setattr("tunescope.lab.worlds.bases._make", made)
    folder = pretrained(small("gpt2"))
    assert (folder / "MANIFEST.json").read_text() == ("theirs" if left == "whole" else "mine")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_the_rate_rises_over_a_twentieth_and_falls_by_half_a_cosine_to_nothing() -> None:
    assert [cosine(step, 100) for step in (0, 2, 4, 5)] == [0.2, 0.6, 1.0, 1.0]
    assert cosine(5 + 95 // 5 * 2, 100) == pytest.approx((1 + math.cos(0.4 * math.pi)) / 2)
    assert cosine(100, 100) == pytest.approx(0, abs=1e-12)
    assert [cosine(step, 1) for step in (0, 1)] == [1.0, 1.0]  # the last is of a step that is not taken
