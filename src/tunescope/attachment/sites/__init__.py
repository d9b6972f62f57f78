"""The sites of any model, found by looking at one pass of it: which maps feed attention, which make up the rest."""
