"""Models of a given shape and no weights: from a config alone, nothing downloaded but it, no memory taken."""

import json
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.system.hub_name import parted


def config_settings(name: str) -> dict[str, Any]:
    """The config, as JSON, of a model's folder, a config.json, or a name on the Hugging Face hub.

    Raises UserError where there is none that transformers knows.
    """
    from transformers import AutoConfig

    try:
        place, revision = parted(name)
        config = AutoConfig.from_pretrained(place, revision=revision or "main", trust_remote_code=False)
    except (OSError, ValueError, KeyError) as problem:
        reason = (str(problem).strip().splitlines() or ["no reason given"])[0]
        raise UserError(
            f"--model {name}: no config that transformers knows: {reason} Give the folder of a model, its config.json, "
            "or a name on the Hugging Face hub."
        ) from problem
    found: dict[str, Any] = json.loads(config.to_json_string(use_diff=True)) | {"model_type": config.model_type}
    return found


def without_weights(config: dict[str, Any]) -> Any:
    """The model of that config on the meta device: with a language head, but for encoders."""
    import torch
    import transformers

    from tunescope.models.anatomy import kind

    made = transformers.AutoConfig.for_model(**config)
    classes = {"decoder": "AutoModelForCausalLM", "encoder-decoder": "AutoModelForSeq2SeqLM", "encoder": "AutoModel"}
    with torch.device("meta"):
        return getattr(transformers, classes[kind(made)]).from_config(made)


def model_label(name: str) -> str:
    """How a table calls it: the folder's name, or that of the folder of a config.json."""
    path = Path(name)
    return path.resolve().parent.name if path.name == "config.json" else path.name
