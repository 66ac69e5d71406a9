"""Training and using networks that are learned, fixed and pruned: time and memory, as ratios.

    python benchmarks/training.py [--write FOLDER] [NETWORK ...]

Batch 4 at 224 px; a step is forward, backward and Adam; "last" is channels last. The contestants
take turns in one process until the ratios' 95% intervals are narrow. Without NETWORK also one
network of every family of torchvision, fixed against learned. --write puts the tables below the
mark in FOLDER/benchmarks.md, and the plots beside it.
"""

import copy
import os
import platform
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import torch
from rich.console import Console
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode

import explainfix as xf
from explainfix.backward.frozen import make_ordinary
from explainfix.backward.recompute import make_frugal_
from explainfix.backward.saved import find_kept, kept_for_backward
from explainfix.lab.measure.timing import Timing, take_turns, training_step
from explainfix.lab.run.process import keep_kernels

SHARES = {  # of the spatial kernels, zeroed before pruning: the paper's
    "resnet50": (0.9, 0.99),
    "densenet121": (0.8, 0.9),
    "efficientnet_b0": (0.85,),
    "mobilenet_v2": (0.85,),
    "unetd": (),
}
FAMILIES = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet",
    "inception_v3", "maxvit_t", "mnasnet1_0", "mobilenet_v2", "mobilenet_v3_small",
    "regnet_y_400mf", "resnet18", "resnext50_32x4d", "shufflenet_v2_x1_0", "squeezenet1_1",
    "swin_t", "vgg11_bn", "vit_b_16", "wide_resnet50_2",
)  # fmt: skip
LAST = torch.channels_last
MARK = "<!-- the last run -->"
OUT = Console(highlight=False)


@dataclass
class Contestant:
    """A network, its batch, and how much of it was zeroed before it was pruned."""

    network: torch.nn.Module
    x: torch.Tensor
    zeroed: float = 0.0


def contestants(name: str, x: torch.Tensor) -> dict[str, Contestant]:
    """By what was done to them; the first is what the others are compared with."""
    learned = xf.create_model(name if name == "unetd" else f"torchvision:{name}").train()
    fixed = copy.deepcopy(learned)
    xf.fix_(fixed, "ghaar", scale="fan_in")
    frozen = copy.deepcopy(fixed)
    for layer in xf.spatial_layers(frozen).values():
        make_ordinary(layer)
    found = {
        "learned": Contestant(learned, x),
        "learned, last": in_last(learned, x),
        "frozen as PyTorch does it": Contestant(frozen, x),
        "fixed": Contestant(fixed, x),
        "fixed, last": in_last(fixed, x),
    }
    scores = xf.saliency(fixed, [torch.randn(4, 3, 128, 128) for _ in range(2)], kind="gradient")
    for share in SHARES[name]:
        pruned = copy.deepcopy(fixed)
        xf.channel_prune_(pruned, torch.randn(1, 3, 64, 64), scores, zero=share)
        loose = copy.deepcopy(pruned)
        xf.unfix_(loose)
        found[f"fixed, pruned {share:.0%}, last"] = in_last(pruned, x, share)
        found[f"learned, pruned {share:.0%}, last"] = in_last(loose, x, share)
    smallest = [key for key in found if key.startswith("fixed,")][-1]
    for label in dict.fromkeys(("fixed, last", smallest)):
        frugal = copy.deepcopy(found[label].network)
        make_frugal_(frugal)
        found[f"{label}, frugal"] = Contestant(frugal, found[label].x, found[label].zeroed)
    return found


def in_last(network: torch.nn.Module, x: torch.Tensor, zeroed: float = 0.0) -> Contestant:
    moved = copy.deepcopy(network).to(memory_format=LAST)
    return Contestant(moved, x.to(memory_format=LAST), zeroed)


def time_training(found: dict[str, Contestant], **options: float) -> Timing:
    return take_turns({name: training_step(c.network, c.x) for name, c in found.items()}, **options)


