"""The verdict: statistics, evidence, forecast and the answer they come to."""
