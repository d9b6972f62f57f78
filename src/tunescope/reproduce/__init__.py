"""What recipes are made of and how they are run."""