def time_inference(found: dict[str, Contestant]) -> Timing:
    def use(contestant: Contestant):
        network = copy.deepcopy(contestant.network).eval()

        @torch.no_grad()
        def run() -> None:
            network(contestant.x)

        return run

    return take_turns({name: use(contestant) for name, contestant in found.items()})


def measure(found: dict[str, Contestant]) -> pd.DataFrame:
    """A row for each contestant; the first column of times and bytes is a ratio to the first."""
    training, inference = time_training(found), time_inference(found)
    rows = []
    for name, contestant in found.items():
        network, x = contestant.network.train(), contestant.x
        rows.append(
            {
                "network": name,
                "zeroed": contestant.zeroed,
                "step": training.ratio(name),
                "seconds": training.seconds(name),
                "inference": inference.ratio(name),
                "kept": kept_for_backward(network, x),
                "peak": peak_bytes(contestant),
                "parameters": sum(p.numel() for p in network.parameters()),
                "multiply-adds": multiply_adds(contestant),
            }
        )
    return pd.DataFrame(rows).set_index("network")


def peak_bytes(contestant: Contestant) -> int:
    """The most that a step allocates at any moment, beyond what is there before it."""
    step = training_step(contestant.network, contestant.x)
    step()
    with silent(), torch.profiler.profile(profile_memory=True) as profile:
        step()
    held = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


