"""What a transformers model is made of: loading, anatomy, sites, families. Changes nothing."""
