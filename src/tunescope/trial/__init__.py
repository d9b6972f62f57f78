"""What one arm is tried on: the plan, the model and rows, the budget, the training."""
