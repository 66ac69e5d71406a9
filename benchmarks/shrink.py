"""Shrinking, measured: how small, which ranking, and beside Torch-Pruning.

    python benchmarks/shrink.py smallest|rankings|rival [--smoke] [--table] [--only WORD ...]
        [--xrays PATH] [--microscopy PATH] [--runs RUNS] [--record FILE] [--threads N]

What is done is in `shrink.json` beside this file and is not done again; what was interrupted goes
on where it was. `--smoke` takes small drawn images and few epochs, and a record of its own: it
shows that all of it runs, and nothing else. On x-rays all networks train in
bf16, two thirds of the time of float32 with no loss that precision.py finds; costs are those of
float32. These rules were set before the first run, but for the rate of rounds, which was twice that
of training, and for averaging BatchNorm's statistics anew on microscopy: a first search of U-NetD
lost 0.027 of Dice in its first round, and both were chosen then, on validation.

**smallest**: `shrink` with max_loss 0.01, no target, ten epochs a round: U-NetD on microscopy,
ResNet26 and DenseNet121 on x-rays of 64 pixels, seed 0. Reported are the costs of the network that
is chosen on validation, and the paired difference on test with its 95% bootstrap interval. Wanted:
0.5 of the latency or less for U-NetD; 0.4 of the latency and 0.2 of the parameters or less for the
other two.

**rankings**: U-NetD and ResNet26 to 0.3 of the multiply-adds, two rounds of ten epochs, by each
kind of saliency, three seeds (of the original, too). Everything else is the same for all kinds:
ways, batches, budget. Reported are the mean and the range of the paired differences to the original
on test. A ranking is better than another if its mean is higher by more than 0.005 and it is higher
with every seed; else they are alike.

**rival**: four networks, three seeds, one measured latency: 0.5 of the original's for the U-Nets
(one image of 256 pixels), 0.4 for the other two (32 images of 64 pixels). Ours goes first, in at
most three rounds of ten epochs. Torch-Pruning then has as many rounds, each with as many epochs and
the same recipe (our loop, the rate of training, one cycle), from the same original. Its pruner and
its importance are its own: each round it cuts to the latency that ours had in that round, found by
halving its ratio: the largest network whose latency, measured in turns with the original, is at
most 1.03 of ours; if none is, the smallest that was tried. It runs with both Taylor's and
magnitude's importance, and the one that is better on validation at the end is taken. The score is
that of the test images, of the epoch that is best on validation. A setting is ours if the mean over
seeds of ours minus theirs is above 0.002, equal if it is within 0.002, theirs otherwise; all
numbers are shown. Wanted: ours or equal in three of four.
"""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

import torch_pruned
from explainfix.explanation.kind import list_saliencies
from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.folder import Run
from explainfix.lab.run.losses import losses
from explainfix.lab.run.metrics import score
from explainfix.lab.run.process import prepare_process
from explainfix.lab.run.train import train
from explainfix.lab.shrink.candidates import Bench
from explainfix.lab.shrink.cost import compare_costs
from explainfix.lab.shrink.goal import Asked
from explainfix.lab.shrink.original import find_original
from explainfix.lab.shrink.search import shrink
from explainfix.lab.sweep.workers import Workers

SEEDS = range(3)
SAME = 0.002  # of the score: no difference
PLAIN = f"{Path(__file__).with_name('plain_unet.py')}:unet"


@dataclass(frozen=True)
class Network:
    """A network, its recipe, and what is asked of it."""

    spec: str
    recipe: dict
    latency: float
    batch: int
    size: int

    @property
    def name(self):
        return self.spec.rpartition(":")[2]


@dataclass(frozen=True)
class Scale:
    """What differs between the whole and its smoke."""

    networks: dict
    epochs: int
    seeds: tuple
    macs: float = 0.3
    rounds: int = 3
    step: float = 0.55


def whole(places):
    microscopy = {"data": f"bbbc038v1:{places.microscopy}", "epochs": 40, "lr": 8e-3,
                  "batch_size": 10, "data_options": {"crop": 128}, "schedule": "onecycle",
                  "channels_last": True, "recalibrate": 25}  # fmt: skip
    xrays = {"data": f"nih-cxr14:{places.xrays}", "epochs": 12, "lr": 1e-3, "batch_size": 32,
             "data_options": {"size": 64}, "schedule": "onecycle", "channels_last": True,
             "precision": "bf16-mixed"}  # fmt: skip
    networks = {
        "unetd": Network("unetd", microscopy, 0.5, 1, 256),
        "unet": Network(PLAIN, microscopy, 0.5, 1, 256),
        "resnet26": Network("timm:resnet26", xrays, 0.4, 32, 64),
        "densenet121": Network("torchvision:densenet121", xrays, 0.4, 32, 64),
    }
    return Scale(networks, 10, tuple(SEEDS))


