"""EleutherAI's lm-evaluation-harness both ways: a tuned model that it scores, and its tasks as rows."""
