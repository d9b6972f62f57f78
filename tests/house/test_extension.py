"""Adding a method or a family is one file, and its name is its name on the command line."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers as tf

import tunescope as ts
from tunescope.methods import contexts, deltas, typed
from tunescope.models import families, family
from tunescope.trial.budget import count

DELTA = '''
from dataclasses import dataclass
from typing import ClassVar
import torch
from torch import Tensor
from tunescope.methods.artifact import Params, SiteDelta, SiteShape

@dataclass(frozen=True)
class Scaling(SiteDelta):
    """h times a learned vector, from 1."""

    learning_rates: ClassVar[tuple[float, float, float]] = (1e-3, 1e-2, 1e-1)
    sites: tuple[str, ...] = ("attn.k", "attn.v", "ffn.in")

    def init(self, shape: SiteShape) -> Params:
        return {"by": torch.ones(shape.d_out)}

    def apply(self, p: Params, x: Tensor, h: Tensor) -> Tensor:
        return h * p["by"]
'''
CONTEXT = '''
from dataclasses import dataclass
from typing import ClassVar
import torch
from tunescope.methods.artifact import Base, Params, TokenContext

@dataclass(frozen=True)
class Repeated(TokenContext):
    """One trained embedding, several times over."""

    size: ClassVar[str] = "length"
    length: int = 3

    def shapes(self, base: Base) -> dict[str, tuple[int, ...]]:
        return {"embedding": (1, base.width)}

    def init(self, base: Base) -> Params:
        return {"embedding": base.embed(torch.tensor([5]))}

    def embeddings(self, p, embed):
        return p["embedding"].expand(self.length, -1)
'''
FAMILY = '''
"""StableLM: Llama's layout."""
from tunescope.models.families.llama import FAMILY as FAMILY
'''


def forget() -> None:
    for known in (typed.methods, typed.name_of, family.find):
        known.cache_clear()
    importlib.invalidate_caches()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that contexts, deltas and families are looked for in too."""
    for package in (contexts, deltas, families):
        place = tmp_path / package.__name__.rpartition(".")[2]
        place.mkdir()
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(place)])
    forget()
    yield tmp_path
    monkeypatch.undo()
    forget()


def test_a_delta_is_one_file(folder: Path) -> None:
    (folder / "deltas" / "scaling.py").write_text(DELTA)
    (spec,) = typed.parse("scaling:sites=ffn.in")
    assert typed.show([spec]) == "scaling:sites=ffn.in"
    with pytest.raises(ts.UserError, match="Did you mean 'scaling'"):
        typed.parse("scalling")
    model = tiny.make("gpt2")
    given = tiny.batch(model)
    with torch.no_grad():
        plain = tiny.output(model, given)
    with ts.attach(model, *typed.parse("scaling+prefix:length=2+lora:rank=2")) as tuned:
        tuned.train()
        tiny.output(model, given).square().mean().backward()
        assert all(leaf.grad is not None for leaf in tuned.parameters())
    assert count(model, typed.parse("scaling")).trained == 2 * (24 + 24 + 96)
    with ts.attach(model, spec) as tuned, torch.no_grad():
        assert torch.equal(tiny.output(model, given), plain)
        for leaf in tuned.parameters():
            leaf.mul_(1.5)
        expected = tiny.output(model, given)
        ts.save(folder / "saved", tuned.artifacts, model=model)
    with ts.attach(model, *ts.load(folder / "saved")), torch.no_grad():
        assert torch.equal(tiny.output(model, given), expected)
    with pytest.raises(ts.UserError, match="no change of weights, so it cannot be merged"):
        ts.merge(model, *tuned.artifacts)


def test_a_context_is_one_file(folder: Path) -> None:
    (folder / "contexts" / "repeated.py").write_text(CONTEXT)
    model = tiny.make("llama")
    given = tiny.batch(model)
    with ts.attach(model, *typed.parse("repeated:length=4")) as tuned:
        tuned.train()
        tiny.output(model, given).square().mean().backward()
        assert all(leaf.grad.abs().max() > 0 for leaf in tuned.parameters())
        tuned.eval()
        ts.save(folder / "saved", tuned.artifacts, model=model)
        assert tuned.positions == 4
        with torch.no_grad():
            expected = tiny.output(model, given)
    artifacts = ts.load(folder / "saved")
    with torch.no_grad():
        with ts.attach(model, *artifacts):
            assert torch.equal(tiny.output(model, given), expected)
        with ts.attach(model, *ts.lower(model, *artifacts)):
            got = tiny.real(given, tiny.output(model, given))
    torch.testing.assert_close(got, tiny.real(given, expected), rtol=0, atol=1e-12)
    counts = count(model, typed.parse("repeated:length=4"))
    assert (counts.stored, counts.live) == (24, 4 * 2 * 2 * 12)


def test_a_family_is_one_file(folder: Path) -> None:
    model = tiny.build(tf.AutoModelForCausalLM, tf.StableLmConfig(**tiny.LLAMA_LIKE))
    with pytest.raises(ts.UserError, match="has no map"):
        ts.attach(model, ts.LoRA(rank=2))
    (folder / "families" / "stablelm.py").write_text(FAMILY)
    forget()
    with ts.attach(model, ts.LoRA(rank=2), ts.Adapter(bottleneck=2)) as tuned:
        tuned.train()
        tiny.output(model, tiny.batch(model)).square().mean().backward()
        assert all(leaf.grad is not None for leaf in tuned.parameters())


def test_a_file_with_two_methods_is_an_error(folder: Path) -> None:
    (folder / "deltas" / "pair.py").write_text(DELTA + DELTA.replace("Scaling", "Other"))
    with pytest.raises(RuntimeError, match="has 2 public classes of kind Spec; a file is one"):
        typed.methods()


@pytest.mark.parametrize("path", sorted(Path(families.__path__[0]).glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_a_family_file_is_data(path: Path) -> None:
    banned = (ast.If, ast.IfExp, ast.For, ast.While, ast.Try, ast.ClassDef, ast.Match, ast.BoolOp, ast.Compare)
    found = [type(node).__name__ for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, banned)]
    assert found == []
    assert len(path.read_text().splitlines()) <= 30


@pytest.mark.parametrize("folder_of", [contexts, deltas], ids=["contexts", "deltas"])
def test_a_method_never_knows_a_model_s_name(folder_of: Any) -> None:
    for path in Path(folder_of.__path__[0]).glob("*.py"):
        text = path.read_text()
        assert not any(word in text for word in ("model_type", "transformers", "tunescope.models.family")), path


def test_no_list_names_the_methods() -> None:
    """Outside their own file and the public names, no module of the core tells methods apart by class."""
    core = Path(ts.__file__).parent
    for stem in (
        "artifact",
        "hooks",
        "placing",
        "lowered",
        "attention",
        "reach",
        "sites",
        "budget",
        "registry",
        "saving",
    ):
        tree = ast.parse((core / f"{stem}.py").read_text())
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not used & {method.__name__ for method in typed.methods().values()}, stem
