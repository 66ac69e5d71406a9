"""Training and using networks in every form and setting: time and memory, as ratios.

    python benchmarks/training.py [--write FOLDER] [NETWORK ...]

Forms: learned, fixed by GHaar, frugal, mixed, steered, pruned. Settings: float32 or bf16 by
autocast, in PyTorch's usual layout or channels last. A step is forward, backward and Adam, batch 4
at 224 px (the plain U-Net: 10 at 128). All contestants of a network take turns in one process, in a
new order every round, until the ratios' 95% intervals are narrow or for ROUNDS rounds. Two ratios
are given: to PyTorch as it comes (learned, float32, usual layout, its own loop of Adam), and to the
learned network in the same precision and layout. `kept` counts the tensors kept for the backward
pass, `held` is what the system says that a forward pass holds, in a process of its own, for those
forms that are about memory; both are shares of what the learned network in float32 has. Without
NETWORK also one network of every family of torchvision, fixed against learned. --write puts the
tables between the marks of FOLDER/benchmarks.md, and a plot beside it.
"""

import copy
import ctypes
import multiprocessing
import platform
import sys
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import torch
from rich.console import Console
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode

import explainfix as xf
from explainfix.lab.measure.timing import Timing, take_turns, time_training, training_step
from explainfix.lab.measure.ways import Settings, Way
from explainfix.lab.run.process import keep_kernels, prepare_process


@dataclass(frozen=True)
class Network:
    """A network, its batch, and what is made of it beside learned, fixed and frugal.

    `pruned` is the share of spatial kernels zeroed before pruning: the paper's.
    """

    spec: str
    forms: tuple[str, ...] = ()
    pruned: float = 0.0
    shape: tuple[int, ...] = (4, 3, 224, 224)

    @property
    def all_forms(self) -> tuple[str, ...]:
        pruned = (f"fixed, pruned {self.pruned:.0%}",) if self.pruned else ()
        return ("learned", "fixed", FRUGAL, *self.forms, *pruned)


NETWORKS = {
    "resnet50": Network("torchvision:resnet50", ("steered",), 0.99),
    "densenet121": Network("torchvision:densenet121", (), 0.9),
    "efficientnet_b0": Network("torchvision:efficientnet_b0", (), 0.85),
    "mobilenet_v2": Network("torchvision:mobilenet_v2", (), 0.85),
    "unetd": Network("unetd"),
    "resnet18": Network("torchvision:resnet18", ("mixed", "steered")),
    "plain U-Net": Network(
        f"{Path(__file__).with_name('plain_unet.py')}:unet", ("mixed", "steered"),
        shape=(10, 3, 128, 128),
    ),
}  # fmt: skip
FAMILIES = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet",
    "inception_v3", "maxvit_t", "mnasnet1_0", "mobilenet_v2", "mobilenet_v3_small",
    "regnet_y_400mf", "resnet18", "resnext50_32x4d", "shufflenet_v2_x1_0", "squeezenet1_1",
    "swin_t", "vgg11_bn", "vit_b_16", "wide_resnet50_2",
)  # fmt: skip
FRUGAL = "fixed, frugal"
HELD = tuple(product(("learned", "fixed", FRUGAL), ("float32, last", "bf16, last")))
PRECISIONS = {"float32": "32-true", "bf16": "bf16-mixed"}
SETTINGS = {
    f"{name}{', last' * last}": Settings(channels_last=last, precision=precision)
    for (name, precision), last in product(PRECISIONS.items(), (False, True))
}
BASELINE = "PyTorch as it comes"
ROUNDS, NARROW = 11, 0.03
LEAD, LEAD_ENDS, MARK = "<!-- all at their fastest -->", "<!-- so far -->", "<!-- the last run -->"
OUT = Console(highlight=False)


@cache
def make(name: str, form: str) -> torch.nn.Module:
    """A network in a form, the same whenever it is asked for."""
    network = NETWORKS[name]
    if form == "learned":
        torch.manual_seed(0)
        return xf.create_model(network.spec).train()
    model = copy.deepcopy(make(name, "learned"))
    if form == "steered":
        xf.steer_(model, "ghaar", filters=1)
        return model
    xf.fix_(model, "ghaar", scale="fan_in", mix=form == "mixed")
    if "pruned" in form:
        batches = [torch.randn(4, 3, 128, 128) for _ in range(2)]
        scores = xf.saliency(model, batches, kind="gradient")
        xf.channel_prune_(model, torch.randn(1, 3, 64, 64), scores, zero=network.pruned)
    return model


