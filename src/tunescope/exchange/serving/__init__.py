"""What the formats for servers have in common: checkpoints on disk, added rows, tokenizers with a prompt, refusals."""
