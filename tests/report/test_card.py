"""A model card says what the results say, as text that Markdown does not read as more than text."""

import ast
import copy
import re
import textwrap
from typing import Any

import pytest
import yaml

import tunescope as ts
from tunescope.report.card import CardFacts, card, escaped, unworded

MANIFEST = {
    "artifacts": [{"method": "lora", "fields": {"rank": 2}}, {"method": "soft", "fields": {"length": 2, "text": ""}}],
    "base": {"fingerprint": "ab" * 32, "model_type": "gpt2"},
    "about": {"arm": "lora-2"},
}


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    from report_example import example

    found: dict[str, Any] = example()
    return found


def head(page: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(page.split("---")[1])
    return found


def test_the_head_is_yaml_with_the_licence_the_base_and_the_methods(results: dict[str, Any]) -> None:
    page = card(CardFacts("me/thing", MANIFEST, 1234, results, "openai-community/gpt2", "apache-2.0"))
    assert head(page) == {
        "library_name": "tunescope",
        "license": "apache-2.0",
        "base_model": "openai-community/gpt2",
        "tags": ["tunescope", "lora", "soft"],
    }
    assert (
        "# thing\n\nLora and soft for the frozen model `openai-community/gpt2` (family gpt2, weights `abababababab`)"
        in page
    )
    assert "It is 1,234 numbers, no\nmodel" in page
    assert "tunescope pull me/thing --out FOLDER" in page
    assert "## Licence\n\napache-2.0. The base model's own licence holds beside it." in page


def test_every_number_of_the_table_is_that_of_the_results(results: dict[str, Any]) -> None:
    page = card(CardFacts("me/thing", MANIFEST, 1234, results))
    for arm in results["arms"]:
        name = arm["name"].replace("+", r"\+")
        if arm["status"] == "done":
            low, high = arm["interval"]
            name += " (best on dev)" if arm["name"] == results["best"]["arm"] else ""
            assert f"| {name} | {arm['score']:.3f} | {low:.3f} to {high:.3f} | " in page
        else:
            assert f"| {name} | – |  | – | {arm['status']} |" in page
    assert f"## Verdict: {results['verdict']['answer']}" in page
    for sentence in results["verdict"]["sentences"]:
        assert sentence.replace("+", r"\+") in page
    assert "- parameters: 98,304" in page and "- seeds: 0, 1, 2, 3, 4" in page and "- test rows: 400" in page
    past = "- more, past an end of them that won, at most: 2"
    results["protocol"]["beyond"] = 2
    assert past not in page and past in card(CardFacts("me/thing", MANIFEST, 1234, results))


def test_a_base_at_a_revision_is_a_link_to_its_repository() -> None:
    assert head(card(CardFacts("me/thing", MANIFEST, 0, None, "me/base@v1")))["base_model"] == "me/base"


def test_without_results_base_and_licence_it_says_so() -> None:
    page = card(CardFacts("me/thing", MANIFEST | {"about": {}}, 0))
    assert head(page) == {"library_name": "tunescope", "tags": ["tunescope", "lora", "soft"]}
    assert "for the frozen model that it was tuned on" in page
    assert "It was saved by itself, outside of a comparison." in page
    assert "None was stated: ask before you use it." in page
    assert "## Results" not in page


@pytest.mark.parametrize("name", ["/home/anna/models/gpt", "../gpt", "gpt2", "a b/c", "a/b\nlicense: mit"])
def test_a_base_that_is_no_hub_name_is_no_link_and_no_path(name: str) -> None:
    page = card(CardFacts("me/thing", MANIFEST, 0, None, name))
    assert "base_model" not in head(page)
    assert "license" not in head(page)
    assert "/home/anna" not in page


NASTY = (
    "<script>alert(1)</script>",
    "[a](javascript:alert(1))",
    "![x](http://evil.example/x.png)",
    "a | b | c",
    "`code` **bold** # head",
    "line\n\n# new heading",
    "\u202egnp.exe",
    "key hf_" + "a1B2" * 9,
    "read /home/anna/private/rows.jsonl",
)


@pytest.mark.parametrize("name", NASTY)
def test_a_name_is_text_and_nothing_else(name: str, results: dict[str, Any]) -> None:
    nasty = copy.deepcopy(results)
    nasty["arms"][0]["name"] = name
    nasty["verdict"]["sentences"][0] = f"{name} is undecided."
    nasty["model"]["name"] = name
    page = card(CardFacts("me/thing", MANIFEST | {"about": {"arm": name}}, 0, nasty, None, name))
    body = page.split("---", 2)[2]
    assert "<" not in body.replace("&lt;", "")
    assert not re.search(r"(?<!\\)[\[\]]", body)
    for mark in ("hf_a1", "/home/anna", "\u202e", "\n# new", "http://"):
        assert mark not in body
    rows = [line for line in body.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(nasty["arms"])
    assert all(line.replace(r"\|", "").count("|") == 6 for line in rows)
    assert head(page)["license"] == name


def test_a_prompt_typed_as_an_arm_is_not_in_the_card_nor_in_the_verdict_s_sentences(results: dict[str, Any]) -> None:
    secret = "text:text=Patient Anna has a cough. Diagnose"
    worded = copy.deepcopy(results)
    for index, name in enumerate((secret, f"{secret} her", "soft:length=3,init_from=text,text=Anna")):
        old = worded["arms"][index]["name"]
        worded["arms"][index] |= {"name": name, "spec": name}
        for one in worded["comparisons"]:
            one |= {side: name for side in ("a", "b") if one[side] == old}
    worded["verdict"]["sentences"][0] = f"{secret} (0.8) against {secret} her (0.7)."
    page = card(CardFacts("me/thing", MANIFEST | {"about": {"arm": secret}}, 0, worded))
    assert "Anna" not in page and "cough" not in page
    assert "text:text=… (0.8) against text:text=… (2) (0.7)." in page
    assert "| soft:length=3,init\\_from=text,text=… |" in page
    assert secret in worded["verdict"]["sentences"][0]
    assert [arm["name"] for arm in unworded(results)["arms"]] == [arm["name"] for arm in results["arms"]]


def test_results_of_another_version_are_refused(results: dict[str, Any]) -> None:
    with pytest.raises(ts.UserError, match="The results are of version 9"):
        card(CardFacts("me/thing", MANIFEST, 0, results | {"version": 9}))


def test_what_is_escaped_is_what_was_meant() -> None:
    assert escaped("a_b*c") == r"a\_b\*c"
    assert escaped("0.871 to 0.917, -0.02 (95 %)") == "0.871 to 0.917, -0.02 (95 %)"


def test_the_card_says_in_python_how_the_artifact_is_loaded() -> None:
    page = card(CardFacts("me/thing", MANIFEST, 0, auto="AutoModelForMaskedLM"))
    assert "from transformers import AutoModelForMaskedLM, AutoTokenizer" in page
    program = page.partition("--out FOLDER\n\n")[2].partition("Attaching checks")[0]
    named = {node.attr for node in ast.walk(ast.parse(textwrap.dedent(program))) if isinstance(node, ast.Attribute)}
    assert {"attach", "load"} <= named <= {*ts.__all__, "from_pretrained"}


def test_what_arms_cost_on_other_text_is_a_column_where_it_was_measured(results: dict[str, Any]) -> None:
    results["forgetting"] = {"path": "a.txt", "windows": 16, "tokens": 128, "loss": "the next token", "reason": ""}
    assert "forgets" not in table_of(results)[0]
    for arm in results["arms"]:
        arm["forgetting"] = {"change": 0.25, "error": 0.031, "reason": ""}
    results["arms"][0]["forgetting"] = {"change": None, "error": None, "reason": "there is no room"}
    head, line, *rows = table_of(results)
    assert head.split(" | ")[3] == "forgets" and head.count("|") == line.count("|") == 7
    assert all(row.count("|") == 7 for row in rows)
    cells = {row.split(" | ")[0]: row.split(" | ")[3] for row in rows}
    assert cells["| lora-2"] == r"\+0.250 ± 0.031" and cells["| zero-shot"] == "–" and cells["| anchors"] == ""
    assert "16 windows of 128 tokens of a.txt" in card(CardFacts("me/thing", MANIFEST, 1234, results))


def table_of(results: dict[str, Any]) -> list[str]:
    lines = card(CardFacts("me/thing", MANIFEST, 1234, results)).splitlines()
    return [line for line in lines if line.startswith("|")]
