"""What peft trained beside LoRA's factors, as changes of whole parameters: norms, biases, embeddings, tokens."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
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
ALL = sys.maxsize  # places
TOKENS = re.compile(r"base_model\.model\.(.+)\.token_adapter\.trainable_tokens_delta")


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
        value = found[0][0]._parameters[found[0][1]]
        assert value is not None
        if is_quantised(value):
            raise UserError(f"{TENSORS}: {path!r} is quantised in this model: load it in bfloat16 to change it.")
        if places < len(found):
            raise UserError(
                f"{TENSORS}: {path!r} was trained apart from what it is tied to in this model, and a change here is of "
                "both. In peft ensure_weight_tying=True trains both, of a module that is called embed_tokens and that "
                "modules_to_save names; else keep it in peft."
            )
        return value.detach().to(torch.promote_types(value.dtype, torch.float32))

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

    def replace_rows(self, path: str, rows: tuple[int, ...], values: Tensor) -> None:
        """Rows of an embedding, wherever it is tied to, that have these values now."""
        name = self.name(path, "weight")
        base = self.base(path, "weight", places=ALL)
        if values.shape != (len(rows), base.shape[1]) or not all(0 <= row < len(base) for row in rows):
            raise UserError(
                f"{TENSORS}: {len(rows)} tokens of {path!r} are {tuple(values.shape)} and should be "
                f"{(len(rows), base.shape[1])}, of {len(base)}: the file was altered, or made for another model."
            )
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

    def name(self, path: str, attribute: str) -> str:
        """What a parameter is called here, the same for all places of a tied one. Raises UserError for none."""
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
    rest: dict[str, Tensor] = {}
    wholes: dict[str, list[tuple[str, str, Tensor]]] = {}
    for key, value in tensors.items():
        if tokens := TOKENS.fullmatch(key):
            patches.replace_rows(tokens[1], _indices(config, tokens[1]), value)
        elif whole := WHOLE.fullmatch(key):
            wholes.setdefault(patches.name(whole[1], whole[2]), []).append((whole[1], whole[2], value))
        else:
            rest[key] = value
    told = []
    for places in wholes.values():
        path, attribute, value = places[0]
        if any(_is_trained(config, *place[:2]) for place in places):
            patches.replace(path, attribute, [place[2] for place in places])
            continue
        base = patches.base(path, attribute, places=ALL)
        if not torch.equal(value.to(base), base):
            raise UserError(f"{TENSORS}: '{path}.{attribute}' {UNSAID} {MERGE}")
        told.append(f"{path} is saved as it is in the base: it is left out")
    _check_biases(config, tensors, patches.model)
    return rest, told


UNSAID = (
    "is a whole weight beside LoRA that its configuration does not say was trained (modules_to_save, bias), and not as "
    "in the base, where it came to lie under save_embedding_layers."
)


def oriented(module: nn.Module, matrix: Tensor) -> Tensor:
    """(out, in) as the module stores it, or what it stores as (out, in)."""
    return matrix.T if is_transposed(module) else matrix


def _check_biases(config: Mapping[str, Any], tensors: Mapping[str, Tensor], model: PreTrainedModel) -> None:
    """UserError for a map whose LoRA is there, and whose bias, which was trained with it, is not."""
    if config.get("bias") not in ("all", "lora_only"):
        return
    saved = {whole[1] for key in tensors if (whole := WHOLE.fullmatch(key)) and whole[2] == "bias"}
    for key in tensors:
        path = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        if not key.endswith(".lora_A.weight") or path in saved:
            continue
        if getattr(find_anywhere(model, path), "bias", None) is not None:
            raise UserError(
                f"{TENSORS} has no bias of {path!r}, which its configuration says was trained "
                f"(bias={config['bias']!r}): the file was altered or cut."
            )


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
