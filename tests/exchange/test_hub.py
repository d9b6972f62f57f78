"""Pushed to a hub in a thread and pulled from it: the same artifact, checked, with nothing beside it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import manifests
import pytest
import tiny
import torch
from commands import call
from hub_server import Hub, running

import tunescope as ts
from tunescope.attachment.initial_artifacts import initialised
from tunescope.exchange import hub

TOKEN = "hf_" + "a1B2" * 9


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running() as found:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", found.url)
        template = found.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)  # its store is another server
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield found


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model = tiny.make("gpt2")
    artifacts = initialised(model, [ts.Prefix(length=2), ts.LoRA(rank=2)], None, 0)
    about = {"arm": "lora", "task": {"template": "{text}\nIs it good?", "words": {"g": "yes"}}}
    folder = ts.save(tmp_path / "artifact", artifacts, model=model, tokenizer=tiny.tokenizer(), about=about)
    (folder / "notes.txt").write_text("mine alone")
    return folder


def test_what_is_pulled_is_what_was_pushed_to_the_bit(server: Hub, saved: Path, tmp_path: Path) -> None:
    done = hub.push(saved, "me/thing", licence="apache-2.0")
    assert done.url == f"{server.url}/me/thing"
    assert sorted(server.newest("me/thing")) == ["README.md", "tensors.safetensors", "tunescope.json"]
    assert server.repos["me/thing"]["private"] is True
    got = hub.pull("me/thing", tmp_path / "pulled")
    assert (got.path, got.commit, got.arm) == (tmp_path / "pulled", done.commit, "prefix:length=2+lora:rank=2")
    assert sorted(path.name for path in got.path.iterdir()) == ["tensors.safetensors", "tunescope.json"]
    for name in ("tensors.safetensors", "tunescope.json"):
        assert (got.path / name).read_bytes() == (saved / name).read_bytes()
    model, given = tiny.make("gpt2"), tiny.ids()
    with torch.no_grad():
        with ts.attach(model, *ts.load(saved)):
            expected = model(input_ids=given).logits
        with ts.attach(model, *ts.load(got.path), tokenizer=tiny.tokenizer()):
            assert torch.equal(model(input_ids=given).logits, expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["artifact", "pulled"]


def test_no_token_no_path_and_no_other_file_goes_up(server: Hub, saved: Path) -> None:
    hub.push(saved, "me/thing")
    assert any(token == f"Bearer {TOKEN}" for _, _, token in server.asked)
    sent = b"".join(server.posted)
    for data in [*server.newest("me/thing").values(), sent]:
        text = data.decode("utf-8", "replace")
        assert TOKEN not in text
        assert str(saved.parent) not in text
        assert "mine alone" not in text
    card = server.newest("me/thing")["README.md"].decode()
    assert "import AutoModelForCausalLM, AutoTokenizer" in card
    assert "Is it good?" not in card  # the template is in tunescope.json, where it is needed


def test_results_of_the_run_are_in_the_card_of_its_best_and_of_nothing_else(
    server: Hub, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from report_example import example

    (tmp_path / "results.json").write_text(json.dumps(example() | {"best": {"arm": "full", "path": "artifact"}}))
    done = hub.push(saved, "me/thing", licence="mit", base="openai-community/gpt2")
    card = server.newest("me/thing")["README.md"].decode()
    assert "## Verdict: weights needed" in card and "| lora-2 | 0.874 |" in card and "- steps: 600" in card
    assert done.notes == ()
    (tmp_path / "results.json").write_text(json.dumps(example()))  # whose best is another folder
    done = hub.push(saved, "me/thing", licence="mit")
    assert "## Results" not in server.newest("me/thing")["README.md"].decode()
    assert done.notes == ("no results.json of a run beside it, so the card has no results",)


def test_a_public_repository_is_never_taken_for_a_private_one(server: Hub, saved: Path) -> None:
    server.commit("me/thing", {}, private=False)
    with pytest.raises(
        ts.UserError, match=r"me/thing exists and is public. Name another, make it private there, or say"
    ):
        hub.push(saved, "me/thing")
    assert server.newest("me/thing") == {}
    assert hub.push(saved, "me/thing", private=False).notes[-1].startswith("no licence was named")
    server.commit("me/other", {}, private=True)
    assert any("was private before and stays so" in note for note in hub.push(saved, "me/other", private=False).notes)
    hub.push(saved, "me/new", private=False)
    assert server.repos["me/new"]["private"] is False


def test_words_in_the_artifact_are_told_with_their_number(server: Hub, tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    artifacts = initialised(model, [ts.Text(text="w7 w8 w9")], tiny.tokenizer(), 0)
    folder = ts.save(tmp_path / "words", artifacts, model=model, tokenizer=tiny.tokenizer())
    done = hub.push(folder, "me/words")
    assert any("it holds 8 characters of text: a prompt, or demonstrations" in note for note in done.notes)
    card = server.newest("me/words")["README.md"].decode()
    assert "words of the prompt, 8 characters" in card and "w7 w8 w9" not in card
    assert "It is text, no" in card


def test_a_damaged_artifact_is_neither_pushed_nor_pulled(server: Hub, saved: Path, tmp_path: Path) -> None:
    commit = hub.push(saved, "me/thing").commit
    data = bytearray((saved / "tensors.safetensors").read_bytes())
    data[-1] ^= 1
    (saved / "tensors.safetensors").write_bytes(bytes(data))
    with pytest.raises(ts.UserError, match="is damaged: its sha256 is not the one"):
        hub.push(saved, "me/second")
    assert "me/second" not in server.repos
    server.commit("me/thing", {"tensors.safetensors": bytes(data)})
    with pytest.raises(ts.UserError, match=r"me/thing/tensors.safetensors is damaged: its sha256 is not the one"):
        hub.pull("me/thing", tmp_path / "pulled")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["artifact"]
    assert hub.pull("me/thing", tmp_path / "pulled", revision=commit).commit == commit


@pytest.mark.parametrize("secret", [TOKEN, "sk-" + "a1B2" * 12, "ghp_" + "a1B2" * 9, "AKIAIOSFODNN7EXAMPLE"])
def test_an_access_token_in_the_manifest_stops_the_push(secret: str, server: Hub, saved: Path) -> None:
    manifest = json.loads((saved / "tunescope.json").read_text())
    manifest["about"]["note"] = secret
    manifests.write(saved, manifest)
    with pytest.raises(ts.UserError, match=r"tunescope.json holds what looks like an access token: take it out"):
        hub.push(saved, "me/thing")
    assert server.repos == {}


def test_a_path_in_the_manifest_is_told(server: Hub, saved: Path) -> None:
    assert not any("path" in note for note in hub.push(saved, "me/thing").notes)
    manifest = json.loads((saved / "tunescope.json").read_text())
    manifest["about"]["spec"] = "demos:k=4,choose=nearest,encoder=/home/anna/models/minilm"
    manifests.write(saved, manifest)
    notes = hub.push(saved, "me/thing").notes
    assert "tunescope.json holds what looks like a path on this machine: /home/anna/models/minilm" in notes
    assert "/home/anna" not in server.newest("me/thing")["README.md"].decode()


@pytest.mark.parametrize(
    ("repo", "revision", "message"),
    [
        ("me/nothing", None, r"The hub refuses me/nothing \(404\)"),
        ("me/thing", "v9", r"The hub refuses me/thing \(404\)"),
        ("me/empty", None, "me/empty holds no tunescope artifact: "),
        ("not/a/name", None, "not/a/name cannot be reached or used: "),
    ],
)
def test_what_is_not_there_is_one_line(
    server: Hub, saved: Path, tmp_path: Path, repo: str, revision: str | None, message: str
) -> None:
    hub.push(saved, "me/thing")
    server.commit("me/empty", {"README.md": b"nothing"})
    with pytest.raises(ts.UserError, match=message) as raised:
        hub.pull(repo, tmp_path / "pulled", revision=revision)
    assert "\n" not in str(raised.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["artifact"]


def test_a_hub_that_refuses_or_is_not_there_is_one_line_without_the_token(
    server: Hub, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.refuses = 401
    with pytest.raises(ts.UserError, match=r"refuses me/thing \(401\).*Type: hf auth login") as raised:
        hub.push(saved, "me/thing")
    assert TOKEN not in str(raised.value)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ts.UserError, match="me/thing cannot be reached or used: "):
        hub.pull("me/thing", tmp_path / "pulled")


def test_nothing_is_overwritten(server: Hub, saved: Path) -> None:
    with pytest.raises(ts.UserError, match=r"exists: an artifact is never overwritten\. Name a new folder"):
        hub.pull("me/thing", saved)
    assert server.asked == []


def begun(server: Hub, *words: object) -> tuple[int, str, str]:
    """A command in a process of its own, where HF_ENDPOINT alone says where the hub is."""
    source = str(Path(ts.__file__).parent.parent)
    where = {"HF_ENDPOINT": server.url, "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": TOKEN, "PYTHONPATH": source}
    command = [sys.executable, "-m", "tunescope.cli.app", *map(str, words)]
    done = subprocess.run(command, env=os.environ | where, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_command_line_pushes_and_pulls(
    server: Hub, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = begun(server, "push", saved, "me/thing", "--licence", "mit")
    assert code == 0
    assert f"pushed: {server.url}/me/thing (commit " in out
    assert "note: no results.json of a run beside it" in out
    code, out, err = call(monkeypatch, capsys, "pull", "me/thing", "--out", tmp_path / "pulled")
    assert (code, err) == (0, "")
    assert out.startswith(f"pulled: {tmp_path}/pulled (commit ") and "prefix:length=2+lora:rank=2" in out


def test_the_command_line_refuses_in_one_line(
    server: Hub, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = call(monkeypatch, capsys, "pull", "me/thing", "--out", saved)
    assert code == 2
    assert "exists: an artifact is never overwritten" in err
    code, _, err = call(monkeypatch, capsys, "push", tmp_path, "me/thing")
    assert code == 2
    assert "is no saved artifact: tunescope.json is not there" in err


def test_what_is_pulled_is_readable_as_the_umask_says(server: Hub, saved: Path, tmp_path: Path) -> None:
    hub.push(saved, "me/thing")
    mask = os.umask(0o027)
    try:
        got = hub.pull("me/thing", tmp_path / "pulled")
    finally:
        os.umask(mask)
    assert {path.stat().st_mode & 0o777 for path in got.path.iterdir()} == {0o640}


@pytest.mark.parametrize("before", [" ", "\n", "\t", "\\"])
def test_neither_a_token_nor_a_path_hides_behind_what_json_writes_for_a_line_break(
    before: str, server: Hub, saved: Path
) -> None:
    manifest = json.loads((saved / "tunescope.json").read_text())
    manifest["about"] = {"arm": "lora", "task": {"template": f"Answer:{before}/home/anna/x.txt {{text}}"}}
    manifests.write(saved, manifest)
    assert any("/home/anna/x.txt" in note for note in hub.push(saved, "me/thing").notes) or before == "\\"
    manifest["about"]["task"] = {f"{before}C:\\Users\\anna\\x.txt": 1}
    manifests.write(saved, manifest)
    assert any(r"C:\Users\anna\x.txt" in note for note in hub.push(saved, "me/thing").notes)
    manifest["about"]["task"] = {"template": f"Answer:{before}{TOKEN}"}
    manifests.write(saved, manifest)
    with pytest.raises(ts.UserError, match="an access token"):
        hub.push(saved, "me/thing")


def test_what_is_pulled_does_not_steer_the_terminal(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny.make("gpt2")
    words = "w5\x1b]0;owned\x07\x1b[2J\u202e w6"
    artifacts = initialised(model, [ts.Text(text=words)], tiny.tokenizer(), 0)
    hub.push(ts.save(tmp_path / "one", artifacts, model=model, tokenizer=tiny.tokenizer()), "me/words")
    code, out, _ = call(monkeypatch, capsys, "pull", "me/words", "--out", tmp_path / "pulled")
    assert code == 0
    assert "\\x1b]0;owned\\x07\\x1b[2J\\u202e" in out
    assert not set("\x1b\x07\u202e") & set(out)


def test_a_place_that_cannot_be_written_is_one_line(server: Hub, saved: Path, tmp_path: Path) -> None:
    hub.push(saved, "me/thing")
    for place in ("/dev/null/x", tmp_path / ("x" * 300), tmp_path / "a\0b"):
        with pytest.raises(ts.UserError, match=r"cannot be written|/dev/null cannot be a folder"):
            hub.pull("me/thing", place)


@pytest.mark.parametrize(
    ("family", "by", "auto"),
    [
        ("gpt2", "words", "AutoModelForCausalLM"),
        ("t5", "words", "AutoModelForSeq2SeqLM"),
        ("bart", None, "AutoModelForSeq2SeqLM"),
        ("bart", "words", "AutoModelForSeq2SeqLM"),
        ("bert", "words", "AutoModelForMaskedLM"),
        ("distilbert", "head", "AutoModel"),
        ("nobody_knows", None, "AutoModelForCausalLM"),
    ],
)
def test_the_class_that_loads_the_base_is_that_of_its_kind(family: str, by: str | None, auto: str) -> None:
    about = {"task": {"by": by}} if by else {}
    assert hub.auto_class({"base": {"fingerprint": "ab", "model_type": family}, "about": about}) == auto
