"""LoRA as a GGUF adapter: what a llama.cpp server adds to its base as it runs, several beside each other."""

from __future__ import annotations

from pathlib import Path

from tunescope.exchange.compare_outputs import difference, outputs
from tunescope.exchange.outgoing import Outgoing
from tunescope.exchange.serving import checkpoint, gguf_lora

ABOUT = "LoRA as a GGUF adapter, which a llama.cpp server adds to a GGUF of the base, however that is quantised"
SERVES = "llama-server and llama-cli of llama.cpp, as they come (--lora FILE); several in one server, chosen by request"


def write(given: Outgoing, folder: Path) -> list[str]:
    """`lora.gguf`, in float32, the scale inside B, and a manifest.

    Raises:
        UserError: what is no plain LoRA, a family whose GGUF was not tried, a map that has no name there, or no package
            gguf.
    """
    notes = gguf_lora.write(given, folder)
    checkpoint.describe(given, "llama_lora", folder)
    if given.about.get("task"):
        notes.append("the task (template, label words) has no place in a GGUF file: it stays with the artifact")
    return notes


def check(given: Outgoing, folder: Path) -> float:
    """What the file holds, as llama.cpp would add it, against what is attached."""
    again = gguf_lora.read_back(given, folder)
    return difference(outputs(given.model, again), outputs(given.model, given.artifacts))


def rounding(_given: Outgoing) -> float:
    """How far outputs may be apart for the file's own precision."""
    return gguf_lora.ROUNDING
