"""On a CPU torch's oneDNN keeps what it compiled for every shape that it met. Here it keeps few, in every process.

A text that is written grows by a token at a time, so its attention meets shapes without end. In bfloat16 the thousand
that are kept otherwise took gigabytes in the workers of a long comparison; with few it is as fast.
"""

import os

KEPT = 64  # of oneDNN's own, and as many of torch's that hold them
NAMES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


def keep_few() -> None:
    """In this process, where torch has computed nothing in 16 bits yet, and in those it starts; what is set stays."""
    for name in NAMES:
        os.environ.setdefault(name, str(KEPT))
