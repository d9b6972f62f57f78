"""Tune a language model, and see what tuning did.

The public names are imported when they are first used, so that `import tunescope` and `tunescope --help` stay fast.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PLACES = {
    "Adapter": "tunescope.methods.deltas.adapter",
    "Anchors": "tunescope.methods.contexts.anchors",
    "Artifact": "tunescope.methods.artifact",
    "Bank": "tunescope.attachment.bank.bank",
    "Bias": "tunescope.methods.deltas.bias",
    "Full": "tunescope.methods.deltas.full",
    "Head": "tunescope.methods.deltas.head",
    "Infix": "tunescope.methods.contexts.infix",
    "Inputs": "tunescope.methods.contexts.inputs",
    "LoRA": "tunescope.methods.deltas.lora",
    "Plan": "tunescope.trial.plan",
    "Prefix": "tunescope.methods.contexts.prefix",
    "Reweight": "tunescope.methods.deltas.reweight",
    "Settings": "tunescope.trial.train.settings",
    "Soft": "tunescope.methods.contexts.soft",
    "Text": "tunescope.methods.contexts.text",
    "UserError": "tunescope.errors",
    "attach": "tunescope.attachment.attached",
    "compare": "tunescope.comparison.comparison",
    "load": "tunescope.attachment.artifact_folder",
    "lower": "tunescope.attachment.lower",
    "merge": "tunescope.attachment.merge",
    "predict": "tunescope.comparison.predict",
    "record": "tunescope.attachment.attention.record",
    "resume": "tunescope.comparison.comparison",
    "save": "tunescope.attachment.artifact_folder",
}

__all__ = ["__version__", *_PLACES]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'tunescope' has no attribute {name!r}; it has: {', '.join(_PLACES)}.")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
