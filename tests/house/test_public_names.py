"""The public names, and that each says what a person must know to use it."""

import inspect
import re

import pytest
import tiny

import tunescope as ts
from tunescope.attachment.initial_artifacts import initialised
from tunescope.methods.artifact import Spec
from tunescope.methods.text_form import parse

NAMES = {
    *("attach", "compare", "load", "lower", "merge", "predict", "record", "resume", "save"),
    *("Anchors", "Infix", "Inputs", "Prefix", "Soft", "Text"),
    *("Adapter", "Bias", "Full", "Head", "LoRA", "Reweight"),
    *("Artifact", "Bank", "Plan", "Settings", "UserError"),
}
UNPUBLISHED = {"Text", "Full", "Head"}  # methods that nobody was the first to write about
ARMS = {
    "Anchors": "anchors:keep=0,length=2,text=w5 w6",
    "Adapter": "adapter:norm=in,scale=learned",
    "Bias": "bias",
    "Full": "full",
    "Head": "head",
    "Infix": "infix",
    "Inputs": "inputs",
    "LoRA": "lora",
    "Prefix": "prefix",
    "Reweight": "text:text=w5 w6 w7+reweight:anchors=1",
    "Soft": "soft",
    "Text": "text:text=w5",
}


def methods() -> list[str]:
    return sorted(name for name in NAMES if isinstance(getattr(ts, name), type) and issubclass(getattr(ts, name), Spec))


def test_the_public_names_are_these() -> None:
    assert set(ts.__all__) == NAMES | {"__version__"} and len(ts.__all__) == len(NAMES) + 1
    assert dir(ts) == sorted(ts.__all__)
    assert all(getattr(ts, name).__name__ == name for name in NAMES)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_public_name_says_what_it_takes_and_what_it_refuses(name: str) -> None:
    """More than one line, every parameter by name, and Raises where it raises."""
    thing = getattr(ts, name)
    told = inspect.getdoc(thing) or ""
    assert vars(thing).get("__doc__", told) and not told.startswith(
        f"{name}("
    )  # its own, not what a dataclass makes up
    assert told.partition("\n")[0].strip() and told.count("\n") >= 2
    if name != "UserError":  # takes what every exception does
        missing = [one for one in inspect.signature(thing).parameters if not re.search(rf"\b{one}\b", told)]
        assert missing == []
    raises = inspect.isfunction(thing) or "raise UserError" in inspect.getsource(thing)
    assert not raises or re.search(r"\bRaises\b.*\bUserError\b", told, re.DOTALL)


def test_a_public_method_of_a_class_that_raises_says_so() -> None:
    for name in sorted(NAMES - set(methods())):
        for key, value in vars(getattr(ts, name)).items() if isinstance(getattr(ts, name), type) else ():
            function = getattr(value, "__func__", value)
            if inspect.isfunction(function) and not key.startswith("_"):
                assert function.__doc__, (name, key)
                assert "raise UserError" not in inspect.getsource(function) or "Raises" in function.__doc__, (name, key)


@pytest.mark.parametrize("name", methods())
def test_a_method_says_its_tensors_with_their_shapes_and_where_it_is_from(name: str) -> None:
    told = " ".join((inspect.getdoc(getattr(ts, name)) or "").split())
    assert re.search(r"\bTensors\b[^:]*: .*\([^)]*\)", told)
    assert name in UNPUBLISHED or re.search(r"Source: .*arXiv:\d{4}\.\d{5}, sections? \d", told)
    model = tiny.make("bert" if name == "Head" else "gpt2")
    artifact = initialised(model, parse(ARMS[name]), tiny.tokenizer(), 0)[-1]
    assert isinstance(artifact.spec, getattr(ts, name))
    if name not in ("Bias", "Full"):  # theirs have the model's own names
        assert all(re.search(rf"\b{re.split('[.:]', tensor)[-1]}\b", told) for tensor in artifact.tensors)


def test_a_name_that_is_not_there_is_refused_with_those_that_are() -> None:
    name = "anchor"
    with pytest.raises(AttributeError, match="'tunescope' has no attribute 'anchor'; it has: Adapter, Anchors, "):
        getattr(ts, name)
