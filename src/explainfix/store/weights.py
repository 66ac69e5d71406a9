"""Tensors from files of whatever origin. Nothing in them is executed."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .header import HEADER


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a weights file of whatever origin: safetensors, or a `.pth` of tensors alone.

    A `.pth` is read with `weights_only=True`, so that nothing in it is executed; a training
    checkpoint's "state_dict" or "model" entry is found, and DDP's "module." prefix taken off.
    """
    path = Path(path)
    if _is_pickle(path):
        return _read_pth(path)
    tensors, metadata = read_safetensors(path)
    if HEADER in metadata:
        raise ValueError(
            f"{str(path)!r} was written by explainfix.save and holds a whole model: open it "
            "with load"
        )
    return tensors


def check_fit(own: Mapping[str, Tensor], given: Mapping[str, Tensor], what: str) -> None:
    """Raise, with the first few differences, unless names and shapes agree."""
    wrong = [f"{name!r} is missing" for name in own if name not in given]
    wrong += [f"{name!r} is not in the model" for name in given if name not in own]
    wrong += [
        f"{name!r} is {tuple(given[name].shape)}, the model's {tuple(own[name].shape)}"
        for name in own
        if name in given and own[name].shape != given[name].shape
    ]
    if wrong:
        more = f"; and {len(wrong) - 4} more differences" if len(wrong) > 4 else ""
        raise ValueError(f"{what!r} does not fit the model: {'; '.join(wrong[:4])}{more}")


def _is_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(9)
    # safetensors begins with eight bytes of length, which may look like anything, and then "{".
    return (start[:1] == b"\x80" or start[:4] == b"PK\x03\x04") and start[8:] != b"{"


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    if _is_pickle(path):
        raise ValueError(
            f"{str(path)!r} is a PyTorch pickle, not a safetensors file; pass it to "
            "create_model(SPEC, weights=FILE)"
        )
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{str(path)!r} is damaged or no safetensors file ({error})") from None


def _read_pth(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises half a dozen unrelated types
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{str(path)!r} is damaged, or holds more than tensors, which is not read "
            f"({type(error).__name__}: {reason})"
        ) from None
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not _all_tensors(content.values()):
        raise ValueError(f"{str(path)!r} holds no state_dict, that is no names with tensors")
    if content and all(name.startswith("module.") for name in content):
        content = {name.removeprefix("module."): value for name, value in content.items()}
    return dict(content)


def _all_tensors(values: Iterable[object]) -> bool:
    return all(isinstance(value, Tensor) for value in values)
