"""Where each family keeps the linear maps of a layer: one file a `model_type`, data only."""
