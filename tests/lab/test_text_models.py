"""Small language models of texts: what is learned, what is kept, and that adapting goes on from the base."""

import gzip
import json
import re
from dataclasses import asdict, replace
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

import tunescope as ts
from tunescope.errors import UserError
from tunescope.lab.worlds import text_files, text_models, texts
from tunescope.lab.worlds.manifest import digests, read_manifest
from tunescope.lab.worlds.text_models import Size, TextModel, held_out_loss, loss, main, pretrained, rates_of
from tunescope.models.load import load_model
from tunescope.system import run_folder
from tunescope.system.lock import locked
from tunescope.tasks.kinds.classification import Classification
from tunescope.trial.train.settings import Settings

LINES = [f"the {n} birds flew over {n * 7} hills and sang" for n in range(200)]
MODEL = TextModel(
    "decoder",
    "digest",
    Settings(steps=30, batch_size=8, eval_every=15),
    Size(layers=1, heads=2, width=32, vocabulary=450, length=16),
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TUNESCOPE_CACHE", str(tmp_path_factory.getbasetemp() / "text-cache"))


def test_a_decoder_learns_its_texts_and_loads_as_any_model_does():
    folder = pretrained(MODEL, lambda: LINES)
    facts = json.loads((folder / "MANIFEST.json").read_text())
    model, words = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    rows = texts.corpus(LINES, words, 16, seed=0).held_out
    logits = model(rows).logits[:, :-1]
    by_hand = float(F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).detach())
    assert facts["losses"]["language model"] == pytest.approx(by_hand, rel=1e-5)
    assert by_hand < torch.tensor(len(words)).log() - 1
    assert facts["parameters"] == model.num_parameters()


def test_the_same_model_is_made_once_and_another_seed_is_another_model():
    folder = pretrained(MODEL, lambda: LINES)
    assert pretrained(MODEL, lambda: pytest.fail("read again")) == folder
    assert replace(MODEL, seed=1).identity != MODEL.identity != replace(MODEL, sha256="other").identity


@pytest.mark.parametrize("kind", ["decoder", "masked"])
def test_what_is_cut_off_is_gone_on_from_to_the_same_bits(tmp_path, monkeypatch, kind):
    model = replace(MODEL, kind=kind)
    whole = pretrained(model, lambda: LINES)
    monkeypatch.setenv("TUNESCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr(text_models, "SAVE_EVERY", 0.0)
    seen = []

    def cut(now):
        seen.append(now.step)
        if len(seen) == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrained(model, lambda: LINES, cut, saving=True)
    folder = pretrained(model, lambda: LINES, cut, saving=True)
    assert seen == [*range(1, 21), *range(20, 31)]  # of the step that was cut off nothing was kept
    assert (folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_two_processes_that_save_do_not_make_one_model(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNESCOPE_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="is in use by process"), locked(tmp_path / "texts" / f"{MODEL.identity}.begun"):
        pretrained(MODEL, lambda: LINES, saving=True)


def test_the_command_says_how_far_it_is_and_what_it_made(tmp_path, capsys, monkeypatch):
    (tmp_path / "lines.txt").write_text("\n".join(LINES * 5))
    sizes = ["--steps", "5", "--layers", "1", "--width", "32", "--precision", "float32"]
    monkeypatch.setattr("sys.argv", ["text_models", str(tmp_path), "--out", str(tmp_path / "made"), *sizes])
    monkeypatch.setattr(text_models, "EVERY", 5)
    main()
    out, err = capsys.readouterr()
    assert re.fullmatch(r"step 5 of 5: loss \d\.\d{3}, 0 minutes left\n", err)
    assert re.fullmatch(r".*made: [\d,]+ parameters; nats a token held out: language model \d\.\d{3}\n", out)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "made").config.num_hidden_layers == 1
    assert read_manifest(tmp_path / "made")["recipe"]["settings"]["precision"] == "float32"


def test_a_copy_that_was_cut_off_is_made_whole_by_the_same_command(tmp_path, monkeypatch):
    (tmp_path / "lines.txt").write_text("\n".join(LINES * 5))
    sizes = ["--steps", "2", "--layers", "1", "--width", "32", "--precision", "float32"]
    monkeypatch.setattr("sys.argv", ["text_models", str(tmp_path), "--out", str(tmp_path / "made"), *sizes])

    def cut(folder, out, **how):
        (out / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes()[:9])
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr("shutil.copytree", cut)
        with pytest.raises(KeyboardInterrupt):
            main()
    main()
    assert read_manifest(tmp_path / "made")["sha256"] == digests(tmp_path / "made")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--width", "100"], "--width 100: heads are of 32, so it is a multiple of that"),
        (["--width", "8"], "--width 8: heads are of 32"),
        (["--steps", "0"], "--steps and --layers are at least 1"),
        (["--adapted", "5"], "--adapted is of --kind t5: it makes a language model of one, and not of a decoder"),
        ([], "has no text file"),
        (["--out", "a.md/made"], "--out a.md/made: a file stands there; name a folder"),
        (["--out", "."], "--out . holds other files, and no model of texts; name another folder"),
    ],
)
def test_what_cannot_be_made_is_told_in_a_line(tmp_path, capsys, monkeypatch, given, told):
    (tmp_path / "a.md").write_text("no text")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["text_models", str(tmp_path), "--out", str(tmp_path / "made"), *given])
    with pytest.raises(SystemExit):
        main()
    assert told in capsys.readouterr().err.splitlines()[-1]


