"""RoBERTa: BERT's layout; positions start after the padding index."""
