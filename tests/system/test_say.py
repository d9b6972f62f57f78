"""Nothing that is printed steers a terminal or floods it, and there is one function that prints."""

import io
import json
import re
import unicodedata
from pathlib import Path

import pytest
import report_example
import tinyrun
from commands import call

import tunescope
from tunescope.cli.output import print_run
from tunescope.comparison.progress import LiveTable
from tunescope.system.say import LIMIT, say, shown, visible

PACKAGE = Path(tunescope.__file__).parent
HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\x08\x9b31m\u202e\ud800"
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")  # but for tab and newline
ELSEWHERE = (  # scripts that are run as such, three of them without tunescope; and rich, which hands its text to `say`
    *("lab/worlds/text_models.py", "lab/worlds/questions.py", "lab/worlds/pretrain.py"),
    *("exchange/serving/embeds_client.py", "exchange/serving/llama_client.py", "exchange/serving/vllm_context.py"),
    "report/terminal.py",
    "system/say.py",
    "__main__.py",  # a word of ours, before anything is imported
)


def test_a_line_is_visible_and_short_and_keeps_its_words() -> None:
    assert STEERS.search(HOSTILE) and not STEERS.search(shown(HOSTILE))
    assert shown(HOSTILE).startswith("\\x1b]0;owned\\x07\\x1b[2J\\x0d\\x08\\x9b31m\\u202e")
    kept = "négatif\tنیم\u200cفاصله 👩\u200d🔬\nsecond line"
    assert shown(kept) == kept
    long = shown("first\n" + "x" * 200_125)
    assert max(map(len, long.split("\n"))) <= LIMIT and "(200,125 characters in all)" in long


def test_of_every_character_the_category_says_whether_it_is_written_out() -> None:
    hidden = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}  # of Unicode's general categories
    planes = (*range(0x2_0000), *range(0xE_0000, 0xF_0010), 0x10_FFFF)  # the others have words of East Asia alone
    for one in map(chr, planes):
        assert (visible(one) != one) is (unicodedata.category(one) in hidden), hex(ord(one))
    assert visible("a\u202eb\n", "\u202e") == "a\u202eb "


def test_what_a_stream_cannot_write_is_written_out() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    say("a – b", stream)
    assert raw.getvalue() == b"a \\u2013 b\n"


PRINTS = re.compile(r"^[^#\"']*(?<![\w.])(print\(|sys\.std(out|err)\.write\()", re.MULTILINE)


def test_everything_is_printed_by_that_function() -> None:
    texts = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    found = {path for path, text in texts.items() if PRINTS.search(text)}
    assert "system/say.py" in found
    assert found <= set(ELSEWHERE)


def test_labels_arms_and_errors_of_a_comparison_do_not_steer_the_terminal(tmp_path, monkeypatch, capsys) -> None:
    model, data = tinyrun.write(tmp_path)
    capsys.readouterr()
    rows = [json.loads(line) for line in Path(data["train"]).read_text().splitlines()]
    named = [row | {"label": f"{row['label']}\x1b]0;owned\x07"} for row in rows]
    Path(data["train"]).write_text("".join(json.dumps(row) + "\n" for row in named))
    how = ["--arms", "zero-shot", "\x1b[2J=demos:k=1", "--seeds", "1", "--steps", "1"]
    words = ["--words", "neg\x1b]0;owned\x07=dull", "pos\x1b]0;owned\x07=bright"]
    code, out, err = call(monkeypatch, capsys, "check", data["train"], "--model", model, *how, *words)
    assert (code, err) == (0, "") and "neg\\x1b]0;owned\\x07" in out and "\\x1b[2J" in out
    assert not STEERS.search(out)
    words = ["check", data["train"], "--model", model, *words, "--arms", "x\x1b[2J" * 40_000]
    code, _, err = call(monkeypatch, capsys, *words)
    assert code == 2 and not STEERS.search(err) and len(err) < LIMIT + 20 and err.startswith("error: Arm 'x\\x1b[2J")


def test_a_finished_comparison_does_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = json.loads(json.dumps(report_example.example()).replace("lora", "lora\\u001b[2J\\u0007"))
    print_run(tmp_path, results)
    assert "\\x1b[2J" in (out := capsys.readouterr().out) and not STEERS.search(out)


def test_the_live_table_does_not_steer_the_terminal() -> None:
    from rich.console import Console

    table = LiveTable([HOSTILE])
    table.say(f"note: {HOSTILE}")
    table.done(HOSTILE, HOSTILE, {"status": "failed", "reason": HOSTILE})
    console = Console(file=io.StringIO(), width=400, no_color=True)
    console.print(table.render())
    assert "\\x1b]0;owned\\x07" in console.file.getvalue()  # type: ignore[attr-defined]
    assert not STEERS.search(console.file.getvalue())  # type: ignore[attr-defined]
