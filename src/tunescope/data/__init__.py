"""Rows, references and scores, without torch: files and their splits, corpora, metrics of written texts."""
