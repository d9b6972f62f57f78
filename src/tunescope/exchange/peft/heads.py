"""Classification heads beside a peft artifact (its modules_to_save), read into `Head` and written from it.

Which form of `Head` a class of transformers has is found by trying: the class itself is run on random states, with
random weights, and the form that gives the same logits is the one. So a family needs no line here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.head_layout import HeadLayout, find_layout
from tunescope.errors import UserError
from tunescope.exchange.peft.config import KNOWN_STARTS, TENSORS
from tunescope.exchange.peft.lora_fields import check_shapes, check_target, scale_of
from tunescope.exchange.peft.starts import without_start
from tunescope.methods.artifact import Artifact
from tunescope.methods.deltas.head import Head
from tunescope.models.anatomy import anatomy
from tunescope.models.sites import weight_shape

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TASKS = {"SEQ_CLS": "SEQUENCE_CLASSIFICATION", "TOKEN_CLS": "TOKEN_CLASSIFICATION"}  # peft's word, transformers'
POOLER = re.compile(r"base_model\.model\.(.*\bpooler\.dense)\.lora_(A|B)\.weight")
HEADS = re.compile(r"(?:classifier|score|classification_head|qa_outputs|pre_classifier)\b")


def split(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], model: PreTrainedModel
) -> tuple[list[Artifact], dict[str, Tensor], list[str]]:
    """The head as an artifact, if there is one; the tensors that are none of it; and notes.

    Raises:
        UserError: a head of another task, or of a class that reads its states as no `Head` does; parts of it missing;
            one behind a soft prompt, where peft's head does not read where it does in a text.
    """
    task = str(config.get("task_type"))
    tensors = _pooler_made_whole(config, tensors, model) if task in TASKS else tensors
    plain = (key for key in tensors if key.startswith("base_model.") and ".lora_" not in key)
    names = {key: name for key in plain if (name := _outside(_bare(key), model)) is not None}
    if task not in TASKS and not any(HEADS.match(name) for name in names.values()):
        return [], dict(tensors), []
    if not names:
        _check_said(config)
        return [], dict(tensors), []
    rest = {key: value for key, value in tensors.items() if key not in names}
    shown = ", ".join(sorted(names.values())[:4])
    _check_task(config, shown, model)
    dtype = torch.promote_types(anatomy(model).table.weight.dtype, torch.float32)
    saved = {name: tensors[key].to(dtype, copy=True) for key, name in names.items()}
    own_pooler = any(name.startswith(f"{model.base_model_prefix}.") for name in saved)
    if own_pooler:  # its bias alone, where only biases were trained
        saved = _poolers(model, dtype) | saved
    layout = find_layout(model, TASKS[task], own_pooler=own_pooler)
    if layout is None:
        raise UserError(f"{TENSORS} has {shown}: {_instead(model, task)}")
    _check_whole(saved, layout, shown)
    params = {f"pooled:{part}": saved[name] for part, name in layout.names.items()}
    if not (n_labels := params["pooled:weight"].shape[:1]):
        raise UserError(f"{TENSORS}: {layout.names['weight']!r} is a number and no map: the file was altered.")
    spec = layout.spec(*n_labels)
    return [Artifact(spec, params)], rest, [*_notes(spec, model)]


def write(artifact: Artifact, prefix: str, model: PreTrainedModel) -> tuple[dict[str, Any], dict[str, Tensor], str]:
    """Fields of the configuration and tensors for a head as a class of transformers has it; and the class's name.

    prefix: what peft puts in front of the model's own names for this method.

    Raises UserError for a head that reads or maps otherwise than the family's class.
    """
    spec = artifact.spec
    assert isinstance(spec, Head)
    task = "TOKEN_CLS" if spec.token == "every" else "SEQ_CLS"
    layouts = [find_layout(model, TASKS[task], own_pooler=own) for own in (False, True)]
    layout = next((one for one in layouts if one is not None and one.spec(spec.n_labels) == spec), None)
    if layout is None:
        raise UserError(f"{spec}: {_no_class(model, layouts[0], spec)}")
    tensors = {f"{prefix}.{name}": artifact.tensors[f"pooled:{part}"] for part, name in layout.names.items()}
    return {"task_type": task, "modules_to_save": layout.modules()}, tensors, layout.auto


def _outside(name: str, model: PreTrainedModel) -> str | None:
    """The name, if it is of a head around the base model, or of a pooler in it; else None."""
    prefix = f"{model.base_model_prefix}."
    is_inside = name.startswith(prefix) or name.split(".")[0] in dict(model.base_model.named_children())
    if is_inside and ".pooler." not in f".{name}":
        return None
    has_pooler = getattr(model.base_model, "pooler", None) is not None  # DeBERTa's stands beside its base
    return f"{prefix}{name}" if name.startswith("pooler.") and has_pooler else name


def _bare(key: str) -> str:
    """The name in the model that peft wrapped."""
    return key.removeprefix("base_model.").removeprefix("model.")


def _pooler_made_whole(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], model: PreTrainedModel
) -> Mapping[str, Tensor]:
    """The tensors with a LoRA on the pooler's map, which all-linear asks for, as that map's weight."""
    factors = {match[2]: key for key in tensors if (match := POOLER.fullmatch(key))}
    module = getattr(getattr(model.base_model, "pooler", None), "dense", None)
    if factors.keys() != {"A", "B"} or not isinstance(module, nn.Linear) or config.get("use_dora"):
        return tensors
    path = factors["A"].removeprefix("base_model.model.").removesuffix(".lora_A.weight")
    weight = module.weight.detach().cpu()
    a, b = (tensors[factors[name]].to(torch.promote_types(weight.dtype, torch.float32)) for name in "AB")
    check_target(config, path)
    check_shapes(config, path, weight_shape(module), a, b)
    scale = scale_of(config, path, len(a))
    if config.get("init_lora_weights") in KNOWN_STARTS:
        a, b = without_start(config, module, scale, a, b)
    whole = weight + scale * (b @ a)
    name = f"base_model.model.{path}"
    own = {f"{name}.base_layer.bias": f"{name}.bias"}  # as peft calls it where it was trained too
    rest = {own.get(key, key): value for key, value in tensors.items() if key not in factors.values()}
    return rest | {f"{name}.weight": whole}


def _poolers(model: PreTrainedModel, dtype: torch.dtype) -> dict[str, Tensor]:
    pooler = getattr(model.base_model, "pooler", None)
    named = {} if pooler is None else dict(pooler.named_parameters())
    return {
        f"{model.base_model_prefix}.pooler.{name}": value.detach().to(dtype, copy=True) for name, value in named.items()
    }


def _check_said(config: Mapping[str, Any]) -> None:
    """UserError for a task with a head of which the file has nothing, though peft looked for one to save."""
    if config.get("modules_to_save"):
        raise UserError(
            f"{TENSORS} has no head for {config.get('task_type')}: the file was cut, or peft found none of the name of "
            f"modules_to_save={config['modules_to_save']}, and it is lost. In peft, name it there, as the model does."
        )


def _check_task(config: Mapping[str, Any], shown: str, model: PreTrainedModel) -> None:
    if config.get("task_type") not in TASKS:
        raise UserError(
            f"{TENSORS} has {shown} for the task {config.get('task_type')!r}; a head here classifies whole texts "
            "(SEQ_CLS) or tokens (TOKEN_CLS). Keep this in peft."
        )
    if config.get("peft_type") in ("PROMPT_TUNING", "P_TUNING"):
        where = "the prompt's first row" if anatomy(model).kind == "encoder" else "the last position, be it padding,"
        raise UserError(
            f"{TENSORS} has {shown} behind a soft prompt, where peft's head reads {where} and not the text's own "
            "token. A head here reads the text: keep this in peft, or tune soft and head here."
        )


def _check_whole(saved: Mapping[str, Tensor], layout: HeadLayout, shown: str) -> None:
    """UserError for parts that the class has and the file has not, or the other way round."""
    named = set(layout.names.values())
    if lacks := ", ".join(sorted(named - saved.keys())):
        raise UserError(
            f"{TENSORS} has {shown}, and lacks {lacks}: what is not saved was drawn at random when the model was made, "
            f"and is lost. Save it in peft: modules_to_save={layout.modules()}."
        )
    if extra := ", ".join(sorted(saved.keys() - named)):
        raise UserError(f"{TENSORS} has {extra}, which {layout.auto} has not in this family: it is for another model.")


def _notes(spec: Head, model: PreTrainedModel) -> list[str]:
    if spec.pooler:
        return [
            "the head reads the model's own pooler, which has to be in the base's checkpoint: peft does not save it"
        ]
    if spec.token == "last" and getattr(model.config.get_text_config(), "pad_token_id", None) is None:
        return ["the base's config has no pad_token_id: the head reads the last token of the attention mask"]
    return []


def _instead(model: PreTrainedModel, task: str) -> str:
    kind = anatomy(model).kind
    by = "--by head" if kind == "encoder" else "with a word for each label"
    return (
        f"family {model.config.model_type!r} has a class for {task} that is no linear map, or two, of the states at "
        f"one token: keep this in peft, or tune the task anew: tunescope compare ({by})"
    )


def _no_class(model: PreTrainedModel, layout: HeadLayout | None, spec: Head) -> str:
    own = "keep tunescope's own folder (tunescope.save)"
    if layout is None:
        return (
            "peft keeps a head as that of transformers' own class, and family "
            f"{model.config.model_type!r} has none that is a linear map, or two, of the states at one token: {own}."
        )
    return f"{layout.auto} of family {model.config.model_type!r} has {layout.spec(spec.n_labels)}: tune that, or {own}."
