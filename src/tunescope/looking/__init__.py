"""Looking into attention: run a model in its states, hand the tensors to probes, and say what they found."""
