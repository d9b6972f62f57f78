"""LoRA that peft would leave out, since in some families it takes the maps' names for those of experts: refused.

Before transformers 5 every expert had linear maps of its own. peft turns files of that time into LoRA on today's
stacked parameters, by the family and the last word of a name alone. So it drops LoRA on dense layers and shared
experts, whose maps are called the same, without a word; where only one of gate and up is there, it stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tunescope.errors import UserError
from tunescope.exchange.peft.dora import OWN

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# _convert_peft_config_moe in peft's utils/transformers_weight_conversion.py, for the families of transformers 5.23.0;
# a test compares them with what is installed. LoRA on a router (`gate`) stays what it is in peft, by another road.
PEFT = "0.21.2"
NAMES = {
    ("w1", "w2", "w3"): ("minimax", "minimax_m2", "mixtral"),
    ("gate_proj", "up_proj", "down_proj"): (
        "afmoe",
        "beam",
        "cohere2_moe",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "dots1",
        "ernie4_5_moe",
        "exaone_moe",
        "flex_olmo",
        "glm4_moe",
        "glm4_moe_lite",
        "glm4v_moe",
        "glm_moe_dsa",
        "hunyuan_v1_moe",
        "longcat_flash",
        "mellum",
        "olmoe",
        "qwen3_moe",
        "qwen3_next",
        "qwen3_omni_moe",
        "qwen3_omni_moe_text",
        "qwen3_omni_moe_thinker",
        "solar_open",
    ),
}


def taken(model_type: str) -> tuple[str, ...]:
    """Last words of names that peft takes for parameters of experts; none in most families."""
    return next((names for names, families in NAMES.items() if model_type in families), ())


def check_none(model: PreTrainedModel, maps: Sequence[str]) -> None:
    """UserError where LoRA is on linear maps of such names: no expert of today is one, so it is on something else."""
    family = model.config.model_type
    names = taken(family)
    lost = [name for name in maps if name.rpartition(".")[2] in names]
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise UserError(
            f"export --to peft: LoRA on {lost[0]!r}{more} would be lost, for peft ({PEFT}) takes {', '.join(names)} of "
            f"{family!r} for its experts' parameters, wherever they are: {OWN}, or tune other maps: "
            "sites=attn.q,attn.v."
        )
