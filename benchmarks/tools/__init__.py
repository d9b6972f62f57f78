"""What the benchmarks share: models, measuring, and the result file."""
