"""The universal network: one set of weights, a causal transformer that does whatever its one virtual token says.

Petrov et al. 2024 (arXiv:2310.19698), section 3 and its appendix, built anew: one network has all their cases.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tunescope.errors import UserError
from tunescope.theory.constructions import bounds
from tunescope.theory.constructions.layers import Choose, Decode, Digits, LookAt

Target = Tensor | Sequence[object]


class Network(nn.Module):
    """Reads a virtual token and n_X input tokens, and writes n_Y tokens, any function of the inputs.

    Positions: the virtual token at 0, the inputs at 1 ... n_X, then the network's own outputs; output p is read at
    position n_X + p. There is one virtual token, of n_Y V numbers (n_Y for n_X = 0). The paper takes n_Y virtual
    tokens of V numbers; the count of numbers is the same.

    The number at (p, x_1) holds output p for every x_2 ... x_(n_X), as digits base V: V^(n_X - 1) digits.

    1. Attention, 1 + n_X heads: the virtual token's numbers; the gate of every input token. (`LookAt`)
    2. ReLU layer: of the n_Y V numbers, the one of this position's output and of x_1. (`Choose`)
    3. For n_X > 1, ReLU layers: its digits. (`Digits`)
    4. For n_X > 1, ReLU layer: of the digits, the one of x_2 ... x_(n_X). (`Choose`)
    5. ReLU layers and a linear map: the logits. (`Decode`)

    Standard transformer parts: token and absolute position embeddings, causal softmax heads with biases, ReLU layers,
    residual connections, a linear decoder. There is no floor and no remainder. Not standard: no LayerNorm; numbers as
    large as V^(V^(n_X - 1)); several ReLU layers without attention between them (blocks whose attention writes 0).
    Matrices that copy a block of coordinates are written as reading that block; `tests/reference/constructions.py` has
    them as dense matrices.

    Args:
        inputs: n_X, from 0 (the virtual token alone gives the sequence).
        outputs: n_Y, from 1.
        dtype: of weights and activations; the network is exact in it, and stays in it.
        temperature: instead of `bounds.temperature`, to see it fail.

    Raises UserError for a vocabulary and inputs that the type cannot pack exactly.
    """

    places: Tensor

    def __init__(
        self,
        vocabulary: int,
        inputs: int,
        outputs: int,
        *,
        dtype: torch.dtype = torch.float64,
        temperature: float | None = None,
        head_width: int = 1,
    ):
        super().__init__()
        for field, given, least in (
            ("vocabulary", vocabulary, 1),
            ("inputs", inputs, 0),
            ("outputs", outputs, 1),
            ("head_width", head_width, 1),
        ):
            if given < least:
                raise UserError(f"A construction was asked for with {field}={given}; it is at least {least}.")
        self.vocabulary, self.inputs, self.outputs, self.dtype = vocabulary, inputs, outputs, dtype
        self.levels = bounds.levels(vocabulary, inputs, dtype)
        self.digits = bounds.digits(vocabulary, inputs)
        self.columns = vocabulary if inputs else 1  # numbers in the virtual token for one output
        self.width = outputs * self.columns
        n = self.positions = inputs + outputs
        if temperature is None:
            temperature = bounds.temperature(self.levels, n, head_width, dtype)
        self.temperature = temperature
        self.heads = nn.ModuleList(LookAt(at, n, temperature, head_width, dtype) for at in range(1 + inputs))
        self.choose_number = Choose(self.levels)
        self.take_digits = Digits(vocabulary, self.digits, dtype)
        self.choose_digit = Choose(vocabulary)
        self.decode = Decode(vocabulary, dtype)
        self.register_buffer("places", torch.eye(n, dtype=dtype) - 1)

    def virtual_token(self, target: Target) -> Tensor:
        """The virtual token for a target, or one for each of a batch of targets: (..., n_Y V).

        Args:
            target: (..., V, ..., V, n_Y) integers, one axis of length V for an input: at [x_1, ..., x_(n_X)] stand the
                outputs. With one output its axis may be left out (V > 1). -1: this output does not matter.

        Raises UserError for another shape, and for what is no token and not -1.
        """
        tokens = self.as_target(target).clamp(min=0).movedim(-1, -1 - self.inputs)
        packed = tokens.reshape(*tokens.shape[: tokens.dim() - self.inputs], self.columns, self.digits)
        powers = torch.tensor([self.vocabulary**j for j in range(self.digits)], device=packed.device)
        return (packed * powers).sum(-1).flatten(-2).to(self.dtype)

    def as_target(self, target: Target) -> Tensor:
        """The target as integers (..., V, ..., V, n_Y). Raises UserError as `virtual_token`."""
        given = torch.as_tensor(target)
        axes = (self.vocabulary,) * self.inputs
        if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
            raise UserError(f"A target holds token ids; it came as {bounds.name(given.dtype)}.")
        if self.outputs == 1 and self.inputs and given.shape[-self.inputs - 1 :] != (*axes, 1):
            given = given.unsqueeze(-1)
        if given.shape[-self.inputs - 1 :] != (*axes, self.outputs):
            raise UserError(
                f"A target of this network has the shape (..., {', '.join(map(str, (*axes, self.outputs)))}); "
                f"it came as {tuple(torch.as_tensor(target).shape)}."
            )
        self._check_tokens(given, -1, "A target holds token ids, or -1 where the output does not matter")
        return given.long()

    def numbers(self, virtual: Tensor, tokens: Tensor) -> Tensor:
        """The number to be decoded, (batch, 1 + n, 1): an integer, the token, and 0 at positions before n_X."""
        batch, n = tokens.shape[0], 1 + tokens.shape[1]
        places = self.places[:n]
        content = nn.functional.pad(virtual.unsqueeze(1), (0, 0, 0, n - 1))  # real tokens have none
        numbers = self.heads[0](places, content).unflatten(-1, (self.outputs, self.columns))
        gates = places[:, self.inputs :, None].expand(n, self.outputs, self.columns)
        if not self.inputs:
            only: Tensor = self.choose_number(numbers.flatten(-2), gates.flatten(-2))
            return only
        ids = torch.arange(self.vocabulary, device=tokens.device)
        embedded = (tokens.unsqueeze(-1) == ids).to(self.dtype) - 1
        embedded = nn.functional.pad(embedded, (0, 0, 1, 0))  # the virtual token has content alone
        first, *rest = (head(places, embedded) for head in self.heads[1:])
        number: Tensor = self.choose_number(numbers.flatten(-2), (gates + first.unsqueeze(-2)).flatten(-2))
        if not rest:
            return number
        inner = torch.zeros(batch, n, 1, dtype=self.dtype, device=tokens.device)
        for gate in rest:  # (batch, n, V^k) and (batch, n, V) -> (batch, n, V^(k + 1)), in the order of the digits
            inner = (inner.unsqueeze(-1) + gate.unsqueeze(-2)).flatten(-2)
        digit: Tensor = self.choose_digit(self.take_digits(number), inner)
        return digit

    def forward(self, virtual: Tensor, tokens: Tensor) -> Tensor:
        """The next-token logits (batch, 1 + n, V) after the virtual token and after each of the n tokens.

        Args:
            virtual: (batch, n_Y V), from `virtual_token`.
            tokens: (batch, n) ids, the inputs and the outputs so far; n may be 0.

        Raises UserError for shapes, types and ids that do not fit.
        """
        self._check(virtual, tokens)
        logits: Tensor = self.decode(self.numbers(virtual, tokens))
        return logits

    def generate(self, virtual: Tensor, prompt: Tensor) -> Tensor:
        """Greedy decoding: the n_Y outputs (batch, n_Y) after the virtual token and the prompt (batch, n_X).

        The network reads its own outputs; only the last position is decoded to logits. Raises as `forward`.
        """
        if prompt.dim() != 2 or prompt.shape[1] != self.inputs:
            raise UserError(f"A prompt of this network is (batch, {self.inputs}); it came as {tuple(prompt.shape)}.")
        tokens = prompt
        for _ in range(self.outputs):
            self._check(virtual, tokens)
            last = self.numbers(virtual, tokens)[:, -1]
            tokens = torch.cat([tokens, self.decode(last).argmax(-1, keepdim=True)], -1)
        return tokens[:, self.inputs :]

    def _check(self, virtual: Tensor, tokens: Tensor) -> None:
        if not virtual.dtype == self.places.dtype == self.dtype:
            raise UserError(
                f"The network was built for {bounds.name(self.dtype)}, is in {bounds.name(self.places.dtype)} and got "
                f"virtual tokens in {bounds.name(virtual.dtype)}; build it with the dtype it is to run in."
            )
        if tokens.dim() != 2 or virtual.shape != (len(tokens), self.width) or tokens.shape[1] >= self.positions:
            raise UserError(
                f"The network takes virtual tokens (batch, {self.width}) and at most {self.positions - 1} tokens "
                f"(batch, n); they came as {tuple(virtual.shape)} and {tuple(tokens.shape)}."
            )
        self._check_tokens(tokens, 0, "The network reads token ids")

    def _check_tokens(self, given: Tensor, least: int, what: str) -> None:
        wrong = given[(given < least) | (given >= self.vocabulary)]
        if wrong.numel():
            raise UserError(f"{what}, from 0 to {self.vocabulary - 1}; {int(wrong[0])} is among them.")
