"""Adding a method or a family is one file, and its name is its name on the command line."""

import ast
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from extension import CONTEXT, DELTA, FAMILY, forget

import tunescope as ts
from tunescope.methods import contexts, deltas, text_form
from tunescope.models import families
from tunescope.trial.budget import count


def test_a_delta_is_one_file(plugin_folder: Path) -> None:
    (plugin_folder / "deltas" / "scaling.py").write_text(DELTA)
    (spec,) = text_form.parse("scaling:sites=ffn.in")
    assert text_form.show([spec]) == "scaling:sites=ffn.in"
    with pytest.raises(ts.UserError, match="Did you mean 'scaling'"):
        text_form.parse("scalling")
    model = tiny.make("gpt2")
    given = tiny.batch(model)
    with torch.no_grad():
        plain = tiny.output(model, given)
    with ts.attach(model, *text_form.parse("scaling+prefix:length=2+lora:rank=2")) as tuned:
        tuned.train()
        tiny.output(model, given).square().mean().backward()
        assert all(leaf.grad is not None for leaf in tuned.parameters())
    assert count(model, text_form.parse("scaling")).trained == 2 * (24 + 24 + 96)
    with ts.attach(model, spec) as tuned, torch.no_grad():
        assert torch.equal(tiny.output(model, given), plain)
        for leaf in tuned.parameters():
            leaf.mul_(1.5)
        expected = tiny.output(model, given)
        ts.save(plugin_folder / "saved", tuned.artifacts, model=model)
    with ts.attach(model, *ts.load(plugin_folder / "saved")), torch.no_grad():
        assert torch.equal(tiny.output(model, given), expected)
    with pytest.raises(ts.UserError, match="no change of weights, so it cannot be merged"):
        ts.merge(model, *tuned.artifacts)


def test_a_context_is_one_file(plugin_folder: Path) -> None:
    (plugin_folder / "contexts" / "repeated.py").write_text(CONTEXT)
    model = tiny.make("llama")
    given = tiny.batch(model)
    with ts.attach(model, *text_form.parse("repeated:length=4")) as tuned:
        tuned.train()
        tiny.output(model, given).square().mean().backward()
        assert all(leaf.grad.abs().max() > 0 for leaf in tuned.parameters())
        tuned.eval()
        ts.save(plugin_folder / "saved", tuned.artifacts, model=model)
        assert tuned.positions == 4
        with torch.no_grad():
            expected = tiny.output(model, given)
    artifacts = ts.load(plugin_folder / "saved")
    with torch.no_grad():
        with ts.attach(model, *artifacts):
            assert torch.equal(tiny.output(model, given), expected)
        with ts.attach(model, *ts.lower(model, *artifacts)):
            got = tiny.real(given, tiny.output(model, given))
    torch.testing.assert_close(got, tiny.real(given, expected), rtol=0, atol=1e-12)
    counts = count(model, text_form.parse("repeated:length=4"))
    assert (counts.stored, counts.live) == (24, 4 * 2 * 2 * 12)


def test_a_family_is_one_file(plugin_folder: Path) -> None:
    model = tiny.build(tf.AutoModelForCausalLM, tf.StableLmConfig(**tiny.LLAMA_LIKE))
    with pytest.raises(ts.UserError, match="no residual connection of its own"):
        ts.attach(model, ts.Adapter(bottleneck=2, source="stream"))
    (plugin_folder / "families" / "stablelm.py").write_text(FAMILY)
    forget()
    model = tiny.build(tf.AutoModelForCausalLM, tf.StableLmConfig(**tiny.LLAMA_LIKE))
    with ts.attach(model, ts.LoRA(rank=2), ts.Adapter(bottleneck=2, source="stream")) as tuned:
        tuned.train()
        tiny.output(model, tiny.batch(model)).square().mean().backward()
        assert all(leaf.grad is not None for leaf in tuned.parameters())


def test_a_file_with_two_methods_is_an_error(plugin_folder: Path) -> None:
    (plugin_folder / "deltas" / "pair.py").write_text(DELTA + DELTA.replace("Scaling", "Other"))
    with pytest.raises(RuntimeError, match="has 2 public classes of kind Spec; a file is one"):
        text_form.methods()


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
    for name in (
        "methods/artifact",
        "methods/text_form",
        "models/sites",
        "models/anatomy",
        "models/fingerprint",
        "attachment/attention/function",
        "attachment/attention/reach",
        "attachment/context_keys",
        "attachment/contexts",
        "attachment/artifact_folder",
        "attachment/site_hooks",
        "trial/budget",
    ):
        path = core / f"{name}.py"
        tree = ast.parse(path.read_text())
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not used & {method.__name__ for method in text_form.methods().values()}, path
