"""Does torch.compile pay for a network's training steps? It takes minutes before the first one."""

import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...running import reason_of
from ..run.devices import is_compiler_there
from .timing import Ratio, take_turns
from .ways import Settings, Way

# Seconds of a core to compile a layer, forward and backward: 1.1 on average in U-NetD, ResNet18 and
# MobileNetV2; on two cores 0.35 to 0.45 in ResNet50, DenseNet121 and EfficientNet-b0.
A_LAYER = 1.0


@dataclass(frozen=True)
class Compiling:
    """Whether to compile a network, why, and what was measured if it was tried."""

    chosen: bool
    why: str
    start: float | None = None  # seconds of the first step
    step: Ratio | None = None  # a step later on, as a share of one that is not compiled


def try_compiling(
    model: nn.Module, x: Tensor, settings: Settings, *, seconds: float, worth: float
) -> Compiling:
    """Compile a copy if that may take no longer than `seconds`, and let it prove itself.

    It must bring a step to the share `worth`, beyond doubt.
    """
    if not is_compiler_there(x.device.type):
        return Compiling(False, "Not compiled: PyTorch finds no compiler here.")
    layers = sum(not any(module.children()) for module in model.modules())
    if (expected := layers * A_LAYER / torch.get_num_threads()) > seconds:
        return Compiling(
            False,
            f"torch.compile not tried: {layers} layers may take {expected:.0f} s, "
            f"more than the {seconds:.0f} s given (--seconds).",
        )
    plain, compiled = Way(model, x, settings), Way(model, x, settings, compiled=True)
    began = time.perf_counter()
    try:
        compiled.step()
    except Exception as error:  # whatever the compiler raises, of many kinds
        return Compiling(False, f"Not compiled: {reason_of(error)}")
    start = time.perf_counter() - began
    if start > seconds:
        why = f"Not compiled: that took {start:.0f} s, more than the {seconds:.0f} s given."
        return Compiling(False, why, start)
    steps = {"plain": plain.step, "compiled": compiled.step}
    raced = take_turns(steps, seconds=seconds - start, least=6)
    ratio = raced.ratio("compiled")
    said = f"a step takes {ratio} of the time after {start:.0f} s of compiling"
    if ratio.high >= worth:
        return Compiling(False, f"Not compiled: {said}, and {worth:g} is asked for.", start, ratio)
    saved = raced.seconds("plain") - raced.seconds("compiled")
    paid = f"paid back in {start / saved:.0f} steps"
    why = f"Compiled: {said}, {paid}."
    return Compiling(True, why, start, ratio)
