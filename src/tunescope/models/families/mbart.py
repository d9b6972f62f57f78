"""mBART: BART's layout; normalised before each block instead of after."""

from dataclasses import replace

from tunescope.models.families.bart import FAMILY as BART

FAMILY = replace(BART, stacks={name: replace(stack, norm_behind=False) for name, stack in BART.stacks.items()})
