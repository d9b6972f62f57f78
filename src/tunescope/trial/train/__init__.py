"""The only training loop."""
