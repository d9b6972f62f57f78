"""Whether a network does what its virtual tokens ask, run out in full."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.theory.constructions.network import Network, Target

ELEMENTS = 2**21  # of the largest activation in one batch


@dataclass(frozen=True)
class Wrong:
    """One answer that differs from its target where the target asks for something."""

    target: int
    prompt: tuple[int, ...]
    expected: tuple[int, ...]
    got: tuple[int, ...]


@dataclass(frozen=True)
class Check:
    """asked: pairs of a target and a prompt for which the target asks for something; right: those answered in full."""

    asked: int
    right: int
    first_wrong: Wrong | None

    @property
    def fraction(self) -> float:
        """The share of what was asked for that was answered in full."""
        return self.right / self.asked


def prompts_of(network: Network) -> Tensor:
    """All V^(n_X) prompts, (V^(n_X), n_X), in the order of the target's axes."""
    if not network.inputs:
        return torch.zeros(1, 0, dtype=torch.long)
    axes = [torch.arange(network.vocabulary)] * network.inputs
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, network.inputs)


def verify(network: Network, target: Target, prompts: Tensor | None = None) -> Check:
    """Every prompt under every target, by greedy decoding from the virtual token, compared with the target.

    Exact for what it ran; it claims nothing of prompts that were left out. An answer is right if it agrees wherever
    the target is not -1.

    Args:
        target: as for `Network.virtual_token`; the leading axes count as one, in order.
        prompts: (m, n_X) token ids; all V^(n_X) if not given.

    Raises UserError if nothing is asked, and as `Network.virtual_token` and `Network.forward`.
    """
    device = network.places.device
    prompts = (prompts_of(network) if prompts is None else prompts).to(device)
    wanted = network.as_target(target).to(device).reshape(-1, network.vocabulary**network.inputs, network.outputs)
    virtual = network.virtual_token(target).to(device).reshape(-1, network.width)
    powers = network.vocabulary ** torch.arange(network.inputs, device=device).flip(0)
    rows = torch.cartesian_prod(torch.arange(len(virtual)), torch.arange(len(prompts))).to(device)
    largest = network.positions * max(network.width, network.vocabulary)
    asked = right = 0
    first_wrong = None
    for part in torch.split(rows, max(1, ELEMENTS // largest)):
        prompt = prompts[part[:, 1]]
        got = network.generate(virtual[part[:, 0]], prompt)
        expected = wanted[part[:, 0], (prompt * powers).sum(-1)]
        counts = (expected >= 0).any(-1)
        fails = ((got != expected) & (expected >= 0)).any(-1)
        asked += int(counts.sum())
        right += int((counts & ~fails).sum())
        if first_wrong is None and fails.any():
            i = int(fails.nonzero()[0])
            show = (tuple(t[i].tolist()) for t in (prompt, expected, got))
            first_wrong = Wrong(int(part[i, 0]), *show)
    if not asked:
        raise UserError("verify was given targets that ask for nothing: every output is -1, or there is no prompt.")
    return Check(asked, right, first_wrong)
