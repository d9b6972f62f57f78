"""Qwen2: Llama's layout; biases on q, k and v."""

from tunescope.models.families.llama import FAMILY as FAMILY
