"""How the cost of fixing, explaining, saliency and pruning grows with a network.

    python benchmarks/growth.py [--write FOLDER] [NETWORK ...]

MobileNetV2 and ConvNeXts, whose spatial layers are depthwise, and ResNet50s of growing width, whose
are dense; one image of 64 px. Every operation on every network has a process of its own, which has
done it on a small network before, for its seconds of CPU, in one thread, and its peak of memory.
--write puts plot and tables below the mark of FOLDER/scale.md.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models import resnet50

import explainfix as xf
from prune import ours as prune_half
from training import machine, markdown

MARK = "<!-- how cost grows -->"
CONVNEXTS = ("convnext_tiny", "convnext_base", "convnext_xlarge", "convnextv2_huge")
FAMILIES = {
    "depthwise": ("torchvision:mobilenet_v2", *(f"timm:{name}" for name in CONVNEXTS)),
    "dense": tuple(f"resnet50_{width}" for width in (1, 2, 4, 7)),
}
OPERATIONS = {
    "fix": lambda model, x: xf.fix_(model, "ghaar", scale="fan_in"),
    "explain": lambda model, x: xf.explain(model),
    "saliency": lambda model, x: xf.saliency(model, [x]),
    "prune": prune_half,
}
SIZE = (1, 3, 64, 64)


def build(spec):
    """A network; resnet50_2 is ResNet50 with twice the width in its spatial layers."""
    if spec.startswith("resnet50_"):
        return resnet50(width_per_group=64 * int(spec.removeprefix("resnet50_"))).eval()
    return xf.create_model(spec).eval()


def measure_here(spec, operation):
    """Seconds of CPU, and the peak of this process's memory beyond its libraries, in MB."""
    torch.set_num_threads(1)
    do, x = OPERATIONS[operation], torch.randn(SIZE)
    before = peak()
    do(build("torchvision:squeezenet1_1"), x)
    model = build(spec)
    began = time.process_time()
    do(model, x)
    print(json.dumps((time.process_time() - began, peak() - before)))


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def measure(spec):
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        model = build(spec)
        model(torch.empty(SIZE))
    row = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "spatial": sum(layer.weight.numel() for layer in xf.spatial_layers(model).values()),
        "multiply-adds": counter.get_total_flops() // 2,
    }
    for operation in OPERATIONS:
        done = subprocess.run(
            [sys.executable, __file__, "--here", operation, spec], check=True, capture_output=True
        )
        row[f"{operation} s"], row[f"{operation} MB"] = json.loads(done.stdout)
    return row


def slopes(rows):
    """Exponents of growth: of time with what an operation works on, of memory with parameters.

    Fixing and explaining see spatial weights alone, the others every weight and multiply-add. Of
    all networks of a family, and of its two largest, where what is constant counts least.
    """
    found = {}
    for family, part in rows.groupby("family", sort=False):
        for operation in OPERATIONS:
            exponents, work = [], part["parameters"] + part["multiply-adds"]
            if operation in ("fix", "explain"):
                work = part["spatial"]
            for unit, size in (("s", work), ("MB", part["parameters"])):
                points = np.log([size, part[f"{operation} {unit}"]])
                ends = points, points[:, -2:]
                exponents += [f"{np.polyfit(*chosen, 1)[0]:.2f}" for chosen in ends]
            found[f"{operation}, {family}"] = exponents
    heads = ["time", "time, largest two", "memory", "memory, largest two"]
    table = pd.DataFrame.from_dict(found, orient="index", columns=heads)
    table.index.name = "grows with the power of"
    return table


def as_text(rows):
    cells = {
        "params": [f"{value / 1e6:.0f} M" for value in rows["parameters"]],
        "spatial": [f"{value / 1e6:.2f} M" for value in rows["spatial"]],
        "mult-adds": [f"{value / 1e9:.2f} G" for value in rows["multiply-adds"]],
    }
    for operation in OPERATIONS:
        pairs = zip(rows[f"{operation} s"], rows[f"{operation} MB"], strict=True)
        cells[operation] = [f"{seconds:.2f} s, {memory:,.0f} MB" for seconds, memory in pairs]
    return pd.DataFrame(cells, index=rows.index)


def draw(rows, file):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    for axis, unit, title in zip(
        axes, ("s", "MB"), ("seconds of CPU", "MB at the peak"), strict=True
    ):
        for number, operation in enumerate(OPERATIONS):
            for family, style in (("dense", "o-"), ("depthwise", "s--")):
                part = rows[rows["family"] == family]
                axis.plot(
                    part["parameters"] / 1e6, part[f"{operation} {unit}"], style,
                    color=f"C{number}", markersize=4, label=f"{operation}, {family}",
                )  # fmt: skip
        sizes = rows["parameters"].agg(["min", "max"]) / 1e6
        start = rows[[f"{operation} {unit}" for operation in OPERATIONS]].min().min()
        axis.plot(sizes, start * sizes / sizes["min"], ":", color="#888888", label="linear")
        axis.set(xscale="log", yscale="log", xlabel="million parameters", title=title)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=7)
    figure.savefig(file, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--here", choices=OPERATIONS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        measure_here(given.networks[0], given.here)
        return
    found = {}
    for family, specs in FAMILIES.items():
        for spec in specs:
            name = spec.rpartition(":")[2]
            if not given.networks or name in given.networks:
                found[name] = {"family": family, **measure(spec)}
                print(name, found[name], flush=True)
    rows = pd.DataFrame.from_dict(found, orient="index")
    rows.index.name = "network"
    tables = [as_text(rows)] if given.networks else [as_text(rows), slopes(rows)]
    for table in tables:
        print(markdown(table), "\n")
    if given.write:
        draw(rows, given.write / "img" / "growth.png")
        page = given.write / "scale.md"
        when = f"Measured on {date.today():%-d %B %Y}, {machine()}."
        text = [MARK, when, *map(markdown, tables)]
        page.write_text(page.read_text().partition(MARK)[0] + "\n\n".join(text) + "\n")


if __name__ == "__main__":
    main()
