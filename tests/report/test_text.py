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
