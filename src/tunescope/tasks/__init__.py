"""What is asked of a model and read from its answers: kinds of task, prompts, answers."""
