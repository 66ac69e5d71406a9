"""create_model: any network by name, and the names there are."""

import fnmatch
from pathlib import Path

from torch import nn

from ..layers import Track
from ..marks.untrained import mark_untrained
from ..registry import models, unknown
from ..store import Origin, holds_model, load_built, read_weights, set_origin, split_part
from .adapt import load_weights_
from .own import begins_as_pytorch_does, split_factory, which_factory


def create_model(
    spec: str,
    *,
    num_classes: int | None = None,
    in_channels: int | None = None,
    weights: str | Path | None = None,
    progress: Track | None = None,
) -> nn.Module:
    """A network by name.

    `spec` is "unetd", "deeplabv3plus:ENCODER", "torchvision:NAME", "timm:NAME", "smp:NAME" or
    "smp:NAME/ENCODER" (segmentation models), "monai:NAME" (for volumes) or "monai:NAME/2d", or
    "FILE.py:FACTORY", a function of your own that returns a module.
    `weights` is `None` for random ones, "pretrained", or a file: safetensors, or a checkpoint, from
    which only tensors are read (FILE#PART for a part of it). Where pretrained weights meet another
    number of input channels, the stem's filters are adapted; where they meet another number of
    classes, the head is new. A file that `save` wrote makes the model what was saved: fixed,
    steered, pruned; `progress` wraps the loop over the layers to regenerate.

    >>> model = create_model("torchvision:resnet18", num_classes=5, in_channels=1)
    >>> model.conv1.weight.shape, model.fc.out_features
    (torch.Size([64, 1, 7, 7]), 5)
    """
    for what, count in (("num_classes", num_classes), ("in_channels", in_channels)):
        if count is not None and (not isinstance(count, int) or count < 1):
            raise ValueError(f"{what} must be a positive integer, not {count!r}")
    source, name = _parse(spec)
    build = models.find(source).build
    file = None if weights in (None, "pretrained") else weights

    def built(saved: Origin | None = None) -> nn.Module:
        classes = num_classes or (saved.num_classes if saved else None)
        channels = in_channels or (saved.in_channels if saved else None)
        model = build(name, classes, channels, weights == "pretrained")
        set_origin(model, Origin(source, name, classes, channels))
        return model

    if file is None:
        model = built()
        random = weights is None and (source != "python" or begins_as_pytorch_does(model))
        mark_untrained(model, random)
        return model
    if holds_model(split_part(file)[0]):
        return load_built(file, built, progress=progress)
    given = read_weights(file)
    model = built()
    load_weights_(model, given, str(file), lambda: build(name, None, None, False))
    return model


def list_models(pattern: str = "*") -> list[str]:
    """The specs that `create_model` accepts, all or those that match `pattern` (`*`, `?`).

    `torchvision:`, `timm:`, `smp:` and `monai:` models are there if those packages are; `smp:`
    ones also take an encoder, `monai:` ones "/2d".

    >>> list_models("torchvision:resnet1*")
    ['torchvision:resnet101', 'torchvision:resnet152', 'torchvision:resnet18']
    """
    names = [
        Origin(source, name, None, None).spec
        for source, entry in models.items()
        for name in entry.names()
    ]
    return fnmatch.filter(names, pattern)


def _parse(spec: str) -> tuple[str, str]:
    """The source and the name in a spec."""
    if split_factory(spec):
        return "python", spec
    file = Path(spec)
    if file.suffix == ".py":
        if not file.is_file():
            raise FileNotFoundError(f"there is no file {spec!r}")
        raise which_factory(file)
    if file.is_file():
        raise ValueError(f"{spec!r} holds weights alone: say of which model, {f'NAME@{spec}'!r}")
    if spec in models:
        return spec, spec
    if file.is_dir():
        raise ValueError(f"{spec!r} is a folder, but not a run's: it has no config.toml")
    source, colon, name = spec.partition(":")
    if colon and source in models:
        return source, name
    if colon:
        raise unknown("model source", source, models, "explainfix list models")
    same_name = list_models(f"*:{spec}")
    if same_name:
        choices = " or ".join(repr(found) for found in same_name)
        raise ValueError(f"unknown model {spec!r}: did you mean {choices}?")
    error = unknown("model", spec, list_models(), "explainfix list models")
    if any(entry.extra and not entry.names() for entry in models.values()):
        raise ValueError(f"{error}; explainfix list says how to install more")
    raise error
