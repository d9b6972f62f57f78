"""Random models at the shapes that are measured, and the steps that every variant takes on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from benchmarks.tools.where import device, placed

IGNORED = -100  # the label of a position that carries none
Trained = Callable[[], Iterable[Tensor]]


@dataclass(frozen=True)
class Scale:
    """Shapes of the two models and of the batch, and how often to measure."""

    name: str
    rounds: int
    gpt2: tuple[int, int, int, int]  # layers, width, heads, vocabulary
    llama: tuple[int, int, int, int, int]  # layers, width, heads, heads of keys and values, vocabulary
    rows: int = 8
    tokens: int = 64
    rows_decoded: int = 32
    tokens_before: int = 128


FULL = Scale("full", 5, gpt2=(12, 768, 12, 50_257), llama=(8, 512, 8, 2, 32_000))
TINY = Scale(
    "tiny",
    2,
    gpt2=(2, 24, 3, 600),
    llama=(2, 24, 4, 2, 400),
    rows=2,
    tokens=16,
    rows_decoded=3,
    tokens_before=9,
)


def gpt2(scale: Scale) -> Any:
    """A frozen GPT-2 in eval mode; the same weights at every call."""
    layers, width, heads, vocabulary = scale.gpt2
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=layers,
        n_embd=width,
        n_head=heads,
        vocab_size=vocabulary,
        n_positions=2048,
        bos_token_id=0,
        eos_token_id=0,
    )
    return placed(GPT2LMHeadModel(config).eval().requires_grad_(False))


def llama(scale: Scale) -> Any:
    """A frozen Llama with grouped heads in eval mode; the same weights at every call."""
    layers, width, heads, kv_heads, vocabulary = scale.llama
    torch.manual_seed(0)
    config = LlamaConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=8 * width // 3 // 8 * 8,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=vocabulary,
        max_position_embeddings=2048,
    )
    return placed(LlamaForCausalLM(config).eval().requires_grad_(False))


MODELS = {"gpt2": gpt2, "llama": llama}


def text(scale: Scale, vocabulary: int) -> Tensor:
    """(rows, tokens) of random ids, the same at every call."""
    drawn: Tensor = torch.randint(vocabulary, (scale.rows, scale.tokens), generator=torch.Generator().manual_seed(1))
    return drawn.to(device())


def floor_step(model: Any, ids: Tensor, labels: Tensor) -> Callable[[], None]:
    """Forward and backward of the bare frozen model through its activations, logits at every position."""
    embedded = model.get_input_embeddings()(ids).detach()

    def step() -> None:
        rows = embedded.clone().requires_grad_()
        model(inputs_embeds=rows, labels=labels, use_cache=False).loss.backward()

    return step


def plain_step(model: Any, parameters: Trained, ids: Tensor, labels: Tensor) -> Callable[[], None]:
    """Forward and backward as a user of transformers writes it, logits at every position."""

    def step() -> None:
        for parameter in parameters():
            parameter.grad = None
        model(input_ids=ids, labels=labels, use_cache=False).loss.backward()

    return step


def labelled_step(model: Any, parameters: Trained, ids: Tensor, labels: Tensor) -> Callable[[], None]:
    """The same loss with logits only where a label is read."""
    from tunescope.attachment.site_hooks import logits_at

    where = torch.zeros_like(labels, dtype=torch.bool)
    where[:, :-1] = labels[:, 1:] != IGNORED
    targets = labels[:, 1:][where[:, :-1]]

    def step() -> None:
        for parameter in parameters():
            parameter.grad = None
        with logits_at(model, where):
            logits = model(input_ids=ids, use_cache=False).logits
        F.cross_entropy(logits, targets).backward()

    return step


def peft_step(config: Any, model: Any, ids: Tensor, labels: Tensor) -> Callable[[], None]:
    """The step of the same model under peft."""
    from peft import get_peft_model

    wrapped = get_peft_model(model, config).eval()
    return plain_step(wrapped, wrapped.parameters, ids, labels)
