"""Qwen3: Llama's layout; q and k are normalised per head after their maps."""

from tunescope.models.families.llama import FAMILY as FAMILY
