"""That the memory of a device has ended where no arm is told of it: one line, with the options that need less."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

NAMES = ("OutOfMemoryError", "OutOfMemory", "MemoryError")  # torch's, that of training, and Python's
WORDS = "out of memory|can't allocate memory|ALLOC_FAILED"  # of other errors that torch raises
LESS = {"--load": ("bfloat16", "4bit"), "--batch-size": ("auto",)}


def line(problem: Exception, words: Sequence[str], options: Callable[[], Collection[str]]) -> str | None:
    """Which device, what it said, and what to type; None for another problem. options: those that the verb has."""
    said = " ".join(str(problem).split())
    named = {one.__name__ for one in type(problem).__mro__} & set(NAMES)
    if not named and not (isinstance(problem, RuntimeError) and re.search(WORDS, said)):
        return None
    gpu = re.search(r"\bGPU \d+", said)
    where = gpu[0] if gpu else "the GPU" if re.search("CUDA|HIP|MPS", said) else "this machine"
    told = f" ({'. '.join(said.split('. ')[:2]).rstrip('.')})" if said else ""
    return f"the memory of {where} has ended{told}. {_advice(words, options(), where != 'this machine')}"


def _advice(words: Sequence[str], options: Collection[str], is_gpu: bool) -> str:
    typed = " ".join(words).replace("=", " ")
    given = LESS | ({"--device": ("cpu",)} if is_gpu else {})
    less = [f"{name} {value}" for name, values in given.items() for value in values if name in options]
    less = [one for one in less if one not in typed]
    if less:
        return f"Type the same command with {' or '.join(less)}"
    if is_gpu:
        return "Take a smaller model; or type CUDA_VISIBLE_DEVICES= before the same command, which then takes the CPU"
    return "Take a smaller model, or a machine with more memory"
