"""Sections of a study of demonstrations: one file each, found by its name.

A file has `measure(round) -> dict`, numbers for JSON from one draw of demonstrations, and
`finding(found) -> Finding`, what came out over all draws; `ORDER` is its place in the study.
"""
