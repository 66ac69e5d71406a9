"""What a network learns to look for, and how it does with filters that were never learned.

python examples/demo.py [FOLDER]

U-Nets find nuclei in drawn images: learned, fixed, mixed, steered, pruned, shrunk; all of it is
told in one page. Stopped, it goes on where it was; done, it shows what it found.
"""

import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.padding import Padding

import explainfix as xf
from explainfix.backward.saved import kept_for_backward
from explainfix.explanation.advice import Advice
from explainfix.lab.data.dataset import Dataset, open_dataset
from explainfix.lab.data.loader import evaluation_batches
from explainfix.lab.prediction.overlay import overlay
from explainfix.lab.run.config import RunConfig
from explainfix.lab.run.evaluation import evaluate
from explainfix.lab.run.folder import Run, read_run
from explainfix.lab.run.metrics import Score
from explainfix.lab.shrink.goal import Asked
from explainfix.lab.shrink.outcome import Shrunk
from explainfix.lab.shrink.search import shrink
from explainfix.lab.sweep.sweep import SweepMoment, Workers, sweep
from explainfix.report.pruning import describe_exactness
from explainfix.report.story import Chapter, Gallery, Row, Story, Table

DATA = {"count": 144, "size": 48}
EPOCHS, BATCH, RATE = 8, 6, 0.01
WORKERS = Workers(count=os.cpu_count() or 1, cpus=1)  # images this small gain nothing by threads
ZEROED = 0.5  # of the kernels, before training
SMALL = Asked(macs=0.4, step=0.4, rounds=1, epochs=3, batches=2, steer=False)  # after training
BEHIND = 0.03  # of Dice: what needs a reason
PLAIN = f"{Path(__file__).parents[1] / 'benchmarks' / 'plain_unet.py'}:wide_unet"
FEWER = "{learned:,} weights learn where the other has {theirs:,}, and {epochs} epochs are few."
HEADINGS = ("spatial filters", "Dice (95% interval)", "learned", "of", "s/epoch", "MB kept")


@dataclass(frozen=True)
class Contestant:
    """A network to train: what it is, what it is held against, why it may be behind that."""

    config: RunConfig
    about: str
    baseline: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Result:
    """What came of it; masks are those of the test images, by their number."""

    run: Run
    dice: Score
    kept: int
    masks: dict[int, torch.Tensor]
    sentence: str

    @property
    def cells(self) -> list[str]:
        return [
            f"{self.dice.value:.3f} ({self.dice.low:.3f} to {self.dice.high:.3f})",
            f"{self.run.result['learned_parameters']:,}",
            f"{self.run.result['parameters']:,}",
            f"{statistics.median(row['seconds'] for row in self.run.history):.1f}",
            f"{self.kept / 1e6:.1f}",
        ]


def main(folder: Path) -> None:
    console = Console(highlight=False)
    folder.mkdir(parents=True, exist_ok=True)
    data = open_dataset("nuclei", **DATA)
    console.print(
        f"[bold]U-NetD[/bold] and a [bold]plain U-Net[/bold] of dense 3x3 layers find nuclei in "
        f"{len(data.split('train'))} drawn images, {EPOCHS} epochs each: their spatial filters "
        "learned, or set by a rule and never learned.\n"
    )
    started = time.monotonic()
    torch.set_num_threads(1)  # as for the workers, so that seconds compare
    pruning = prune_start(data, folder / "pruned.safetensors")
    wanted = contestants(folder, pruning)
    runs = train_all(wanted, folder / "runs", console)
    shrunk = shrink_it(runs["learned"], folder / "runs", console)
    runs["learned, shrunk"] = read_run(Path(shrunk.small.model))
    wanted["learned, shrunk"] = Contestant(
        runs["learned, shrunk"].config,
        f"The learned U-NetD at {shrunk.small.costs.shares['macs']:.0%} of its multiply-adds, "
        f"fine-tuned for {SMALL.epochs} epochs.",
        "learned",
        "one round took all of that at once.",
    )
    line = "{:<16}{:>24}{:>10}{:>10}{:>9}{:>9}".format
    console.print(f"[bold]{line(*HEADINGS)}[/bold]")
    results: dict[str, Result] = {}
    for name, contestant in wanted.items():
        results[name] = measure(runs[name], data, contestant, results)
        console.print(line(name, *results[name].cells))
        console.print(Padding(results[name].sentence, (0, 2)), style="dim")
    console.print(
        f"\nDice on {len(data.split('test'))} test images, pooled over pixels, with the weights "
        "that did best on the validation images; one seed, so small differences mean nothing. MB "
        f"kept: what a batch of {BATCH} keeps for its backward pass.\n"
    )
    why = {name: explain(results[name].run, data, name) for name in ("learned", "ghaar")}
    for said in why["learned"].advice()[:3]:
        console.print(f"[bold]{said.title}.[/bold] {said.text}\n")
    page = folder / "report.html"
    story = tell(data, results, why, pruning, shrunk)
    why["learned"].to_html(page, pruning=pruning, story=story, overwrite=True)
    console.print(f"{time.monotonic() - started:.0f} s. Everything in one page: open {page}")


