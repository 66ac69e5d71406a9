"""Keep glibc from giving large blocks back to the system between two steps of training."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h


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
