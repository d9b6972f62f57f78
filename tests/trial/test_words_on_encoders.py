"""A masked language model that answers in words, through `compare`: loaded, attached to, trained, saved, scored."""

import json
import random

import masked
import pytest
import torch
import transformers as tf

import tunescope as ts
from tunescope.comparison import arms, inside_attention
from tunescope.comparison.comparison import ask, compare
from tunescope.errors import UserError
from tunescope.methods.text_form import parse
from tunescope.models.load import load_model
from tunescope.probes.anchors.request import AnchorRequest, rounds_of
from tunescope.tasks.kinds.classification import Classification
from tunescope.trial import plan, plan_check
from tunescope.trial.open import open_bench
from tunescope.trial.train.settings import Settings

WORDS = {"neg": "bad", "pos": "good"}


def rows(count, seed):
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        label = draw.choice(list(WORDS))
        words = draw.choices(["film", "plot", "was", "a", "the"], k=draw.randint(2, 6))
        words.insert(draw.randrange(len(words)), {"neg": "dull", "pos": "bright"}[label])
        made.append({"text": " ".join(words), "label": label})
    return made


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked")
    for name in ("bert", "roberta"):
        model, tokenizer = masked.make(name, dtype=torch.float32)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    data = {}
    for seed, (part, count) in enumerate({"train": 48, "dev": 16, "test": 24}.items()):
        data[part] = str(folder / f"{part}.jsonl")
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(count, seed)))
    return folder, data


def question(material, name="bert", **changes):
    folder, data = material
    fields = {
        "model": str(folder / name),
        "data": data,
        "task": {"kind": "classification", "by": "words", "words": WORDS},
        "seeds": (0,),
        "trials": 1,
        "settings": Settings(steps=4, batch_size=8, eval_every=2, patience=3),
    }
    return plan_check.check(plan.Plan(**({"beyond": 0} | fields | changes)))


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_every_default_arm_runs_and_is_scored_as_transformers_scores_it(material, tmp_path, name):
    found = ask(question(material, name), tmp_path / "run", quiet=True)
    assert {arm["name"]: arm["status"] for arm in found.results["arms"]} == dict.fromkeys(
        arms.DEFAULT["encoder in words"], "done"
    )
    assert found.results["task"]["template"] == "{text} It was {mask}."
    assert "--by words" in found.results["command"]
    model, tokenizer = load_model(str(material[0] / name), in_words=True)
    space = " " if name == "roberta" else ""
    words = [tokenizer(space + word, add_special_tokens=False)["input_ids"][0] for word in WORDS.values()]
    stats = next(arm for arm in found.results["arms"] if arm["name"] == "zero-shot")["runs"][0]["stats"]
    for row, (correct, label, answer) in zip(rows(24, 2), stats, strict=True):
        given = tokenizer(f"{row['text']} It was {tokenizer.mask_token}.", return_tensors="pt")
        at = (given["input_ids"][0] == tokenizer.mask_token_id).nonzero().item()
        choice = model(**given).logits[0, at, words].argmax().item()
        assert (answer, label) == (choice, list(WORDS).index(row["label"]))
        assert correct == (answer == label)


def test_orders_are_tried_and_answers_calibrated_at_a_mask_too(material, tmp_path):
    texts = ("demos:k=1,order=best,orders=all", "demos:k=1,calibrate=true", "demos:k=1,choose=nearest")
    found = ask(question(material, arms=texts), tmp_path / "run", quiet=True)
    best, calibrated, _ = arms_found = found.results["arms"]
    assert [arm["status"] for arm in arms_found] == ["done"] * 3
    assert best["runs"][0]["demonstrations"]["orders"]["tried"] == 2
    assert sum(calibrated["runs"][0]["demonstrations"]["prior"].values()) == pytest.approx(1)


def test_full_tuning_on_a_masked_model_trains_its_head_and_what_is_tied_stays_tied(material):
    bench = open_bench(question(material))
    head = bench.model.get_output_embeddings()
    assert head.weight is bench.model.get_input_embeddings().weight
    items = bench.encoded("train", room=None)
    with ts.attach(bench.model, *parse("full")) as tuned:
        names = {name for artifact in tuned.artifacts for name in artifact.tensors}
        assert {"head:cls.predictions.transform.dense.weight", "embeddings.word_embeddings.weight"} <= names
        assert sum("word_embeddings" in name or "decoder.weight" in name for name in names) == 1
        optimizer = torch.optim.Adam(tuned.train().parameters(), 3e-3)
        losses = []
        for _ in range(30):
            optimizer.zero_grad()
            loss = bench.task.loss(bench.model, items, bench.tokenizer)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.1 < losses[0]
        with torch.no_grad():
            bench.task.loss(bench.model, items[:1], bench.tokenizer)
        assert head.weight is bench.model.get_input_embeddings().weight
        tuned.eval()
        expected = bench.task.loss(bench.model, items, bench.tokenizer).item()
        artifacts = tuned.artifacts
    assert bench.task.loss(bench.model, items, bench.tokenizer).item() == pytest.approx(losses[0])
    merged = ts.merge(bench.model, *artifacts)
    assert bench.task.loss(merged, items, bench.tokenizer).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("arm", ["soft:length=3", "prefix:length=3", "lora:rank=2", "text:text=the film", "bias"])
