"""What metrics share: how texts become tokens, and counts of them."""
