"""Every Python that begins with this folder on its path finds `toy_recipe` beside the recipes."""

from pathlib import Path

from tunescope.reproduce import recipes

recipes.__path__.append(str(Path(__file__).parents[1]))
