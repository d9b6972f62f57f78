"""A prefix as peft hands it over, tried on the model: as past keys and values, whatever the model makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tunescope.attachment.attached import attach
from tunescope.attachment.attention.reach import reached, resting
from tunescope.errors import UserError
from tunescope.exchange.compare_outputs import difference, read, sample
from tunescope.methods.artifact import Artifact
from tunescope.methods.contexts.prefix import Prefix
from tunescope.models.anatomy import anatomy, argument_names

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

OTHERWISE = {torch.float64: 1e-6, torch.float32: 1e-2, torch.bfloat16: 0.2, torch.float16: 0.05}
TRIED = 4  # tokens
OWN = "Keep this in the library that tuned it."


def check_prefix(artifact: Artifact, model: PreTrainedModel) -> None:
    """Tries a prefix behind which the text's positions go on, on a few tokens, both ways.

    Raises UserError for a model that takes no past keys, one that cannot go on from keys alone, such as a hybrid with
    states, and one that makes something else of them than of a prefix: shared keys, masks or positions of its own.
    """
    family, spec = model.config.model_type, artifact.spec
    assert isinstance(spec, Prefix)
    if "past_key_values" not in argument_names(model.base_model):
        raise UserError(
            f"peft hands a prefix over as past_key_values, and {type(model.base_model).__name__} takes none: there it "
            f"has no effect. {OWN}"
        )
    seen = window(model)
    room = TRIED if seen is None else min(TRIED, seen - spec.length)  # behind a window the two differ, which is told
    if room < 1:
        return
    given = {name: value[:, :room] for name, value in sample(model, spec.length).items()}
    try:
        found = _behind_past_keys(artifact, model, given)
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError) as problem:
        raise UserError(
            f"Family {family!r} cannot go on from keys and values alone, as peft's prefix is: {problem}"
        ) from None
    with resting(model), torch.no_grad(), attach(model, artifact):
        wanted = read(model(**given))
    if (apart := difference(found, wanted)) > OTHERWISE[anatomy(model).table.weight.dtype]:
        raise UserError(
            f"Family {family!r} makes something else of past keys than of a prefix: peft's outputs differ from ours by "
            f"{apart:.0e} of the largest. {OWN}"
        )


def window(model: PreTrainedModel) -> int | None:
    """How many positions the layers with a sliding window see; None where there are none."""
    is_local = "local" in getattr(model.config, "attention_layers", ())  # GPT-Neo's word for it
    found = model.config.window_size if is_local else getattr(model.config, "sliding_window", None)
    return int(found) if found and getattr(model.config, "use_sliding_window", True) else None


def _behind_past_keys(artifact: Artifact, model: PreTrainedModel, given: dict[str, Tensor]) -> Tensor:
    from transformers import DynamicCache

    cache, rows = DynamicCache(config=model.config), len(given["input_ids"])
    weight = anatomy(model).table.weight
    for layer, place in enumerate(reached(model)):
        key, value = (
            artifact.tensors[f"{place.name}.{part}"].to(weight)[None].expand(rows, -1, -1, -1).contiguous()
            for part in ("key", "value")
        )
        cache.update(key, value, layer)
    past = torch.ones(rows, next(iter(artifact.tensors.values())).shape[1], dtype=torch.long, device=weight.device)
    seen = {**given, "attention_mask": torch.cat([past, given["attention_mask"]], 1)}
    with resting(model), torch.no_grad():
        return read(model(**seen, past_key_values=cache))
