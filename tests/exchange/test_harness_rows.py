"""Tasks of lm-evaluation-harness as rows: asked of a model they score as the harness itself scores them."""

import json
import shutil
from pathlib import Path
from typing import Any

import harness_tasks
import pytest
import warm

from tunescope.cli.options import TaskOptions, question
from tunescope.errors import UserError
from tunescope.exchange.harness import entry, rows
from tunescope.system import files

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed: pip install 'tunescope[lm_eval]'")
pytestmark = pytest.mark.filterwarnings("default")
PARTS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return harness_tasks.write(tmp_path_factory.mktemp("tasks") / "parts", parts=PARTS, count=24)


def read(path: str) -> list[Any]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def changed(tasks: Path, folder: Path, name: str, **lines: str) -> str:
    """A folder with the one task, some lines of its YAML changed; "" takes one out."""
    folder.mkdir()
    text = (tasks / f"{name}.yaml").read_text().splitlines()
    kept = [line for line in text if line.partition(":")[0] not in lines]
    (folder / f"{name}.yaml").write_text("\n".join([*kept, *(f"{key}: {line}" for key, line in lines.items() if line)]))
    return str(folder)


def test_choices_of_each_row_are_rows_of_the_kind_choice(tasks: Path, tmp_path: Path) -> None:
    found = rows.taken("choosing", str(tasks), tmp_path)
    assert found.task == {"kind": "choice", "template": "{input}"}
    for seed, part in enumerate(("train", "dev", "test")):
        wanted = [
            {"input": f"{one['question']}\nw8:", "choices": one["options"], "answer": one["answer"]}
            for one in harness_tasks.docs(24, seed)
        ]
        assert read(found.data[part]) == wanted
    assert found.notes[0] == "lm_eval:choosing: 24 train, 24 dev, 24 test rows"
    assert rows.taken("choosing", str(tasks), tmp_path) == found  # the same folder
    assert len(list(tmp_path.iterdir())) == 1


