"""What an explanation costs: seconds of CPU without data, and saliency beside the bare passes.

    python benchmarks/explain.py

The bare passes are a forward pass and the gradient of its output's sum with respect to the spatial
kernels, in eval mode, as little as any saliency by gradients can do. They alternate with saliency
in this process, and the ratio is the median over rounds.
"""

import statistics
import time

import torch
from rich.console import Console
from rich.table import Table

import explainfix as xf

NETWORKS = ["torchvision:resnet50", "torchvision:densenet121", "torchvision:efficientnet_b0"]
ROUNDS, BATCH = 7, (4, 3, 224, 224)


def bare_passes(model, x):
    weights = [layer.weight for layer in xf.spatial_layers(model).values()]
    model.eval().requires_grad_(False)
    for weight in weights:
        weight.requires_grad_(True)
    torch.autograd.grad(model(x).sum(), weights, allow_unused=True)


def seconds(function, *arguments, clock=time.perf_counter):
    started = clock()
    function(*arguments)
    return clock() - started


def main():
    torch.manual_seed(0)
    table = Table("network", box=None, pad_edge=False, header_style="bold")
    for heading in ("explain, CPU", "saliency", "bare passes", "ratio"):
        table.add_column(heading, justify="right")
    x = torch.randn(BATCH)
    for spec in NETWORKS:
        model = xf.create_model(spec)
        xf.explain(model)
        plain = statistics.median(
            seconds(xf.explain, model, clock=time.process_time) for _ in range(ROUNDS)
        )
        bare_passes(model, x)
        pairs = [
            (seconds(xf.saliency, model, [x]), seconds(bare_passes, model, x))
            for _ in range(ROUNDS)
        ]
        ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(one / other for one, other in pairs)
        table.add_row(
            spec.partition(":")[2],
            f"{plain:.2f} s",
            f"{ours:.2f} s",
            f"{bare:.2f} s",
            f"{ratio:.2f}",
        )
    console = Console(highlight=False)
    console.print("An explanation without data, and the saliency of one batch of 4 at 224 px\n")
    console.print(table)


if __name__ == "__main__":
    main()
