"""The paper's experiments by name: one file each, run at three scales and judged by rules."""

from importlib import import_module
from importlib.util import find_spec

from ..registry import experiments

NAMES = (  # in the order of the paper
    "steering",
    "distribution",
    "learning-rate",
    "classification",
    "capacity",
    "savings",
    "spectra",
    "saliency-check",
    "inference",
    "training",
    "pruned",
    "zeroed-vs-pruned",
    "winning-ticket",
    "baselines",
    "filters",
    "activations",
    "landscape",
)


def list_experiments() -> list[str]:
    """The names that `reproduce` takes, in the order of the paper.

    >>> list_experiments()[0]
    'steering'
    """
    for name in NAMES:
        module = f"{__name__}.{name.replace('-', '_')}"
        if find_spec(module) is not None:
            import_module(module)  # registers it
    return [name for name in NAMES if name in experiments]
