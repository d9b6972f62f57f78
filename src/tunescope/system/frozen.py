"""Imported last by the process that workers are forks of: what it holds by then is no garbage, and stays shared.

A fork that looks through all objects for garbage writes to each, and so has its own copy of their pages.
"""

import gc

gc.freeze()
