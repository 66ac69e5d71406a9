"""create_model: any network by name, and the names there are."""

import fnmatch
import re
from pathlib import Path

from torch import nn

from ..registry import models, unknown
from ..store import Origin, read_weights, set_origin
from .adapt import load_weights_


def create_model(
    spec: str,
    *,
    num_classes: int | None = None,
    in_channels: int | None = None,
    weights: str | Path | None = None,
) -> nn.Module:
    """A network by name.

    `spec` is "unetd", "deeplabv3plus:ENCODER", "torchvision:NAME", "timm:NAME", "smp:NAME" or
    "smp:NAME/ENCODER" (segmentation models), "monai:NAME" (for volumes) or "monai:NAME/2d", or
    "FILE.py:FACTORY", a function of your own that returns a module.
    `weights` is `None` for random ones, "pretrained", or a file: safetensors, or a `.pth`, from
    which only tensors are read. Where pretrained weights meet another number of input channels,
    the stem's filters are adapted; where they meet another number of classes, the head is new.

    >>> model = create_model("torchvision:resnet18", num_classes=5, in_channels=1)
    >>> model.conv1.weight.shape, model.fc.out_features
    (torch.Size([64, 1, 7, 7]), 5)
    """
    for what, count in (("num_classes", num_classes), ("in_channels", in_channels)):
        if count is not None and (not isinstance(count, int) or count < 1):
            raise ValueError(f"{what} must be a positive integer, not {count!r}")
    source, name = _parse(spec)
    build = models.find(source).build
    model = build(name, num_classes, in_channels, weights == "pretrained")
    if weights is not None and weights != "pretrained":
        given = read_weights(weights)
        load_weights_(model, given, str(weights), lambda: build(name, None, None, False))
    set_origin(model, Origin(source, name, num_classes, in_channels))
    return model


def list_models(pattern: str = "*") -> list[str]:
    """The specs that `create_model` accepts, all or those that match `pattern` (`*`, `?`).

    `timm:`, `smp:` and `monai:` models are there if those packages are; `smp:` ones also take an
    encoder, `monai:` ones "/2d".

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
    if re.search(r"\.py:\w+$", spec):
        return "python", spec
    if spec in models:
        return spec, spec
    source, colon, name = spec.partition(":")
    if colon and source in models:
        return source, name
    if colon:
        raise unknown("model source", source, models, "explainfix list models")
    same_name = list_models(f"*:{spec}")
    if same_name:
        choices = " or ".join(repr(found) for found in same_name)
        raise ValueError(f"unknown model {spec!r}: did you mean {choices}?")
    raise unknown("model", spec, list_models(), "explainfix list models")
