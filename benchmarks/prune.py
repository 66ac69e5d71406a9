"""Share of kernels zeroed against share of parameters removed, and the seconds it takes.

    python benchmarks/prune.py

Untrained networks with one input channel and five classes, saliency from three batches of noise,
constant channels dropped as in the paper; one thread.
"""

import copy
import time

import torch
from rich.console import Console
from rich.table import Table

import explainfix as xf

SHARES = {"torchvision:resnet50": (0.9, 0.99, 0.999), "torchvision:densenet121": (0.8, 0.9)}


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    table = Table("network", box=None, pad_edge=False, header_style="bold")
    for heading in ("zeroed", "removed", "zeroing", "trace, plan, check and cut"):
        table.add_column(heading, justify="right")
    for spec, shares in SHARES.items():
        network = xf.create_model(spec, num_classes=5, in_channels=1)
        scores = xf.saliency(network, [torch.randn(4, 1, 160, 160) for _ in range(3)])
        for share in shares:
            model = copy.deepcopy(network)
            started = time.perf_counter()
            xf.zero_(model, scores, share)
            zeroing = time.perf_counter() - started
            report = xf.prune_(model, torch.randn(1, 1, 64, 64), ghosts="drop")
            table.add_row(
                spec.partition(":")[2],
                f"{share:.1%}",
                f"{1 - report.params_kept:.1%}",
                f"{zeroing:.2f} s",
                f"{report.seconds:.2f} s",
            )
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
