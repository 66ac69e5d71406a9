"""merge_: convolutions in two parts become ordinary ones again."""

from collections.abc import Iterable

from torch import nn

from ..layers import attributes_as_found, matching
from ..marks.changes import remember
from ..marks.untrained import teaches_nothing
from .steered import Merge, require_original, steered_layers


@teaches_nothing
def merge_(model: nn.Module, layers: str | Iterable[str] | None = None) -> list[str]:
    """Turn layers that `steer_` or `mix_` parted into ordinary convolutions, equal to rounding.

    For those who want dense kernels at inference: what was fixed and what was learned is one
    weight then, learnable, and no recipe tells them apart any more. `layers` names some of them,
    by path or pattern. Gives the paths of the merged layers.

    >>> import explainfix as xf
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    >>> report = xf.steer_(model, filters=4)
    >>> merge_(model)
    ['0']
    >>> model
    Sequential(
      (0): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
      (1): ReLU()
    )
    """
    require_original(model)
    parted = steered_layers(model)
    if not parted:
        raise ValueError(
            f"this {type(model).__name__} has nothing to merge: no layer was parted by steer_ or "
            "mix_"
        )
    if "" in parted:
        raise ValueError("the model itself is a steered layer: put it into an nn.Sequential")
    chosen = list(matching(parted, layers, "steered layer"))
    with attributes_as_found(model, on_error_only=True):
        change = Merge(chosen)
        change.again_(model)
        remember(model, change)
    return chosen
