"""Gemma 2: Llama's layout, with norms in front of each block and behind it; soft-capped scores, every other window."""

from dataclasses import replace

from tunescope.models.families.llama import FAMILY as LLAMA

FAMILY = replace(LLAMA, stacks={name: replace(stack, norms={}) for name, stack in LLAMA.stacks.items()})
