"""What fixing costs in each form: whole, mixed and steered networks beside learned ones.

    python benchmarks/forms.py [--xrays PATH] [--microscopy PATH] [--runs RUNS] [--workers N]
                               [--only WORD ...] [--without WORD ...] [--table]
                               [--record FILE]

Every form is trained with the same recipe and the same five seeds. The score is that of the test
images after the last epoch, as one cycle of the rate ends there and nothing is chosen. A form is
within a margin of learned filters if the 95% interval of the mean difference (paired by seed, t
distribution) ends above minus that margin; its mean alone may be, which decides nothing. The forms,
margins and seeds below were set before the first run. `forms.json` beside this file has the scores
of all runs that are done, which are not trained again. `--table` prints the table, trains nothing.

The wide U-Net has a recipe of its own, set when the thin one's rows were known: contrast stretched
between percentiles (`normalise=robust`), as the thin one failed at random on very dark and very
crowded images, BatchNorm's statistics averaged anew before scoring, float32. Its score on the
held-out images of the training set, of the same kinds as those trained on, is kept beside that on
the test images; nothing is chosen by it either. Five seeds left its steered form undecided (its
interval was 0.06 wide): five more were then asked of all three forms, at once, and all ten count.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.folder import find_folder, is_finished, read_run
from explainfix.lab.run.process import prepare_process
from explainfix.lab.sweep.sweep import Workers, sweep

SEEDS, WIDE_SEEDS = range(5), range(10)
UNET = "benchmarks/plain_unet.py:unet"
WIDE = "benchmarks/plain_unet.py:wide_unet"


@dataclass(frozen=True)
class Form:
    """One row of the table: a network, what is done to its filters, and the margin promised."""

    network: str
    name: str
    options: dict
    margin: float | None = None


def forms(network, margins, **named):
    learned = Form(network, "learned", {})
    return [learned, *(Form(network, name, o, margins.get(name)) for name, o in named.items())]


GHAAR, UNCHANGED, PSINE = {"fix": "ghaar"}, {"fix": "unchanged"}, {"fix": "psine"}
ONE = {"steer": True, "steer_filters": 1}
TWO = {"steer": True, "steer_filters": 2}
XRAYS = [
    *forms(
        "timm:resnet26",
        {"ghaar": 0.01, "unchanged": 0.01, "psine": 0.01},
        ghaar=GHAAR,
        unchanged=UNCHANGED,
        psine=PSINE,
    ),
    *forms(
        "torchvision:resnet18",
        {"ghaar mixed": 0.015, "unchanged mixed": 0.015, "ghaar steered, 1 filter": 0.02,
         "psine steered, 1 filter": 0.02},
        **{
            "ghaar": GHAAR,
            "ghaar mixed": GHAAR | {"mix": True},
            "unchanged mixed": UNCHANGED | {"mix": True},
            "ghaar steered, 1 filter": GHAAR | ONE,
            "psine steered, 1 filter": PSINE | ONE,
            "ghaar steered, 2 filters": GHAAR | TWO,
        },
    ),
]  # fmt: skip
MICROSCOPY = forms(
    UNET,
    {"ghaar mixed": 0.01, "ghaar steered, 1 filter": 0.01, "ghaar steered, 2 filters": 0.01},
    **{
        "ghaar": GHAAR,
        "ghaar mixed": GHAAR | {"mix": True},
        "ghaar steered, 1 filter": GHAAR | ONE,
        "ghaar steered, 2 filters": GHAAR | TWO,
    },
)


WIDE_MICROSCOPY = forms(
    WIDE,
    {"ghaar mixed": 0.01, "ghaar steered, 1 filter": 0.01},
    **{"ghaar mixed": GHAAR | {"mix": True}, "ghaar steered, 1 filter": GHAAR | ONE},
)


def config(form, seed, places):
    """The run of a form: one recipe for all forms of a network."""
    if form in XRAYS:
        recipe = {"data": places["xrays"], "data_options": {"size": 64}, "epochs": 12, "lr": 1e-3,
                  "batch_size": 32, "precision": "bf16-mixed"}  # fmt: skip
    elif form in MICROSCOPY:
        recipe = {"data": places["microscopy"], "data_options": {"crop": 128}, "epochs": 18,
                  "lr": 8e-3, "batch_size": 10, "precision": "bf16-mixed"}  # fmt: skip
    else:
        recipe = {"data": places["microscopy"], "epochs": 20, "lr": 4e-3, "batch_size": 16,
                  "data_options": {"crop": 64, "normalise": "robust"},
                  "recalibrate": 25}  # fmt: skip
    return RunConfig(
        model=form.network, evaluate_on=("val", "test"), schedule="onecycle", seed=seed,
        fix_seed=seed, channels_last=True, evaluate_every=recipe["epochs"], **recipe,
        **form.options,
    )  # fmt: skip


def seeds(form):
    return WIDE_SEEDS if form in WIDE_MICROSCOPY else SEEDS


def label(form):
    return f"{form.network.rpartition(':')[2]} {form.name}"


def read_scores(form, places, runs, split="test"):
    """The score of each seed whose run is done, by seed."""
    score, task = ("auc", "multilabel") if form in XRAYS else ("dice", "segmentation")
    column, found = f"{split} {score}", {}
    for seed in seeds(form):
        folder = find_folder(runs, config(form, seed, places).resolved(task))
        if is_finished(folder):
            found[str(seed)] = round(read_run(folder).history[-1][column], 5)
    return found


def paired(scores, baseline):
    """The mean difference by seed, and both ends of its 95% interval."""
    d = np.array([scores[seed] - baseline[seed] for seed in scores if seed in baseline])
    if len(d) < 2:
        return None
    half = stats.t.ppf(0.975, len(d) - 1) * d.std(ddof=1) / np.sqrt(len(d))
    return d.mean(), d.mean() - half, d.mean() + half


def held_out(form):
    """The name under which the scores on the held-out images of the training set are kept."""
    return f"{label(form)}, held out"


def print_table(every, record, named=label):
    print("| network | form | seeds | score | difference to learned (95%) | margin | within |")
    print("|---|---|---|---|---|---|---|")
    for form in every:
        found = record.get(named(form), {})
        mean = f"{np.mean(list(found.values())):.4f}" if found else "-"
        gap, within, margin = "", "", f"{form.margin or ''}"
        learned = record.get(named(Form(form.network, "learned", {})), {})
        if form.name != "learned" and (found_gap := paired(found, learned)):
            gap = "{:+.4f} ({:+.4f} to {:+.4f})".format(*found_gap)
            if form.margin:
                words = ("no", "its mean", "yes")
                within = words[sum(end > -form.margin for end in found_gap[:2])]
        network = form.network.rpartition(":")[2]
        print(f"| {network} | {form.name} | {len(found)} | {mean} | {gap} | {margin} | {within} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--xrays", default="../shared/data/nih_cxr14")
    parser.add_argument("--microscopy", default="../shared/data/bbbc038v1")
    parser.add_argument("--runs", type=Path, default=Path("runs/forms"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--record", type=Path, default=Path(__file__).with_name("forms.json"))
    given = parser.parse_args()
    places = {"xrays": f"nih-cxr14:{given.xrays}", "microscopy": f"bbbc038v1:{given.microscopy}"}
    record = json.loads(given.record.read_text()) if given.record.is_file() else {}
    every = [
        form
        for form in [*XRAYS, *MICROSCOPY, *WIDE_MICROSCOPY]
        if not given.only or any(word in label(form) for word in given.only)
        if not any(word in label(form) for word in given.without)
    ]
    if not given.table:
        prepare_process()
        configs = {
            f"{label(form)} {seed}": config(form, seed, places)
            for seed in WIDE_SEEDS
            for form in every
            if seed in seeds(form) and str(seed) not in record.get(label(form), {})
        }
        sweep(configs, runs=given.runs, workers=Workers(count=given.workers, cpus=1),
              report=lambda moment: None)  # fmt: skip
    for form in every:
        for name, split in ((label(form), "test"), (held_out(form), "val")):
            if done := read_scores(form, places, given.runs, split):
                record[name] = dict(sorted((record.get(name, {}) | done).items()))
    given.record.write_text(json.dumps(record, indent=2) + "\n")
    print_table(every, record)
    if kept := [form for form in every if held_out(form) in record]:
        print("\nOn the held-out images of the training set:\n")
        print_table(kept, record, held_out)


if __name__ == "__main__":
    main()
