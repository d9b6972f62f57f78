"""What looks like an access token is taken out of every page, in each of the forms in which they are given out."""

from __future__ import annotations

import copy

import pytest
from report_example import example
from test_outputs import written

from tunescope import report
from tunescope.report import text
from tunescope.report.card import escaped

LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6"  # 36, as many as GitHub's have
SECRETS = (
    "hf_" + LETTERS[:34],
    "hf_" + LETTERS[:20],
    "sk-" + LETTERS[:20],
    "sk-" + LETTERS + LETTERS[:12],
    "sk-proj-" + LETTERS[:10] + "_" + LETTERS[:10] + "-" + LETTERS[:10],
    "sk-ant-api03-" + LETTERS,
    *(f"gh{kind}_{LETTERS}" for kind in "pousr"),
    "ghp_" + LETTERS[:20],
    "github_pat_" + LETTERS[:22] + "_" + LETTERS + LETTERS[:23],  # GitHub's fine-grained ones
    "github_pat_" + LETTERS[:20],
    "glpat-" + LETTERS[:20],
    "glpat-" + LETTERS[:8] + "_" + LETTERS[:5] + "-" + LETTERS[:5],
    "glpat-" + LETTERS[:19] + "-",
    "glpat-" + LETTERS[:27] + ".01.0a1b2c3d4",  # GitLab's routable ones
    "AKIA" + "IOSFODNN7EXAMPLE",  # AWS's own example
    "ASIA" + "IOSFODNN7EXAMPLE",
)
WORDS = (
    "sk-learn",
    "task-" + LETTERS,
    "ask-" + LETTERS,
    "hf_hub",
    "hf_" + LETTERS[:19],
    "ghp_short",
    "ghx_" + LETTERS,
    "github_pat_short",
    "github_path_" + LETTERS,
    "glpat-short",
    "xglpat-" + LETTERS,
    "AKIA",
    "AKIA" + "iosfodnn7example",
    "xAKIAIOSFODNN7EXAMPLE",
    "AKIA" + "IOSFODNN7EXAMPLE2",
)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["{}", "--token {}", "key='{}', and more", "{}.", "é {}\n"])
def test_a_token_is_redacted_wherever_it_stands(secret: str, around: str) -> None:
    told, expected = around.format(secret), around.format("[redacted]").replace("\n", " ")
    assert text.has_secret(told)
    assert text.clean(told) == text.said(told) == expected
    assert text.clean({told: [told, {"a": (told, 3)}]}) == {expected: [expected, {"a": [expected, 3]}]}
    assert text.said([{"input": told}]) == [{"input": expected}]
    assert text.said({told: {told: 1.0}}) == {expected: {expected: 1.0}}  # labels are keys of scores


@pytest.mark.parametrize("word", WORDS)
def test_words_that_only_begin_like_a_token_stay(word: str) -> None:
    assert not text.has_secret(word)
    assert text.clean(word) == text.said(word) == word


@pytest.mark.parametrize("secret", SECRETS)
def test_no_token_is_on_a_page_nor_in_a_card(secret: str) -> None:
    results = copy.deepcopy(example())
    results["command"] = f"tunescope compare train.jsonl --token {secret}"
    results["arms"][-1]["reason"] = f"the hub refused {secret}"
    results["arms"][0]["name"] = f"text:text={secret}"
    answers = written()
    answers["examples"]["rows"][0] |= {"input": secret, "references": [secret], "outputs": ["", f"so {secret}"]}
    for page in (report.html(results), report.html(answers)):
        assert secret not in page
        assert "[redacted]" in page
    assert secret not in escaped(f"an arm {secret}")


def test_more_than_one_token_goes() -> None:
    assert text.clean(" ".join(SECRETS)) == " ".join(["[redacted]"] * len(SECRETS))


@pytest.mark.parametrize("secret", SECRETS)
def test_nothing_of_a_token_is_left_where_a_text_is_cut(secret: str) -> None:
    """Before it is cut, a path makes the text so much shorter that the cut shows."""
    path = "/" + 3000 * "p" + "/q "
    start = secret[: secret.find("-" if "-" in secret else "_") + 3] if secret[0] != "A" else secret[:6]
    for seen in {*range(len(start), len(secret), 6), 19, len(secret) - 1}:
        told = path + (2 * text.LIMIT - seen - len(path)) * "." + secret + " and more"
        assert start not in text.clean(told) and start not in text.said([{"input": told}])[0]["input"]


def test_nothing_of_a_path_is_left_where_a_text_is_cut() -> None:
    """The folder that the cut would make its last part."""
    told = "/" + 3000 * "p" + "/q " + 980 * "." + " /home/somebody/work/film.txt"
    assert "somebody" not in text.clean(told) and text.clean(told).endswith(". film.txt")


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("e2e:/home/alice/corp/e2e", "e2e:e2e"),
        ("file:///home/alice/x", "file://x"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("and/or, 3/4 a/b/c", "and/or, 3/4 a/b/c"),
    ],
)
def test_a_folder_goes_behind_a_colon_too_and_an_address_stays(told: str, expected: str) -> None:
    assert text.clean(told) == expected


def test_a_long_text_of_no_token_is_read_once() -> None:
    """Beginnings of tokens and paths, as somebody's file may hold them: hours, where each is read to the end again."""
    for part in ("sk-", "/a", "glpat-", "hf_", "-", "~", "/=", "C:\\"):
        assert len(text.clean(100_000 * part)) <= text.LIMIT
