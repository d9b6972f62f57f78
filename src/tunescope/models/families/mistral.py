"""Mistral: Llama's layout; a sliding window."""
