"""The torch side of a task: likelihoods, decoding, choices, what is read from written answers."""
