"""Synthetic worlds whose truth is known, and small models made for them from transformers configurations."""
