"""Worlds whose truth is known: their texts, skills, models and manifests."""
