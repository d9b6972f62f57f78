"""One file a context: what the frozen model is given to attend to."""
