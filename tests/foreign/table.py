"""The results as a part of the docs page, and in a few lines."""

import statistics
from collections import Counter
from importlib.metadata import version
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "pruned-networks.md"
HEAD = """# Pruned networks

{networks:,} networks as other packages build them, with random weights: 30% of the output channels,
30% of the input channels and half of the remaining kernels of every spatial layer are zeroed, as
far as a network has them, and BatchNorm gets random shifts, the statistics of activations, and
means that moved a little since. Then `prune_`, constants kept: {exact:,} are exact, {refused:,}
are refused with a reason, {wrong:,} are wrong. The pruned network is compared with the zeroed one
on inputs that `prune_` never saw, of another batch size and, where the network takes it, another
image size, over every floating tensor it gives: at most 1e-6 of how much the output varies from
image to image in float64, and 1e-3 in float32 where a network does not run in float64 (marked f32).
Where the report says so, it is compared in training as well.

Torch-Pruning gets the same zeroed network, the share of zero channels of every layer, and is told
to remove the smallest first. It is made to be followed by training, not to leave the output as it
is. "Equal" is by the same measure; it "runs" if the network still does. It has 20 seconds for each
on a machine with other work to do. It is version {pruning} on PyTorch {torch}, which is newer than
any that it names: some of its failures may be of that pairing.

*Written by `python tests/foreign.py --write docs`.*
"""
TITLES = {
    "torchvision": "torchvision",
    "timm": "timm",
    "smp": "segmentation_models_pytorch",
    "monai": "MONAI",
    "nnunet": "dynamic-network-architectures (nnU-Net)",
    "transformers": "transformers",
    "pytorchcv": "pytorchcv",
    "diffusers": "diffusers",
    "ultralytics": "Ultralytics",
}


def share(row):
    """How much of a network went."""
    return row.get("removed", 0) / row["parameters"] if row.get("parameters") else 0.0


def of_source(rows, source):
    return [row for name, row in rows.items() if name.partition(":")[0] == source]


def counted(rows):
    """What became of networks, and of those that Torch-Pruning got."""
    status = Counter(row["status"] for row in rows)
    verdicts = Counter(row["rival"]["verdict"] for row in rows if "rival" in row)
    removed = [share(row) for row in rows if row["status"] == "exact"]
    return {
        "networks": len(rows),
        "exact": status["exact"],
        "refused": status["refused"],
        "wrong": status["wrong"],
        "failed": status["crash"] + status["too slow"],
        "removed": f"{statistics.median(removed):.1%}" if removed else "–",
        "TP tried": verdicts.total(),
        "TP runs": verdicts["equal"] + verdicts["differs"],
        "TP equal": verdicts["equal"],
        "TP too slow": sum("TooLong" in row.get("rival", {}).get("reason", "") for row in rows),
    }


def fit(rows):
    """Networks that do run by themselves: the others say nothing about pruning."""
    return {name: row for name, row in rows.items() if row["status"] != "broken"}


def summary(rows, sources):
    """A line per source, for the end of a run."""
    lines = []
    for source in sources:
        if mine := of_source(rows, source):
            counts = {**counted(mine), "broken": sum(row["status"] == "broken" for row in mine)}
            lines.append(
                f"{source:14}" + "  ".join(f"{key} {value}" for key, value in counts.items())
            )
    return "\n".join(lines)


def line(name, row):
    """A row of the table: a network, what became of it, and Torch-Pruning."""
    result = row["status"]
    if result == "exact":
        result = f"{row['difference']:.0e}" if row["difference"] else "0"
        result += ", also in training" if row.get("difference in training") is not None else ""
        result += " (output hardly varies)" if row["silent"] else ""
    elif row["reason"]:
        result = f"**{result}**: {row['reason']}"
    rival = row.get("rival", {"verdict": "not tried", "reason": ""})
    theirs = rival["verdict"]
    if "TooLong" in rival["reason"]:
        theirs = rival["reason"].partition(": ")[2]
    if theirs == "differs":
        theirs += f" by {rival['difference']:.0e}"
    if theirs == "equal" and not rival["removed"]:
        theirs = "removes nothing"
    single = " (f32)" if row.get("dtype") == "float32" else ""
    removed = f"{share(row):.1%}" if row.get("removed") else "–"
    cells = [
        f"{name.partition(':')[2]}{single}",
        f"{row.get('parameters', 0) / 1e6:.2f}",
        removed,
        result,
        f"{row.get('seconds', 0):.1f}",
        theirs,
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def write(rows, names):
    """Write the page; gives a sentence about it."""
    rows = fit({name: rows[name] for name in names if name in rows})
    total = counted(list(rows.values()))
    columns = list(total)
    parts = [
        HEAD.format(**total, pruning=version("torch-pruning"), torch=version("torch")),
        "| package | " + " | ".join(columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for source, title in TITLES.items():
        if mine := of_source(rows, source):
            parts.append(
                f"| {title} | " + " | ".join(str(v) for v in counted(mine).values()) + " |"
            )
    parts.append("| all | " + " | ".join(str(value) for value in total.values()) + " |")
    for source, title in TITLES.items():
        if mine := of_source(rows, source):
            parts += [
                "",
                f"## {title}",
                "",
                "| network | million parameters | removed | difference | seconds | Torch-Pruning |",
                "|---|---:|---:|---|---:|---|",
            ]
            parts += [line(row["name"], row) for row in sorted(mine, key=lambda row: row["name"])]
    PAGE.write_text("\n".join(parts) + "\n")
    packages = {name.partition(":")[0] for name in rows}
    return (
        f"{total['networks']} networks of {len(packages)} packages: "
        f"{total['exact']} exact, {total['refused']} refused, {total['wrong']} wrong, "
        f"{total['failed']} failed; Torch-Pruning runs on {total['TP runs']} "
        f"of {total['TP tried']}, "
        f"equal on {total['TP equal']}."
    )
