"""Small worlds whose truth is known, and models pretrained on them; the demo."""
