"""Bottleneck adapters as the `adapters` library stores them, read into `Adapter` where the two say the same.

With h what a block gives, r what its residual connection adds, and f the bottleneck with its scale:

- sequential: h + f(h), and then the model's own r and norm. That is original_ln_before=False, original_ln_after=True
  (Houlsby et al. 2019), and `Adapter` as it is. With original_ln_before=True (Pfeiffer et al. 2020) f reads h + r,
  behind the model's norm where it has one there: `Adapter(source="stream")`. What is kept beside f is h then with
  residual_before_ln=True alone.
- parallel: h + f(r), and then the model's own. Where the norm stands behind the block (BERT and its kin, BART), r is
  the block's input, and this is `Adapter(placement="parallel")`. Where it stands in front, that input is norm(r), and
  this is the same with source="stream".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tunescope.attachment.sites.site_map import sites_of
from tunescope.errors import UserError
from tunescope.exchange.adapters.config import CONFIG, KEEP, TENSORS
from tunescope.exchange.site_names import selectors
from tunescope.methods.artifact import Artifact, Params
from tunescope.methods.deltas.adapter import Adapter
from tunescope.models.anatomy import anatomy
from tunescope.models.family import Family, family_names, find_family

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PART = r"(.+)\.adapters\.{}\.(.+)"
PLACES = {
    "attention_adapters": "self",
    "attention.output": "self",
    "cross_attention_adapters": "cross",
    "output_adapters": "ffn",
    "output": "ffn",
}
PLACES_T5 = {"encoder": ("self", "ffn"), "decoder": ("self", "cross", "ffn")}  # by its sublayers, layer.0 and on
SWITCH = {"self": "mh_adapter", "cross": "cross_adapter", "ffn": "output_adapter"}
LIKE = {"xlm-roberta": "roberta", "electra": "bert"}  # families without a file, laid out as one that has it
ACTIVATIONS = {"relu": "relu", "swish": "silu", "silu": "silu", "gelu": "gelu"}

Found = dict[Adapter, dict[str, Params]]  # spec without its sites -> site -> its tensors


def read(
    configs: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor], name: str, model: PreTrainedModel
) -> list[Artifact]:
    """One `Adapter` for every width, placement and scale that occurs, at exactly the places that the keys name.

    Raises:
        UserError: a residual connection or norm that no `Adapter` has; a family whose places are not known; a place
            that this model does not have, or that no configuration switches on; tensors that do not belong.
    """
    known = list(sites_of(model))
    groups: Found = {}
    for path, parts in _modules(tensors, name).items():
        site = _site(path, known, model)
        config = _config(configs, site, known)
        check_exact(config)
        spec, params = _adapter(config, parts, path, model.config.model_type)
        groups.setdefault(spec, {})[site] = params
    dtype = torch.promote_types(anatomy(model).table.weight.dtype, torch.float32)
    made = []
    for spec, found in groups.items():
        named = selectors(known, found)
        stored = {
            f"{site}:{key}": value.to(dtype, copy=True).contiguous()
            for site in known
            for key, value in found.get(site, {}).items()
        }
        made.append(Artifact(replace(spec, sites=named), stored))
    return made


def check_exact(config: Mapping[str, Any]) -> None:
    """Raises UserError, naming the field, where the configuration is no `Adapter`."""
    if config.get("original_ln_after", True) is not True:
        raise UserError(
            f"{CONFIG}: original_ln_after={config['original_ln_after']!r} takes away the model's own residual "
            f"connection, which no adapter here does. {KEEP}."
        )
    kept = config.get("residual_before_ln", True)
    if config.get("original_ln_before") and not config.get("is_parallel") and kept is not True:
        raise UserError(
            f"{CONFIG}: residual_before_ln={kept!r} adds the state behind the residual connection a second time, and "
            f"an adapter here keeps what the block gave. {KEEP}."
        )
    if config.get("ln_before") and config.get("ln_after"):
        raise UserError(f"{CONFIG}: ln_before and ln_after, and an adapter here has one norm of its own. {KEEP}.")
    if config.get("ln_after") and config.get("adapter_residual_before_ln") and not config.get("is_parallel"):
        raise UserError(
            f"{CONFIG}: adapter_residual_before_ln=True norms the block's output too, and an adapter here what it adds "
            f"alone. {KEEP}."
        )


def _modules(tensors: Mapping[str, Tensor], name: str) -> dict[str, dict[str, Tensor]]:
    """Path of the place -> the adapter's tensors there."""
    found: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        match = re.fullmatch(PART.format(re.escape(name)), key)
        if match is None:
            raise UserError(
                f"{TENSORS}: {key!r} does not belong to an adapter: the file was altered, or is of a newer version."
            )
        found.setdefault(match[1], {})[match[2]] = value
    if not found:
        raise UserError(f"{TENSORS} holds no adapter of the name {name!r}, and {CONFIG} says that it does.")
    return found


