"""Prompts that a person can read: one loop, one objective, and the methods that look for words."""