@contextmanager
def silent():
    """Without what libraries write to stderr: the profiler talks much."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def multiply_adds(contestant: Contestant) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        contestant.network(contestant.x)
    return counter.get_total_flops() // 2 // len(contestant.x)


def as_text(rows: pd.DataFrame) -> pd.DataFrame:
    """The table as it is printed: ratios to the first row, sizes in millions."""
    first = rows.iloc[0]
    return pd.DataFrame(
        {
            "step": [str(ratio) for ratio in rows["step"]],
            "inference": [f"{ratio.middle:.2f}" for ratio in rows["inference"]],
            "kept": [f"{value / first['kept']:.2f}" for value in rows["kept"]],
            "peak": [f"{value / first['peak']:.2f}" for value in rows["peak"]],
            "MB": [f"{value / 1e6:.0f}" for value in rows["kept"]],
            "params": [f"{value / 1e6:.2f} M" for value in rows["parameters"]],
            "mult-adds": [f"{value / 1e9:.2f} G" for value in rows["multiply-adds"]],
        },
        index=rows.index,
    )


def race_families(x: torch.Tensor) -> pd.DataFrame:
    """Fixed against learned, in the same layout, one network of each family."""
    rows = []
    for name in FAMILIES:
        learned = xf.create_model(f"torchvision:{name}").train()
        fixed = copy.deepcopy(learned)
        xf.fix_(fixed, "ghaar", scale="fan_in")
        images = torch.randn(4, 3, 299, 299) if name == "inception_v3" else x  # its least size
        found = {"learned": Contestant(learned, images), "fixed": Contestant(fixed, images)}
        ratio = time_training(found, rounds=15).ratio("fixed")
        kept = [kept_for_backward(c.network, c.x) for c in found.values()]
        rows.append(
            (name, str(ratio), f"{kept[1] / kept[0]:.2f}", "no" if ratio.low <= 1 else "YES")
        )
        OUT.print(*rows[-1])
    columns = ["family's network", "step", "kept", "slower?"]
    return pd.DataFrame(rows, columns=columns).set_index(columns[0])


def keepers(found: dict[str, Contestant]) -> pd.DataFrame:
    """Who keeps memory in a fixed network, in percent of all: blocks by the operations that do."""
    table = {}
    for name in ("learned", "fixed"):
        blocks = find_kept(found[name].network, found[name].x)
        whole = sum(block.bytes for block in blocks)
        shares: dict[str, float] = {}
        for block in blocks:
            key = " and ".join(sorted(block.keepers))
            shares[key] = shares.get(key, 0) + 100 * block.bytes / whole
        table[name] = {key: round(share, 1) for key, share in shares.items() if share >= 0.5}
    return pd.DataFrame(table).fillna(0.0).sort_values("fixed", ascending=False)


def draw(tables: dict[str, pd.DataFrame], file: Path) -> None:
    """Time and memory against the share of parameters that pruning removed."""
    pruned = {name: rows for name, rows in tables.items() if rows["zeroed"].any()}
    figure, axes = plt.subplots(2, len(pruned), figsize=(2.6 * len(pruned), 4.6), sharey="row",
                                squeeze=False, layout="constrained")  # fmt: skip
    for column, (name, rows) in enumerate(pruned.items()):
        first = rows.iloc[0]
        for kind, colour in (("learned", "#888888"), ("fixed", "#0b7a75")):
            line = rows[rows.index.str.fullmatch(rf"{kind}(, pruned \d+%)?, last")]
            removed = 100 * (1 - line["parameters"] / first["parameters"])
            step = [ratio.middle for ratio in line["step"]]
            axes[0, column].plot(removed, step, "o-", color=colour, label=kind, markersize=4)
            kept = line["kept"] / first["kept"]
            axes[1, column].plot(removed, kept, "o-", color=colour, markersize=4)
        axes[0, column].set_title(name, fontsize=10)
        axes[1, column].set_xlabel("% of parameters removed", fontsize=9)
        for axis in axes[:, column]:
            axis.axhline(1, color="#cccccc", linewidth=1)
            axis.set_ylim(0, 1.05)
            axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("time of a step", fontsize=9)
    axes[1, 0].set_ylabel("kept for backward", fontsize=9)
    axes[0, 0].legend(frameon=False, fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


def show(title: str, table: pd.DataFrame) -> None:
    shown = Table(title, box=None, pad_edge=False, header_style="bold")
    for heading in table.columns:
        shown.add_column(heading, justify="right", no_wrap=True)
    for name, *cells in table.itertuples():
        shown.add_row(str(name), *map(str, cells))
    OUT.print(shown)
    OUT.print()


def markdown(table: pd.DataFrame) -> str:
    heads = [table.index.name or "", *table.columns]
    lines = [heads, ["---", *["---:"] * len(table.columns)]]
    lines += [[name, *cells] for name, *cells in table.itertuples()]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def machine() -> str:
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.processor(),
    ) if Path("/proc/cpuinfo").exists() else platform.processor()  # fmt: skip
    return f"{torch.get_num_threads()} threads of {cpu}, torch {torch.__version__}"


def main(arguments: list[str]) -> None:
    folder = None
    if "--write" in arguments:
        place = arguments.index("--write")
        folder = Path(arguments[place + 1])
        arguments = arguments[:place] + arguments[place + 2 :]
    torch.manual_seed(0)
    keep_kernels(50_000)
    x = torch.randn(4, 3, 224, 224)
    text = [f"Measured on {date.today():%-d %B %Y}, {machine()}.\n"]
    tables = {}
    for name in arguments or SHARES:
        found = contestants(name, x)
        tables[name] = measure(found)
        printed = as_text(tables[name])
        show(name, printed)
        base = f"{tables[name]['seconds'].iloc[0]:.2f} s a step, learned."
        OUT.print(base, "\n")
        who = keepers(found)
        who.index.name = f"{name}: % of what is kept"
        show(who.index.name, who)
        text += [f"## {name}\n", f"{base}\n", markdown(printed), "", markdown(who), ""]
    if not arguments:
        families = race_families(x)
        show("families", families)
        text += ["## Every family\n", markdown(families), ""]
    if folder is not None:
        draw(tables, folder / "benchmarks" / "pruned.png")
        page = folder / "benchmarks.md"
        page.write_text(page.read_text().partition(MARK)[0] + "\n".join([MARK, "", *text]))


if __name__ == "__main__":
    main(sys.argv[1:])
