"""Qwen2: Llama's layout; biases on q, k and v."""