@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert"])
def test_what_is_attached_reaches_the_mask_and_is_trained_there(name, arm):
    model, tokenizer = masked.make(name)
    task = Classification(words=WORDS, template="{text} it was {mask}.")
    items = task.encode(rows(4, 0), tokenizer, model_kind="encoder", behind="" if "text" in arm else None)
    before = task.loss(model, items, tokenizer)
    with ts.attach(model, *parse(arm), tokenizer=tokenizer) as tuned:
        if "text" not in arm:
            task.loss(model, items, tokenizer)
            tuned.train()
            task.loss(model, items, tokenizer).backward()
            assert any(leaf.grad is not None and leaf.grad.abs().max() > 0 for leaf in tuned.parameters())
        together = task.loss(model, items, tokenizer)
        alone = torch.stack([task.loss(model, [item], tokenizer) for item in items]).mean()
        torch.testing.assert_close(together, alone, rtol=0, atol=1e-9)  # padding changes nothing
    assert torch.equal(task.loss(model, items, tokenizer), before)


def test_a_hard_prompt_is_the_same_words_in_the_text():
    for name in ("bert", "roberta"):
        model, tokenizer = masked.make(name)
        task = Classification(words=WORDS, template="{text} it was {mask}.")
        [row] = rows(1, 3)
        front = "the plot was not good. "
        longer = task.encode([row | {"text": front + row["text"]}], tokenizer, model_kind="encoder")
        expected = task.loss(model, longer, tokenizer)
        behind = task.encode([row], tokenizer, model_kind="encoder", behind="")
        if name == "roberta":  # its tokens know the space before a word
            behind = task.encode([row | {"text": " " + row["text"]}], tokenizer, model_kind="encoder", behind="")
            front = front[:-1]
        with ts.attach(model, ts.Text(text=front), tokenizer=tokenizer):
            got = task.loss(model, behind, tokenizer)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


def test_checkpoints_without_the_head_are_refused_by_name(material, tmp_path):
    for index, auto in enumerate((tf.AutoModel, tf.AutoModelForSequenceClassification)):
        folder = tmp_path / str(index)
        auto.from_pretrained(material[0] / "bert").save_pretrained(folder)
        masked.word_piece().save_pretrained(folder)
        with pytest.raises(UserError) as caught:
            load_model(str(folder), in_words=True)
        assert str(caught.value) == (
            f"{folder} has no masked-language-model head: its checkpoint lacks cls.predictions.bias and 5 more. "
            "Answers in words need a masked language model; in a comparison a new head answers too: --by head"
        )
        assert load_model(str(folder))[0].get_output_embeddings() is None


def test_a_loaded_model_with_the_wrong_head_is_refused(material, tmp_path):
    folder, data = material
    tokenizer = masked.word_piece()
    for auto, by, message in (
        (
            tf.AutoModel,
            "words",
            "BertModel has no head that gives words. Load it with transformers.AutoModelForMaskedLM",
        ),
        (tf.AutoModelForMaskedLM, "head", "BertForMaskedLM answers in words. Load it with transformers.AutoModel, or"),
    ):
        task = Classification(words=WORDS, by=by, template="{text}" if by == "head" else "{text} {mask}")
        with pytest.raises(UserError, match=message):
            compare(auto.from_pretrained(folder / "bert"), data, task=task, tokenizer=tokenizer, out=tmp_path / by)


def test_t5_reads_its_sentinel_wherever_it_is_looked_at(material, tmp_path):
    model, tokenizer = masked.make("t5", dtype=torch.float32)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    task = {"kind": "classification", "words": WORDS, "template": "{text} it was {mask}."}
    bench = open_bench(question(material, model=str(tmp_path), task=task))
    sentinel = tokenizer.convert_tokens_to_ids("<extra_id_0>")
    items = bench.encoded("dev", room=None)
    for with_target in (True, False):
        looked = inside_attention._inputs(bench, items[:3], with_target=with_target)["decoder_input_ids"]
        assert looked[:, :2].tolist() == [[0, sentinel]] * 3
    (one,) = rounds_of(AnchorRequest(bench.plan, rows=2), bench)
    assert one.choices.lead == (sentinel,)
    [batch] = one.batches()
    assert batch.inputs["decoder_input_ids"].tolist() == [[0, sentinel]] * 2
    found = ask(
        question(material, model=str(tmp_path), task=task, arms=("zero-shot", "lora")), tmp_path / "run", quiet=True
    )
    assert [arm["status"] for arm in found.results["arms"]] == ["done", "done"]
