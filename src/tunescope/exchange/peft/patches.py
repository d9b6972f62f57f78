"""What peft trained beside LoRA's factors, as changes of whole parameters: norms, biases, embeddings, tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

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

WHOLE = re.compile(r"base_model\.model\.((?:(?!\.lora_).)+?)(?:\.base_layer)?\.(weight|bias)")
TOKENS = re.compile(r"base_model\.model\.(.+)\.token_adapter\.trainable_tokens_delta")


class Patches:
    """Changes of a model's parameters, gathered from a file; `artifacts()` gives them as `Full` and `Bias`."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._places = named_parameters(model)
        self._names = {place: name for name, places in self._places.items() for place in places}
        self._changes: Params = {}
        self._rows: list[Artifact] = []

    def base(self, path: str, attribute: str, *, alone: bool = True) -> Tensor:
        """A parameter as it is in the model, in float32 where it is stored in less.

        alone: what is trained is this one place, and not what is tied to it.

        Raises UserError for what the model does not have, a quantised one, and one place of a tied one.
        """
        name = self._named(path, attribute)
        places = self._places[name]
        value = places[0][0]._parameters[places[0][1]]
        assert value is not None
        if is_quantised(value):
            raise UserError(f"{TENSORS}: {path!r} is quantised in this model: load it in bfloat16 to change it.")
        if alone and len(places) > 1:
            raise UserError(
                f"{TENSORS}: {path!r} was trained apart from what it is tied to in this model, and a change here is of "
                "both. Train it in peft with ensure_weight_tying=True; or untie the base (tie_word_embeddings=False)."
            )
        return value.detach().to(torch.promote_types(value.dtype, torch.float32))

    def add(self, path: str, attribute: str, change: Tensor) -> None:
        """A change of a parameter, of its shape, on top of what was added."""
        name = self._named(path, attribute)
        before = self._changes.get(name)
        self._changes[name] = (change if before is None else before + change).contiguous()

    def replace(self, path: str, attribute: str, value: Tensor, *, alone: bool = True) -> None:
        """A parameter that has this value now. Raises UserError for another shape than the model's."""
        base = self.base(path, attribute, alone=alone)
        if value.shape != base.shape:
            raise UserError(
                f"{TENSORS}: {path}.{attribute} is {tuple(value.shape)} and here {tuple(base.shape)}. Was the "
                f"vocabulary resized, then: {MERGE} Else it was made for another model."
            )
        self.add(path, attribute, value.to(base) - base)

    def replace_rows(self, path: str, rows: tuple[int, ...], values: Tensor) -> None:
        """Rows of an embedding, wherever it is tied to, that have these values now."""
        base = self.base(path, "weight", alone=False)
        if values.shape != (len(rows), base.shape[1]) or not all(0 <= row < len(base) for row in rows):
            raise UserError(
                f"{TENSORS}: {len(rows)} tokens of {path!r} are {tuple(values.shape)} and should be "
                f"{(len(rows), base.shape[1])}, of {len(base)}: the file was altered, or made for another model."
            )
        name = self._named(path, "weight")
        change = values.to(base) - base[list(rows)]
        self._rows.append(Artifact(Full(only=(name,), rows=rows), {name: change}))

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

    def _named(self, path: str, attribute: str) -> str:
        module = find_anywhere(self.model, path)
        name = None if module is None else self._names.get((module, attribute))
        if name is None:
            raise UserError(
                f"{TENSORS} has {path}.{attribute}, which this model does not have: load it with the head that it was "
                "tuned with (AutoModelForCausalLM, say), or the file was made for another."
            )
        return name


def split(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], patches: Patches
) -> tuple[dict[str, Tensor], list[str]]:
    """Takes whole parameters and trained tokens into the patches; the tensors that are left, and notes.

    Raises:
        UserError: what the configuration says was trained is not there; what is there, it does not say.
    """
    rest, unchanged = {}, []
    tied = bool(config.get("ensure_weight_tying"))
    for key, value in tensors.items():
        if tokens := TOKENS.fullmatch(key):
            patches.replace_rows(tokens[1], _indices(config, tokens[1]), value)
        elif (whole := WHOLE.fullmatch(key)) and ".lora_" not in key:
            path, attribute = whole[1], whole[2]
            if not _is_trained(config, path, attribute):
                base = patches.base(path, attribute, alone=False)
                if not torch.equal(value.to(base), base):
                    raise UserError(f"{TENSORS}: {key!r} {UNSAID} {MERGE}")
                unchanged.append(path)
            else:
                patches.replace(path, attribute, value, alone=not tied)
        else:
            rest[key] = value
    told = [f"{path} is saved as it is in the base: it is left out" for path in unchanged]
    return rest, told


UNSAID = (
    "is a whole weight beside LoRA that its configuration does not say was trained (modules_to_save, bias), and not as "
    "in the base, where it came to lie under save_embedding_layers."
)


def oriented(module: nn.Module, matrix: Tensor) -> Tensor:
    """(out, in) as the module stores it, or what it stores as (out, in)."""
    return matrix.T if is_transposed(module) else matrix


def _is_trained(config: Mapping[str, Any], path: str, attribute: str) -> bool:
    saved = any(re.search(rf"{re.escape(str(one))}(\.|$)", path) for one in config.get("modules_to_save") or [])
    return saved or (attribute == "bias" and config.get("bias") in ("all", "lora_only"))


def _indices(config: Mapping[str, Any], path: str) -> tuple[int, ...]:
    """The tokens that were trained in an embedding. Raises UserError where the configuration does not say them."""
    given = config.get("trainable_token_indices")
    if isinstance(given, dict):
        given = next((rows for name, rows in given.items() if path == name or path.endswith(f".{name}")), None)
    if not isinstance(given, list) or not all(type(row) is int for row in given) or len(set(given)) < len(given):
        raise UserError(f"{TENSORS} has trained tokens of {path!r}, and trainable_token_indices does not say which.")
    return tuple(given)


def check_there(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """UserError for what was trained by the configuration and of which the file has nothing."""
    names = [name for name in config.get("modules_to_save") or [] if name not in ("classifier", "score")]
    lacks = [name for name in names if not any(re.search(rf"{re.escape(str(name))}\.", key) for key in tensors)]
    if config.get("trainable_token_indices") and not any(TOKENS.fullmatch(key) for key in tensors):
        lacks.append("the tokens of trainable_token_indices")
    if lacks:
        raise UserError(
            f"{TENSORS} lacks {', '.join(lacks)}, which its configuration says was trained: it was altered."
        )


def _globs(chosen: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Patterns that match the chosen names and no others: "h.*.ln_1.bias" for every layer's."""
    chosen, known, found = list(chosen), list(known), list[str]()
    for name in chosen:
        glob = re.sub(r"\d+", "*", name)
        alike = {other for other in known if fnmatchcase(other, glob)}
        found.append(glob if alike <= set(chosen) else name)
    return tuple(dict.fromkeys(found))
