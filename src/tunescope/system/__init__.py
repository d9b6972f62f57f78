"""This machine and its disk: whole files, run folders, the lock, memory, the finder of plugin folders."""
