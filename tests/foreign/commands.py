"""python tests/foreign.py: prune the networks of other packages, and write down what came of it.

Needs tests/foreign-requirements.txt. A run that was stopped goes on where it was.
"""

import argparse
import fnmatch
import json
import os
import tempfile
from pathlib import Path

from . import pool, table
from .sources import SOURCES, names

OFFLINE = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "YOLO_AUTOINSTALL": "false",
    "YOLO_CONFIG_DIR": tempfile.gettempdir(), "YOLO_VERBOSE": "false", "OMP_NUM_THREADS": "1",
}  # fmt: skip


def matches(name, pattern):
    return pattern in name or fnmatch.fnmatch(name, pattern)


def load(file):
    """Results by name; a later line replaces an earlier one."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def line(row):
    """One network on one line."""
    share = row.get("removed", 0) / max(row.get("parameters", 1), 1)
    rival = row.get("rival", {})
    theirs = rival.get("verdict", "-")
    if rival.get("removed"):
        theirs += f" {rival['removed'] / row['parameters']:.1%}"
    return (
        f"{row['name']:60} {row['status']:8} {row.get('difference', float('nan')):8.1e} "
        f"{share:6.1%} {row.get('seconds', 0):6.1f} s  {theirs:20} {row['reason'][:100]}"
        + (" (silent)" if row.get("silent") else "")
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path("foreign-results"))
    parser.add_argument("--only", metavar="PATTERN", default="", help="of the names")
    parser.add_argument(
        "--again", metavar="PATTERN", help="names, or a result, to run though they were run"
    )
    parser.add_argument("--list", action="store_true", help="the names alone")
    parser.add_argument("--alone", action="store_true", help="leave Torch-Pruning out")
    parser.add_argument("--write", choices=["docs"], help="put the results into the docs page")
    options = parser.parse_args()
    os.environ.update(OFFLINE)
    file = options.results / "networks.jsonl"
    if options.write:
        print(table.write(load(file), names()))
        return
    wanted = [name for name in names(options.only) if matches(name, options.only)]
    if options.list:
        print("\n".join(wanted))
        return
    options.results.mkdir(exist_ok=True, parents=True)
    known = load(file)
    if options.again is not None:
        known = {
            name: row
            for name, row in known.items()
            if not matches(name, options.again) and row["status"] != options.again
        }
    todo = [name for name in wanted if name not in known]
    log = options.results / "workers.log"
    for done, row in enumerate(
        pool.check_all(todo, options.workers, log, alone=options.alone), start=1
    ):
        with file.open("a") as results:
            results.write(json.dumps(row) + "\n")
        print(f"{done:4}/{len(todo)} {line(row)}", flush=True)
    print(table.summary({name: row for name, row in load(file).items() if name in wanted}, SOURCES))