def contestants(folder: Path, pruning) -> dict[str, Contestant]:
    """The networks, in the order of the story."""
    return {
        "learned": Contestant(
            config(),
            "U-NetD as one trains it: every weight learns.",
        ),
        "ghaar": Contestant(
            config(fix="ghaar"),
            "A rule set its spatial filters, and none learns: the learned 1x1 layers mix them.",
            "learned",
            FEWER,
        ),
        "plain, learned": Contestant(
            config(PLAIN), "The plain U-Net as one trains it: the next three are held against it."
        ),
        "plain, ghaar": Contestant(
            config(PLAIN, fix="ghaar"),
            "Its dense layers fixed as they are.",
            "plain, learned",
            "no 1x1 lies between its layers, so only {learned:,} weights are left to learn.",
        ),
        "plain, mixed": Contestant(
            config(PLAIN, fix="ghaar", mix=True),
            "The same filters, with a learned 1x1 behind each layer.",
            "plain, learned",
            FEWER,
        ),
        "plain, steered": Contestant(
            config(PLAIN, fix="ghaar", steer=True, steer_filters=2),
            "Each dense layer as two fixed filters a channel and a learned 1x1 over all of them.",
            "plain, learned",
            FEWER,
        ),
        "ghaar, pruned": Contestant(
            config(model=str(folder / "pruned.safetensors")),
            f"U-NetD by ghaar, cut to {pruning.params_kept:.0%} of its parameters before training.",
            "ghaar",
            "it began with fewer channels, chosen before anything was learned.",
        ),
    }


def config(model: str = "unetd", **options) -> RunConfig:
    return RunConfig(
        model=model,
        data="nuclei",
        data_options=DATA,
        epochs=EPOCHS,
        batch_size=BATCH,
        eval_batch_size=10,
        lr=RATE,
        schedule="onecycle",
        evaluate_every=2,
        **options,
    )


def train_all(wanted: dict[str, Contestant], runs: Path, console: Console) -> dict[str, Run]:
    """Train them, as many at a time as there are cores."""
    with console.status(f"training {len(wanted)} networks") as status:

        def say(moment: SweepMoment) -> None:
            left = moment.seconds_left
            time_left = "" if left is None else f", about {left:.0f} s left"
            status.update(
                f"training {len(wanted)} networks: {moment.done} done, epoch "
                f"{moment.epochs_done} of {moment.epochs} in all{time_left}"
            )

        return sweep(
            {name: each.config for name, each in wanted.items()},
            runs=runs, workers=WORKERS, report=say,
        )  # fmt: skip


def shrink_it(run: Run, runs: Path, console: Console) -> Shrunk:
    """A trained network in one round of shrink: ranked, cut, fine-tuned, measured."""
    with console.status("shrinking the learned network") as status:
        return shrink(
            str(run.folder), SMALL, runs=runs,
            report=lambda moment: status.update(f"shrinking the learned network: {moment.text}"),
        )  # fmt: skip


def prune_start(data: Dataset, file: Path):
    """A U-NetD fixed by GHaar, zeroed, cut and filled before training, as a file to train from."""
    torch.manual_seed(0)
    model = xf.create_model("unetd")
    xf.fix_(model, "ghaar")
    batches = [(x, y) for _, x, y in evaluation_batches(data, "val", batch_size=BATCH)]
    scores = xf.saliency(model, batches)
    report = xf.channel_prune_(model, batches[0][0][:1], scores, zero=ZEROED)
    xf.save(model, file, overwrite=True)
    return report


def measure(run: Run, data: Dataset, contestant: Contestant, others: dict[str, Result]) -> Result:
    """Its score and its masks on the test images, and a sentence that is true of it."""
    masks: dict[int, torch.Tensor] = {}

    def see(indices: list[int], logits: torch.Tensor, _: torch.Tensor) -> None:
        masks.update(zip(indices, (logits[:, 0] > 0).byte(), strict=True))

    model = run.model()
    dice = evaluate(model, data, "test", batch_size=10, see=see)["dice"]
    images = next(evaluation_batches(data, "train", batch_size=BATCH))[1]
    kept = kept_for_backward(model.train(), images)
    sentence = contestant.about
    if contestant.baseline:
        other = others[contestant.baseline]
        gap = other.dice.value - dice.value
        if gap > BEHIND:
            learn, theirs = (each.result["learned_parameters"] for each in (run, other.run))
            reason = contestant.reason.format(learned=learn, theirs=theirs, epochs=EPOCHS)
            sentence += f" {gap:.2f} behind {contestant.baseline}: {reason}"
        if not any(mask.any() for mask in masks.values()):
            sentence += " It is nowhere sure enough of a nucleus to mark a pixel: no mask has any."
    return Result(run, dice, kept, masks, sentence)


def explain(run: Run, data: Dataset, title: str) -> xf.Explanation:
    """What its filters look for, those that matter to its masks most of all."""
    model = run.model()
    batches = [(x, y) for _, x, y in evaluation_batches(data, "val", batch_size=BATCH)]
    return xf.explain(model, saliency=xf.saliency(model, batches), title=title)


