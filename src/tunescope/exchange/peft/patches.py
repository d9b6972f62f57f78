"""What peft trained beside LoRA's factors, as changes of whole parameters: norms, biases, embeddings, tokens."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tunescope.attachment.weights import named_parameters
from tunescope.errors import UserError
from tunescope.exchange.peft.config import MERGE, TENSORS
from tunescope.exchange.peft.modules import find_anywhere
from tunescope.methods.artifact import Artifact, Params
from tunescope.methods.deltas.bias import Bias
from tunescope.methods.deltas.full import Full
from tunescope.models.quantised import is_quantised
from tunescope.models.sites import is_transposed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ALL = sys.maxsize  # places


class Patches:
    """Changes of a model's parameters, gathered from a file; `artifacts()` gives them as `Full` and `Bias`."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._places = named_parameters(model)
        self._names = {place: name for name, places in self._places.items() for place in places}
        self._changes: Params = {}
        self._rows: list[Artifact] = []

    def base(self, path: str, attribute: str, *, places: int = 1) -> Tensor:
        """A parameter as it is in the model, in float32 where it is stored in less.

        places: how many of the places where it stands are meant, of a tied one.

        Raises UserError for what the model does not have, a quantised one, and some places of a tied one.
        """
        name = self.name(path, attribute)
        found = self._places[name]
        value = found[0][0].get_parameter(found[0][1])
        if is_quantised(value):
            raise UserError(f"{TENSORS}: {path!r} is quantised in this model: load it in bfloat16 to change it.")
        if places < len(found):
            raise UserError(
                f"{TENSORS}: {path!r} was trained apart from what it is tied to in this model, and a change here is of "
                "both. In peft ensure_weight_tying=True trains both alike, of a module that is called embed_tokens and "
                "that modules_to_save names, or target_modules, with one rank and alpha; else keep it in peft."
            )
        return value.detach().to(torch.promote_types(value.dtype, torch.float32))

    def bias(self, path: str) -> Tensor | None:
        """The bias of a map with what was added to it; None for a map without."""
        if getattr(find_anywhere(self.model, path), "bias", None) is None:
            return None
        found = self.base(path, "bias")
        change = self._changes.get(self.name(path, "bias"))
        return found if change is None else found + change

    def add(self, path: str, attribute: str, change: Tensor) -> None:
        """A change of a parameter, of its shape, on top of what was added."""
        name = self.name(path, attribute)
        before = self._changes.get(name)
        self._changes[name] = (change if before is None else before + change).contiguous()

    def replace(self, path: str, attribute: str, values: Sequence[Tensor]) -> None:
        """A parameter that has this value now, said once for each place of a tied one.

        Raises UserError for another shape than the model's, and for a tied one that has several values now, or one in
        some of its places.
        """
        apart = any(not torch.equal(value, values[0]) for value in values)
        base = self.base(path, attribute, places=1 if apart else len(values))
        if values[0].shape != base.shape:
            raise UserError(
                f"{TENSORS}: {path}.{attribute} is {tuple(values[0].shape)} and here {tuple(base.shape)}. Was the "
                f"vocabulary resized, then: {MERGE} Else it was made for another model."
            )
        self.add(path, attribute, values[0].to(base) - base)

    def replace_rows(self, said: Sequence[tuple[str, tuple[int, ...], Tensor]]) -> None:
        """Rows of one embedding that have these values now, said for one of its places or for several of a tied one.

        Raises UserError where these differ, or are not of the input's embedding, to which peft ties the others; where
        a head over the rows has a bias, which peft then leaves out; and for rows that the model does not have.
        """
        path, rows, values = said[0]
        name = self.name(path, "weight")
        self._check_rows(name, said)
        base = self.base(path, "weight", places=ALL)
        if values.shape != (len(rows), base.shape[1]) or not all(0 <= row < len(base) for row in rows):
            raise UserError(
                f"{TENSORS}: {len(rows)} tokens of {path!r} are {tuple(values.shape)} and should be "
                f"{(len(rows), base.shape[1])}, of {len(base)}: the file was altered, or made for another model."
            )
        change = values.to(base) - base[list(rows)]
        self._rows.append(Artifact(Full(only=(name,), rows=rows), {name: change}))

    def _check_rows(self, name: str, said: Sequence[tuple[str, tuple[int, ...], Tensor]]) -> None:
        places, (path, rows, values) = [module for module, _ in self._places[name]], said[0]
        is_input = any(find_anywhere(self.model, one) is self.model.get_input_embeddings() for one, _, _ in said)
        apart = any(more != rows or not torch.equal(value, values) for _, more, value in said)
        if len(places) > 1 and (apart or not is_input):
            raise UserError(
                f"{TENSORS}: tokens of {path!r} were trained apart from what it is tied to in this model, and a change "
                "here is of both: keep them in peft."
            )
        if any(isinstance(one, nn.Linear) and one.bias is not None for one in places):
            raise UserError(
                f"{TENSORS}: tokens of {path!r} were trained, and peft leaves out the bias of the head over them, so "
                "its outputs are not the model's own anywhere: keep them in peft."
            )

    def is_empty(self) -> bool:
        return not (self._changes or self._rows)

    def artifacts(self, *, headed: bool) -> list[Artifact]:
        """One for all whole parameters, `Bias` where they are all biases of the model, and one for rows of each.

        headed: with a head of classes, whose own bias is none of them, though a class of transformers may have it.
        """
        if not self._changes:
            return self._rows
        is_bias = not headed and self._changes.keys() == {name for name in self._places if Bias().selects(name)}
        spec = Bias() if is_bias else Full(only=_globs(self._changes, self._places))
        return [
            Artifact(spec, {name: self._changes[name] for name in self._places if name in self._changes}),
            *self._rows,
        ]

    def n_values(self) -> int:
        """How many numbers the changes of whole parameters are."""
        return sum(value.numel() for value in self._changes.values())

    def name(self, path: str, attribute: str) -> str:
        """What a parameter is called here, the same for all places of a tied one. Raises UserError for none."""
        module = find_anywhere(self.model, path)
        name = None if module is None else self._names.get((module, attribute))
        if name is None and "pooler" in path.split("."):
            raise UserError(
                f"{TENSORS} has {path}.{attribute}, which a head for classes reads, and the file has none. {MERGE}"
            )
        if name is None:
            raise UserError(
                f"{TENSORS} has {path}.{attribute}, which this model does not have: load it with the head that it was "
                "tuned with (AutoModelForCausalLM, say), or the file was made for another."
            )
        return name


def oriented(module: nn.Module, matrix: Tensor) -> Tensor:
    """(out, in) as the module stores it, or what it stores as (out, in)."""
    return matrix.T if is_transposed(module) else matrix


def _globs(chosen: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Patterns that match the chosen names and no others: "h.*.ln_1.bias" for every layer's."""
    chosen, known, found = list(chosen), list(known), list[str]()
    for name in chosen:
        glob = re.sub(r"\d+", "*", name)
        alike = {other for other in known if fnmatchcase(other, glob)}
        found.append(glob if alike <= set(chosen) else name)
    return tuple(dict.fromkeys(found))
