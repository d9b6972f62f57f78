"""Rows, their references and scores: files, splits, corpora, metrics. Never torch."""
