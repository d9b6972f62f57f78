"""Searches, one a file: the file's name is the search's name on the command line."""
