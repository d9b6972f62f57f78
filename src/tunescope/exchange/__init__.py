"""Artifacts as files of others, on the hub, behind servers; `formats/` has a file for each form."""
