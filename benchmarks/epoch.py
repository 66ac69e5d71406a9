"""Where the time of a training epoch of U-NetD goes: loading, arithmetic, the allocator.

    python benchmarks/epoch.py [DATA]

DATA is a dataset, by default drawn nuclei; batches of ten 256 px images, cached where they can be.
"""

import resource
import sys
import time

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

import explainfix as xf
from explainfix.lab.data.dataset import open_dataset
from explainfix.lab.data.loader import Share, training_steps
from explainfix.lab.run.losses import binary_cross_entropy
from explainfix.lab.run.process import keep_large_blocks

STEPS = 8
OUT = Console(highlight=False)


def epoch(data, steps=STEPS):
    """The seconds of each part of some steps, and the page faults."""
    model = xf.create_model("unetd").train()
    optimizer = torch.optim.Adam(model.parameters(), 0.008)
    spent = {"loading": 0.0, "forward": 0.0, "backward": 0.0, "optimizer": 0.0}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    clock = time.perf_counter()

    def lap(part):
        nonlocal clock
        now = time.perf_counter()
        spent[part] += now - clock
        clock = now

    batches = training_steps(data, "train", Share(10), seed=0, epoch=0)
    for number, [(images, masks)] in enumerate(batches):
        if number == steps:
            break
        lap("loading")
        loss = binary_cross_entropy(model(images), masks)
        lap("forward")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        lap("backward")
        optimizer.step()
        lap("optimizer")
    return spent, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def main(spec):
    data = open_dataset(spec, **({"crop": 256} if ":" in spec else {"size": 256, "count": 80}))
    epoch(data)  # decodes and keeps the images
    table = Table("", box=None, pad_edge=False, header_style="bold")
    parts = ["loading", "forward", "backward", "optimizer"]
    for heading in (*parts, "s/step", "faults/step"):
        table.add_column(heading, justify="right")
    for name in ("as glibc comes", "blocks kept"):
        if name == "blocks kept":
            keep_large_blocks()
            epoch(data, 2)
        spent, faults = epoch(data)
        total = sum(spent.values())
        shares = [f"{spent[part] / total:.1%}" for part in parts]
        table.add_row(name, *shares, f"{total / STEPS:.2f}", f"{faults // STEPS:,}")
    OUT.print(table)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        epoch(data, 3)
    events = sorted(profiled.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    OUT.print("\nof the time of three steps, blocks kept:")
    for event in events[:8]:
        OUT.print(f"{event.self_cpu_time_total / total:6.1%}  {event.key}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "nuclei")
