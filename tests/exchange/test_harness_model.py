"""lm-evaluation-harness asks a tuned model what it asks its own `hf`: that one is the oracle, on any weights."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import harness_tasks
import pytest
import tiny
import torch

import tunescope as ts
from tunescope.cli import app
from tunescope.errors import UserError
from tunescope.exchange.harness import entry

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed: pip install 'tunescope[lm_eval]'")
pytestmark = pytest.mark.filterwarnings("default")
Answers = dict[str, list[Any]]
NAMES = ("choosing", "writing", "reading")
COMMON = {"dtype": "float32", "device": "cpu", "batch_size": 4}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return harness_tasks.model(tmp_path_factory.mktemp("harness") / "model")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return harness_tasks.write(tmp_path_factory.mktemp("tasks") / "plain")


@pytest.fixture
def saved(base: str, tmp_path: Path) -> Callable[..., str]:
    """Specs -> the folder of their artifacts, every tensor away from 0."""

    def made(name: str, *specs: Any, of: str = base) -> str:
        model, tokenizer = harness_tasks.loaded(of)
        with ts.attach(model, *specs, tokenizer=tokenizer, seed=1) as tuned:
            artifacts = tuned.artifacts
        draw = torch.Generator().manual_seed(2)
        for artifact in artifacts:
            for value in artifact.tensors.values():
                if value.is_floating_point():
                    value += 0.05 * torch.randn(value.shape, generator=draw)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        return str(ts.save(tmp_path / name, artifacts, model=model, tokenizer=tokenizer))

    return made


def made(kind: str, **given: Any) -> Any:
    """The harness's model of that name, as its command makes it."""
    from lm_eval.api.registry import get_model

    entry.register()
    return get_model(kind).create_from_arg_obj(COMMON | given)


