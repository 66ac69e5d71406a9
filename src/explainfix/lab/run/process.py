"""What a process of explainfix's own sets before it trains or measures.

The command line does it, and so do the processes that a sweep or training on several devices
starts. Nothing that others call does: whose process it is decides. docs/train.md has the lines.
"""

import ctypes
import logging
import os
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h


def prepare_process() -> None:
    """Keep large blocks of memory and compiled kernels; let no library report what is no news."""
    keep_large_blocks()
    keep_kernels()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody asked to report home
    # That processes start, which precision they have, and that all are ended when one fails.
    # Lightning sets the level of its package when it is imported, which is later, maybe.
    for name in ("lightning_fabric", "lightning_fabric.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)


def keep_large_blocks() -> bool:
    """Let freed memory stay with this process, from now on; whether that could be arranged.

    Every step allocates and frees the same large activations. By default glibc asks the system
    for each of them and gives it back, so every page is cleared and mapped anew. Elsewhere than
    on Linux with glibc nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # musl has neither the name nor the function
        return False
    # -1 as a size is the largest there is: never trim. No blocks of their own from mmap.
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, -1))


def keep_kernels(count: int = 8192) -> None:
    """Let oneDNN remember that many compiled kernels, unless the environment says how many.

    It compiles one for every shape of every convolution, forward and backward, and remembers 1024.
    A large network at several image sizes needs more, and then compiles all of them anew at every
    step. To be called before the first convolution.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(count))
