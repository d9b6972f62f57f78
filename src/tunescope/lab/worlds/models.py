"""Small untrained decoders, made from transformers configurations."""

from dataclasses import dataclass
from typing import Any

from transformers import GPT2Config, GPT2LMHeadModel

from tunescope.system import machine


@dataclass(frozen=True)
class Shape:
    """The size of a GPT-2. With one layer, one head and 96 it is the model of Petrov et al.'s Table 1.

    initial: the standard deviation of fresh weights. GPT-2's is for widths near 768; a narrow model begins to learn
    what takes two layers together after thousands of steps, or with width**-0.5 after hundreds.
    """

    layers: int = 1
    heads: int = 1
    width: int = 96
    dropout: float = 0.0
    initial: float = 0.02

    def __str__(self) -> str:
        layers, heads = f"layer{'s' * (self.layers != 1)}", f"head{'s' * (self.heads != 1)}"
        return f"{self.layers} {layers}, {self.heads} {heads}, width {self.width}"


def gpt2(shape: Shape, vocabulary: int, positions: int, seed: int) -> Any:
    """A GPT-2 in eval mode with its own output layer, as minGPT has it; drawn from `seed`.

    Its activation is NewGELU, computed by torch's one kernel for it.
    """
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=positions,
        n_embd=shape.width,
        n_layer=shape.layers,
        n_head=shape.heads,
        initializer_range=shape.initial,
        activation_function="gelu_pytorch_tanh",
        resid_pdrop=shape.dropout,
        embd_pdrop=shape.dropout,
        attn_pdrop=shape.dropout,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    with machine.seeded(seed):
        return GPT2LMHeadModel(config).eval()
