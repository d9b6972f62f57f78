"""That the memory of a device has ended where no arm is told of it: one line, with the options that need less."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence

NAMES = ("OutOfMemoryError", "OutOfMemory", "MemoryError")  # torch's, that of training, and Python's
WORDS = "out of memory|can't allocate memory|ALLOC_FAILED"  # of other errors that torch raises
LOADS = ("bfloat16", "8bit", "4bit")  # each with less than the one before


def line(problem: Exception, words: Sequence[str], options: Callable[[], Collection[str]]) -> str | None:
    """Which device, what it said, and what to type; None for another problem. options: those that the verb has."""
    said = " ".join(str(problem).split())
    named = {one.__name__ for one in type(problem).__mro__} & set(NAMES)
    if not named and not (isinstance(problem, RuntimeError) and re.search(WORDS, said)):
        return None
    gpu = re.search(r"\bGPU \d+", said)
    where = gpu[0] if gpu else "the GPU" if re.search("CUDA|CUDNN|CUBLAS|HIP|MPS", said) else "this machine"
    told = f" ({'. '.join(said.split('. ')[:2]).rstrip('.')})" if said else ""
    return f"the memory of {where} has ended{told}. {_advice(words, options(), where != 'this machine')}"


def _advice(words: Sequence[str], options: Collection[str], is_gpu: bool) -> str:
    typed = " ".join(words).replace("=", " ").split()
    less = [f"{name} {value}" for name, value in _less(typed, is_gpu) if name in options]
    if less:
        return f"Type the same command with {' or '.join(less)}"
    if "resume" in typed[:1]:
        return "Free it, and type the same command again; or begin elsewhere, with what compare has for less"
    if is_gpu:
        return "Take a smaller model; or type CUDA_VISIBLE_DEVICES= before the same command, which then takes the CPU"
    return "Take a smaller model, or a machine with more memory"


def _less(typed: Sequence[str], is_gpu: bool) -> Iterator[tuple[str, str]]:
    """The options, with a value, that need less memory than what was typed, and go with it."""
    load = next((typed[at + 1] for at, word in enumerate(typed[:-1]) if word == "--load"), "")
    for value in LOADS[LOADS.index(load) + 1 :] if load in LOADS else LOADS:
        if value == "bfloat16" or not {"--device-map", "--processes"} & set(typed):
            yield "--load", value
    if not {"--batch-size", "--processes"} & set(typed):
        yield "--batch-size", "auto"
    if is_gpu and "--device-map" not in typed:
        yield "--device", "cpu"
