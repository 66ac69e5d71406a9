"""Tensors from files of whatever origin, and which of them are a model's. Nothing is executed."""

import argparse
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..registry import unknown
from .header import HEADER

# Names that PyTorch's wrappers put in between: torch.compile, FSDP, activation checkpoints.
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
# Parts of names that say: a copy beside the weights that learn.
_COPIES = {"ema", "shadow", "averaged", "average", "avg", "swa", "teacher", "target", "momentum"}


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a weights file of whatever origin: safetensors, or a PyTorch checkpoint.

    A checkpoint is read with `weights_only=True`, so that nothing in it is executed. What is nested
    has the way to it in its name: "state_dict.model.conv1.weight". FILE#PART gives those of a part.
    """
    file, part = split_part(path)
    if holds_model(file):
        raise ValueError(
            f"{str(file)!r} was written by explainfix.save and holds a whole model: open it with "
            "load"
        )
    tensors = dict(_flatten(_read_pickle(file) if _is_pickle(file) else read_safetensors(file)[0]))
    if not tensors:
        raise ValueError(f"{str(file)!r} holds no state_dict, that is no names with tensors")
    if not part:
        return tensors
    below = {n.removeprefix(f"{part}."): v for n, v in tensors.items() if n.startswith(f"{part}.")}
    if not below:
        raise unknown(f"part of {str(file)!r}:", part, {n.partition(".")[0]: 0 for n in tensors})
    return below


def split_part(path: str | Path) -> tuple[Path, str]:
    """FILE#PART in two; a file may have a # in its name.

    >>> split_part("last.ckpt#state_dict_ema")
    (PosixPath('last.ckpt'), 'state_dict_ema')
    """
    file, _, part = str(path).rpartition("#")
    return (Path(file), part) if file and not Path(path).exists() else (Path(path), "")


def find_state(
    own: Mapping[str, Tensor], given: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], str]:
    """The tensors under the one prefix with which most are a model's own; a line on what fits.

    Of several that fit alike, such as weights and a moving average of them, the first that is not
    named as a copy.

    >>> one, two = torch.ones(1), torch.zeros(1)
    >>> given = {"ema.net.a": one, "model.net.a": two, "model.loss": one}
    >>> find_state({"a": two}, given)
    ({'a': tensor([0.])}, "1 of 1 under 'model.net.', 1 under 'ema.net.'")
    """
    named: dict[str, int] = {}
    shaped: dict[str, int] = {}
    for name, value in given.items():
        for dot in re.finditer(r"^|\.", name):
            prefix, rest = name[: dot.end()], name[dot.end() :]
            if rest in own:
                named[prefix] = named.get(prefix, 0) + 1
                shaped[prefix] = shaped.get(prefix, 0) + (own[rest].shape == value.shape)
    if not named:
        some = ", ".join(repr(name) for name in list(given)[:3])
        return dict(given), f"none under any prefix: it has {some}"

    def order(prefix: str) -> tuple[int, int, bool]:
        copy = bool(_COPIES & set(re.split(r"[._]", prefix.lower())))
        return -shaped[prefix], -named[prefix], copy

    ranked = sorted(named, key=order)
    best = ranked[0]
    told = [f"{named[prefix]} under {prefix!r}" for prefix in ranked[:3]]
    told[0] = f"{named[best]} of {len(own)} under {best!r}" if best else f"{named[best]} as it is"
    state = {n.removeprefix(best): v for n, v in given.items() if n.startswith(best)}
    return state, ", ".join(told)


def check_fit(
    own: Mapping[str, Tensor], given: Mapping[str, Tensor], what: str, fitting: str = ""
) -> None:
    """Raise, with the first few differences and what fits, unless names and shapes agree."""
    wrong = [f"{name!r} is missing" for name in own if name not in given]
    wrong += [f"{name!r} is not in the model" for name in given if name not in own]
    wrong += [
        f"{name!r} is {tuple(given[name].shape)}, the model's {tuple(own[name].shape)}"
        for name in own
        if name in given and own[name].shape != given[name].shape
    ]
    if wrong:
        more = f"; and {len(wrong) - 4} more differences" if len(wrong) > 4 else ""
        names = f" (names that fit: {fitting})" if fitting else ""
        raise ValueError(f"{what!r} does not fit the model: {'; '.join(wrong[:4])}{more}{names}")


def holds_model(path: str | Path) -> bool:
    """Whether a file was written by `save`."""
    path = Path(path)
    return not _is_pickle(path) and HEADER in read_safetensors(path, tensors=False)[1]


def read_safetensors(
    path: Path, *, tensors: bool = True
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors, if they are wanted, and the metadata."""
    if _is_pickle(path):
        raise ValueError(
            f"{str(path)!r} is a PyTorch pickle, not a safetensors file; pass it to "
            "create_model(SPEC, weights=FILE)"
        )
    try:
        with safe_open(path, "pt") as file:
            names = file.keys() if tensors else ()
            return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{str(path)!r} is damaged or no safetensors file ({error})") from None


def _is_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(9)
    # safetensors begins with eight bytes of length, which may look like anything, and then "{".
    return (start[:1] == b"\x80" or start[:4] == b"PK\x03\x04") and start[8:] != b"{"


def _read_pickle(path: Path) -> object:
    try:
        with torch.serialization.safe_globals(_plain_data()):
            content: object = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises half a dozen unrelated types
        if refused := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise ValueError(
                f"{str(path)!r} holds more than tensors, a {refused[1]}, which is not read, since "
                "that could run code. If you trust the file, keep its weights alone: content = "
                "torch.load(FILE, weights_only=False), then torch.save(content['state_dict'], "
                "'weights.pth'), or content.state_dict() if it is a whole model"
            ) from None
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{str(path)!r} is damaged, or holds more than tensors, which is not read "
            f"({type(error).__name__}: {reason})"
        ) from None
    return content


def _plain_data() -> list[Any]:
    """What training programs keep beside weights and is data alone: numbers, options, paths."""
    number = np.float64(0).__reduce__()[0]
    kinds = (bool, np.int32, np.int64, np.float32, np.float64)
    renamed = [(number, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    for module in ("pathlib", "pathlib._local"):
        renamed += [(PurePosixPath, f"{module}.PosixPath")]
        renamed += [(PureWindowsPath, f"{module}.WindowsPath")]
    return [argparse.Namespace, np.dtype, *(type(np.dtype(kind)) for kind in kinds), *renamed]


def _flatten(content: object, way: tuple[str, ...] = ()) -> Iterator[tuple[str, Tensor]]:
    """Every tensor with a name in a nest of dictionaries, by the names on the way to it."""
    if isinstance(content, Tensor) and way:
        parts = ".".join(way).split(".")
        yield ".".join(part for part in parts if part not in _WRAPPERS), content
    elif isinstance(content, Mapping):
        for key, value in content.items():
            if isinstance(key, str):  # an optimizer counts its tensors: those have no names
                yield from _flatten(value, (*way, key))
