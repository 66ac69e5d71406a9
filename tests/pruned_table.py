"""The table of pruned networks in the docs, written by a run of all of them."""

import json
import shutil
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "pruned-networks.md"
HEAD = """# Pruned networks

One network of each family, each untrained: 30% of the output channels, 30% of the input channels
and half of the remaining kernels of every spatial layer zeroed, BatchNorm with random shifts, with
the statistics of activations, and with means that moved a little since. Then `prune_`, constants
kept. In float64 the pruned network differs from the zeroed one by at most 1e-6 of how much the
output varies with the image: in evaluation for all, at a second image size too where the network
takes one; in training for those marked so (in the others some removed constant has another value
in training, and the report says that the pruned network is for evaluation). Time is on one thread.

*Written by the test-suite: tests/prune/test_every_network.py.*

| network | parameters | removed | constants folded | exact in training | seconds |
|---|---:|---:|---:|:-:|---:|
"""

FOREIGN = "## Networks of other packages"  # from here on tests/foreign.py writes


def kept(page):
    """A page as the part that is written here, and the part from the heading on."""
    before, heading, after = page.partition(FOREIGN)
    return (before if heading or not before else before.rstrip("\n") + "\n\n"), heading + after


def wanted(config):
    """Whether this is the process that gathers the rows, and has a folder for them."""
    return not hasattr(config, "workerinput") and hasattr(config, "cache")


def rows_folder(config):
    return Path(config.cache.mkdir("pruned_networks"))


def clear(config):
    shutil.rmtree(rows_folder(config))


def add(config, name, row):
    if not hasattr(config, "cache"):
        return
    file = rows_folder(config) / (name.replace("/", "_").replace(":", "_") + ".json")
    file.write_text(json.dumps({"name": name, **row}))


def write(config, expected):
    """Write the page if every network was run and something other than the time has changed."""
    rows = [json.loads(file.read_text()) for file in sorted(rows_folder(config).glob("*.json"))]
    if len(rows) < expected:
        return
    lines = []
    for row in rows:
        removed = f"{row['removed'] / row['parameters']:.1%}" if row["removed"] else "–"
        name = row["name"] + (f" ({row['why']})" if row["why"] else "")
        training = "yes" if row["training"] else ""
        lines.append(
            f"| {name} | {row['parameters']:,} | {removed} | {row['folded']:,} | {training} "
            f"| {row['seconds']:.1f} |"
        )
    old, foreign = kept(PAGE.read_text() if PAGE.exists() else "")
    new = HEAD + "\n".join(lines) + "\n"
    if _untimed(new) != _untimed(old.rstrip("\n")):
        PAGE.write_text(new + ("\n" + foreign if foreign else ""))


def _untimed(text):
    return [line.rpartition("|")[0].rpartition("|")[0] for line in text.splitlines()]
