"""Pruning: how much goes, and how long it takes beside Torch-Pruning.

    python benchmarks/prune.py

First: share of kernels zeroed against share of parameters removed, on untrained networks with one
input channel and five classes, saliency from three batches of noise, constant channels dropped as
in the paper, three networks each. Second: trace, plan, check and cut against Torch-Pruning's
graph and step at half the channels, alternating in one process. One thread.
"""

import copy
import statistics
import time
import warnings

import torch
from rich.console import Console
from rich.table import Table

import explainfix as xf

SHARES = {"torchvision:resnet50": (0.9, 0.99, 0.999), "torchvision:densenet121": (0.8, 0.9)}
COMPARED = ("resnet50", "densenet121", "efficientnet_b0", "mobilenet_v2")
ROUNDS = 5
OUT = Console(highlight=False)


def table(*headings):
    made = Table(headings[0], box=None, pad_edge=False, header_style="bold")
    for heading in headings[1:]:
        made.add_column(heading, justify="right")
    return made


def shares():
    rows = table("network", "zeroed", "removed (three networks)", "zeroing")
    for spec, fractions in SHARES.items():
        removed = {share: [] for share in fractions}
        zeroing = {share: [] for share in fractions}
        for seed in range(3):
            torch.manual_seed(seed)
            network = xf.create_model(spec, num_classes=5, in_channels=1)
            scores = xf.saliency(network, [torch.randn(4, 1, 160, 160) for _ in range(3)])
            for share in fractions:
                model = copy.deepcopy(network)
                started = time.perf_counter()
                xf.zero_(model, scores, share)
                zeroing[share].append(time.perf_counter() - started)
                report = xf.prune_(model, torch.randn(1, 1, 64, 64), ghosts="drop")
                removed[share].append(1 - report.params_kept)
        for share in fractions:
            each = " ".join(f"{value:.1%}" for value in removed[share])
            name = spec.partition(":")[2]
            rows.add_row(name, f"{share:.1%}", each, f"{min(zeroing[share]):.2f} s")
    OUT.print(rows)


def ours(model, example):
    """Trace, plan, check and cut a network with half of its output channels zeroed."""
    with torch.no_grad():
        for layer in xf.spatial_layers(model).values():
            layer.weight[::2] = 0
    started = time.perf_counter()
    xf.prune_(model, example, ghosts="drop")
    return time.perf_counter() - started


def theirs(model, example):
    """Torch-Pruning's graph and one step at half the channels."""
    import torch_pruning

    started = time.perf_counter()
    pruner = torch_pruning.pruner.BasePruner(
        model,
        example,
        importance=torch_pruning.importance.MagnitudeImportance(),
        pruning_ratio=0.5,
        ignored_layers=[m for m in model.modules() if isinstance(m, torch.nn.Linear)],
    )
    pruner.step()
    return time.perf_counter() - started


def beside_torch_pruning():
    rows = table("network", "explainfix", "Torch-Pruning", "ratio")
    example = torch.randn(1, 3, 224, 224)
    for name in COMPARED:
        times = {ours: [], theirs: []}
        for _ in range(ROUNDS):
            network = xf.create_model(f"torchvision:{name}").eval()
            for contestant, seconds in times.items():
                seconds.append(contestant(copy.deepcopy(network), example))
        mine, other = statistics.median(times[ours]), statistics.median(times[theirs])
        rows.add_row(name, f"{mine:.2f} s", f"{other:.2f} s", f"{mine / other:.2f}")
    OUT.print(rows)


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    shares()
    OUT.print()
    beside_torch_pruning()


if __name__ == "__main__":
    main()
