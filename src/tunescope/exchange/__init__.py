"""Artifacts to and from the files of other libraries; `formats/` has a file for each form of them."""
