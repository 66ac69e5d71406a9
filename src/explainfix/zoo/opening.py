"""Opening a network by whatever names it: a model, NAME@FILE, a file that `save` wrote, a run."""

from pathlib import Path

from torch import nn

from ..filters.guidedsteer import SHIPPED
from ..layers import Track
from ..registry import openers
from ..store import holds_model, load, split_part
from .create import create_model
from .own import split_factory, which_factory

RUN, WHICH = "config.toml", ("best", "last")  # what makes a folder a run, and its weights


def open_network(
    text: str,
    *,
    weights: str | None = None,
    num_classes: int | None = None,
    in_channels: int | None = None,
    progress: Track | None = None,
) -> nn.Module:
    """The model of a name, with the weights of a file (NAME@FILE), in a saved file, or of a run.

    A name may be FILE.py:FACTORY; the file of NAME@FILE is foreign or one that `save` wrote; a run
    is its folder, RUN for its best weights or RUN@last.
    """
    name, file = split_weights(text)
    run = split_run(text)
    if file is not None and weights is not None and not run:
        raise ValueError(f"{text!r} names its weights already: it takes no --weights")
    if run or is_saved(text):
        if (weights, num_classes, in_channels) != (None, None, None):
            raise ValueError(
                f"{text!r} is a saved model and complete: it takes no --weights, --num-classes or "
                "--in-channels"
            )
        return openers.find("run")(*run) if run else load(text, progress=progress)
    if name.endswith(".py") and Path(name).is_file():
        raise which_factory(Path(name), f"@{file}" if file else "")
    return create_model(
        name,
        num_classes=num_classes,
        in_channels=in_channels,
        weights=file or weights,
        progress=progress,
    )


def open_guide(text: str, *, progress: Track | None = None) -> nn.Module | str:
    """The same for a guide: without weights of its own a model has pretrained ones.

    A guide that ships with the package is its name.

    >>> open_guide("imagenet")
    'imagenet'
    """
    if text in SHIPPED:
        return text
    has_weights = is_complete(text) or split_weights(text)[1] is not None
    return open_network(text, weights=None if has_weights else "pretrained", progress=progress)


def is_complete(text: str) -> bool:
    """Whether this names a network with its numbers of channels and classes: a saved one, a run."""
    if split_run(text) or is_saved(text):
        return True
    file = split_weights(text)[1]
    return file is not None and Path(file).is_file() and holds_model(file)


def is_saved(text: str) -> bool:
    """Whether this names a file that `save` wrote, alone."""
    return text.endswith(".safetensors") and split_weights(text)[1] is None


def split_weights(text: str) -> tuple[str, str | None]:
    """NAME@FILE in two; a saved file, and that of a factory, may have an @ in its path.

    >>> split_weights("unetd@weights.pth"), split_weights("a@b/my_net.py:unet@weights.pth")
    (('unetd', 'weights.pth'), ('a@b/my_net.py:unet', 'weights.pth'))
    """
    if Path(text).is_file() or split_factory(text):
        return text, None
    parts = text.split("@")
    for count in range(len(parts) - 1, 0, -1):
        name = "@".join(parts[:count])
        if count == 1 or split_factory(name) or Path(name).is_file():
            return name, "@".join(parts[count:])
    return text, None


def split_run(text: str) -> tuple[Path, str] | None:
    """RUN or RUN@last in two, if that is the folder of a run."""
    folder, _, which = text.rpartition("@")
    for path, weights in ((text, WHICH[0]), (folder, which)):
        if weights in WHICH and (Path(path) / RUN).is_file():
            return Path(path), weights
    return None


def files_of(text: str) -> list[Path]:
    """The files that decide what a model is: those of FILE, FILE.py:FACTORY, NAME@FILE, RUN."""
    if run := split_run(text):
        return [run[0] / f"{run[1]}.safetensors"]
    name, weights = split_weights(text)
    own = split_factory(name)
    candidates = [Path(own[0] if own else name), *([split_part(weights)[0]] if weights else [])]
    return [file for file in candidates if file.is_file()]
