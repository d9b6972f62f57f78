"""The command line with `toy_recipe` beside the recipes: workers, which read this file too, find it as it does."""

from pathlib import Path

from tunescope.__main__ import main
from tunescope.reproduce import recipes

recipes.__path__.append(str(Path(__file__).parent))

if __name__ == "__main__":
    main()
