"""The papers again, a table a command: recipes, and what runs and shows them."""
