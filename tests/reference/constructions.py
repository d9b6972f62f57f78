"""The constructions, slow and literal: the paper's first one as published, and ours as a transformer of dense matrices.

Neither imports tunescope.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def paper_decode(z: Tensor, vocabulary: int) -> Tensor:
    """Petrov et al.'s decoder: logit_i = (2 i / V - 1) z + 1/4 - (i / V)^2, largest for the i / V nearest to z."""
    level = torch.arange(vocabulary, dtype=z.dtype) / vocabulary
    return ((2 * level - 1) * z.unsqueeze(-1) + 0.25 - level**2).argmax(-1)


def paper_sequence(target: list[int], vocabulary: int, temperature: float) -> list[int]:
    """What Petrov et al.'s Theorem 1 network writes, with the scale T / sqrt(sequence length) of the authors' code.

    Tokens are [content (N); one-hot position (N)], tokens embed to no content, the virtual token's content is
    target / V. Head "position" attends to its own position and copies it; head "first" copies the content at 0.
    """
    n = len(target)
    virtual = torch.tensor(target, dtype=torch.float64) / vocabulary
    written: list[int] = []
    for length in range(1, n + 1):
        content = torch.zeros(length, n, dtype=torch.float64)
        content[0] = virtual
        position = torch.eye(n, dtype=torch.float64)[:length]
        own = (temperature / math.sqrt(length) * position @ position.T).softmax(-1) @ position
        is_first = position[:, 0].expand(length, length)
        first = (temperature / math.sqrt(length) * is_first).softmax(-1) @ content
        h = own + first
        z = torch.relu(torch.relu(h - 1).sum(-1))
        written.append(int(paper_decode(z, vocabulary)[-1]))
    return written


class Dense:
    """The network of `tunescope.theory` as blocks x + attention(x), x + W_2 ReLU(W_1 x + b_1) + b_2, all dense.

    Stream: content | token | place | copy | gates of the inputs | number | digits | digit | low, high | scratch.
    """

    def __init__(self, V: int, n_x: int, n_y: int, temperature: float, dtype: torch.dtype = torch.float64):
        self.V, self.n_x, self.n_y, self.n, self.dtype = V, n_x, n_y, n_x + n_y, dtype
        self.C, self.e, self.base = (V if n_x else 1), V ** max(n_x - 1, 0), math.isqrt(V - 1) + 1
        sizes = {"content": n_y * self.C, "token": V, "place": self.n, "copy": n_y * self.C}
        sizes |= {f"gate{k}": V for k in range(1, n_x + 1)}
        sizes |= {"number": 1, "digits": self.e, "digit": 1, "pair": 2, "scratch": max(V, self.base)}
        self.at, end = {}, 0
        for slot, size in sizes.items():
            self.at[slot], end = list(range(end, end + size)), end + size
        self.d, self.temperature = end, temperature

    def zeros(self, *shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=self.dtype)

    def embed(self, virtual: Tensor, tokens: Tensor) -> Tensor:
        """E x + P; the virtual token is its content, and 0 elsewhere."""
        table = self.zeros(self.V, self.d)
        table[:, self.at["token"]] = torch.eye(self.V, dtype=self.dtype) - 1
        places = self.zeros(self.n, self.d)
        places[:, self.at["place"]] = torch.eye(self.n, dtype=self.dtype) - 1
        first = self.zeros(len(virtual), 1, self.d)
        first[:, 0, self.at["content"]] = virtual
        return torch.cat([first, F.embedding(tokens, table)], 1) + places[: 1 + tokens.shape[1]]

    def attention(self, x: Tensor) -> Tensor:
        """The sum over heads of W_O Attention(W_Q x + b_Q, W_K x, W_V x), causal, by torch's own kernel."""
        out = x
        for position in range(1 + self.n_x):
            source, goal = ("token", f"gate{position}") if position else ("content", "copy")
            W_k, W_v = self.zeros(1, self.d), self.zeros(len(self.at[source]), self.d)
            W_k[0, self.at["place"][position]] = 1
            W_v[range(len(W_v)), self.at[source]] = 1
            W_o = self.zeros(self.d, len(W_v))
            W_o[self.at[goal], range(len(W_v))] = 1
            q = torch.full((*x.shape[:2], 1), self.temperature, dtype=self.dtype)
            out = out + F.scaled_dot_product_attention(q, x @ W_k.T, x @ W_v.T, is_causal=True) @ W_o.T
        return out

    def layer(self, x: Tensor, rows: list[tuple[dict[int, float], float, dict[int, float]]], bias: dict) -> Tensor:
        """x + W_2 ReLU(W_1 x + b_1) + b_2; a row of `rows` is one hidden unit: what it reads, its bias, its writes."""
        W_1, b_1, W_2 = self.zeros(len(rows), self.d), self.zeros(len(rows)), self.zeros(self.d, len(rows))
        for unit, (reads, offset, writes) in enumerate(rows):
            b_1[unit] = offset
            for coordinate, weight in reads.items():
                W_1[unit, coordinate] = weight
            for coordinate, weight in writes.items():
                W_2[coordinate, unit] = weight
        b_2 = self.zeros(self.d)
        for coordinate, offset in bias.items():
            b_2[coordinate] = offset
        return x + F.linear(torch.relu(F.linear(x, W_1, b_1)), W_2, b_2)

    def peel(self, x: Tensor, source: int, goals: list[int], base: int) -> Tensor:
        """Digits of the coordinate `source` to `goals`, last digit first: two layers a digit, then one to move."""
        scratch = self.at["scratch"]
        for j in range(len(goals) - 1, 0, -1):
            steps = range(1, base)
            x = self.layer(x, [({source: 1}, 1 - c * base**j, {scratch[c]: 1}) for c in steps], {})
            step = [({scratch[c]: -1}, 1, {goals[j]: -1, source: base**j}) for c in steps]
            clear = [({scratch[c]: 1}, 0, {scratch[c]: -1}) for c in steps]
            x = self.layer(x, step + clear, {goals[j]: base - 1, source: -(base - 1) * base**j})
        return self.layer(x, [({source: 1}, 0, {goals[0]: 1})], {})

    def __call__(self, virtual: Tensor, tokens: Tensor) -> Tensor:
        at, V, L = self.at, self.V, self.V**self.e
        x = self.attention(self.embed(virtual, tokens))
        choose = []
        for unit, coordinate in enumerate(at["copy"]):
            reads = {coordinate: 1, at["place"][self.n_x + unit // self.C]: L}
            if self.n_x:
                reads[at["gate1"][unit % self.C]] = L
            choose.append((reads, 0, {at["number"][0]: 1}))
        x = self.layer(x, choose, {})
        x = self.peel(x, at["number"][0], at["digits"], V)
        choose = []
        for unit, coordinate in enumerate(at["digits"]):
            others = {at[f"gate{k}"][unit // V ** (self.n_x - k) % V]: V for k in range(2, self.n_x + 1)}
            choose.append(({coordinate: 1} | others, 0, {at["digit"][0]: 1}))
        x = self.layer(x, choose, {})
        x = self.peel(x, at["digit"][0], at["pair"], self.base)
        centre, unembed, bias = self.base // 2, self.zeros(V, self.d), self.zeros(V)
        for token in range(V):
            low, high = token % self.base - centre, token // self.base - centre
            unembed[token, at["pair"]] = torch.tensor([low, high], dtype=self.dtype)
            bias[token] = -(low**2 + high**2) / 2 - centre * (low + high)
        return F.linear(x, unembed, bias)
