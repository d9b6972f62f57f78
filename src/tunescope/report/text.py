"""Text from results.json made harmless and short: every string in it may come from somebody else's data."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tunescope.data import scores
from tunescope.system import shell
from tunescope.system.say import JOINERS, visible

LIMIT = 2000
UNSAID = "  # in Python: "  # behind a command, what it has no word for
_PATH = re.compile(r"""(?:(?<![\w./~])|(?<=file://))(?:~|/[^\s/'"=]+)(?:/[^\s/'"]+)+|\b[A-Za-z]:(?:\\[^\s\\'"]+)+""")
_SECRET = re.compile(
    r"\b(?:hf_\w{20,}|sk-[\w-]{20,}|gh[pousr]_\w{20,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{20,}(?:\.\w{2}\.\w{9})?|A(?:KIA|SIA)[0-9A-Z]{16})(?!\w)"
)


def clean(value: Any) -> Any:
    """The same JSON with every string made safe to show.

    Control, bidi and other invisible characters become visible (\\x1b, \\u202e), paths become their last
    part, tokens that look like secrets go, and a string ends after LIMIT characters. Escaping for HTML is
    left to the template, and numbers stay as they are.
    """
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, dict):
        return {_clean(str(key)): clean(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(one) for one in value]
    return value


def command(line: str) -> str:
    """A command on one line and whole: who types what is shown asks the same. Secrets go even so, and folders of files,
    though not those within a text."""
    typed, mark, unsaid = line.partition(UNSAID)
    try:
        words = shlex.split(typed)
    except ValueError:  # which somebody wrote by hand
        return str(clean(line))
    words = [word if re.search(r"\s", word) else _PATH.sub(_last_part, word) for word in words]
    return visible(_SECRET.sub("[redacted]", shell.join(words) + mark + unsaid))


def examples(found: Any) -> Any:
    """Rows of data with what arms wrote, as `said`; what stands around them, names of arms too, as `clean`."""
    return {key: said(one) if key == "rows" else clean(one) for key, one in (found or {}).items()} or None


def said(value: Any) -> Any:
    """The same for what data and models say, where a path is part of the text, and joiners are part of a word."""
    if isinstance(value, str):
        return _harmless(value, JOINERS)
    if isinstance(value, dict):
        return {said(str(key)): said(one) for key, one in value.items()}
    return [said(one) for one in value] if isinstance(value, (list, tuple)) else value


def strings(value: object) -> Iterator[str]:
    """Every string in a JSON value, keys too, as it is: in JSON's own writing a line break is two characters."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from (*strings(key), *strings(one))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from strings(one)


def has_secret(text: str) -> bool:
    """Whether something in it looks like an access token."""
    return _SECRET.search(text) is not None


def paths(text: str) -> list[str]:
    """What in it looks like a path on somebody's machine."""
    return [match[0] for match in _PATH.finditer(text)]


def short(text: str, limit: int = 34) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def middle(text: str, limit: int) -> str:
    """As `short`, but what is left out is in the middle: names that begin alike are told apart by their ends."""
    return text if len(text) <= limit else f"{text[: limit - limit // 2 - 1]}…{text[-(limit // 2) :]}"


def apart(texts: Sequence[str], limit: int) -> list[str]:
    """Each as `middle`, as short as the limit, or as it has to be for unlike texts to stay unlike."""
    longest = max(map(len, texts), default=0)
    found = ([middle(one, size) for one in texts] for size in range(limit, max(limit, longest) + 1))
    return next(some for some in found if len(set(some)) == len(set(texts)))


def score(value: float | None, scale: float = 1.0, *, sign: bool = False) -> str:
    """0.874 on a scale of 1, 8.74 on one of 10, 87.4 on one of 100; `sign` for differences."""
    if value is None or not math.isfinite(value):
        return "–"
    digits = 3 if scale <= 1 else 2 if scale <= 10 else 1
    return f"{value:{'+' if sign else ''}.{digits}f}".replace("-", "−")


def span(low_high: list[float] | None, scale: float = 1.0, *, sign: bool = False) -> str:
    if not low_high:
        return ""
    return " to ".join(score(edge, scale, sign=sign) for edge in low_high)


def metric(name: str) -> str:
    """A metric's name for a person."""
    known = {"bleu": "BLEU", "nist": "NIST", "cider": "CIDEr", "meteor": "METEOR", "chrf": "chrF", "ter": "TER"}
    if name.startswith("rouge_"):
        return name.replace("rouge_", "ROUGE-").replace("-l", "-L").replace("_coco", " (COCO)")
    return known.get(name, name.replace("_", " ")) + (" ↓" if scores.is_lower_better(name) else "")


def count(value: float | None) -> str:
    """950, 92.2k, 124M"""
    if value is None:
        return "–"
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}" if value < 999.5 * size else f"{value / size:.0f}{unit}"
    return f"{value:.0f}"


def rate(value: float | None) -> str:
    """0.002, 3e-5"""
    if value is None:
        return "–"
    return f"{value:g}" if value >= 0.001 else f"{value:.3g}".replace("e-0", "e-")


def rates(values: Sequence[float]) -> str:
    """0.05+0.005, of methods that are composed"""
    return "+".join(map(rate, values)) or rate(None)


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    if value < 100:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    minutes = value / 60
    return f"{minutes:.1f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def fact(value: object) -> str:
    """A value of the protocol, the model or the machine, as a person writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(fact, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {fact(one)}" for key, one in value.items())
    return str(value)


def memory(megabytes: float | None) -> str:
    if megabytes is None:
        return "–"
    return f"{megabytes:.0f} MB" if megabytes < 1000 else f"{megabytes / 1024:.1f} GB"


def _clean(text: str) -> str:
    return _harmless(_PATH.sub(_last_part, text))


def _harmless(text: str, kept: str = "") -> str:
    """Tokens go before the cut: half of one, at the end, would look like none."""
    text = visible(_SECRET.sub("[redacted]", text)[: 2 * LIMIT], kept)
    return text if len(text) <= LIMIT else text[: LIMIT - 1] + "…"


def _last_part(match: re.Match[str]) -> str:
    return re.split(r"[/\\]", match[0])[-1]
