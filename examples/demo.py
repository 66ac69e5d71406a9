"""Fix, mix, steer, train, explain, prune and compare U-Nets on drawn nuclei.

python examples/demo.py [FOLDER]

Stopped, it goes on where it was; done, it shows what it found.
"""

import statistics
import sys
import time
from pathlib import Path

import pandas as pd
import torch
from rich.console import Console

import explainfix as xf
from explainfix.backward.saved import kept_for_backward
from explainfix.lab.data.dataset import open_dataset
from explainfix.lab.data.loader import evaluation_batches
from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.evaluation import evaluate
from explainfix.lab.run.train import train

DATA = {"count": 240, "size": 64}
EPOCHS = 12
ZEROED = 0.5
PRUNED = "ghaar, pruned"
PLAIN = f"{Path(__file__).parents[1] / 'benchmarks' / 'plain_unet.py'}:unet"
# Why a row may be well below the learned one: said where it is.
REASONS = {
    "ones": "Box filters only blur: there is no filter that sees an edge.",
    "dct2": "Each channel has one frequency of the DCT and no mixture of them: it is not steered.",
    "plain, ghaar": "Its dense 3x3 layers have no 1x1 between them to learn: mix or steer them.",
}
WORTH_A_WORD = 0.05  # of Dice


def main(folder: Path) -> None:
    console = Console(highlight=False)
    folder.mkdir(parents=True, exist_ok=True)
    data = open_dataset("nuclei", **DATA)
    console.print(
        f"[bold]U-NetD[/bold] and a plain U-Net find nuclei in {len(data.split('train'))} drawn "
        f"images, {EPOCHS} epochs each:\ntheir spatial filters learned, or set by a rule and never "
        "learned.\n"
    )
    started = time.monotonic()
    runs = folder / "runs"
    learned = train(config(), runs=runs)
    guide = str(learned.folder / "best.safetensors")
    report = prune_start(data, folder / "pruned.safetensors")
    contestants = {
        "learned": config(),
        **{m: config(fix=m) for m in ("ghaar", "psine", "unchanged", "dct2", "ones")},
        "guidedsteer": config(fix="guidedsteer", fix_guide=guide),
        PRUNED: config(model=str(folder / "pruned.safetensors")),
        "plain, learned": config(PLAIN),
        "plain, ghaar": config(PLAIN, fix="ghaar"),
        "plain, mixed": config(PLAIN, fix="ghaar", mix=True),
        "plain, steered": config(PLAIN, fix="ghaar", steer=True, steer_filters=2),
    }
    line = "{:<16}{:>24}{:>10}{:>10}{:>9}{:>9}".format
    headings = ("spatial filters", "Dice (95% interval)", "learned", "of", "s/epoch", "MB kept")
    console.print(f"[bold]{line(*headings)}[/bold]")
    rows, scores = {}, {}
    for name, options in contestants.items():
        with console.status(f"training: {name}"):
            run = train(options, runs=runs)
            model = run.model()
            dice = evaluate(model, data, "test")["dice"]
            images = next(evaluation_batches(data, "train", batch_size=10))[1]
            kept = kept_for_backward(model.train(), images)
        scores[name] = dice.value
        rows[name] = (
            f"{dice.value:.3f} ({dice.low:.3f} to {dice.high:.3f})",
            f"{run.result['learned_parameters']:,}",
            f"{run.result['parameters']:,}",
            f"{statistics.median(row['seconds'] for row in run.history):.1f}",
            f"{kept / 1e6:.1f}",
        )
        console.print(line(name, *rows[name]))
    console.print(
        f"\nDice on {len(data.split('test'))} test images, pooled over pixels, with the weights "
        "that did best on the validation images; one seed, so small differences mean nothing. "
        "MB kept: what a batch of 10 keeps for its backward pass. "
        f"{PRUNED}: {ZEROED:.0%} of the kernels zeroed and what died cut before training, "
        f"{report.params_kept:.0%} of the parameters left. plain: a U-Net of dense 3x3 layers, "
        "fixed as it is, with a learned 1x1 behind each layer, or as two fixed filters a channel "
        "and a learned 1x1.\n"
    )
    for name, reason in REASONS.items():
        baseline = "plain, learned" if name.startswith("plain") else "learned"
        if scores[name] < scores[baseline] - WORTH_A_WORD:
            console.print(f"Why [bold]{name}[/bold] stays behind: {reason}")
    console.print()
    model = learned.model()
    batches = [(x, y) for _, x, y in evaluation_batches(data, "val", batch_size=10)]
    why = xf.explain(
        model, saliency=xf.saliency(model, batches), title="U-NetD on nuclei, filters learned"
    )
    for said in why.advice()[:3]:
        console.print(f"[bold]{said.title}.[/bold] {said.text}\n")
    columns = ["Dice on test (95% interval)", "learned parameters", "parameters", "seconds/epoch",
               "MB kept for backward"]  # fmt: skip
    results = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    results.index.name = "spatial filters"
    page = folder / "report.html"
    why.to_html(page, pruning=report, results=results, overwrite=True)
    console.print(f"{time.monotonic() - started:.0f} s. Everything in one page: open {page}")


def config(model: str = "unetd", **options) -> RunConfig:
    return RunConfig(
        model=model,
        data="nuclei",
        data_options=DATA,
        epochs=EPOCHS,
        schedule="onecycle",
        evaluate_every=3,
        **options,
    )


def prune_start(data, file: Path):
    """A U-NetD fixed by GHaar, zeroed, cut and filled before training, as a file to train from."""
    torch.manual_seed(0)
    model = xf.create_model("unetd")
    xf.fix_(model, "ghaar")
    batches = [(x, y) for _, x, y in evaluation_batches(data, "val", batch_size=10)]
    scores = xf.saliency(model, batches)
    report = xf.channel_prune_(model, batches[0][0][:1], scores, zero=ZEROED)
    xf.save(model, file, overwrite=True)
    return report


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
