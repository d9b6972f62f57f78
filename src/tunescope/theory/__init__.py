"""Paper and pencil: what a virtual token can do by construction, and what tuning and serving cost."""
