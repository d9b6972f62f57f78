"""What peft's files mean, in and out."""
