"""Made-up methods and a family, and a folder that they are looked for in too."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tunescope.methods import contexts, deltas, text_form
from tunescope.models import families
from tunescope.models.family import find_family

DELTA = '''
from dataclasses import dataclass
from typing import ClassVar
import torch
from torch import Tensor
from tunescope.methods.artifact import Params, SiteDelta, SiteShape

@dataclass(frozen=True)
class Scaling(SiteDelta):
    """h times a learned vector, from 1."""

    learning_rates: ClassVar[tuple[float, float, float]] = (1e-3, 1e-2, 1e-1)
    sites: tuple[str, ...] = ("attn.k", "attn.v", "ffn.in")

    def init(self, shape: SiteShape) -> Params:
        return {"by": torch.ones(shape.d_out)}

    def apply(self, p: Params, x: Tensor, h: Tensor) -> Tensor:
        return h * p["by"]
'''


CONTEXT = '''
from dataclasses import dataclass
from typing import ClassVar
import torch
from tunescope.methods.artifact import Base, Params, TokenContext

@dataclass(frozen=True)
class Repeated(TokenContext):
    """One trained embedding, several times over."""

    size: ClassVar[str] = "length"
    length: int = 3

    def shapes(self, base: Base) -> dict[str, tuple[int, ...]]:
        return {"embedding": (1, base.width)}

    def init(self, base: Base) -> Params:
        return {"embedding": base.embed(torch.tensor([5]))}

    def embeddings(self, p, embed):
        return p["embedding"].expand(self.length, -1)
'''


FAMILY = '''
"""StableLM: Llama's layout."""
from tunescope.models.families.llama import FAMILY as FAMILY
'''


def forget() -> None:
    for known in (text_form.methods, text_form.name_of, find_family):
        known.cache_clear()
    for name in ("deltas.scaling", "deltas.pair", "contexts.repeated"):
        sys.modules.pop(f"tunescope.methods.{name}", None)
    sys.modules.pop("tunescope.models.families.stablelm", None)
    importlib.invalidate_caches()


@pytest.fixture
def plugin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that contexts, deltas and families are looked for in too."""
    for package in (contexts, deltas, families):
        place = tmp_path / package.__name__.rpartition(".")[2]
        place.mkdir()
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(place)])
    forget()
    yield tmp_path
    monkeypatch.undo()
    forget()
