"""mBART: BART's layout; normalised before each block instead of after."""

from tunescope.families.bart import FAMILY as FAMILY
