"""Training and using networks in every form and setting: time and memory, as ratios.

    python benchmarks/training.py [--write FOLDER] [NETWORK ...]

Forms: learned, fixed by GHaar, frugal, mixed, steered, pruned. Settings: float32 or bf16 by
autocast, in PyTorch's usual layout or channels last; bf16 in channels last also compiled, which
takes a minute or three for each form. A step is forward, backward and Adam, batch 4 at 224 px (the
plain U-Net: 10 at 128). For each setting the forms of a network take turns in one process, with
PyTorch as it comes among them (learned, float32, usual layout, its own loop of Adam), in a new
order every round, until the ratios' 95% intervals are narrow or time is up. Two ratios are given:
to PyTorch as it comes, and to the learned network in the same setting. `kept` counts the tensors
kept for the backward pass, as a share of those of PyTorch as it comes. Without NETWORK also
`families`: one network of every family of torchvision, fixed against learned. --write keeps the
numbers in training.json beside this file, and puts tables of all that is there between the marks of
FOLDER/benchmarks.md, and a plot beside it.
"""

import argparse
import copy
import json
import platform
from dataclasses import asdict, dataclass
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
from explainfix.backward.saved import kept_for_backward
from explainfix.lab.measure.timing import Ratio, take_turns, time_training, training_step
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

    def order(self, form: str) -> int:
        return self.all_forms.index(form)


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
PRECISIONS = {"float32": "32-true", "bf16": "bf16-mixed"}
SETTINGS = {
    f"{name}{', last' * last}": Settings(channels_last=last, precision=precision)
    for (name, precision), last in product(PRECISIONS.items(), (False, True))
}
COMPILED = "compiled"  # in bf16 and channels last
SETTINGS[COMPILED] = SETTINGS["bf16, last"]
BASELINE = "PyTorch as it comes"
FAMILY = "families"
RECORD = Path(__file__).with_name("training.json")
PATIENCE = {"rounds": 25, "narrow": 0.03, "seconds": 40.0, "least": 6}
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
    plain = copy.deepcopy(make(name, "learned"))
    baseline = training_step(plain, x, optimizer=torch.optim.Adam(plain.parameters(), 1e-4))
    first = kept_for_backward(plain, x)
    rows = []
    for setting in SETTINGS:
        compiled = setting == COMPILED
        ways = {
            form: Way(make(name, form), x, as_settings(form, setting), compiled=compiled)
            for form in network.all_forms
            if not (compiled and form == FRUGAL)  # the compiler decides what is kept
        }
        for way in ways.values() if compiled else ():
            way.step()  # compiles, which is not to be raced
        training = take_turns(
            {BASELINE: baseline} | {form: way.step for form, way in ways.items()}, **PATIENCE
        )
        inference = None if compiled else take_turns(
            {BASELINE: use(Way(plain, x, SETTINGS["float32"]))}
            | {form: use(way) for form, way in ways.items()},
            **PATIENCE,
        )  # fmt: skip
        rows += [
            {
                "network": name,
                "form": form,
                "setting": setting,
                "step": training.ratio(form),
                "to learned": training.ratio(form, "learned"),
                "inference": inference and inference.ratio(form).middle,
                "kept": None if compiled else way.kept_bytes() / first,
                "params": sum(p.numel() for p in way.network.parameters()) / 1e6,
                "mult-adds": multiply_adds(way) / 1e9,
                "seconds": training.seconds(BASELINE),
            }
            for form, way in ways.items()
        ]
    return pd.DataFrame(rows).sort_values(
        "form", key=lambda forms: forms.map(network.order), kind="stable"
    )


def use(way: Way):
    """A function that runs a network in its setting."""
    network = copy.deepcopy(way.network).eval()
    enabled, dtype = way.autocast is not None, way.autocast or torch.bfloat16

    @torch.no_grad()
    def run() -> None:
        with torch.autocast("cpu", dtype, enabled=enabled):
            network(way.x)

    return run


