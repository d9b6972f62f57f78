"""Demonstrations in front of a query: which, in what order, of each query's own."""
