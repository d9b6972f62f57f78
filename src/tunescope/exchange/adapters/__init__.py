"""What adapters' files mean, in and out."""
