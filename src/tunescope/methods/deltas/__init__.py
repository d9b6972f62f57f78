"""One file a delta: what changes at a site, or in a parameter."""
