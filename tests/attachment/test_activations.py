"""Activations that keep only their input: the same outputs to the bit, the same gradients, fewer bytes kept."""

import pytest
import tiny
import torch
from torch import Tensor
from transformers.activations import NewGELUActivation

import tunescope as ts
from tunescope.attachment.guards.activations import lean_activations


def test_outputs_are_the_same_bits_and_gradients_those_of_autograd() -> None:
    module = torch.nn.Sequential(NewGELUActivation())
    x = torch.linspace(-6, 6, 3000, dtype=torch.float64).view(3, 100, 10).requires_grad_()
    weight = torch.linspace(1, 2, 3000, dtype=torch.float64).view(3, 100, 10)
    plain = module(x)
    (expected,) = torch.autograd.grad((plain * weight).sum(), x)
    with lean_activations(module):
        out = module(x)
        (found,) = torch.autograd.grad((out * weight).sum(), x)
    assert torch.equal(out, plain) and "forward" not in vars(module[0])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)


def test_second_derivatives_are_those_of_autograd_too() -> None:
    module = NewGELUActivation()
    x = torch.linspace(-3, 3, 50, dtype=torch.float64).view(5, 10).requires_grad_()

    def second() -> Tensor:
        (first,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        return torch.autograd.grad((first**2).sum(), x)[0]

    expected = second()
    with lean_activations(module):
        torch.testing.assert_close(second(), expected, rtol=0, atol=1e-13)


def test_a_forward_that_somebody_put_in_its_place_stays() -> None:
    module = NewGELUActivation()
    module.forward = lambda x: 2 * x  # type: ignore[method-assign]
    own = module.forward
    with lean_activations(module):
        assert module.forward is own
    assert module.forward is own


@pytest.mark.parametrize("half", [torch.bfloat16, None])
def test_under_autocast_the_gradient_has_the_type_of_the_input(half: torch.dtype | None) -> None:
    module = NewGELUActivation()
    x = torch.linspace(-3, 3, 50, dtype=half or torch.float32).view(5, 10).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        plain = module(x)
        with lean_activations(module):
            out = module(x)
    (found,) = torch.autograd.grad(out.float().sum(), x)
    assert found.dtype == x.dtype and out.dtype == plain.dtype and torch.equal(out, plain)
    wide = x.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(module(wide).sum(), wide)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=0.02)


def test_a_training_step_of_gpt2_keeps_fewer_bytes() -> None:
    model = tiny.make("gpt2", dtype=torch.float32)
    given = tiny.batch(model, "none")

    def kept() -> int:
        bytes_by_place: dict[int, int] = {}

        def pack(value: Tensor) -> Tensor:
            bytes_by_place[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
            return value

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
            model(**given).logits.sum().backward()
        return sum(bytes_by_place.values())

    with ts.attach(model, ts.Prefix(length=2)) as tuned:
        tuned.train()
        ours = kept()
        for module in model.modules():
            module.__dict__.pop("forward", None)
        assert ours < 0.8 * kept()
