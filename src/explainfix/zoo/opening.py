"""Opening a network by whatever names it: a model, NAME@FILE, or a file that `save` wrote."""

import re
from pathlib import Path

from torch import nn

from ..filters.guidedsteer import SHIPPED
from ..layers import Track
from ..store import load
from .create import create_model


def open_network(
    text: str,
    *,
    weights: str | None = None,
    num_classes: int | None = None,
    in_channels: int | None = None,
    progress: Track | None = None,
) -> nn.Module:
    """The model of a name, with the weights of a file (NAME@FILE), or in a file `save` wrote."""
    name, file = split_weights(text)
    if file is not None and weights is not None:
        raise ValueError(f"{text!r} names its weights already: it takes no --weights")
    if not is_saved(name):
        return create_model(
            name, num_classes=num_classes, in_channels=in_channels, weights=file or weights
        )
    if (weights, num_classes, in_channels) != (None, None, None):
        raise ValueError(
            f"{text!r} is a saved model and complete: it takes no --weights, --num-classes or "
            "--in-channels"
        )
    return load(name, progress=progress)


def open_guide(text: str, *, progress: Track | None = None) -> nn.Module | str:
    """The same for a guide: without weights of its own a model has pretrained ones.

    A guide that ships with the package is its name.

    >>> open_guide("imagenet")
    'imagenet'
    """
    if text in SHIPPED:
        return text
    has_weights = is_saved(text) or split_weights(text)[1] is not None
    return open_network(text, weights=None if has_weights else "pretrained", progress=progress)


def is_saved(text: str) -> bool:
    """Whether this names a file that `save` wrote."""
    return text.endswith(".safetensors") and split_weights(text)[1] is None


def split_weights(text: str) -> tuple[str, str | None]:
    """NAME@FILE in two; a saved file may have an @ in its path.

    >>> split_weights("unetd@weights.pth"), split_weights("unetd")
    (('unetd', 'weights.pth'), ('unetd', None))
    """
    name, at, file = text.partition("@")
    return (name, file) if at and not Path(text).is_file() else (text, None)


def file_of(text: str) -> Path | None:
    """The file that decides what a model is: FILE, that of FILE.py:FACTORY or of NAME@FILE."""
    for candidate in (text, re.sub(r"(\.py):\w+$", r"\1", text), split_weights(text)[1]):
        if candidate and Path(candidate).is_file():
            return Path(candidate)
    return None
