"""Tiny random models of every family, made from transformers configs: seconds for the whole zoo."""

import copy
import io
import pickle
from functools import cache
from typing import Any

import torch
import transformers as tf
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch.overrides import TorchFunctionMode

from tunescope.attachment.initial_artifacts import initialised
from tunescope.lab.worlds.families import (
    BART_LIKE,
    BERT_LIKE,
    DECODER,
    LLAMA_LIKE,
    VOCAB,
    auto_class,
    build,
    configs,
    random_model,
)
from tunescope.methods.artifact import Artifact
from tunescope.methods.text_form import parse

__all__ = ["BART_LIKE", "BERT_LIKE", "DECODER", "LLAMA_LIKE", "VOCAB", "auto_class", "build", "configs"]


def make(name: str, *, seed: int = 0, dtype: torch.dtype = torch.float64, attention: str | None = None) -> Any:
    """A tiny random model in eval mode, without dropout, whose weights, biases and norms are away from 0 and 1."""
    pickled, tensors = _made(name, seed, dtype, attention)
    return _Copy(io.BytesIO(pickled), tensors).load()


@cache
def _made(name: str, seed: int, dtype: torch.dtype, attention: str | None) -> tuple[bytes, list[torch.Tensor]]:
    """The model in bytes, but for its tensors: to make a copy of these is five times as quick as copy.deepcopy."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(random_model(name, seed=seed, dtype=dtype, attention=attention))
    return file.getvalue(), list(pickler.tensors.values())


class _Pickler(pickle.Pickler):
    """Keeps tensors apart: in the bytes stands their number."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.tensors: dict[int, torch.Tensor] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, torch.Tensor):
            return None
        self.tensors.setdefault(id(obj), obj)
        return list(self.tensors).index(id(obj))


class _Copy(pickle.Unpickler):
    """Puts a copy in the place of each tensor; those that were one, or one memory, stay one."""

    def __init__(self, file: io.BytesIO, tensors: list[torch.Tensor]) -> None:
        super().__init__(file)
        self.tensors = copy.deepcopy(tensors)

    def persistent_load(self, pid: int) -> torch.Tensor:
        return self.tensors[pid]


def tokenizer() -> Any:
    """A word is a token: "w7" is 7; "<pad>", "<s>" and "</s>" are 0, 1 and 2, and never put in by itself."""
    words = {"<pad>": 0, "<s>": 1, "</s>": 2} | {f"w{i}": i for i in range(3, VOCAB)}
    made = Tokenizer(WordLevel(words, unk_token="w3"))
    made.pre_tokenizer = WhitespaceSplit()
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="w3"
    )


def ids(rows: int = 2, length: int = 7, *, seed: int = 1) -> torch.Tensor:
    """Random token ids, none of them special."""
    return torch.randint(3, VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))


LENGTHS = (7, 4)  # of the two rows of a padded batch


def batch(model: Any, padding: str = "right") -> dict[str, torch.Tensor]:
    """Inputs of two rows. padding: "none", "left" or "right"; a decoder's positions count real tokens alone."""
    text = ids()
    given = {"input_ids": text}
    if padding != "none":
        mask = torch.ones_like(text)
        for row, length in enumerate(LENGTHS):
            if padding == "left":
                mask[row, : text.shape[1] - length] = 0
            else:
                mask[row, length:] = 0
        given |= {"input_ids": text * mask + model.config.pad_token_id * (1 - mask), "attention_mask": mask}
        if is_decoder(model):
            given["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = ids(length=5, seed=2)
    return given


def is_decoder(model: Any) -> bool:
    return type(model).__name__.endswith(("ForCausalLM", "LMHeadModel"))


def output(model: Any, given: dict[str, torch.Tensor]) -> torch.Tensor:
    """Logits, or an encoder's last states."""
    out = model(**given)
    return out.logits if "logits" in out else out.last_hidden_state


def real(given: dict[str, torch.Tensor], out: torch.Tensor) -> torch.Tensor:
    """The outputs (n, width) at real tokens; all of them where the output is not over the given text."""
    mask = given.get("attention_mask")
    if mask is None or out.dim() < 3 or "decoder_input_ids" in given:
        return out
    return out[mask.bool()]


FLOAT = torch.Tensor.float
CASTS = {FLOAT, torch.Tensor.to, torch.Tensor.type}


class Float64(TorchFunctionMode):
    """Within it, what transformers computes in float32 whatever the model's type (norms, softmax) stays in float64."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_cast = function in CASTS and args[0].dtype == torch.float64
        if is_cast and (function is FLOAT or torch.float32 in args[1:]):
            return args[0]
        if not kwargs:
            return function(*args)
        if kwargs.get("dtype") is torch.float32 and isinstance(args[0], torch.Tensor):
            kwargs = {**kwargs, "dtype": args[0].dtype}
        return function(*args, **kwargs)


def away(model: Any, arm: str, seed: int = 3, *, by: float = 0.3) -> list[Artifact]:
    """The arm's artifacts, off where they start, so that what tuning changes is not zero by construction."""
    artifacts = initialised(model, parse(arm), tokenizer(), seed)
    draw = torch.Generator().manual_seed(seed)
    for artifact in artifacts:
        for name, value in artifact.tensors.items():
            if value.is_floating_point():
                artifact.tensors[name] = value + by * torch.randn(value.shape, generator=draw, dtype=value.dtype)
    return artifacts
