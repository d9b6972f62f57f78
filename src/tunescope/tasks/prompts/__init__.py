"""The text side of a task: templates, label words, masks, chains of thought, spans."""