def test_texts_that_are_not_there_are_told_in_a_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["text_models", str(tmp_path / "none"), "--out", str(tmp_path / "made")])
    with pytest.raises(SystemExit):
        main()
    assert f"there is no file or folder {tmp_path / 'none'}" in capsys.readouterr().err.splitlines()[-1]


def test_texts_of_one_name_in_two_folders_are_two_texts(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "t.txt").write_text(folder)
    before = text_files.digest(str(tmp_path))
    (tmp_path / "a" / "t.txt").write_text("other")
    assert text_files.digest(str(tmp_path)) != before


def test_the_rates_of_a_t5_go_by_the_size_of_each_tensor_and_a_decoders_are_one():
    some = {"large": torch.tensor([3.0, -4.0]), "small": torch.full((2, 2), 0.01), "none": torch.zeros(3)}
    t5, decoder = replace(MODEL, kind="t5"), replace(MODEL, kind="decoder")
    assert rates_of(some, t5) == pytest.approx({"large": 0.02 * 12.5**0.5, "small": 2e-4, "none": 2e-5})
    assert len(set(rates_of(some, decoder).values())) == 1


@pytest.mark.parametrize(("kind", "rates"), [("decoder", [2e-3, 1e-3]), ("masked", [1e-3, 5e-4]), ("t5", [2e-2, 2e-2])])
def test_a_rate_falls_as_the_width_grows_where_it_is_not_relative_to_a_tensor(kind, rates):
    """By hand: twice the width, half the rate, and half the width the same; and the model is another."""
    narrow, one, wide = (replace(MODEL, kind=kind, size=Size(width=width)) for width in (96, 192, 384))
    assert [one.rate, wide.rate] == pytest.approx(rates)
    assert narrow.rate == one.rate
    assert one.identity != wide.identity


def test_lm_adaptation_goes_on_from_span_corruption_and_gets_better_at_second_halves():
    base = replace(MODEL, kind="t5", settings=replace(MODEL.settings, steps=60))
    adapted = replace(base, adapted=60)
    one, other = (pretrained(model, lambda: LINES) for model in (base, adapted))
    losses = [json.loads((folder / "MANIFEST.json").read_text())["losses"] for folder in (one, other)]
    assert losses[1]["second half"] < losses[0]["second half"] - 0.3
    assert set(losses[0]) == {"span corruption", "second half"}
    model, words = AutoModelForSeq2SeqLM.from_pretrained(other), AutoTokenizer.from_pretrained(other)
    inputs, targets = texts.halves(texts.corpus(LINES, words, 16, seed=0).held_out, words)
    by_hand = float(model(input_ids=inputs, labels=targets).loss.detach())
    assert held_out_loss(model, inputs, targets) == pytest.approx(by_hand, rel=1e-5)


def test_a_masked_model_tells_masked_words_and_answers_in_words_as_any_does():
    masked = replace(MODEL, kind="masked", settings=replace(MODEL.settings, steps=60))
    folder = pretrained(masked, lambda: LINES)
    model, words = load_model(str(folder), in_words=True)
    inputs, targets = texts.masked(texts.corpus(LINES, words, 16, seed=0).held_out, words, seed=0)
    by_hand = float(model(input_ids=inputs, labels=targets).loss.detach())
    (loss,) = json.loads((folder / "MANIFEST.json").read_text())["losses"].values()
    assert loss == pytest.approx(by_hand, rel=1e-5) and by_hand < torch.tensor(len(words)).log() - 1
    task = Classification(template="{text} sang {mask}.", words={"a": "over", "b": "hills"})
    rows = [{"text": "the 3 birds", "label": "a"}, {"text": "the 4 birds", "label": "b"}]
    task = task.prepare({"train": rows}, words, model_kind="encoder")
    (one, _) = task.encode(rows, words, model_kind="encoder")
    assert one.input_ids[one.slot] == words.mask_token_id and words.model_max_length == 16
    ids = words("the 3 birds sang <mask>.", return_tensors="pt")["input_ids"]
    pair = [words(f" {word}")["input_ids"][0] for word in ("over", "hills")]
    scores = model(ids).logits[0, one.slot, pair]
    (answer, _) = task.predict(model, task.encode(rows, words, model_kind="encoder"), words)
    assert answer.text == "ab"[int(scores.argmax())]


