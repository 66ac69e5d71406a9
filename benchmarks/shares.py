"""What a training step waits for: shares of its time by kind of operation.

    python benchmarks/shares.py [--float32] [NETWORK ...]

Fixed networks, and the same pruned, of training.py, in bf16 channels last (or float32). PyTorch's
profiler counts the seconds of each operation; what is left of the step is Python, autograd and the
profiler itself. The last column is what nobody can save: the multiply-adds of the step, at the
speed of one large product of matrices, as a share of an unprofiled step.
"""

import sys
import time
from collections import Counter

import pandas as pd
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from explainfix.lab.measure.ways import Way
from explainfix.lab.run.process import keep_kernels, prepare_process
from training import NETWORKS, SETTINGS, make, markdown

STEPS = 5
SIDE = 4096  # of the matrices whose product is the processor's best
KINDS = {  # by what is in an operation's name; the first that fits
    "pointwise, as products": ("::mm", "::addmm"),
    "BatchNorm": ("batch_norm",),
    "optimizer": ("adam",),
    "copies, casts": ("copy_", "_to_copy", "contiguous", "fill_", "zero_"),
    "activations": ("relu", "threshold", "hardtanh", "clamp", "silu", "elu", "sigmoid"),
    "sums, concatenation": ("add", "cat", "mul", "div", "sum", "mean"),
}
COLUMNS = ("spatial, forward", "spatial, backward", "pointwise, forward", "pointwise, backward",
           *KINDS, "other operations", "Python and the rest")  # fmt: skip


def kind_of(name: str, shapes: list[list[int]]) -> str:
    if "convolution" in name:
        kernel = [shape for shape in shapes if len(shape) == 4][-1][2:]
        where = "pointwise" if max(kernel) == 1 else "spatial"
        return f"{where}, {'backward' if 'backward' in name else 'forward'}"
    low = name.lower()
    return next(
        (kind for kind, parts in KINDS.items() if any(part in low for part in parts)),
        "other operations",
    )


def shares(way: Way) -> dict[str, float]:
    """Of a step, by kind, in percent."""
    for _ in range(3):
        way.step()
    began = time.perf_counter()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        for _ in range(STEPS):
            way.step()
    whole, found = 1e6 * (time.perf_counter() - began), Counter()
    for event in seen.events():
        if event.name.startswith("aten::"):
            found[kind_of(event.name, event.input_shapes or [])] += event.self_cpu_time_total
    found["Python and the rest"] = max(whole - sum(found.values()), 0)
    return {kind: 100 * found[kind] / sum(found.values()) for kind in COLUMNS}


def at_least(way: Way, speed: float) -> float:
    """The share of a step that its multiply-adds take at this speed, in percent."""
    with FlopCounterMode(display=False) as counter:
        way.step()
    return 100 * counter.get_total_flops() / speed / min(way.time_step() for _ in range(2 * STEPS))


def best_speed(dtype: torch.dtype) -> float:
    """Operations a second of a large product."""
    a = torch.randn(SIDE, SIDE).to(dtype)
    seconds = []
    for _ in range(2 * STEPS):
        began = time.perf_counter()
        a @ a
        seconds.append(time.perf_counter() - began)
    return 2 * SIDE**3 / min(seconds)


def main(arguments: list[str]) -> None:
    setting = "float32, last" if "--float32" in arguments else "bf16, last"
    names = [name for name in arguments if name in NETWORKS]
    prepare_process()
    keep_kernels(50_000)
    speed = best_speed(torch.float32 if "--float32" in arguments else torch.bfloat16)
    rows = {}
    for name in names or [
        name for name, network in NETWORKS.items() if not network.forms or network.pruned
    ]:
        for form in NETWORKS[name].all_forms:
            if form == "fixed" or "pruned" in form:
                way = Way(make(name, form), torch.randn(NETWORKS[name].shape), SETTINGS[setting])
                found = shares(way) | {"arithmetic at least": at_least(way, speed)}
                rows[f"{name}, {form}"] = {k: f"{v:.0f}" for k, v in found.items()}
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index.name = f"% of a step, {setting}"
    print(markdown(table))


if __name__ == "__main__":
    main(sys.argv[1:])
