"""LoRA written for peft in canonical form: what every reader of such files takes, also those that skip half the fields.

One rank for all modules (zero rows below it), lora_alpha = r, no rsLoRA, no patterns, the scale inside B. SGLang and
llama.cpp compute lora_alpha / r and nothing else, so this form alone says the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.initial_artifacts import at_site, site_shapes
from tunescope.attachment.sites.choice import every_site
from tunescope.errors import UserError
from tunescope.exchange.peft import dora, experts
from tunescope.exchange.peft.modules import paths
from tunescope.methods.artifact import Artifact, Params
from tunescope.methods.deltas.lora import LoRA
from tunescope.models.anatomy import anatomy
from tunescope.models.sites import Site, is_transposed, weight_shape

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM's --max-lora-rank may be, but for 1

Factors = tuple[Tensor, Tensor]  # a (rank, in), b (out, rank)


def write(
    artifacts: Sequence[Artifact], model: PreTrainedModel, *, headed: bool
) -> tuple[dict[str, Any], dict[str, Tensor], list[str]]:
    """Fields of the configuration, the tensors, and notes, for LoRAs that act together.

    headed: they are for the model with a classification head around it.

    Raises UserError for a LoRA on a whole block, and for maps that peft takes for experts' by their names.
    """
    joined, scaled = factors(artifacts, model), _scaled(artifacts, model)
    names, tensors = paths(model, headed=headed), dict[str, Tensor]()
    experts.check_none(model, [names[module] for module in joined])
    needed = max(len(a) for a, _ in joined.values())
    rank = next((allowed for allowed in RANKS if allowed >= needed), needed)
    for module, (a, b) in joined.items():
        if scaled:
            b, magnitude = dora.magnitude(module, a, b, scaled.get(module, {}), names[module])
            tensors[f"base_model.model.{names[module]}.lora_magnitude_vector"] = magnitude
        tensors[f"base_model.model.{names[module]}.lora_A.weight"] = _padded(a, rank, 0)
        tensors[f"base_model.model.{names[module]}.lora_B.weight"] = _padded(b, rank, 1)
    fields = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": rank,
        "target_modules": _targets([names[module] for module in joined], list(names.values())),
        "lora_dropout": 0.0,
        "fan_in_fan_out": any(is_transposed(module) for module in joined),
        "bias": "none",
    } | ({"use_dora": True} if scaled else {})
    notes = ["DoRA, which peft takes and of servers few"] if scaled else []
    is_served = anatomy(model).kind == "decoder" and not scaled
    return fields, tensors, notes + _notes(artifacts, len(joined), needed, rank, is_served=is_served)


def factors(artifacts: Sequence[Artifact], model: PreTrainedModel) -> dict[nn.Module, Factors]:
    """Linear map -> the one pair, the scale inside b, of all LoRAs that act on it.

    Raises UserError for a LoRA on a whole block.
    """
    return {module: _joined(pairs) for module, pairs in _parts(artifacts, model).items()}


def _parts(artifacts: Sequence[Artifact], model: PreTrainedModel) -> dict[nn.Module, list[Factors]]:
    """Linear map -> the factors of everything that acts on it, each for the whole map, scale inside b."""
    found: dict[nn.Module, list[Factors]] = {}
    sites = every_site(model)
    for artifact in artifacts:
        spec = _lora(artifact)
        for name in site_shapes(model, spec):
            if not sites[name].is_linear:
                raise UserError(
                    f"{spec} acts on the whole block {name!r}, and peft's LoRA on single linear maps: keep tunescope's "
                    "own folder (tunescope.save), or tune the maps inside: sites=attn.q,attn.v."
                )
            own = at_site(artifact, name)
            whole = _whole(sites[name], spec.scale * own["b"])
            found.setdefault(sites[name].h.module, []).append((own["a"], whole))
    return found


def _scaled(artifacts: Sequence[Artifact], model: PreTrainedModel) -> dict[nn.Module, Params]:
    """Linear map -> gain and shift of all its rows, where a LoRA has them.

    Raises UserError where another LoRA acts on the same map: which of the two acts first, peft has no word for.
    """
    found: dict[nn.Module, Params] = {}
    sites = every_site(model)
    acting = [(artifact, sites[name]) for artifact in artifacts for name in site_shapes(model, _lora(artifact))]
    for artifact, site in acting:
        module = site.h.module
        if not _lora(artifact).gain:
            continue
        if any(other is not artifact and its.h.module is module for other, its in acting):
            raise UserError(f"{artifact.spec} and another LoRA act at {site.name!r}: {dora.OWN}.")
        own = at_site(artifact, site.name)
        rows = slice(None) if site.h.columns is None else site.h.columns
        d_out = weight_shape(module)[0]
        whole = found.setdefault(module, {"gain": own["gain"].new_ones(d_out), "shift": own["gain"].new_zeros(d_out)})
        for name in whole.keys() & own.keys():
            whole[name][rows] = own[name].detach()
    return found


def _lora(artifact: Artifact) -> LoRA:
    assert isinstance(artifact.spec, LoRA)
    return artifact.spec


def _whole(site: Site, b: Tensor) -> Tensor:
    """b in its rows of the map that the site is a part of, zero in the others."""
    if site.h.columns is None:
        return b
    whole = b.new_zeros(weight_shape(site.h.module)[0], b.shape[1])
    whole[site.h.columns] = b
    return whole


def _joined(factors: Sequence[Factors]) -> Factors:
    """One pair whose product is the sum of all products; pairs that share their first factor share it still."""
    kept: list[Factors] = []
    for a, b in factors:
        for i, (known, sum_of_b) in enumerate(kept):
            if torch.equal(known, a):
                kept[i] = (known, sum_of_b + b)
                break
        else:
            kept.append((a, b))
    return torch.cat([a for a, _ in kept]), torch.cat([b for _, b in kept], 1)


def _padded(factor: Tensor, rank: int, axis: int) -> Tensor:
    missing = list(factor.shape)
    missing[axis] = rank - factor.shape[axis]
    return torch.cat([factor, factor.new_zeros(missing)], axis).contiguous()


def _targets(chosen: Sequence[str], known: Sequence[str]) -> list[str]:
    """The ends of names ("q_proj") where all modules of that end are meant; else whole names."""
    found: list[str] = []
    for name in chosen:
        end = name.rpartition(".")[2]
        alike = [other for other in known if other == end or other.endswith(f".{end}")]
        found.append(end if set(alike) <= set(chosen) else name)
    return list(dict.fromkeys(found))


def _notes(artifacts: Sequence[Artifact], n_modules: int, needed: int, rank: int, *, is_served: bool) -> list[str]:
    joined = f", {len(artifacts)} LoRAs in one" if len(artifacts) > 1 else ""
    padded = f", of which {rank - needed} zero" if rank > needed else ""
    fits = f"--max-lora-rank {rank}" if rank in RANKS else f"not vLLM, whose largest rank is {RANKS[-1]}"
    trained = [spec.dropout for artifact in artifacts if isinstance(spec := artifact.spec, LoRA) and spec.dropout]
    return [
        *(["dropout, which acts in training alone, was left out"] if trained else []),
        f"LoRA of rank {rank}{padded} on {n_modules} maps{joined}, the scale inside lora_B",
        *([f"vLLM: --enable-lora {fits}" if rank in RANKS else fits] if is_served else []),
    ]