def test_a_model_whose_masks_were_drawn_once_is_another_and_a_decoder_is_the_same():
    made = {name: version(name) for name in ("torch", "tokenizers", "tunescope")}
    once = {kind: replace(MODEL, kind=kind) for kind in ("decoder", "masked", "t5")}
    same = {kind: run_folder.identity(asdict(one) | {"rate": one.rate} | made) for kind, one in once.items()}
    assert [one.identity == same[kind] for kind, one in once.items()] == [True, False, False]


@pytest.mark.parametrize("kind", ["masked", "t5"])
def test_what_is_to_be_told_of_a_row_is_another_part_at_every_look(tmp_path, monkeypatch, kind):
    monkeypatch.setenv("TUNESCOPE_CACHE", str(tmp_path))
    shown = []

    def kept(network, inputs, targets):
        shown.extend(map(tuple, inputs.tolist() if network.training else ()))
        return loss(network, inputs, targets)

    monkeypatch.setattr(text_models, "loss", kept)
    pretrained(replace(MODEL, kind=kind, size=replace(MODEL.size, length=48)), lambda: LINES)
    assert len(shown) == 30 * 8 and len(set(shown)) > 200  # of fewer than a hundred rows


def test_fifteen_of_a_hundred_tokens_are_to_be_told_and_most_of_them_are_masked():
    words = texts.with_mask(texts.tokenizer(LINES, 450), 100)
    rows = torch.randint(3, 300, (400, 100), generator=torch.Generator().manual_seed(1))
    inputs, targets = texts.masked(rows, words, seed=0)
    asked = targets != -100
    assert torch.equal(asked.sum(1), torch.full((400,), 15)) and torch.equal(targets[asked], rows[asked])
    assert torch.equal(inputs[~asked], rows[~asked])
    masks = (inputs[asked] == words.mask_token_id).double().mean()
    same = (inputs[asked] == rows[asked]).double().mean()
    assert masks == pytest.approx(0.8, abs=0.02) and same == pytest.approx(0.1, abs=0.02)  # of 6,000: .005 of deviation


def test_texts_are_read_from_every_file_of_a_folder_and_another_text_is_another_digest(tmp_path):
    (tmp_path / "b.txt").write_text("two\nthree\n")
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "one"}) + "\n")
    for other in ("notes.md", "a.jsonl.bak", "b.txt~"):
        (tmp_path / other).write_text("not read")
    assert text_files.read(str(tmp_path)) == ["one", "two", "three"]
    book = "word " * 200_001  # longer than a row of data may be
    (tmp_path / "c.jsonl").write_text(json.dumps({"text": book}))
    assert book.strip() in text_files.read(str(tmp_path))
    (tmp_path / "c.jsonl").unlink()
    before = text_files.digest(str(tmp_path))
    (tmp_path / "b.txt").write_text("two\nfour\n")
    assert text_files.digest(str(tmp_path)) != before
    (tmp_path / "D.TXT.GZ").write_bytes(gzip.compress(b"five"))
    assert text_files.read(str(tmp_path)) == ["five", "one", "two", "four"]
    (tmp_path / "none").mkdir()
    with pytest.raises(ts.UserError, match=r"has no text file: \.csv, \.jsonl, \.tsv, \.txt"):
        text_files.read(str(tmp_path / "none"))


def test_rows_are_taken_to_the_device_of_the_network():
    """Oracle: torch, which refuses logits that are elsewhere than their targets."""
    rows = torch.arange(12).view(3, 4)
    logits = torch.empty(3, 3, 12, device="meta")

    class Elsewhere:
        device = torch.device("meta")
        config = SimpleNamespace(is_encoder_decoder=False, model_type="llama")

        def __call__(self, input_ids, use_cache):
            assert input_ids.device == self.device
            return SimpleNamespace(logits=logits)

    assert loss(Elsewhere(), rows, rows).device == Elsewhere.device