def _site(path: str, known: Sequence[str], model: PreTrainedModel) -> str:
    """ "transformer.h.1.output_adapters" -> "decoder.1.ffn"."""
    inside = path.removeprefix(f"{model.base_model_prefix}.")
    for stack, where in _family(model.config.model_type).stacks.items():
        match = re.fullmatch(rf"{re.escape(where.layers)}\.(\d+)\.(.+)", inside)
        if match is None:
            continue
        place = PLACES.get(match[2], "")
        sublayer = re.fullmatch(r"layer\.(\d+)", match[2])
        if sublayer and model.config.model_type == "t5" and int(sublayer[1]) < len(PLACES_T5[stack]):
            place = PLACES_T5[stack][int(sublayer[1])]
        if f"{stack}.{match[1]}.{place}" in known:
            return f"{stack}.{match[1]}.{place}"
    raise UserError(f"{TENSORS}: an adapter at {path!r}, where this model has no place for one. {KEEP}.")


def _family(model_type: str) -> Family:
    """Where a family's blocks are. Raises UserError for one of which no file says it."""
    family = find_family(LIKE.get(model_type, model_type))
    if family is None:
        raise UserError(
            f"{TENSORS} has adapters at blocks of family {model_type!r}, and where these are is known here of "
            f"{', '.join(sorted([*family_names(), *LIKE]))} alone. {KEEP}."
        )
    return family


def _config(configs: Sequence[Mapping[str, Any]], site: str, known: Sequence[str]) -> Mapping[str, Any]:
    """The one configuration that is switched on there; the library counts a decoder's layers after the encoder's."""
    stack, index, place = site.split(".", 2)
    before = len({name.split(".")[1] for name in known if name.startswith("encoder.")}) if stack == "decoder" else 0
    layer = int(index) + before
    fitting = [one for one in configs if one.get(SWITCH[place]) and layer not in (one.get("leave_out") or [])]
    if len(fitting) != 1:
        raise UserError(
            f"{TENSORS} has an adapter at {site}, and {CONFIG} has {len(fitting)} for it, where one is expected: the "
            "file was altered."
        )
    return fitting[0]


def _adapter(config: Mapping[str, Any], parts: Mapping[str, Tensor], path: str, family: str) -> tuple[Adapter, Params]:
    norm = "in" if config.get("ln_before") else "out" if config.get("ln_after") else "none"
    names = _names(norm)
    if config.get("scaling") in ("learned", "channel"):
        names["scale"] = "scaling"
    given = set(parts) - ({"adapter_norm_before.weight", "adapter_norm_before.bias"} if norm == "in" else set())
    if given != set(names.values()):
        raise UserError(
            f"{TENSORS}: the adapter at {path!r} has {', '.join(sorted(given))}, and should have "
            f"{', '.join(sorted(names.values()))}: the file was altered."
        )
    params = {name: parts[part] for name, part in names.items()}
    width, out = len(params["down_bias"].flatten()), len(params["up_bias"].flatten())
    for name, shape in {"down_bias": (width,), "up_bias": (out,), "up": (out, width)}.items():
        _check_shape(path, names[name], params[name], shape)
    _check_shape(path, names["down"], params["down"], (width, *params["down"].shape[1:2]))
    scale = _scale(config, params, path)
    named = str(config.get("non_linearity")).lower()
    if named not in ACTIVATIONS:
        raise UserError(f"{CONFIG}: non_linearity is {named!r}; an adapter here has {', '.join(ACTIVATIONS)}. {KEEP}.")
    spec = Adapter(
        bottleneck=len(params["down"]),
        placement="parallel" if config.get("is_parallel") else "sequential",
        source="stream" if _reads_the_stream(config, family) else "block",
        scale=scale,
        activation=ACTIVATIONS[named],  # type: ignore[arg-type]
        norm=norm,  # type: ignore[arg-type]
    )
    return spec, params


def _reads_the_stream(config: Mapping[str, Any], model_type: str) -> bool:
    """A parallel one always does, but with the norm behind the block that is the block's own input."""
    if config.get("is_parallel"):
        return not any(stack.norm_behind for stack in _family(model_type).stacks.values())
    return bool(config.get("original_ln_before"))


def _names(norm: str) -> dict[str, str]:
    """Our tensors' names -> theirs; a norm in front is the first step of their way down."""
    down = "adapter_down.1" if norm == "in" else "adapter_down.0"
    names = {"down": f"{down}.weight", "down_bias": f"{down}.bias"}
    names |= {"up": "adapter_up.weight", "up_bias": "adapter_up.bias"}
    own = {"in": "adapter_down.0", "out": "adapter_norm_after"}.get(norm)
    return names | ({"norm": f"{own}.weight", "norm_bias": f"{own}.bias"} if own else {})


def _scale(config: Mapping[str, Any], params: Params, path: str) -> Any:
    """The adapter's scale; one for each channel goes into the way up."""
    scale = config.get("scaling", 1.0)
    if scale == "learned":
        _check_shape(path, "scaling", params["scale"].flatten(), (1,))
        params["scale"] = params["scale"].reshape(())
        return scale
    if scale == "channel":
        each = params.pop("scale")
        _check_shape(path, "scaling", each, params["up_bias"].shape)
        params["up"], params["up_bias"] = each[:, None] * params["up"], each * params["up_bias"]
        return 1.0
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not isfinite(scale):
        raise UserError(f"{CONFIG}: scaling is {scale!r} and should be a number, 'learned' or 'channel'.")
    return float(scale)


def _check_shape(path: str, part: str, value: Tensor, shape: tuple[int, ...]) -> None:
    if value.shape != shape:
        raise UserError(
            f"{TENSORS}: {part} of the adapter at {path!r} is {tuple(value.shape)} beside others that ask for "
            f"{tuple(shape)}: the file was altered."
        )
