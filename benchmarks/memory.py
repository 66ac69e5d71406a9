"""What a forward pass holds for the backward pass: counted, and as the system sees it.

    python benchmarks/memory.py [NETWORK ...]

The networks of training.py, learned, fixed and frugal, channels last, in float32 and bf16. `kept`
counts the bytes of the tensors that autograd keeps; `held` is by how much a process grows in a
forward pass, when gradients and the state of the optimizer are there already and memory that is
freed goes back at once, each in a process of its own. Both as shares of PyTorch as it comes:
learned, in float32, with nothing done by explainfix. Needs Linux with glibc.
"""

import ctypes
import multiprocessing
import sys
from itertools import product
from pathlib import Path

import pandas as pd
import torch

from explainfix.backward.recompute import undo_frugal_
from explainfix.lab.measure.ways import Way
from training import BASELINE, FRUGAL, NETWORKS, as_settings, make, markdown

FORMS = tuple(product(("float32, last", "bf16, last"), ("learned", "fixed", FRUGAL)))
KEYS = (("float32", BASELINE), *FORMS)
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # of malloc.h


def bytes_of(name: str, setting: str, form: str) -> tuple[int, int]:
    """What is kept, and what is held."""
    mallopt = ctypes.CDLL("libc.so.6").mallopt
    mallopt(MMAP_THRESHOLD, 65536)
    mallopt(TRIM_THRESHOLD, 0)
    model = make(name, "learned" if form == BASELINE else form)
    way = Way(model, torch.randn(NETWORKS[name].shape), as_settings(form, setting))
    if form == BASELINE:
        undo_frugal_(way.network)
    way.step()
    kept, before = way.kept_bytes(), resident_bytes()
    with torch.autocast("cpu", torch.bfloat16, enabled=way.autocast is not None):
        output = way.network(way.x)
    held = resident_bytes() - before
    return kept, held if output.requires_grad else 0


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main(names: list[str]) -> None:
    rows = []
    for name in names or NETWORKS:
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            found = pool.starmap(bytes_of, [(name, *key) for key in KEYS], chunksize=1)
        first = found[0]
        for (setting, form), (kept, held) in zip(KEYS, found, strict=True):
            shares = (f"{kept / first[0]:.2f}", f"{held / first[1]:.2f}", f"{held / 1e6:.0f}")
            rows.append((name, form, setting, *shares))
    table = pd.DataFrame(rows, columns=["network", "form", "setting", "kept", "held", "MB held"])
    print(markdown(table.set_index("network")))


if __name__ == "__main__":
    main(sys.argv[1:])
