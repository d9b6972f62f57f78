"""Tune a language model, and see what tuning did."""
