"""Classification heads beside a peft artifact (its modules_to_save), read into `Head` and written from it.

One kind can be said here: BERT's, a linear map of what the model's own pooler makes of the first token.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.errors import UserError
from tunescope.exchange.peft.config import MERGE, TENSORS
from tunescope.methods.artifact import Artifact
from tunescope.methods.deltas.head import Head
from tunescope.models.anatomy import anatomy

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "classifier"
PARTS = ("weight", "bias")
HEADS = re.compile(r"(?:classifier|score|classification_head|qa_outputs|pre_classifier)\b")


def split(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], model: PreTrainedModel
) -> tuple[list[Artifact], dict[str, Tensor], list[str]]:
    """The head as an artifact, if there is one; the tensors that are none of it; and notes.

    Raises:
        UserError: a saved module that is no head of this kind, or one behind a soft prompt, where peft's pooler reads
            the prompt's first row and not the text's.
    """
    saved = {
        key: key.removeprefix("base_model.").removeprefix("model.")
        for key in tensors
        if any(_is_in(key, module) for module in config.get("modules_to_save") or [])
    }
    rest = {key: value for key, value in tensors.items() if key not in saved}
    if not saved:
        return [], rest, []
    _check(config, sorted(saved.values()), model)
    dtype = torch.promote_types(anatomy(model).table.weight.dtype, torch.float32)
    params = {f"pooled:{name.rpartition('.')[2]}": tensors[key].to(dtype) for key, name in saved.items()}
    n_labels = len(params["pooled:weight"])
    note = "the head reads the model's own pooler, which has to be in the base's checkpoint: peft does not save it"
    return [Artifact(Head(n_labels=n_labels, pooler=True), params)], rest, [note]


def write(artifact: Artifact, prefix: str, model: PreTrainedModel) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Fields of the configuration and tensors for a head that reads the pooler.

    prefix: what peft puts in front of the model's own names for this method.

    Raises UserError for a head that reads the state itself, which no class of transformers has, and for a family whose
    classifier is no such map.
    """
    assert isinstance(artifact.spec, Head)
    name = _class_for_texts(model)
    if not artifact.spec.pooler:
        raise UserError(
            f"{artifact.spec} reads the last layer's state, and {name} reads the pooler: tune Head(pooler=True) for "
            "peft, or keep tunescope's own folder."
        )
    tensors = {f"{prefix}.{NAME}.{part}": artifact.tensors[f"pooled:{part}"] for part in PARTS}
    return {"task_type": "SEQ_CLS", "modules_to_save": [NAME]}, tensors


def _class_for_texts(model: PreTrainedModel) -> str:
    """The name of the family's class for whole texts. UserError where it has another classifier than BERT's."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING as CLASSES

    found = CLASSES.get(type(model.config), None)
    if found is not None:
        with torch.device("meta"):
            made = found(copy.deepcopy(model.config))
        if isinstance(getattr(made, NAME, None), nn.Linear):
            return str(found.__name__)
    raise UserError(
        f"peft keeps a head as the classifier of transformers' own class, and {model.config.model_type!r} has none "
        "that is one linear map behind the pooler, as BERT's: keep tunescope's own folder (tunescope.save)."
    )


def _is_in(key: str, module: str) -> bool:
    return f".{module}." in key and ".lora_" not in key


def _check(config: Mapping[str, Any], names: list[str], model: PreTrainedModel) -> None:
    shown = ", ".join(names[:4])
    if anatomy(model).kind != "encoder" or names != sorted(f"{NAME}.{part}" for part in PARTS):
        raise UserError(f"{TENSORS} has trained modules that have no place here: {shown}. {_instead(names, model)}")
    if config.get("task_type") != "SEQ_CLS":
        raise UserError(
            f"{TENSORS} has {shown} for the task {config.get('task_type')!r}; a head here classifies whole texts "
            "(SEQ_CLS). Keep this in peft."
        )
    if config.get("peft_type") in ("PROMPT_TUNING", "P_TUNING"):
        raise UserError(
            f"{TENSORS} has {shown} behind a soft prompt, where peft's head reads the prompt's first row and not the "
            "text's first token. A head here reads the text: keep this in peft, or tune soft and head here."
        )


def _instead(names: list[str], model: PreTrainedModel) -> str:
    """What to do with trained modules that are not BERT's head: it hangs on what they are, and on the model."""
    if not any(HEADS.match(name) for name in names):  # embeddings, the head over the vocabulary, a norm
        return MERGE
    if anatomy(model).kind != "encoder":
        kind = anatomy(model).kind
        return (
            f"They are a classification head, and a {kind} answers in words here: keep this in peft, or tune the task "
            "anew, with a word for each label: tunescope compare"
        )
    return (
        "A head that can be read is one linear map behind the pooler, classifier.weight and classifier.bias, as "
        "BERT's: keep this in peft, or tune a head anew: tunescope compare --by head"
    )