def test_of_two_that_take_a_task_together_both_have_it(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rows.taken("choosing", str(tasks), tmp_path / "first")
    put_first = files.put_first

    def late(made: Path, path: Path) -> None:
        shutil.copytree(made, path)  # another process was quicker
        put_first(made, path)

    with monkeypatch.context() as patched:
        patched.setattr(files, "write", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rows.taken("choosing", str(tasks), tmp_path / "none")
    assert not list((tmp_path / "none").iterdir())
    monkeypatch.setattr(files, "put_first", late)
    found = rows.taken("choosing", str(tasks), tmp_path / "second")
    assert [Path(path).read_bytes() for path in found.data.values()] == [
        Path(path).read_bytes() for path in first.data.values()
    ]
    assert len(list((tmp_path / "second").iterdir())) == 1


def test_texts_to_write_are_rows_of_generation_one_for_each_reference(tasks: Path, tmp_path: Path) -> None:
    found = rows.taken("writing", str(tasks), tmp_path)
    assert found.task == {"kind": "generation", "template": "{input}"}
    assert read(found.data["test"])[0] == {
        "input": f"{harness_tasks.docs(24, 2)[0]['question']}\nw8:",
        "target": harness_tasks.docs(24, 2)[0]["answer"],
    }
    several = changed(tasks, tmp_path / "several", "writing", doc_to_target="options", description='"Say it.\\n"')
    made = read(rows.taken("writing", several, tmp_path / "made").data["test"])
    first = harness_tasks.docs(24, 2)[0]
    assert [one["target"] for one in made[: len(first["options"])]] == first["options"]
    assert made[0]["input"] == f"Say it.\n{first['question']}\nw8:"


def test_choices_that_all_rows_share_are_labels(tasks: Path, tmp_path: Path) -> None:
    same = {"doc_to_choice": '["w20", "w21 w22"]', "doc_to_target": '"{{ gold % 2 }}"', "target_delimiter": '"\\n"'}
    found = rows.taken("choosing", changed(tasks, tmp_path / "same", "choosing", **same), tmp_path / "made")
    assert found.task == {"kind": "classification", "template": "{text}\n"}
    for one, row in zip(harness_tasks.docs(24, 2), read(found.data["test"]), strict=True):
        assert row == {"text": f"{one['question']}\nw8:", "label": ["w20", "w21 w22"][one["gold"] % 2]}


def test_what_is_not_there_is_cut_from_what_is(tasks: Path, tmp_path: Path) -> None:
    no_test = rows.taken("choosing", changed(tasks, tmp_path / "a", "choosing", test_split=""), tmp_path / "made")
    assert {part: len(read(path)) for part, path in no_test.data.items()} == {"train": 24, "test": 24}
    assert read(no_test.data["test"])[0]["answer"] == harness_tasks.docs(24, 1)[0]["answer"]  # of validation
    alone = {"training_split": "", "validation_split": ""}
    one = rows.taken("choosing", changed(tasks, tmp_path / "b", "choosing", **alone), tmp_path / "made")
    assert list(one.data) == ["train"] and "so rows that the harness scores on are trained on" in one.notes[1]


def test_zero_shot_scores_what_the_harness_says_of_its_own_model(tasks: Path, tmp_path: Path) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    model = harness_tasks.model(tmp_path / "model")
    words = "--arms zero-shot lora:rank=1 --steps 2 --seeds 1 --trials 1 --workers 1 --forgetting none --device cpu"
    asked = ["compare", model, "--task", "lm_eval:choosing", "--include-path", tasks, *words.split()]
    done = warm.run(["-m", "tunescope", *asked, "--out", tmp_path / "run"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    entry.register()
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    of = {"pretrained": model, "dtype": "float32"}
    own = simple_evaluate("hf", of, tasks=["choosing"], task_manager=manager, device="cpu", bootstrap_iters=0)
    (arm,) = (one for one in results["arms"] if one["name"] == "zero-shot")
    assert arm["score"] == own["results"]["choosing"]["acc,none"], done.stdout
    assert 0 < own["results"]["choosing"]["acc,none"] < 1
    assert "note: lm_eval:choosing: 24 train, 24 dev, 24 test rows" in done.stdout


def test_texts_to_write_and_labels_are_checked_from_the_command_line(tasks: Path, tmp_path: Path) -> None:
    model = harness_tasks.model(tmp_path / "model")
    same = {"doc_to_choice": '["w20", "w21 w22"]', "doc_to_target": '"{{ gold % 2 }}"'}
    for name, folder in (("writing", tasks), ("choosing", changed(tasks, tmp_path / "same", "choosing", **same))):
        asked = ["check", "--model", model, "--task", f"lm_eval:{name}", "--include-path", folder, "--device", "cpu"]
        done = warm.run(["-m", "tunescope", *asked], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"note: lm_eval:{name}: 24 train, 24 dev, 24 test rows" in done.stdout


def test_code_beside_a_task_is_run_of_a_folder_that_was_named_alone(tasks: Path, tmp_path: Path) -> None:
    folder = Path(changed(tasks, tmp_path / "own", "choosing", doc_to_text="!function mine.asked"))
    (folder / "mine.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w').close()\ndef asked(doc):\n    return doc['question'] + ' w9'\n"
    )
    for name in (str(folder / "choosing.yaml"), "choosing"):
        with pytest.raises(UserError, match=r"^lm-evaluation-harness has no task "):
            rows.taken(name, str(tasks) if "/" in name else None, tmp_path / "made")
    assert not (tmp_path / "ran").exists()
    found = rows.taken("choosing", str(folder), tmp_path / "made")
    assert read(found.data["test"])[0]["input"] == f"{harness_tasks.docs(24, 2)[0]['question']} w9"


@pytest.mark.parametrize(
    ("name", "lines", "said"),
    [
        ("reading", {}, r"^lm_eval:reading, train: output_type: loglikelihood_rolling cannot be trained on here"),
        (
            "choosing",
            {"doc_to_target": '"{{ 0 - 1 }}"'},
            r"^lm_eval:choosing, train row 1: its answer is '-1', which is not on",
        ),
        (
            "choosing",
            {"target_delimiter": '""'},
            r"^lm_eval:choosing: its answers follow on '', where ours follow on one",
        ),
        ("choosing", {"doc_to_text": "gold"}, r"^lm_eval:choosing, train: several prompts a row cannot be trained on"),
        ("writing", {"doc_to_target": '" "'}, r"^lm_eval:writing, train row 1: its answer is empty"),
        ("writing", {"dataset_path": "nowhere"}, r"^lm_eval:writing cannot be loaded by the harness: "),
    ],
)
def test_what_is_no_choice_and_no_text_is_refused_in_one_line(
    tasks: Path, tmp_path: Path, name: str, lines: dict[str, str], said: str
) -> None:
    with pytest.raises(UserError, match=said) as told:
        rows.taken(name, changed(tasks, tmp_path / "changed", name, **lines), tmp_path / "made")
    assert "\n" not in str(told.value)
    assert not (tmp_path / "made").exists()


def test_a_task_whose_parts_are_empty_is_refused_in_a_line(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "questions", lambda task, docs, name: [])
    with pytest.raises(UserError, match=r"^lm_eval:choosing has no documents\.$"):
        rows.taken("choosing", str(tasks), tmp_path / "made")


def test_names_are_checked(tasks: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no task 'chosing'\. Did you mean lm_eval:choosing\?"):
        rows.taken("chosing", str(tasks), tmp_path)
    with pytest.raises(UserError, match=r"^--include-path .*nowhere is no folder\."):
        rows.taken("choosing", str(tmp_path / "nowhere"), tmp_path)


def test_a_harness_task_and_a_file_are_not_given_together() -> None:
    for data, task, include, said in (
        (
            "rows.jsonl",
            "lm_eval:choosing",
            None,
            r"^--task lm_eval:choosing brings its own rows, and data is given besid",
        ),
        (None, "classification", None, r"^There are no rows: give a file, or type: --task lm_eval:NAME$"),
        (
            "rows.jsonl",
            "classification",
            "x",
            r"^--include-path is for a task of lm-evaluation-harness: --task lm_eval:N",
        ),
    ):
        with pytest.raises(UserError, match=said):
            question("model", data, None, TaskOptions(task=task), include)


def test_without_the_harness_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "find_spec", lambda name: None)
    for ask in (entry.register, lambda: rows.taken("x")):
        with pytest.raises(
            UserError, match=r"^lm-evaluation-harness is not installed\. Type: pip install 'tunescope\[lm_e"
        ):
            ask()
