"""The column "forgets": what is measured on text that has nothing to do with the task, and how it is shown."""

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import masked
import pytest
import tinyrun
import torch
import transformers as tf

from tunescope import report
from tunescope.attachment.artifact_folder import load
from tunescope.attachment.attached import attach
from tunescope.attachment.guards.marks import attached_to
from tunescope.comparison import comparison, estimate, other_text, preview, run
from tunescope.comparison.comparison import compare
from tunescope.comparison.other_text import of_arm
from tunescope.errors import UserError
from tunescope.report import terminal
from tunescope.system import run_folder
from tunescope.trial import identity, plan, plan_check, plan_fields, plan_json
from tunescope.trial.command import command
from tunescope.trial.open import open_bench
from tunescope.trial.train.microbatches import OutOfMemory
from tunescope.trial.train.settings import Settings

ARMS = ("zero-shot", "demos:k=1", "prefix:length=2", "lora:rank=1")


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """A tiny GPT-2 of 128 positions whose tokenizer knows every letter, and rows."""
    folder = tmp_path_factory.mktemp("material")
    _, data = tinyrun.write(folder)
    tokenizer = masked.byte_level()
    tokenizer.model_max_length = 128
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = tf.GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, n_positions=128)
        tf.GPT2LMHeadModel(config).eval().save_pretrained(folder / "english")
    tokenizer.save_pretrained(folder / "english")
    (folder / "other.txt").write_text("the film was in every way about the news, and not about sport.\n" * 40)
    return str(folder / "english"), data, str(folder / "other.txt")


def question(material, **changes):
    model, data, _ = material
    settings = Settings(steps=4, batch_size=8, eval_every=4)
    fields = {"model": model, "data": data, "arms": ARMS, "seeds": (0, 1), "rates": (0.05,), "settings": settings}
    return plan_check.check(plan.Plan(**({"beyond": 0} | fields | changes)))


@pytest.fixture(scope="module")
def bench(material):
    return open_bench(question(material))


def on(bench, asked, folder):
    bench.plan = asked
    return comparison.run(asked, folder, tinyrun.opened(bench), by_name=True, quiet=True)


@pytest.fixture(scope="module")
def done(bench, material, tmp_path_factory):
    return on(bench, question(material), tmp_path_factory.mktemp("done") / "run")


def arm(found, name):
    return next(one for one in found.results["arms"] if one["name"] == name)


def by_transformers(model, windows):
    """Each window's loss as transformers itself counts it: the mean of the next token's."""
    return [float(model(input_ids=torch.tensor([row]), labels=torch.tensor([row])).loss) for row in windows]


@torch.no_grad()
def test_a_run_has_what_its_saved_artifact_costs_each_window(bench, done):
    windows = bench.other[""][0].rows
    assert (len(windows), len(windows[0])) == (16, 64)  # half of the positions
    begun = [[0, *row] for row in windows]  # <s> first, whose successor is not counted

    def losses():
        return [
            (loss * 64 - first) / 63 for loss, first in zip(by_transformers(bench.model, begun), firsts(), strict=True)
        ]

    def firsts():
        logits = [bench.model(input_ids=torch.tensor([row])).logits[0, 0] for row in begun]
        return [float(-row.log_softmax(-1)[window[0]]) for row, window in zip(logits, windows, strict=True)]

    bare = losses()
    for one in arm(done, "lora:rank=1")["runs"]:
        with attach(bench.model, *load(run_folder.folder(done.folder, one["id"]) / "artifact")):
            changes = [late - early for early, late in zip(bare, losses(), strict=True)]
        assert one["forgetting"]["changes"] == pytest.approx(changes, abs=2e-5)
        assert one["forgetting"]["before"] == pytest.approx(fmean(bare), abs=1e-5)
        assert one["forgetting"]["after"] - one["forgetting"]["before"] == pytest.approx(fmean(changes), abs=2e-5)
        assert any(abs(change) > 1e-3 for change in changes)


