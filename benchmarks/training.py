"""A training step and its memory: learned, frozen, fixed, pruned, as ratios to learned.

    python benchmarks/training.py [NETWORK ...]

Batch 4 at 224 px, forward, backward and a step of Adam. The contestants alternate in one process
until every ratio's 95% interval is narrow, or for at most `ROUNDS` rounds. Bytes are those kept for
the backward pass, without parameters and buffers.
"""

import copy
import statistics
import sys
import time

import torch
from rich.console import Console
from rich.table import Table

import explainfix as xf
from explainfix.lab.memory import keep_large_blocks
from explainfix.kept import kept_for_backward
from explainfix.lean import make_ordinary

SHARES = {
    "resnet50": (0.9, 0.99),
    "densenet121": (0.8, 0.9),
    "efficientnet_b0": (0.85,),
    "mobilenet_v2": (),
}
ROUNDS, ENOUGH, NARROW = 25, 7, 0.04


def contestants(name):
    """Networks by what was done to them; the first is what the others are compared with."""
    learned = xf.create_model(f"torchvision:{name}").train()
    frozen, fixed = copy.deepcopy(learned), copy.deepcopy(learned)
    xf.fix_(fixed, "ghaar", scale="fan_in")
    xf.fix_(frozen, "ghaar", scale="fan_in")
    for layer in xf.spatial_layers(frozen).values():
        make_ordinary(layer)
    found = {"learned": learned, "frozen, ordinary": frozen, "fixed": fixed}
    scores = xf.saliency(fixed, [torch.randn(4, 3, 128, 128) for _ in range(2)], kind="gradient")
    for share in SHARES[name]:
        pruned = copy.deepcopy(fixed)
        xf.channel_prune_(pruned, torch.randn(1, 3, 64, 64), scores, zero=share)
        found[f"fixed, pruned {share:.0%}"] = pruned
        found[f"learned, pruned {share:.0%}"] = copy.deepcopy(pruned)
        xf.unfix_(found[f"learned, pruned {share:.0%}"])
    return found


def interval(ratios):
    """The median of paired ratios and a 95% bootstrap interval of it."""
    drawn = torch.tensor(ratios)[torch.randint(len(ratios), (1000, len(ratios)))]
    low, high = drawn.median(1).values.quantile(torch.tensor([0.025, 0.975])).tolist()
    return statistics.median(ratios), low, high


def race(networks, x):
    """Each contestant's times, round by round."""
    optimizers = {
        name: torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-4)
        for name, model in networks.items()
    }
    times = {name: [] for name in networks}
    for number in range(ROUNDS + 1):
        for name, model in networks.items():
            started = time.perf_counter()
            optimizers[name].zero_grad(set_to_none=True)
            model(x).square().mean().backward()
            optimizers[name].step()
            if number:  # the first is to warm up
                times[name].append(time.perf_counter() - started)
        if number >= ENOUGH:
            spans = [interval(pair_up(times, name)) for name in networks]
            if all(high - low < NARROW for _, low, high in spans):
                break
    return times


def pair_up(times, name):
    return [one / base for one, base in zip(times[name], times["learned"], strict=True)]


def main(names):
    torch.manual_seed(0)
    keep_large_blocks()
    out = Console(highlight=False)
    x = torch.randn(4, 3, 224, 224)
    for name in names:
        networks = contestants(name)
        times = race(networks, x)
        base = kept_for_backward(networks["learned"], x)
        table = Table(name, box=None, pad_edge=False, header_style="bold")
        for heading in ("step", "95% interval", "MB kept", "ratio", "parameters"):
            table.add_column(heading, justify="right")
        for contestant, model in networks.items():
            middle, low, high = interval(pair_up(times, contestant))
            kept = kept_for_backward(model, x)
            table.add_row(
                contestant,
                f"{middle:.2f}",
                f"{low:.2f} to {high:.2f}",
                f"{kept / 1e6:.0f}",
                f"{kept / base:.2f}",
                f"{sum(p.numel() for p in model.parameters()):,}",
            )
        out.print(table)
        out.print(f"{statistics.median(times['learned']):.2f} s a step, learned\n")


if __name__ == "__main__":
    main(sys.argv[1:] or list(SHARES))