def tell(
    data: Dataset,
    results: dict[str, Result],
    why: dict[str, xf.Explanation],
    pruning,
    shrunk: Shrunk,
) -> Story:
    """The story of the page."""
    dice = {name: result.dice.value for name, result in results.items()}
    learned, fixed = (results[name].run.result for name in ("learned", "ghaar"))

    def table(*names: str) -> Table:
        return Table(HEADINGS, [Row(n, results[n].cells, results[n].sentence) for n in names])

    return Story(
        title="Finding nuclei with filters that were never learned",
        answer=f"U-NetD finds nuclei with a Dice of {dice['learned']:.2f} when it learns all of "
        f"its filters, {dice['ghaar']:.2f} when a rule sets them and they never learn, and "
        f"{dice['ghaar, pruned']:.2f} when it is also cut to {pruning.params_kept:.0%} of its "
        "parameters before training.",
        chapters=[
            Chapter(
                "What the network learned to look for",
                [
                    f"U-NetD was trained on {len(data.split('train'))} drawn images of nuclei. "
                    "Every column is one of its layers, every row a pattern, from smooth on top to "
                    "fine; kernels count by how much they matter to the masks.",
                    *(f"{said.title}. {said.text}" for said in of_frequencies(why["learned"])[:2]),
                ],
                spectra=[(why["learned"], low_layers(why["learned"]))],
                caption="Orange: more of this pattern than random kernels would have. Blue: less.",
            ),
            Chapter(
                "The same network with filters that were never learned",
                [
                    f"Now a rule sets all {fixed['fixed_layers']} spatial layers before training, "
                    "and they stay as they are: "
                    f"{learned['learned_parameters'] - fixed['learned_parameters']:,} weights need "
                    "no gradient. Ghaar draws filters of random frequency.",
                ],
                spectra=[(why["ghaar"], low_layers(why["ghaar"]))],
                table=table("learned", "ghaar"),
                gallery=gallery(data, results, ("learned", "ghaar")),
            ),
            Chapter(
                "Where nothing learned mixes the channels: mix, or steer",
                [
                    "U-NetD has learned 1x1 layers between its fixed ones. A plain U-Net of dense "
                    "3x3 layers has none. Two remedies: a learned 1x1 behind each fixed layer, or "
                    "each layer turned into fixed filters and a learned 1x1 that steers them.",
                ],
                table=table("plain, learned", "plain, ghaar", "plain, mixed", "plain, steered"),
                gallery=gallery(
                    data,
                    results,
                    ("plain, learned", "plain, ghaar", "plain, mixed", "plain, steered"),
                ),
            ),
            Chapter(
                "Cut before it was trained",
                [
                    f"{ZEROED:.0%} of the kernels of the fixed U-NetD, those that matter least, "
                    "were set to zero, and every channel that died of it was cut: "
                    f"{pruning.params_kept:.0%} of the parameters were left. "
                    f"{describe_exactness(pruning)} What is left was then trained.",
                ],
                table=table("ghaar", "ghaar, pruned"),
                gallery=gallery(data, results, ("ghaar", "ghaar, pruned")),
            ),
            Chapter(
                "Shrunk after it was trained",
                [
                    "A trained network knows which of its channels matter. Those that matter least "
                    "were cut from the learned U-NetD, in one round, and what was left was "
                    f"fine-tuned for {SMALL.epochs} epochs: {shrunk}. Asked for a loss instead, "
                    "explainfix shrink goes on round by round, as far as that allows.",
                ],
                table=table("learned", "learned, shrunk"),
                gallery=gallery(data, results, ("learned", "learned, shrunk")),
            ),
        ],
        detail="The learned network in detail, and what pruning took from the fixed one",
    )


def of_frequencies(why: xf.Explanation) -> list[Advice]:
    """What is said about a network, that on frequencies first."""
    return sorted(why.advice(), key=lambda said: said.kind != "frequency")


def low_layers(why: xf.Explanation) -> str:
    layers = why.layers.values()
    smooth = sum(layer.low_share > layer.low_chance[1] for layer in layers)
    return f"{smooth} of {len(layers)} layers are smoother than chance."


def gallery(data: Dataset, results: dict[str, Result], names: Sequence[str]) -> Gallery:
    """Three test images from few to many nuclei, brightened, with the mask of each network."""
    test = data.split("test")
    cover = [float(test[index].target.mean()) for index in range(len(test))]
    order = np.argsort(cover)
    chosen = [int(order[int(share * len(order))]) for share in (0.3, 0.6, 0.9)]
    images = [test[index].image / test[index].image.max() for index in chosen]
    truth = [test[index].target[0].byte() for index in chosen]
    columns = {"image": [torch.zeros_like(mask) for mask in truth], "drawn as": truth}
    columns |= {name: [results[name].masks[index] for index in chosen] for name in names}
    return Gallery(
        {
            name: [overlay(*pair, data.classes) for pair in zip(images, masks, strict=True)]
            for name, masks in columns.items()
        },
        "Three test images, from few to many nuclei, brightened; in red what was drawn there, and "
        "what each network found.",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