def test_an_arm_has_the_mean_over_seeds_and_the_standard_error_over_windows(done):
    for name in ARMS[1:]:
        runs = [one["forgetting"]["changes"] for one in arm(done, name)["runs"]]
        assert len(runs) == 2
        means = [(first + second) / 2 for first, second in zip(*runs, strict=True)]
        found = arm(done, name)["forgetting"]
        assert found["change"] == pytest.approx(fmean(means)) and found["change"] != 0
        assert found["error"] == pytest.approx(stdev(means) / math.sqrt(16))


def test_the_model_as_it_is_is_the_reference(done):
    found = arm(done, "zero-shot")
    assert found["forgetting"] == {"change": 0.0, "error": 0.0, "reason": ""}
    assert found["runs"][0]["forgetting"]["before"] == arm(done, "lora:rank=1")["runs"][0]["forgetting"]["before"]


def test_afterwards_nothing_is_attached(bench, done):
    assert attached_to(bench.model) is None
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in bench.model.modules())


def test_results_table_and_page_have_the_column_and_say_what_it_is(done):
    told = done.results["forgetting"]
    assert (told["path"], told["windows"], told["tokens"]) == ("bundled English prose", 16, 64)
    shown = f"{arm(done, 'lora:rank=1')['forgetting']['change']:+.3f}".replace("-", "−")
    row, *_ = [line for line in terminal.table(done.results).splitlines() if line.strip().startswith("lora:rank=1")]
    assert shown in row and "forgets" in terminal.table(done.results)
    assert "16 windows of 64 tokens of bundled English prose" in " ".join(terminal.table(done.results).split())
    page = (done.folder / "report.html").read_text()
    assert ">Forgets</th>" in page and f">{shown}<" in page
    assert "no loss of knowledge" in page


def test_a_finished_run_is_not_measured_again(bench, material, done, monkeypatch):
    monkeypatch.setattr(other_text, "window_losses", lambda *_, **__: pytest.fail("measured again"))
    again = on(bench, question(material), done.folder)
    assert [one["forgetting"] for one in again.results["arms"]] == [one["forgetting"] for one in done.results["arms"]]


def test_another_text_is_measured_without_training_and_is_resumed_with(bench, material, tmp_path, monkeypatch):
    first = on(bench, question(material), tmp_path / "run")
    monkeypatch.setattr(run, "train", lambda *_, **__: pytest.fail("trained again"))
    monkeypatch.setattr(run.score, "score", lambda *_, **__: pytest.fail("scored again"))
    asked = question(material, forgetting=material[2])
    second = on(bench, asked, tmp_path / "run")
    assert second.results["forgetting"]["path"] == "other.txt"
    assert arm(second, "lora:rank=1")["forgetting"] != arm(first, "lora:rank=1")["forgetting"]
    assert arm(second, "lora:rank=1")["score"] == arm(first, "lora:rank=1")["score"]
    assert plan_json.from_json(run_folder.read_config(tmp_path / "run"), tmp_path).forgetting == material[2]
    with pytest.raises(UserError, match="differs in: arms"):
        on(bench, replace(asked, arms=("zero-shot",)), tmp_path / "run")


def test_a_run_that_was_tested_by_an_older_version_is_measured_from_its_artifact(bench, material, done, tmp_path):
    for path in done.folder.glob(f"arms/*/{other_text.FILE}"):
        path.unlink()
    again = on(bench, question(material), done.folder)
    assert [one["forgetting"] for one in again.results["arms"]] == [one["forgetting"] for one in done.results["arms"]]


def test_the_text_is_no_part_of_the_folders_name_and_of_the_command_only_where_it_is_named(material):
    plain, asked = question(material), question(material, forgetting="/a/folder/other.txt")
    assert identity.default_folder(plain) == identity.default_folder(asked)
    assert "--forgetting" not in command(plain)
    assert "--forgetting other.txt" in command(asked) and "/a/folder" not in command(asked)
    assert "--forgetting none" in command(replace(plain, forgetting="none"))


