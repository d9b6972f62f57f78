"""Files of other libraries: a file here writes a format, reads it, or both; its name is the format's."""
