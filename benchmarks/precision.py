"""Does training in bf16 lose anything? The same runs in both precisions, five seeds.

    python benchmarks/precision.py [--xrays PATH] [--runs RUNS] [--only WORD ...] [--table]

ResNet26 on x-rays by the recipe of forms.py, learned (whose scores in bf16 are in forms.json), and
U-NetD on 800 drawn nuclei, 24 epochs. The score is that of the test images after the last epoch.
bf16 loses nothing if the 95% interval of the mean difference to float32, paired by seed, ends above
-0.005; its mean alone may, which decides nothing. Set before the first run. Afterwards U-NetD was
given five times the images: with 160 its seeds differed by 0.02, so that five could not tell 0.005
(+0.0029, -0.0188 to +0.0247). `precision.json` beside this file has what is done.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

import forms
from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.process import prepare_process
from explainfix.lab.run.train import train

MARGIN = 0.005
RECORD = Path(__file__).with_name("precision.json")
PRECISIONS = {"float32": "32-true", "bf16": "bf16-mixed"}
SCORES = {"resnet26": "test auc", "unetd": "test dice"}


def config(network, precision, seed, xrays):
    if network == "resnet26":
        recipe = forms.config(forms.XRAYS[0], seed, {"xrays": f"nih-cxr14:{xrays}"})
        return replace(recipe, precision=precision)
    return RunConfig(
        model="unetd", data="nuclei", data_options={"count": 800, "size": 64}, epochs=24,
        batch_size=8, lr=0.008, schedule="onecycle", evaluate_on=("val", "test"),
        evaluate_every=24, recalibrate=10, channels_last=True, seed=seed, precision=precision,
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--xrays", default="../shared/data/nih_cxr14")
    parser.add_argument("--runs", type=Path, default=Path("runs/precision"))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    known = json.loads(RECORD.with_name("forms.json").read_text())["resnet26 learned"]
    record = json.loads(RECORD.read_text()) if RECORD.is_file() else {"resnet26 bf16": known}
    if not given.table:
        prepare_process()
        for seed in map(str, forms.SEEDS):
            for network in given.only or reversed(SCORES):
                for name, precision in PRECISIONS.items():
                    done = record.setdefault(f"{network} {name}", {})
                    if seed in done:
                        continue
                    run = train(config(network, precision, int(seed), given.xrays), runs=given.runs)
                    done[seed] = round(run.history[-1][SCORES[network]], 5)
                    RECORD.write_text(json.dumps(record, indent=2) + "\n")
    print("| network | seeds | float32 | bf16 | bf16 less float32 (95%) | within 0.005 |")
    print("|---|---|---|---|---|---|")
    for network in SCORES:
        full, half = (record.get(f"{network} {name}", {}) for name in PRECISIONS)
        if (found := forms.paired(half, full)) is not None:
            gap = "{:+.4f} ({:+.4f} to {:+.4f})".format(*found)
            within = ("no", "its mean", "yes")[sum(end > -MARGIN for end in found[:2])]
            means = " | ".join(f"{np.mean(list(one.values())):.4f}" for one in (full, half))
            print(f"| {network} | {len(full)} | {means} | {gap} | {within} |")


if __name__ == "__main__":
    main()
