"""Looks into attention and into demonstrations: numbers and pictures of what is there.

A file of `looks/` is found by its name: tensors in, tensors out; it neither runs a model nor draws. It has a public
function of its own name, whose docstring is the claim, and `look(seen) -> Finding`, which applies it to what
`tunescope.probes.see` recorded and says what came out, as numbers and as pictures for the report.
"""