def test_none_leaves_it_out(bench, material, tmp_path):
    found = on(bench, question(material, arms=("zero-shot", "lora:rank=1"), forgetting="none"), tmp_path / "run")
    assert found.results["forgetting"] is None and arm(found, "lora:rank=1")["forgetting"] is None
    assert not list(found.folder.glob(f"arms/*/{other_text.FILE}"))
    assert (
        "forgets" not in terminal.table(found.results)
        and "orget" not in (found.folder / "report.html").read_text().split("<pre")[0].split("<body>")[1]
    )


def test_a_context_without_room_for_a_window_has_no_figure_and_says_why(bench, material, tmp_path):
    found = on(bench, question(material, arms=("zero-shot", "soft:length=70")), tmp_path / "run")
    reason = "its context leaves 58 of the model's positions, and a window takes 66"
    assert arm(found, "soft:length=70")["forgetting"] == {"change": None, "error": None, "reason": reason}
    assert reason in " ".join(terminal.table(found.results).split())


@pytest.mark.parametrize("problem", [OutOfMemory("no room"), ZeroDivisionError("oops")])
def test_what_goes_wrong_costs_the_arm_its_figure_alone_and_is_tried_again(
    bench, material, tmp_path, monkeypatch, problem
):
    def fails(*_, **__):
        raise problem

    asked = question(material, arms=("lora:rank=1",), seeds=(0,))
    with monkeypatch.context() as patch:
        patch.setattr(other_text, "losses", fails)
        found = on(bench, asked, tmp_path / "run")
    one = arm(found, "lora:rank=1")
    assert one["status"] == "done" and one["score"] is not None
    assert one["forgetting"]["change"] is None and str(problem) in one["forgetting"]["reason"]
    assert arm(on(bench, asked, tmp_path / "run"), "lora:rank=1")["forgetting"]["change"] is not None


def test_a_tokenizer_that_does_not_know_the_text_gives_no_figure_and_the_reason(tmp_path):
    model, data = tinyrun.write(tmp_path)
    found = compare(model, data, arms=["zero-shot"], seeds=1, device="cpu", out=tmp_path / "run", quiet=True)
    assert "the tokenizer knows" in found.results["forgetting"]["reason"]
    assert found.results["arms"][0]["forgetting"]["change"] is None
    assert "forgets: not measured: the tokenizer knows" in terminal.table(found.results)
    assert "Forgetting was not measured: the tokenizer knows" in (found.folder / "report.html").read_text()


def test_an_encoder_with_a_head_has_no_loss_of_its_own(tmp_path):
    _, data = tinyrun.write(tmp_path)
    model, tokenizer = masked.make("bert", dtype=torch.float32)
    settings = Settings(steps=2, batch_size=8, eval_every=2)
    found = compare(
        model.bert, data, tokenizer=tokenizer, arms=["head"], rates=(1e-3,), seeds=1, device="cpu", settings=settings,
        out=tmp_path / "run", quiet=True,
    )  # fmt: skip
    assert "a classification head has no loss of its own" in found.results["forgetting"]["reason"]


