"""Where the networks come from: a module per package, with a function `networks()`."""

from functools import cache
from importlib import import_module

SOURCES = (
    "torchvision", "timm", "smp", "monai", "nnunet", "transformers", "pytorchcv", "diffusers",
    "ultralytics",
)  # fmt: skip
# Of long lists every second or third: the whole run is to take an hour and a half.
MOST = {"timm": 180, "pytorchcv": 80, "smp": 50, "monai": 100, "nnunet": 40, "transformers": 90}


@cache
def catalogue(source):
    """The networks of a package, by name."""
    found = import_module(f"{__name__}.{source}_networks").networks()
    most = min(MOST.get(source, len(found)), len(found))
    found = [found[place * len(found) // most] for place in range(most)]
    named = {f"{source}:{network.name}": network for network in found}
    if len(named) < len(found):
        raise ValueError(f"{source} has two networks of one name")
    return named


def find(name):
    """A network by its full name."""
    return catalogue(name.partition(":")[0])[name]


def names(start=""):
    """The names of all networks, source by source; only of one source if `start` names it."""
    source = start.partition(":")[0]
    return [
        name for one in SOURCES if source not in SOURCES or one == source for name in catalogue(one)
    ]
