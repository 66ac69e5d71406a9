"""Names of layers that fit below a column of a picture, and still tell the layers apart."""

from __future__ import annotations

from collections.abc import Sequence

_LONGEST = 18


def short_labels(paths: Sequence[str], longest: int = _LONGEST) -> list[str]:
    """A label per path, no two alike: without what all begin with, shortened in the middle.

    >>> short_labels(["features.1.conv.0.0", "features.2.conv.0.0"])
    ['1.conv.0.0', '2.conv.0.0']
    >>> short_labels(["layer1.0.conv2", "layer2.0.conv2"])
    ['layer1.0.conv2', 'layer2.0.conv2']
    >>> short_labels(["encoder.denseblock1.denselayer1.conv2", "decoder.up.conv"])
    ['encoder.…er1.conv2', 'decoder.up.conv']
    """
    parts = [path.split(".") for path in paths]
    most = min((len(part) for part in parts), default=1) - 1 if len(paths) > 1 else 0
    common = 0
    while common < most and len({part[common] for part in parts}) == 1:
        common += 1
    names = [".".join(part[common:]) for part in parts]
    while True:
        labels = [_in_the_middle(name, longest) for name in names]
        alike = {label for label in labels if labels.count(label) > 1}
        if not alike or longest >= max(map(len, names)):
            return labels
        longest += 4


def _in_the_middle(name: str, longest: int) -> str:
    if len(name) <= longest:
        return name
    head = (longest - 1) // 2
    return f"{name[:head]}…{name[len(name) - (longest - 1 - head) :]}"