def as_settings(form: str, setting: str) -> Settings:
    chosen = SETTINGS[setting]
    return Settings(chosen.channels_last, chosen.precision, frugal=form == FRUGAL)


def measure(name: str) -> pd.DataFrame:
    """A row for each form and setting; ratios are to the baseline and to the learned network."""
    network = NETWORKS[name]
    x = torch.randn(network.shape)
    ways = {
        (form, setting): Way(make(name, form), x, as_settings(form, setting))
        for form, setting in product(network.all_forms, SETTINGS)
    }
    plain = copy.deepcopy(make(name, "learned"))
    steps = {
        BASELINE: training_step(plain, x, optimizer=torch.optim.Adam(plain.parameters(), 1e-4))
    }
    steps |= {str(key): way.step for key, way in ways.items()}
    training = take_turns(steps, rounds=ROUNDS, narrow=NARROW)
    inference = time_inference(ways)
    first = ways["learned", "float32"].kept_bytes()
    held = measure_held(name)
    rows = []
    for (form, setting), way in ways.items():
        key, same = str((form, setting)), str(("learned", setting))
        rows.append(
            {
                "network": name,
                "form": form,
                "setting": setting,
                "step": training.ratio(key),
                "to learned": training.ratio(key, same),
                "inference": inference.ratio(key, str(("learned", "float32"))).middle,
                "kept": way.kept_bytes() / first,
                "held": held.get((form, setting), 0) / held[HELD[0]],
                "params": sum(p.numel() for p in way.network.parameters()) / 1e6,
                "mult-adds": multiply_adds(way) / 1e9,
            }
        )
    return pd.DataFrame(rows).assign(seconds=training.seconds(BASELINE))


def time_inference(ways: dict[tuple[str, str], Way]) -> Timing:
    def use(way: Way):
        network = copy.deepcopy(way.network).eval()
        enabled, dtype = way.autocast is not None, way.autocast or torch.bfloat16

        @torch.no_grad()
        def run() -> None:
            with torch.autocast("cpu", dtype, enabled=enabled):
                network(way.x)

        return run

    return take_turns(
        {str(key): use(way) for key, way in ways.items()}, rounds=ROUNDS, narrow=NARROW
    )


def multiply_adds(way: Way) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        way.network(way.x)
    return counter.get_total_flops() // 2 // len(way.x)


