"""Probes: one file each, found by its name. Tensors in, tensors out; no probe runs a model or draws.

A file has a public function of its own name, whose docstring is the claim, and `look(seen) -> Finding`, which applies
it to what `tunescope.probes.see` recorded and says what came out, as numbers and as pictures for the report.
"""
