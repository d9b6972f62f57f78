"""Tune a language model, and see what tuning did.

The public names are imported when they are first used, so that `import tunescope` and `tunescope --help` stay fast.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PLACES = {
    "Adapter": "tunescope.deltas.adapter",
    "Artifact": "tunescope.artifact",
    "Bank": "tunescope.bank",
    "Bias": "tunescope.deltas.bias",
    "Full": "tunescope.deltas.full",
    "Head": "tunescope.deltas.head",
    "Infix": "tunescope.contexts.infix",
    "Inputs": "tunescope.contexts.inputs",
    "LoRA": "tunescope.deltas.lora",
    "Prefix": "tunescope.contexts.prefix",
    "Soft": "tunescope.contexts.soft",
    "Text": "tunescope.contexts.text",
    "UserError": "tunescope.errors",
    "attach": "tunescope.attached",
    "compare": "tunescope.comparing.comparison",
    "load": "tunescope.saving",
    "lower": "tunescope.attached",
    "merge": "tunescope.merging",
    "resume": "tunescope.comparing.comparison",
    "save": "tunescope.saving",
}

__all__ = ["__version__", *_PLACES]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'tunescope' has no attribute {name!r}; it has: {', '.join(_PLACES)}.")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
