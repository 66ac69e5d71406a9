"""Passes of a model for which nobody has an example: recorded on noise of a size that it takes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from torch import Tensor, nn

from ..layers import Convolution, as_found, attributes_as_found
from ..running import example_input
from .call import Call
from .graph import Graph
from .record import Failed, Recorder

_SIZES = (64, 224, 32, 299)  # of images to try

Example = Tensor | tuple[Any, ...] | dict[str, Any]


def record_anyhow(model: nn.Module, example_inputs: Example | None, purpose: str) -> Graph:
    """Passes in evaluation and, as far as it gets, in training, where other heads may run.

    `purpose` is what is seen in them, for the error if the model runs on no noise.
    """
    if example_inputs is not None:
        return _record(model, example_inputs)
    problems: list[str] = []
    axes = next((len(m.kernel_size) for m in model.modules() if isinstance(m, Convolution)), 2)
    for size in _SIZES if axes < 3 else _SIZES[:1]:
        try:
            return _record(model, example_input(model, [size] * axes))
        except Failed as failed:
            problems.append(f"{size}: {failed}")
    raise ValueError(
        f"{purpose} is seen in a pass of the model, and it does not run on noise of "
        f"sizes {', '.join(map(str, _SIZES))} ({problems[0]}); pass example_inputs"
    )


def _record(model: nn.Module, example_inputs: Example) -> Graph:
    call = Call.of(example_inputs)
    with as_found(model), attributes_as_found(model):
        recorder = Recorder(model)
        recorder.run(call, training=False)
        with suppress(Failed):  # a batch of one, labels that are missing: what ran was recorded
            recorder.run(call, training=True)
    return recorder.graph
