"""Decoded images kept on disk, where decoding is slow.

A file belongs to one image and holds the stamp (names, sizes, times) of what it was made from; it
is used only while that still holds. Where nothing can be written, all is decoded every time.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from ...store import written

FORMAT = "1"  # raise it when what is kept under a key changes its meaning


def cache_folder() -> Path:
    """EXPLAINFIX_CACHE, or explainfix in the user's cache folder."""
    if chosen := os.environ.get("EXPLAINFIX_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "explainfix"


def remember(key: str, stamp: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """What `make` made the last time under this key, if the stamp has not changed since."""
    path, digest = _place(key), _digest(f"{FORMAT} {stamp}")
    with contextlib.suppress(OSError, SafetensorError), safe_open(path, "np") as file:
        if (file.metadata() or {}).get("stamp") == digest:
            kept: NDArray[Any] = file.get_tensor("array")
            return kept
    made = make()
    # an image that cannot be kept is decoded again next time
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with written(path, overwrite=True) as temporary:
            temporary.write_bytes(save({"array": torch.from_numpy(made)}, {"stamp": digest}))
    return made


def remember_names(key: str, stamp: str, make: Callable[[], Sequence[str]]) -> tuple[str, ...]:
    """`remember` for a list of texts."""

    def encoded() -> NDArray[Any]:
        return np.frombuffer("\0".join(make()).encode(), dtype=np.uint8).copy()

    text = remember(key, stamp, encoded).tobytes().decode()
    return tuple(text.split("\0")) if text else ()


def _place(key: str) -> Path:
    name = _digest(key)
    return cache_folder() / name[:2] / f"{name[2:]}.safetensors"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:40]
