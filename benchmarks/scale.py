"""What a large dataset and a large sweep cost, apart from the training itself.

    python benchmarks/scale.py chexpert [--folder FOLDER] [--rows N]
    python benchmarks/scale.py sweep [--folder FOLDER] [--trials N] [--kill SHARE]

`chexpert` makes a folder as large as CheXpert, 223,415 rows of tiny images, once; then a fresh
process opens it and trains, with all that training does first, up to the first step. That is done
twice: as if downloaded just now, and again.
`sweep` does trials that hardly compute on a Ray cluster of this machine. A share of them kill their
worker as their second epoch begins, once each. Counted are the steps of every trial: four, two
before it was killed and two after, unless something was lost or done twice.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import torch
from PIL import Image
from torch import nn

from explainfix.lab.run.config import RunConfig
from explainfix.lab.sweep.sweep import Workers, sweep

ROWS = 223_415  # of CheXpert's train.csv
PER_PATIENT = 3
FINDINGS = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")
LOG, KILL, KILLED = "steps.log", "kill.json", "killed"
LOCAL = Workers(engine="ray", cpus=1, address="local")  # none that somebody else started here

FIRST_STEP = """
import json, resource, sys, time
began = time.perf_counter()
from explainfix.lab.data.dataset import open_dataset
from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.train import train
imported = time.perf_counter()
memory = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = memory()
spec = "chexpert:" + sys.argv[1]
data = open_dataset(spec, crop=32)
opened, held = time.perf_counter(), memory() - before
def stop(moment):
    now = time.perf_counter()
    print(json.dumps({"import s": imported - began, "open s": opened - imported, "open MB": held,
                      "first step s": now - opened, "train": len(data.split("train"))}))
    raise SystemExit
train(RunConfig(model="torchvision:resnet18", data=spec, data_options={"crop": 32},
                accelerator="cpu", batch_size=16), runs=sys.argv[2], report=stop)
"""


def make_chexpert(folder, rows):
    """A folder in CheXpert's layout; its images are all the same, its labels are drawn."""
    if (folder / "valid.csv").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    file = folder / "image.jpg"
    Image.fromarray(rng.integers(0, 256, (32, 32), dtype=np.uint8)).save(file)
    content = file.read_bytes()
    file.unlink()
    for split, count in (("train", rows), ("valid", 234)):
        lines = [",".join(("Path", *FINDINGS))]
        labels = rng.choice(["", "0.0", "1.0", "-1.0"], (count, len(FINDINGS)))
        for number in range(count):
            patient = folder / split / f"patient{number // PER_PATIENT:05}"
            study = patient / f"study{number % PER_PATIENT + 1}"
            study.mkdir(parents=True, exist_ok=True)
            image = study / "view1_frontal.jpg"
            image.write_bytes(content)
            path = f"CheXpert-v1.0-small/{image.relative_to(folder).as_posix()}"
            lines.append(",".join((path, *labels[number])))
        (folder / f"{split}.csv").write_text("\n".join(lines) + "\n")


def chexpert(given):
    folder = given.folder / "chexpert"
    print(f"making {given.rows:,} rows in {folder}", flush=True)
    make_chexpert(folder, given.rows)
    cache = given.folder / "cache"
    shutil.rmtree(cache, ignore_errors=True)  # what an earlier process found out about the files
    for when in ("at first", "again"):
        shutil.rmtree(given.folder / "runs", ignore_errors=True)
        done = subprocess.run(
            [sys.executable, "-c", FIRST_STEP, folder, given.folder / "runs"],
            check=True, capture_output=True, text=True,
            env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        )  # fmt: skip
        found = json.loads(done.stdout)
        print(f"{when}: " + ", ".join(f"{name} {value:,.1f}" for name, value in found.items()))


class Idle(nn.Module):
    """Hardly a network: one weight; it writes down each step, and may kill its worker once."""

    def __init__(self, folder, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes))
        self.key = hashlib.sha256(self.weight.detach().numpy().tobytes()).hexdigest()[:12]
        self.folder, self.steps = Path(folder), 0
        self.share = json.loads((self.folder / KILL).read_text())

    def forward(self, x):
        if self.training:
            self.steps += 1
            if self.steps == 3 and int(self.key, 16) % 1000 < 1000 * self.share:
                marker = self.folder / KILLED / self.key
                if not marker.exists():
                    marker.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            with (self.folder / LOG).open("a") as log:
                log.write(f"{self.key}\n")
        return x.mean((1, 2, 3))[:, None] * self.weight


def idle(num_classes, in_channels):
    return Idle(os.environ["SCALE_FOLDER"], num_classes)


def run_sweep(given):
    folder = (given.folder / "sweep").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / KILLED).mkdir(parents=True)
    (folder / KILL).write_text(json.dumps(given.kill))
    os.environ["SCALE_FOLDER"] = str(folder)
    configs = {
        f"trial {seed}": RunConfig(
            model=f"{Path(__file__).absolute()}:idle", data="xray-like", accelerator="cpu",
            data_options={"count": 24, "size": 32}, epochs=2, batch_size=12, seed=seed,
        )
        for seed in range(given.trials)
    }  # fmt: skip
    memory, stop = [], threading.Event()
    watcher = threading.Thread(target=watch_memory, args=(memory, stop))
    watcher.start()
    began = time.perf_counter()
    try:
        found = sweep(configs, runs=folder / "runs", workers=LOCAL)
    finally:
        stop.set()
        watcher.join()
    seconds = time.perf_counter() - began
    steps = Counter((folder / LOG).read_text().split())
    killed = len(list((folder / KILLED).iterdir()))
    whole = sum(len(run.history) == 2 for run in found.values())
    print(f"{len(found):,} trials, {whole:,} whole; {killed} killed their worker once")
    print(f"steps a trial: {dict(Counter(steps.values()))}")
    print(f"{seconds:.0f} s, {seconds * os.cpu_count() / len(found):.2f} core-seconds a trial")
    for share in (0.1, 0.5, 1.0):
        driver, workers = memory[max(0, int(share * len(memory)) - 1)]
        print(f"memory at {share:.0%}: this process {driver:,.0f} MB, all others {workers:,.0f} MB")


def watch_memory(memory, stop):
    """Note, every two seconds, the memory of this process and of all it started, in MB."""
    here = psutil.Process()
    while not stop.wait(2):
        others = 0
        for child in here.children(recursive=True):
            try:
                others += child.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        memory.append((here.memory_info().rss / 1e6, others / 1e6))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("chexpert", "sweep"))
    parser.add_argument("--folder", type=Path, default=Path("runs/scale"))
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--kill", type=float, default=0.05)
    given = parser.parse_args()
    {"chexpert": chexpert, "sweep": run_sweep}[given.what](given)


if __name__ == "__main__":
    main()
