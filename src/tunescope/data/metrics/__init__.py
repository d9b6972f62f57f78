"""Metrics: one file each, found by its name; what a file holds is `tunescope.data.metric.Metric`."""
