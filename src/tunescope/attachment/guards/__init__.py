"""What keeps a Trainer, torch.compile and gradient checkpointing honest while something is attached."""