def smoke():
    drawn = {"data": "nuclei", "epochs": 2, "batch_size": 4, "lr": 8e-3,
             "data_options": {"count": 16, "size": 32}, "schedule": "onecycle"}  # fmt: skip
    networks = {
        "unetd": Network("unetd", drawn, 0.8, 1, 32),
        "unet": Network(PLAIN, drawn, 0.8, 1, 32),
    }
    return Scale(networks, 1, (0,), 0.5, 1, 0.5)


class Record(dict):
    """What is done, in a file that is written whenever something is."""

    def __init__(self, path):
        super().__init__(json.loads(path.read_text()) if path.is_file() else {})
        self.path = path

    def once(self, key, do):
        if key not in self:
            print(key, flush=True)
            self[key] = do()
            self.path.write_text(json.dumps(self, indent=2) + "\n")
        return self[key]


def original(network, seed, runs) -> Run:
    config = RunConfig(model=network.spec, seed=seed, evaluate_on=("val",), **network.recipe)
    return train(config, runs=runs)


def told(found):
    """What is kept of a search."""
    small = found.small
    return {
        "way": [each.way for each in found.rounds[1:]],
        "shares": dict(small.costs.shares),
        "latency": [small.costs.latency.low, small.costs.latency.high],
        "rounds": [each.costs.shares["latency"] for each in found.rounds[1:]],
        "original": found.tested.original.value,
        "small": found.tested.small.value,
        "change": [found.tested.change.value, found.tested.change.low, found.tested.change.high],
        "end": found.end.why,
        "folder": str(found.folder),
    }


def smallest(scale, record, runs, only):
    for name in ("unetd", "resnet26", "densenet121"):
        network = scale.networks.get(name)
        if network is None or (only and name not in only):
            continue
        asked = Asked(
            max_loss=0.01, epochs=scale.epochs, batch=network.batch, size=(network.size,),
            rounds=12 if scale.epochs > 1 else 1, despite_noise=True,
        )  # fmt: skip
        record.once(
            f"smallest {name}",
            lambda n=network, a=asked: told(shrink(str(original(n, 0, runs).folder), a, runs=runs)),
        )


def rankings(scale, record, runs, only):
    for name in ("unetd", "resnet26" if "resnet26" in scale.networks else "unet"):
        if only and name not in only:
            continue
        network = scale.networks[name]
        for seed in scale.seeds:
            for kind in list_saliencies():
                asked = Asked(
                    macs=scale.macs, ranking=kind, epochs=scale.epochs, step=0.5,
                    rounds=2, batch=network.batch, size=(network.size,),
                )  # fmt: skip
                record.once(
                    f"ranking {name} {kind} {seed}",
                    lambda n=network, s=seed, a=asked: told(
                        shrink(str(original(n, s, runs).folder), a, runs=runs)
                    ),
                )


def rival(scale, record, runs, only):
    for name, network in scale.networks.items():
        if only and name not in only:
            continue
        for seed in scale.seeds:
            run = original(network, seed, runs)
            asked = Asked(
                latency=network.latency, epochs=scale.epochs, rounds=scale.rounds,
                step=scale.step, batch=network.batch, size=(network.size,),
            )  # fmt: skip
            ours = record.once(
                f"ours {name} {seed}",
                lambda r=run, a=asked: told(shrink(str(r.folder), a, runs=runs)),
            )
            for importance in ("taylor", "magnitude"):
                record.once(
                    f"theirs {name} {importance} {seed}",
                    lambda r=run, a=asked, i=importance, n=network, o=ours, s=seed: theirs(
                        n, r, a, o["rounds"], i, runs / f"torch-pruning-{n.name}-{i}-{s}"
                    ),
                )


