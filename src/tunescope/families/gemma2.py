"""Gemma 2: Llama's layout; soft-capped scores, a sliding window in every other layer."""

from tunescope.families.llama import FAMILY as FAMILY
