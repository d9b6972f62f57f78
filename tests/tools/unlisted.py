"""Families of the zoo that have no file of ours, by how their attention is reached."""

from typing import Any

from zoo import zoo

UNREACHED = ("gpt_neox_japanese", "deberta", "deberta-v2")
OWN_ATTENTION = ("gptj", "codegen", "gpt_neo", "falcon", "bloom")  # computed by themselves, and reached all the same
UNMAPPED = (
    *OWN_ATTENTION,
    *("electra", "camembert", "xlm-roberta", "modernbert", "phi3", "stablelm", "olmo", "pegasus"),
)


def unlisted(name: str) -> Any:
    assert name in (*UNREACHED, *UNMAPPED, "albert")
    return zoo(name)
