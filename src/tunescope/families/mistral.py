"""Mistral: Llama's layout; a sliding window."""

from tunescope.families.llama import FAMILY as FAMILY
