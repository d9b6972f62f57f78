"""A decoder's frozen query, key and output maps, one a head, and the words of a vocabulary, for probes to read."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from tunescope.attachment.attention.reach import reached
from tunescope.attachment.sites.site_map import sites_of
from tunescope.models.anatomy import anatomy
from tunescope.models.family import find_family
from tunescope.models.quantised import is_quantised
from tunescope.models.sites import Site, Tap, is_transposed
from tunescope.probes.seen import Maps

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def maps(model: PreTrainedModel) -> dict[str, Maps]:
    """ "decoder.0.self" -> its maps, views of the weights where that can be; {} for what is no decoder, not mapped, or
    quantised.

    Weights alone: no biases, no norms of queries and keys, no rotation, no deltas at the sites.
    """
    if anatomy(model).kind != "decoder" or find_family(model.config.model_type) is None:
        return {}
    sites = sites_of(model)
    names = [name.removesuffix(".o") for name in sites if name.endswith(".self.o")]
    modules = {found.name: found.module for found in reached(model)}
    own = {name: {which: sites[f"{name}.{which}"] for which in ("q", "k", "o")} for name in names}
    if any(is_quantised(_parameter(site.h)) for some in own.values() for site in some.values()):
        return {}
    return {name: _of(some, modules[name]) for name, some in own.items()}


def with_float64(value: Tensor) -> Tensor:
    """The tensor, on the CPU where its device has no float64, as Apple's has none."""
    return value.cpu() if value.device.type == "mps" else value


def _of(sites: dict[str, Site], module: nn.Module) -> Maps:
    heads = sites["o"].n_heads
    query, key, output = _weight(sites["q"].h), _weight(sites["k"].h), _weight(sites["o"].h)
    width = query.shape[0] // heads
    key = key.view(-1, width, key.shape[1])
    return Maps(
        query=query.view(heads, width, -1),
        key=key.repeat_interleave(heads // len(key), 0),
        output=output.view(len(output), heads, -1).transpose(0, 1),
        scaling=float(getattr(module, "scaling", width**-0.5)),
    )


def _weight(tap: Tap) -> Tensor:
    """(out, in), those rows that the tap takes."""
    weight = with_float64(_parameter(tap).detach())
    whole = weight.T if is_transposed(tap.module) else weight
    if tap.columns is None:
        return whole
    return (whole[tap.columns] if isinstance(tap.columns, slice) else whole[tap.columns.to(whole.device)]).contiguous()


def _parameter(tap: Tap) -> Tensor:
    module: Any = tap.module
    weight: Tensor = module.weight
    return weight


@lru_cache(maxsize=2)
def vocabulary(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Id -> token, as it is written: a space is "▁", a line's end "↵"."""
    ids = sorted(tokenizer.get_vocab().values())
    written = tokenizer.convert_ids_to_tokens(ids)
    if any(str(word).startswith("Ġ") for word in written):  # bytes stand for others there
        written = [tokenizer.decode([index]) for index in ids]
    plain = (str(word).replace(" ", "▁").replace("\n", "↵").replace("<0x0A>", "↵") for word in written)
    return {index: word if word.strip() else _coded(word) for index, word in zip(ids, plain, strict=True)}


def _coded(word: str) -> str:
    """What would not be seen, by its code."""
    return "".join(f"<U+{ord(character):04X}>" for character in word)
