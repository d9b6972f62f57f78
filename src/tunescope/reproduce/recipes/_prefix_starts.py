"""Ways in which a prefix begins: the same length and the same positions, other keys and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tunescope.attachment.initial_artifacts import base_of
from tunescope.methods.artifact import Artifact, Base, KeysValues
from tunescope.methods.contexts.prefix import Prefix
from tunescope.methods.contexts.text import last_ids
from tunescope.system import machine
from tunescope.trial.demos import start

if TYPE_CHECKING:
    from tunescope.trial.bench import Bench

SAMPLED = 64  # tokens that the scale of keys and values is measured on
Begin = Callable[[Base, "Bench", int, int], KeysValues]


def begun(bench: Bench, name: str, length: int, seed: int) -> Artifact:
    """A prefix that begins in the way of that name.

    Its text stands behind it where positions are rotary, as behind words, and where it stood elsewhere.
    """
    base = base_of(bench.model, bench.tokenizer)
    spec = Prefix(length=length, positions="after" if base.rotary else "same")
    with machine.seeded(seed):
        made = STARTS[name](base, bench, length, seed)
    tensors = {f"{site}.key": key for site, (key, _) in made.items()}
    tensors |= {f"{site}.value": value for site, (_, value) in made.items()}
    return Artifact(spec, {name: one.to(bench.device).clone() for name, one in tensors.items()})


def _noise(base: Base, bench: Bench, length: int, seed: int) -> KeysValues:
    """Normal, at the spread of all of a module's keys (values) together: what `init_from=noise` draws."""
    return _at_spread(_sampled(base), length)


def _noise_by_dimension(base: Base, bench: Bench, length: int, seed: int) -> KeysValues:
    """Normal, each dimension with its own mean and spread over tokens, the first token's left out."""

    def like(one: Tensor) -> Tensor:
        others = one[:, 1:]
        mean, spread = others.mean(1, keepdim=True), others.std(1, keepdim=True)
        return mean + spread * torch.randn(one.shape[0], length, one.shape[2])

    return _each(_sampled(base), like)


def _noise_behind_sink(base: Base, bench: Bench, length: int, seed: int) -> KeysValues:
    """`_noise`, but for its first key and value: those that the model makes of a text's first token."""
    own = _sampled(base)

    def behind(first: Tensor, made: Tensor) -> Tensor:
        return torch.cat([first[:, :1], made[:, 1:]], 1)

    return {
        site: (behind(own[site][0], key), behind(own[site][1], value))
        for site, (key, value) in _at_spread(own, length).items()
    }


def _zeros(base: Base, bench: Bench, length: int, seed: int) -> KeysValues:
    return _each(_sampled(base), lambda one: torch.zeros(one.shape[0], length, one.shape[2]))


def _tokens(base: Base, bench: Bench, length: int, seed: int) -> KeysValues:
    return base.keys_values(torch.randint(base.vocabulary, (length,)))


def _demonstrations(base: Base, bench: Bench, length: int, seed: int) -> KeysValues:
    """The end of solved rows; the first of these tokens has nothing before it, and so is a sink."""
    return base.keys_values(_solved(bench, length + 1, seed)[1:])


def _demonstrations_without_sink(base: Base, bench: Bench, length: int, seed: int) -> KeysValues:
    """The same tokens, read behind one more, which is left out: each a position nearer to the text."""
    return _each(base.keys_values(_solved(bench, length + 1, seed)), lambda one: one[:, 1:])


STARTS: dict[str, Begin] = {
    "noise": _noise,
    "noise, each dimension's own": _noise_by_dimension,
    "noise behind a sink": _noise_behind_sink,
    "zeros": _zeros,
    "sampled tokens": _tokens,
    "demonstrations": _demonstrations,
    "demonstrations without a sink": _demonstrations_without_sink,
}


def _solved(bench: Bench, length: int, seed: int) -> Tensor:
    return torch.tensor(last_ids(bench.tokenizer, start.text(bench, length, seed), length))


def _sampled(base: Base) -> KeysValues:
    """What the model makes of sampled tokens."""
    return base.keys_values(torch.randint(base.vocabulary, (min(SAMPLED, base.positions or SAMPLED),)))


def _at_spread(own: KeysValues, length: int) -> KeysValues:
    return _each(own, lambda one: one.std() * torch.randn(one.shape[0], length, one.shape[2]))


def _each(own: KeysValues, change: Callable[[Tensor], Tensor]) -> KeysValues:
    return {site: (change(key), change(value)) for site, (key, value) in own.items()}