def measure_held(name: str) -> dict[tuple[str, str], int]:
    """What the system says a forward pass holds, by form and setting."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        found = pool.starmap(_held, [(name, *key) for key in HELD], chunksize=1)
    return dict(zip(HELD, found, strict=True))


def _held(name: str, form: str, setting: str) -> int:
    """In a process of its own, where freed memory goes back at once: the growth of what it has."""
    mallopt = ctypes.CDLL("libc.so.6").mallopt
    mallopt(-3, 65536), mallopt(-1, 0)  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
    x = torch.randn(NETWORKS[name].shape)
    way = Way(make(name, form), x, as_settings(form, setting))
    way.step()  # gradients and the optimizer's state are there
    enabled, dtype = way.autocast is not None, way.autocast or torch.bfloat16
    before = resident_bytes()
    with torch.autocast("cpu", dtype, enabled=enabled):
        output = way.network(way.x)
    return resident_bytes() - before if output is not None else 0


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def as_text(rows: pd.DataFrame) -> pd.DataFrame:
    """The table of a network as it is printed."""
    return pd.DataFrame(
        {
            "setting": list(rows["setting"]),
            "step": list(map(str, rows["step"])),
            "to learned": list(map(str, rows["to learned"])),
            "inference": [f"{value:.2f}" for value in rows["inference"]],
            "kept": [f"{value:.2f}" for value in rows["kept"]],
            "held": [f"{value:.2f}" if value else "" for value in rows["held"]],
            "params": [f"{value:.2f} M" for value in rows["params"]],
            "mult-adds": [f"{value:.2f} G" for value in rows["mult-adds"]],
        },
        index=pd.Index(rows["form"], name=rows["network"].iloc[0]),
    )


def lead(every: pd.DataFrame) -> pd.DataFrame:
    """Each form of each network in the setting that is fastest for it."""
    middle = every["step"].map(lambda ratio: ratio.middle)
    best = every.loc[middle.groupby([every["network"], every["form"]], sort=False).idxmin()]
    return pd.DataFrame(
        {
            "form": list(best["form"]),
            "fastest setting": list(best["setting"]),
            "to PyTorch as it comes": list(map(str, best["step"])),
            "to learned, same setting": list(map(str, best["to learned"])),
            "kept": [f"{value:.2f}" for value in best["kept"]],
            "params": [f"{value:.2f} M" for value in best["params"]],
        },
        index=pd.Index(best["network"], name="network"),
    )


def race_families() -> pd.DataFrame:
    """Fixed against learned, in the same setting, one network of each family."""
    rows = []
    for name in FAMILIES:
        learned = xf.create_model(f"torchvision:{name}").train()
        fixed = copy.deepcopy(learned)
        xf.fix_(fixed, "ghaar", scale="fan_in")
        size = 299 if name == "inception_v3" else 224  # its least size
        ratio = time_training(
            {"learned": learned, "fixed": fixed}, torch.randn(4, 3, size, size), rounds=ROUNDS
        ).ratio("fixed")
        rows.append((name, str(ratio), "no" if ratio.low <= 1 else "YES"))
        OUT.print(*rows[-1])
    columns = ["family's network", "step, fixed to learned", "slower?"]
    return pd.DataFrame(rows, columns=columns).set_index(columns[0])


def draw(every: pd.DataFrame, file: Path) -> None:
    """Every form of every network at its fastest, against PyTorch as it comes."""
    middle = every["step"].map(lambda ratio: ratio.middle)
    best = middle.groupby([every["network"], every["form"].str.replace(r" \d+%", "", regex=True)])
    table = best.min().unstack().reindex(list(dict.fromkeys(every["network"])))
    colours = {"learned": "#888888", "fixed": "#0b7a75", "mixed": "#c77d0a", "steered": "#7a3b8f",
               "fixed, pruned": "#b3261e"}  # fmt: skip
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    for form, colour in colours.items():
        if form in table:
            axes.plot(table[form], range(len(table)), "o", color=colour, label=form, markersize=7)
    axes.axvline(1, color="#cccccc", linewidth=1)
    axes.set_yticks(range(len(table)), table.index)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.05)
    axes.set_xlabel("a training step in the fastest setting; 1 is PyTorch as it comes, learned")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#eeeeee")
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


def show(table: pd.DataFrame) -> None:
    shown = Table(str(table.index.name), box=None, pad_edge=False, header_style="bold")
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
    prepare_process()
    keep_kernels(50_000)
    tables = []
    for name in arguments or NETWORKS:
        tables.append(measure(name))
        show(as_text(tables[-1]))
        make.cache_clear()
    every = pd.concat(tables, ignore_index=True)
    leading = lead(every)
    show(leading)
    measured = f"Measured on {date.today():%-d %B %Y}, {machine()}."
    text = [f"{measured}\n"]
    for table in tables:
        seconds = f"{table['seconds'].iloc[0]:.2f} s a step of PyTorch as it comes.\n"
        text += [f"## {table['network'].iloc[0]}\n", seconds, markdown(as_text(table)), ""]
    if not arguments:
        families = race_families()
        show(families)
        text += ["## Every family\n", markdown(families), ""]
    if folder is not None:
        draw(every, folder / "benchmarks" / "steps.png")
        page = folder / "benchmarks.md"
        before, _, rest = page.read_text().partition(MARK)[0].partition(LEAD)
        after = rest.partition(LEAD_ENDS)[2]
        top = "\n\n".join([LEAD, measured, markdown(leading), LEAD_ENDS])
        page.write_text(before + top + after + "\n".join([MARK, "", *text]))


if __name__ == "__main__":
    main(sys.argv[1:])