@pytest.mark.parametrize("kind", ["t5", "bert"])
def test_the_other_kinds_of_model_have_a_figure(tmp_path, kind):
    _, data = tinyrun.write(tmp_path)
    model, tokenizer = masked.make(kind, dtype=torch.float32)
    text = tmp_path / "other.txt"
    text.write_text("the film was good and the plot is not dull in every way\n" * 40)
    task = {"t5": "classification", "bert": {"kind": "classification", "by": "words"}}[kind]
    asked = plan.Plan(task={"kind": "classification"} if kind == "t5" else task, arms=("zero-shot", "lora:rank=1"))
    asked = replace(asked, rates=(0.05,), seeds=(0,), settings=Settings(steps=2, batch_size=8, eval_every=2))
    words = {"neg": "bad", "pos": "good"}
    asked = replace(asked, task={**asked.task, "words": words}, forgetting=str(text))
    found = compare(model, data, tokenizer=tokenizer, plan=asked, out=tmp_path / "run", quiet=True)
    assert [one["forgetting"]["change"] is not None for one in found.results["arms"]] == [True, True]
    assert arm(found, "lora:rank=1")["forgetting"]["change"] != 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "--forgetting: Cannot read .*No such file"),
        ("one short line", "--forgetting wrong.txt is shorter than a window of 64 tokens"),
    ],
)
def test_a_text_that_cannot_be_used_is_told_before_anything_is_trained(material, tmp_path, content, says):
    model, data, _ = material
    path = tmp_path / "wrong.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=says) as caught:
        compare(model, data, arms=["lora"], seeds=1, forgetting=path, device="cpu", out=tmp_path / "run", quiet=True)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "run").glob("arms/*"))
    with pytest.raises(UserError, match=says):
        next(preview.lines(open_bench(question(material, forgetting=str(path)))))


def test_a_path_is_kept_whole_and_none_as_it_is(material, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert plan_fields.text_path("a.txt") == str(tmp_path / "a.txt") and plan_fields.text_path(Path("none/a")) == str(
        tmp_path / "none/a"
    )
    assert plan_fields.text_path("none") == "none" and plan_fields.text_path("") == ""


def test_check_counts_it(bench, material, monkeypatch):
    monkeypatch.setattr(estimate, "_seconds", lambda work: (work(), 1.0)[1])
    totals = {}
    for text in ("", "none"):
        bench.plan = question(material, forgetting=text, arms=("lora:rank=1",))
        totals[text] = estimate.estimates(bench)[0].total_seconds
    assert totals[""] - totals["none"] == pytest.approx(2 * 16)  # seeds times windows


def test_of_long_rows_a_part_of_a_step_is_timed_and_the_whole_told(bench, material, monkeypatch):
    steps = []

    def timed(problem, settings, optimizer, rows, step):
        steps.append(len(rows))

    monkeypatch.setattr(estimate, "_seconds", lambda work: (work(), float(steps[-1] if steps else 1))[1])
    monkeypatch.setattr(estimate, "one_step", timed)
    bench.plan = question(material, arms=("lora:rank=1",), forgetting="none")
    (whole,) = estimate.estimates(bench)
    batch, longest = steps[0], max(len(row.input_ids) for row in bench.encoded("train", room=None))
    monkeypatch.setattr(estimate, "TOKENS", 2 * longest)
    steps.clear()
    (part,) = estimate.estimates(bench)
    assert max(steps) < batch and part.step_seconds == pytest.approx(whole.step_seconds, rel=0.2)


def test_check_counts_nothing_for_an_arm_that_leaves_no_artifact(bench, material, monkeypatch):
    monkeypatch.setattr(estimate, "_seconds", lambda work: 1.0)
    bench.plan = question(material, arms=("demos:k=1,choose=similar",))
    (own,) = estimate.estimates(bench)
    bench.plan = replace(bench.plan, forgetting="none")
    assert own.total_seconds == estimate.estimates(bench)[0].total_seconds > 0


def test_an_arm_of_which_a_run_has_no_figure_has_none():
    good = {"forgetting": {"changes": [1.0], "reason": ""}}
    assert of_arm([good]) == {"change": 1.0, "error": None, "reason": ""}
    assert of_arm([good, {"forgetting": {"changes": None, "reason": "why"}}])["reason"] == "why"
    assert of_arm([good, {}]) is None and of_arm([]) is None


def test_results_of_an_older_version_are_shown_without_the_column(done):
    old = json.loads(json.dumps(done.results))
    del old["forgetting"]
    for one in old["arms"]:
        del one["forgetting"]
    assert "forgets" not in terminal.table(old) and "Forgets" not in report.page.html(old)
