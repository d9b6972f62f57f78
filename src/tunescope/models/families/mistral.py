"""Mistral: Llama's layout; a sliding window."""

from tunescope.models.families.llama import FAMILY as FAMILY
