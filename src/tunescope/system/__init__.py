"""This machine and its disk: whole files, run folders, locks, cores and memory, the finder of plugin folders."""
