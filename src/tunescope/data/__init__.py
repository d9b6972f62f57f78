"""What the corpora share: official file names, entries with their lines, triples, parallel text, NAME:PATH."""