def answers(lm: Any, folder: Path, names: Sequence[str] = NAMES) -> Answers:
    """Task -> what the model answered to each of its requests."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(folder), include_defaults=False)
    found = simple_evaluate(lm, tasks=list(names), task_manager=manager, log_samples=True, bootstrap_iters=0)
    return {name: [one["resps"] for one in found["samples"][name]] for name in names}


def numbers(found: Answers, name: str) -> torch.Tensor:
    flat = [one for row in found[name] for (one,) in row]
    return torch.tensor([one[0] if isinstance(one, tuple) else one for one in flat], dtype=torch.float64)


def same(got: Answers, wanted: Answers, names: Sequence[str] = NAMES) -> None:
    """To 1e-5 of each number, and the same texts."""
    for name in names:
        if name == "writing":
            assert got[name] == wanted[name]
        else:
            torch.testing.assert_close(numbers(got, name), numbers(wanted, name), rtol=1e-5, atol=1e-5)


def test_without_an_artifact_it_is_hf_to_the_last_digit(base: str, tasks: Path) -> None:
    got, wanted = answers(made("tunescope", base=base), tasks), answers(made("hf", pretrained=base), tasks)
    assert got == wanted
    assert len(got["choosing"]) == 20 and len({text for [[text]] in got["writing"]}) > 5


def test_lora_is_hf_of_the_merged_checkpoint(base: str, tasks: Path, saved: Any, tmp_path: Path) -> None:
    folder = saved("lora", ts.LoRA(rank=2))
    model, tokenizer = harness_tasks.loaded(base)
    ts.merge(model, *ts.load(folder)).save_pretrained(tmp_path / "merged")
    tokenizer.save_pretrained(tmp_path / "merged")
    got, wanted = (
        answers(made("tunescope", base=base, artifact=folder), tasks),
        answers(made("hf", pretrained=str(tmp_path / "merged")), tasks),
    )
    same(got, wanted)
    bare = answers(made("tunescope", base=base), tasks, ["choosing"])
    assert (numbers(got, "choosing") - numbers(bare, "choosing")).abs().max() > 1e-3


def test_words_are_the_same_words_in_front_of_the_text(base: str, tasks: Path, saved: Any, tmp_path: Path) -> None:
    front = harness_tasks.FRONT + "\n"
    written = harness_tasks.write(tmp_path / "written")
    for path in written.glob("*ing.yaml"):
        path.write_text(path.read_text().replace('"{{question}}', f'"{harness_tasks.FRONT}\\n{{{{question}}}}'))
    lm = made("tunescope", base=base, artifact=saved("words", ts.Text(text=front)))
    names = ("choosing", "writing")
    same(answers(lm, tasks, names), answers(made("hf", pretrained=base), written, names), names)


@pytest.mark.parametrize("n_words", [1, 3])
def test_a_whole_text_behind_words_is_read_on_from_them(base: str, saved: Any, n_words: int) -> None:
    from lm_eval.api.instance import Instance

    def asked(kind: str, texts: list[tuple[str, ...]]) -> list[Instance]:
        return [Instance(request_type=kind, doc={}, arguments=one, idx=index) for index, one in enumerate(texts)]

    front = " ".join(harness_tasks.FRONT.split()[:n_words])
    texts = [" " + one["question"] for one in harness_tasks.docs(6, 0)]
    lm = made("tunescope", base=base, artifact=saved("words", ts.Text(text=front), ts.LoRA(rank=2)))
    model, tokenizer = harness_tasks.loaded(base)
    for _ in range(2):  # what was attached stands again
        got = lm.loglikelihood_rolling(asked("loglikelihood_rolling", [(one,) for one in texts]))
        with ts.attach(model, ts.load(lm._folders[0])[1]), torch.no_grad():
            wanted = []
            for text in texts:
                ids = torch.tensor([tokenizer(front + text)["input_ids"]])
                logs = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])
                wanted.append(float(logs[len(tokenizer(front)["input_ids"]) - 1 :].sum()))
        torch.testing.assert_close(torch.tensor(got), torch.tensor(wanted), rtol=1e-5, atol=1e-5)
    with pytest.raises(
        UserError, match=r"begins a text without a context with a start token, and the words of .*words "
    ):
        lm.loglikelihood(asked("loglikelihood", [("", texts[0])]))
    lm.tokenizer.chat_template = "{{ bos_token }}{{ messages[0].content }}"
    if lm.tokenizer.bos_token:
        with pytest.raises(
            UserError, match=r"begins a chat with a start token, and the words of .*words stand in front"
        ):
            lm.apply_chat_template([{"role": "user", "content": "w7"}])


@pytest.mark.parametrize("n_words", [1, 3])
def test_the_words_stand_in_front_of_every_window_of_a_text_that_is_too_long(
    base: str, saved: Any, n_words: int
) -> None:
    """The harness's own windows: each of as many tokens as there is room for, behind the last token before it."""
    from lm_eval.api.instance import Instance

    front, words = " ".join(harness_tasks.FRONT.split()[:n_words]), "w5 w9 w4 w7 w5 w3 w9 w8 w2 w5 w6 w9 w1 w5 w5 w5 w2"
    model, tokenizer = harness_tasks.loaded(base)
    before, text = tokenizer(front)["input_ids"], tokenizer(" " + words, add_special_tokens=False)["input_ids"]
    folder = saved("words", ts.Text(text=front))
    lm = made("tunescope", base=base, artifact=folder, max_length=4 + len(before))
    (got,) = lm.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (" " + words,), 0)])

    def sum_of(context: list[int], asked: list[int]) -> float:
        ids = torch.tensor([[*before, *context, *asked]])
        with torch.no_grad():
            logs = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])
        return float(logs[-len(asked) :].sum())

    wanted = sum_of([], text[:4])
    for begin in range(4, len(text), 4):
        end = min(begin + 4, len(text))
        wanted += sum_of(text[end - 5 : begin], text[begin:end])  # whose last window has more in front
    assert got == pytest.approx(wanted, abs=1e-4)


def test_an_encoder_decoder_with_words_and_lora_is_hf_so(base: str, tasks: Path, saved: Any, tmp_path: Path) -> None:
    t5, names = harness_tasks.model(tmp_path / "t5", "t5"), ("choosing", "writing")
    folder = saved("both", ts.Text(text="w5 w9 w4"), ts.LoRA(rank=2, sites=("attn.q", "ffn.out")), of=t5)
    model, tokenizer = harness_tasks.loaded(t5)
    ts.merge(model, ts.load(folder)[1]).save_pretrained(tmp_path / "merged")
    tokenizer.save_pretrained(tmp_path / "merged")
    written = harness_tasks.write(tmp_path / "written")
    for path in written.glob("*ing.yaml"):
        path.write_text(path.read_text().replace('"{{question}}', '"w5 w9 w4 {{question}}'))
    got = answers(made("tunescope", base=t5, artifact=folder), tasks, names)
    wanted = answers(made("hf", pretrained=str(tmp_path / "merged")), written, names)
    same(got, wanted, ["choosing"])
    for ours, theirs in zip(got["writing"], wanted["writing"], strict=True):  # hf may write on by the prompt's length
        assert ours[0][0] and theirs[0][0].startswith(ours[0][0])