def multiply_adds(way: Way) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        way.network(way.x)
    return counter.get_total_flops() // 2 // len(way.x)


def as_text(rows: pd.DataFrame) -> pd.DataFrame:
    """The table of a network as it is printed."""
    return pd.DataFrame(
        {
            "setting": list(rows["setting"]),
            "step": list(map(str, rows["step"])),
            "to learned": list(map(str, rows["to learned"])),
            "inference": shares(rows["inference"]),
            "kept": shares(rows["kept"]),
            "params": [f"{value:.2f} M" for value in rows["params"]],
            "mult-adds": [f"{value:.2f} G" for value in rows["mult-adds"]],
        },
        index=pd.Index(rows["form"], name=rows["network"].iloc[0]),
    )


def shares(values: pd.Series) -> list[str]:
    return ["–" if pd.isna(value) else f"{value:.2f}" for value in values]


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
            "kept": shares(best["kept"]),
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
            {"learned": learned, "fixed": fixed}, torch.randn(4, 3, size, size), rounds=15
        ).ratio("fixed")
        rows.append((name, str(ratio), "no" if ratio.low <= 1 else "YES"))
        OUT.print(*rows[-1])
    return pd.DataFrame(rows, columns=["family's network", "step, fixed to learned", "slower?"])


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


def write(record: dict[str, dict], folder: Path) -> None:
    """Put what is known of all networks into the page, and a plot beside it."""
    tables, text = [], []
    for name, found in ((name, record[name]) for name in (*NETWORKS, FAMILY) if name in record):
        rows = pd.DataFrame(found["rows"])
        said = f"Measured on {found['measured']}"
        if name == FAMILY:
            text += [
                "## Every family\n",
                f"{said}.\n",
                markdown(rows.set_index(rows.columns[0])),
                "",
            ]
            continue
        for column in ("step", "to learned"):
            rows[column] = [Ratio(**ratio) for ratio in rows[column]]
        tables.append(rows)
        seconds = f"{rows['seconds'].median():.2f} s a step of PyTorch as it comes"
        text += [f"## {name}\n", f"{said}; {seconds}.\n", markdown(as_text(rows)), ""]
    every = pd.concat(tables, ignore_index=True)
    draw(every, folder / "benchmarks" / "steps.png")
    page = folder / "benchmarks.md"
    before, _, rest = page.read_text().partition(MARK)[0].partition(LEAD)
    top = "\n\n".join([LEAD, markdown(lead(every)), LEAD_ENDS])
    page.write_text(before + top + rest.partition(LEAD_ENDS)[2] + "\n".join([MARK, "", *text]))


def show(table: pd.DataFrame) -> None:
    """In 80 columns: what a form has in parameters and operations is for the page alone."""
    table = table.drop(columns=["params", "mult-adds"], errors="ignore")
    shown = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    shown.add_column(str(table.index.name), no_wrap=True)
    for heading in table.columns:
        ratio = heading.startswith(("step", "to "))
        shown.add_column(heading, justify="right", min_width=16 if ratio else None)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    everything = [*NETWORKS, FAMILY]
    asked = given.networks or everything
    if others := set(asked) - set(everything):
        parser.error(f"no {', '.join(others)}: choose from {', '.join(everything)}")
    prepare_process()
    keep_kernels(50_000)
    record = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    for name in asked:
        table = race_families() if name == FAMILY else measure(name)
        show(table.set_index(table.columns[0]) if name == FAMILY else as_text(table))
        known = table.astype(object).where(table.notna(), None)
        rows = json.loads(json.dumps(known.to_dict("records"), default=asdict))
        record[name] = {"measured": f"{date.today():%-d %B %Y}, {machine()}", "rows": rows}
        make.cache_clear()
        if given.write is not None:
            RECORD.write_text(json.dumps(record, indent=1) + "\n")
    if given.write is not None:
        write(record, given.write)


if __name__ == "__main__":
    main()
