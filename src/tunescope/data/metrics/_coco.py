"""Texts as the COCO caption metrics see them: tokenised by Stanford's PTB tokenizer, from pycocoevalcap's jars.

Java is started directly, with UTF-8 whatever the machine's own encoding, and one text a line.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from tunescope.errors import UserError

DROPPED = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";"]
)
TOKENIZER = ("tokenizer", "stanford-corenlp-3.4.1.jar")


def check() -> None:
    """UserError, with what to type, where pycocoevalcap or Java is missing."""
    what = "cider, meteor and rouge_l_coco"
    if find_spec("pycocoevalcap") is None:
        raise UserError(f"{what} need pycocoevalcap, which is not installed. Type: pip install 'tunescope[metrics]'")
    if shutil.which("java") is None:
        raise UserError(
            f"{what} need Java, and there is no 'java' on the path. On Debian or Ubuntu type: apt install "
            "default-jre-headless"
        )


def jar(folder: str, name: str) -> Path:
    """A file of pycocoevalcap."""
    found = find_spec("pycocoevalcap")
    assert found is not None and found.submodule_search_locations
    return Path(found.submodule_search_locations[0]) / folder / name


def java(what: str, arguments: Sequence[str], lines: Sequence[str], cwd: Path) -> list[str]:
    """The lines that a Java program answers to lines, run in the folder of its jar.

    Raises:
        UserError: Java ended with an error; `what` could not run.
    """
    command = [
        "java",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dfile.encoding=UTF-8",
        "-Dstdout.encoding=UTF-8",
        "-Xmx2G",
        *arguments,
    ]
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(command, input=text.encode(), capture_output=True, cwd=cwd, check=False)
    if done.returncode:
        why = (done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"Java could not run {what}: {why[:200]}")
    return done.stdout.decode().split("\n")[:-1]


@lru_cache(maxsize=8)
def tokenised(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Each text as its tokens in lower case with a space between, without punctuation."""
    check()
    path = jar(*TOKENIZER)
    arguments = ["-cp", path.name, "edu.stanford.nlp.process.PTBTokenizer"]
    options = ["-encoding", "utf-8", "-preserveLines", "-lowerCase"]
    lines = [" ".join(text.split()) for text in texts]
    found = java("the PTB tokenizer", [*arguments, *options], lines, path.parent)
    if len(found) != len(texts):
        raise UserError(f"The PTB tokenizer gave {len(found)} lines for {len(texts)} texts; update Java.")
    return tuple(" ".join(word for word in line.split(" ") if word and word not in DROPPED) for line in found)


def prepared(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Outputs and references, tokenised; the references' tokens are kept for the next outputs."""
    flat = iter(tokenised(tuple(one for own in references for one in own)))
    return list(tokenised(tuple(outputs))), [[next(flat) for _ in own] for own in references]
