"""What searches share: what one is, what it costs, what it may write."""