def theirs(network, run, asked, latencies, importance, folder):
    """Torch-Pruning's rounds from the same original, to the latency of ours in each."""
    first = find_original(str(run.folder), folder, Workers(), lambda moment: None)
    x, whole = first.batch(asked), first.open()
    model, shares, best = first.open(), [], None
    loss = losses.find(first.config.loss)(first.dataset.split(first.config.train_split))
    for number, latency in enumerate(latencies, start=1):
        bench = Bench(
            model,
            x[:1],
            first.config,
            first.dataset,
            "magnitude",
            "parameters",
            1,
            asked.batches,
            asked.rate,
        )
        place = folder / f"round-{number}"
        if not (place / "pruned.py").is_file():
            small = to_latency(whole, model, x, latency, importance, bench.seen, loss)
            torch_pruned.keep(small, network.spec, place)
        config = replace(first.tuning(Path("x"), asked), model=f"{place / 'pruned.py'}:network")
        done = train(config, runs=place / "runs")
        model, best = done.model().eval(), done.result["best"]
        shares.append(compare_costs(whole, model, x).shares)
    test = score(first.outcomes(model, "test"), resamples=1000).scores[0]
    return {"shares": dict(shares[-1]), "rounds": [each["latency"] for each in shares],
            "validation": best, "small": test.value}  # fmt: skip


def to_latency(whole, model, x, latency, importance, batches, loss):
    """Torch-Pruning's cut at the latency of ours, by halving its ratio."""
    low, high, found = 0.0, 0.98, None
    for _ in range(7):
        ratio = (low + high) / 2
        small = torch_pruned.cut(
            model, x[:1], ratio, importance=importance, batches=batches, loss=loss
        )
        share = compare_costs(whole, small, x, seconds=8).shares["latency"]
        fits = share <= 1.03 * latency
        if fits:
            found = small
        low, high = (low, ratio) if fits else (ratio, high)
    return found if found is not None else small  # the last is the smallest


def print_smallest(record):
    print("| network | latency | parameters | multiply-adds | memory | test, change (95%) |")
    print("|---|---|---|---|---|---|")
    for key, found in record.items():
        if key.startswith("smallest "):
            costs = [f"{found['shares'][c]:.2f}" for c in ("latency", "params", "macs", "memory")]
            change = "{:+.4f} ({:+.4f} to {:+.4f})".format(*found["change"])
            print(f"| {key.split()[1]} | {' | '.join(costs)} | {change} |")


def print_rankings(record):
    print("| network | ranking | seeds | mean change on test | from | to |")
    print("|---|---|---|---|---|---|")
    by = {}
    for key, found in record.items():
        if key.startswith("ranking "):
            _, name, kind, _ = key.split()
            by.setdefault((name, kind), []).append(found["change"][0])
    for (name, kind), values in by.items():
        span = f"{np.mean(values):+.4f} | {min(values):+.4f} | {max(values):+.4f}"
        print(f"| {name} | {kind} | {len(values)} | {span} |")


def print_rival(record):
    print(
        "| network | seed | latency ours | theirs | test ours | theirs (importance) | difference |"
    )
    print("|---|---|---|---|---|---|---|")
    by = {}
    for key, ours in record.items():
        if not key.startswith("ours "):
            continue
        _, name, seed = key.split()
        both = {i: record.get(f"theirs {name} {i} {seed}") for i in ("taylor", "magnitude")}
        if None in both.values():
            continue
        importance = max(both, key=lambda i: both[i]["validation"])
        other = both[importance]
        gap = ours["small"] - other["small"]
        by.setdefault(name, []).append(gap)
        print(
            f"| {name} | {seed} | {ours['shares']['latency']:.2f} | "
            f"{other['shares']['latency']:.2f} | {ours['small']:.4f} | {other['small']:.4f} "
            f"({importance}) | {gap:+.4f} |"
        )
    for name, gaps in by.items():
        mean = float(np.mean(gaps))
        word = "ours" if mean > SAME else "equal" if mean >= -SAME else "theirs"
        print(f"\n{name}: {word}, {mean:+.4f} over {len(gaps)} seeds", end="")
    print()


PARTS = {
    "smallest": (smallest, print_smallest),
    "rankings": (rankings, print_rankings),
    "rival": (rival, print_rival),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--xrays", default="../shared/data/nih_cxr14")
    parser.add_argument("--microscopy", default="../shared/data/bbbc038v1")
    parser.add_argument("--runs", type=Path, default=Path("runs/shrink"))
    parser.add_argument("--record", type=Path, default=Path(__file__).with_name("shrink.json"))
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    if given.smoke:
        given.runs, given.record = given.runs / "smoke", given.runs / "smoke.json"
        given.runs.mkdir(parents=True, exist_ok=True)
    do, show = PARTS[given.part]
    record = Record(given.record)
    if not given.table:
        prepare_process()
        torch.set_num_threads(given.threads)
        do(smoke() if given.smoke else whole(given), record, given.runs, given.only)
    show(record)


if __name__ == "__main__":
    main()
