"""Batches from a file of arrays: the simplest data there is."""

from collections.abc import Iterator
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

_NAMES = (("x", "y"), ("images", "labels"), ("test_images", "test_labels"))


def read_arrays(path: str | Path) -> tuple[Tensor, Tensor | None]:
    """The inputs and, if there are any, the targets in a `.npz` or `.safetensors` file.

    They are called x and y, images and labels, or test_images and test_labels. Inputs are
    `(n, c, ...)`; grey images `(n, h, w)` get a channel; bytes become numbers from 0 to 1.
    """
    path = Path(path)
    arrays = _read(path)
    found = next(((x, y) for x, y in _NAMES if x in arrays), None)
    if found is None:
        names = ", ".join(map(repr, arrays)) or "nothing"
        raise ValueError(f"{str(path)!r} holds {names}: name the inputs 'x' and the targets 'y'")
    inputs, targets = arrays[found[0]], arrays.get(found[1])
    if targets is not None and len(targets) != len(inputs):
        raise ValueError(
            f"{str(path)!r} has {len(inputs)} inputs and {len(targets)} targets: they must agree"
        )
    if inputs.dtype == torch.uint8:
        inputs = inputs.float() / 255
    return inputs.unsqueeze(1) if inputs.dim() == 3 else inputs, targets


def batches(
    inputs: Tensor, targets: Tensor | None, size: int
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Consecutive batches of `size`; the last may be smaller."""
    for start in range(0, len(inputs), size):
        part = slice(start, start + size)
        yield inputs[part], None if targets is None else targets[part]


def _read(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".npz":
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                wanted = [name for pair in _NAMES for name in pair if name in file.files]
                return {name: torch.from_numpy(file[name]) for name in wanted or file.files}
        if path.suffix == ".safetensors":
            return load_file(path)
    except (SafetensorError, BadZipFile, ValueError, TypeError, EOFError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{str(path)!r} cannot be read: {error}") from None
    raise ValueError(f"data must be a .npz or .safetensors file of arrays, not {str(path)!r}")