def test_a_prefix_scores_as_tunescope_scores_with_it(base: str, tasks: Path, saved: Any) -> None:
    from tunescope.tasks.answers.likelihood import word_scores

    folder = saved("prefix", ts.Prefix(length=5))
    got = answers(made("tunescope", base=base, artifact=folder), tasks, ["choosing"])
    model, tokenizer = harness_tasks.loaded(base)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    wanted = []
    with ts.attach(model, *ts.load(folder), tokenizer=tokenizer):
        for one in harness_tasks.docs(20, 0):
            prompt = f"{one['question']}\nw8:"
            start = tuple(tokenizer(prompt)["input_ids"])
            words = [tuple(tokenizer(f"{prompt} {each}")["input_ids"][len(start) :]) for each in one["options"]]
            wanted += word_scores(model, [start], words, tokenizer)[0].tolist()
    torch.testing.assert_close(numbers(got, "choosing"), torch.tensor(wanted).double(), rtol=1e-5, atol=1e-5)


def test_several_stand_in_their_order_and_those_of_a_bank_are_folders_in_it(base: str, tasks: Path, saved: Any) -> None:
    soft, lora = saved("anna", ts.Soft(length=3)), saved("ben", ts.LoRA(rank=2))
    both = saved("both", *ts.load(soft), *ts.load(lora))
    model, tokenizer = harness_tasks.loaded(base)
    with ts.attach(model, *ts.load(both), tokenizer=tokenizer):  # `saved` has moved the tensors once more
        ids = torch.tensor([tokenizer("w7 w8 w9")["input_ids"]])
        with torch.no_grad():
            wanted = model(ids).logits
    lm = made("tunescope", base=base, artifact=both)
    assert torch.equal(lm._model_call(ids), wanted)
    bank = ts.Bank.folder(Path(soft).parent)
    assert {"anna", "ben"} <= set(bank)
    two = made("tunescope", base=base, artifact=f"{soft}+{lora}")
    with ts.attach(model, *ts.load(soft), *ts.load(lora), tokenizer=tokenizer), torch.no_grad():
        assert torch.equal(two._model_call(ids), model(ids).logits)
    assert all(name in two.get_model_info()["artifact"] for name in ("anna", "ben"))
    alike = [saved(f"{run}/best", ts.LoRA(rank=rank)) for rank, run in enumerate(("one", "two"), start=1)]
    told = json.loads(made("tunescope", base=base, artifact="+".join(alike)).get_model_info()["artifact"])
    assert list(told) == alike and len(set(told.values())) == 2


def test_contexts_count_among_the_positions(base: str, saved: Any) -> None:
    bare = made("tunescope", base=base)
    lm = made("tunescope", base=base, artifact=saved("soft", ts.Soft(length=3)))
    assert lm.max_length == bare.max_length - 3
    with pytest.raises(UserError, match=r"soft takes 3 positions, which is all that .* has\."):
        made("tunescope", base=base, artifact=saved("again/soft", ts.Soft(length=3)), max_length=3)


def test_what_cannot_be_right_is_refused_in_a_line(base: str, saved: Any, tmp_path: Path) -> None:
    words, infix = saved("words", ts.Text(text=harness_tasks.FRONT)), saved("infix", ts.Infix(length=2))
    for given, said in (
        ({}, r"^Type: --model_args base=MODEL,artifact=FOLDER$"),
        (
            {"base": base, "peft": "x"},
            r"^peft= brings weights that no artifact was made for\. Type: --model_args base=",
        ),
        ({"base": base, "artifact": str(tmp_path)}, r"is no saved artifact"),
        ({"base": base, "artifact": f"{words}+{infix}"}, r"words\+.*infix acts from where the answer begins"),
        ({"base": base, "artifact": words, "add_bos_token": True}, r"^add_bos_token=True: the words in front have beg"),
    ):
        with pytest.raises(UserError, match=said):
            made("tunescope", **given)


def test_an_encoder_and_another_base_are_refused(saved: Any, tmp_path: Path) -> None:
    lora = saved("lora", ts.LoRA(rank=2))
    for family, said in (
        ("bert", r"is an encoder, which writes no text: the harness asks decoders\.$"),
        ("gpt2", r"was made for another base model"),
    ):
        tiny.make(family, dtype=torch.float32).save_pretrained(tmp_path / family)
        tiny.tokenizer().save_pretrained(tmp_path / family)
        with pytest.raises(UserError, match=said):
            made("tunescope", base=str(tmp_path / family), artifact=lora)


def test_the_harness_s_own_command_finds_it(
    base: str,
    tasks: Path,
    saved: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    args = f"base={base},artifact={saved('lora', ts.LoRA(rank=2))},dtype=float32"
    words = ("--model", "tunescope", "--model_args", args, "--tasks", "choosing", "--include_path", str(tasks))
    more = ("--device", "cpu", "--batch_size", "4", "--output_path", str(tmp_path / "out"))
    monkeypatch.setattr(sys, "argv", ["tunescope", "lm-eval", *words, *more])
    app.main()
    assert "|choosing|" in capsys.readouterr().out
    (written,) = (tmp_path / "out").rglob("results_*.json")
    assert '"artifact": "{\\"lora\\"' in written.read_text()
