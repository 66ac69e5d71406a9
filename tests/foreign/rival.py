"""Torch-Pruning on the same zeroed network: does it run, and is the result equal?"""

import signal
import time
from contextlib import contextmanager

from torch import nn

import explainfix as xf
from explainfix.layers import Convolution
from explainfix.running import tensors_in

from .check import EXAMPLE, LIMITS, differences, draw, first_line

SECONDS = 20


class TooLongError(BaseException):
    """Not an Exception: nothing on the way may take it for one of its own."""


@contextmanager
def at_most(seconds):
    def stop(*_):
        raise TooLongError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def output_layers(model, inputs):
    """The convolutions and linear layers behind which there is no other one up to an output."""
    owners = {
        id(module.weight): module
        for module in model.modules()
        if isinstance(module, (Convolution, nn.Linear))
    }
    found, seen = [], set()
    left = [t.grad_fn for t in tensors_in(model(*inputs)) if t.grad_fn is not None]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        before = [parent for parent, _ in node.next_functions if parent is not None]
        # A linear layer turns its weight first.
        near = [
            *before,
            *(
                far
                for parent in before
                if type(parent).__name__ == "TBackward0"
                for far, _ in parent.next_functions
            ),
        ]
        owned = [owners.get(id(getattr(parent, "variable", None))) for parent in near]
        layers = [module for module in owned if module is not None]
        found += layers
        left += [] if layers else before
    return list(dict.fromkeys(found))


def prune(model, inputs):
    """As its guide has it, told which share of which layer is zero, and to look at no other."""
    import torch_pruning

    shares = {}
    for layer in xf.spatial_layers(model).values():
        turned = getattr(layer, "transposed", False)
        over = [d for d in range(layer.weight.dim()) if d != (1 if turned else 0)]
        zero = (layer.weight == 0).all(over) if layer.groups == 1 or not turned else None
        shares[layer] = float(zero.double().mean()) if zero is not None else 0.0
    pruner = torch_pruning.pruner.MagnitudePruner(
        model,
        inputs,
        importance=torch_pruning.importance.MagnitudeImportance(
            group_reduction="first", normalizer=None
        ),
        pruning_ratio=0.0,
        pruning_ratio_dict=shares,
        ignored_layers=output_layers(model, inputs),
        forward_fn=lambda model, inputs: model(*inputs),
        output_transform=lambda output: [t for t in tensors_in(output) if t.grad_fn is not None],
        in_channel_groups={},
        out_channel_groups={},
        num_heads={},
    )
    pruner.step()


def challenge(network, model, passes, dtype):
    """What Torch-Pruning makes of the zeroed network, which it changes."""
    parameters = sum(p.numel() for p in model.parameters())
    started = time.perf_counter()
    try:
        with at_most(SECONDS):
            model.requires_grad_(True)
            prune(model, draw(network, dtype, EXAMPLE, 1, network.sizes[0]))
            seconds = time.perf_counter() - started
            difference, where, _ = differences(passes, model, LIMITS[dtype])
    except (Exception, TooLongError) as problem:
        reason = f"{type(problem).__name__}: {first_line(problem)}"
        return {"verdict": "fails", "reason": reason}
    removed = parameters - sum(p.numel() for p in model.parameters())
    if difference == float("inf"):
        verdict = "does not run" if ": " in where else "differs"
    else:
        verdict = "equal" if difference <= LIMITS[dtype] else "differs"
    return {
        "verdict": verdict,
        "reason": where,
        "difference": difference,
        "removed": removed,
        "seconds": seconds,
    }
