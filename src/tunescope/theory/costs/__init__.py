"""What tuning and serving cost on paper: bytes and seconds from shapes and a machine's stated numbers. No torch.

`shapes` has models, `methods` what is tuned, `machine` the hardware, `training` a step, `serving` decoding and a bank
of artifacts. Nothing here runs a model; `benchmarks/costs.py` holds the predictions against measurements.
"""
