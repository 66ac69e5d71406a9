"""Commands that use trained models: evaluate, predict."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import torch
from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from torch import nn

from ..lab.data.dataset import Dataset, open_dataset
from ..lab.run.config import make_config, read_config
from ..lab.run.metrics import Scores
from .app import OUTPUT, Build, Force, Json, app, open_model, option_pair
from .printing import check_output, new_table, print_json, track_progress

Trained = Annotated[
    str,
    Parameter(help="A run's folder, a file that explainfix saved, or a model as NAME@FILE."),
]
Options = Annotated[list[str] | None, Parameter(name="--data-option", negative="")]


@Parameter(name="*")
@dataclass(frozen=True)
class SplitChoice:
    """Which data.

    Parameters
    ----------
    data
        A dataset's name, or NAME:PATH (default: the one that the run was trained on).
    split
        Which of its splits.
    data_option
        An option of the dataset, NAME=VALUE; may be repeated.
    skip_damaged
        Go on without the files that cannot be read.
    """

    data: str | None = None
    split: str = "test"
    data_option: Options = None
    skip_damaged: Annotated[bool, Parameter(negative="")] = False


@app.command(name="evaluate")
def evaluate_(
    model: Trained,
    /,
    *,
    source: SplitChoice | None = None,
    batch_size: int = 1,
    resamples: int = 1000,
    output: Annotated[Path | None, OUTPUT] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Score a model on a split, with 95% bootstrap intervals over the images.

    Parameters
    ----------
    batch_size
        Images a batch; smaller ones are padded.
    resamples
        Resamples of the bootstrap.
    output
        A .safetensors file for the predictions.
    """
    if batch_size < 1 or resamples < 1:
        raise ValueError("--batch-size and --resamples must be at least 1")
    check_output(output, ".safetensors", overwrite=force)
    source = source or SplitChoice()
    split = source.split
    dataset = _open_data(model, source.data, source.data_option, skip_damaged=source.skip_damaged)
    images = dataset.split(split)
    network = _open_trained(model)
    from ..lab.run.evaluation import evaluate
    from ..lab.run.prediction import Predictions

    kept = Predictions(dataset, images) if output is not None else None
    scores = evaluate(
        network,
        dataset,
        split,
        batch_size=batch_size,
        resamples=resamples,
        see=kept.see if kept else None,
        progress=lambda batches, count: track_progress(batches, "Evaluating", count),
    )
    if kept is not None and output is not None:
        kept.save(output, overwrite=force)
    if as_json:
        print_json({"model": model, "data": dataset.name, "split": split, **asdict(scores)})
        return
    _print_scores(scores, f"{escape(dataset.name)} {escape(split)}")
    if output is not None:
        Console(highlight=False, soft_wrap=True).print(f"Wrote {escape(str(output))}.")


@app.command(name="predict")
def predict_(
    model: Trained,
    images: Annotated[list[Path], Parameter(negative="")],
    /,
    *,
    output: Annotated[Path, OUTPUT],
    data: str | None = None,
    data_option: Options = None,
    force: Force = False,
) -> None:
    """Let a model look at images: masks drawn over them, or a table of classes.

    Parameters
    ----------
    images
        Image files.
    output
        The folder to write to.
    data
        The dataset whose preparation and classes to use (default: the one trained on).
    data_option
        An option of the dataset, NAME=VALUE; may be repeated.
    """
    for image in images:
        if not image.is_file():
            raise FileNotFoundError(f"there is no file {str(image)!r}")
    if len({image.stem for image in images}) < len(images):
        raise ValueError("two of the images have the same name; give them one by one")
    if output.exists() and not force:
        raise FileExistsError(f"{str(output)!r} exists already; choose another name, or --force")
    dataset = _open_data(model, data, data_option, skip_damaged=True)
    network = _open_trained(model)
    from ..lab.run.prediction import predict_files

    written = predict_files(network, dataset, track_progress(images, "Predicting"), output)
    Console(highlight=False, soft_wrap=True).print(
        f"Wrote {len(written)} files to {escape(str(output))}."
    )


def _open_data(
    model: str, data: str | None, options: list[str] | None, *, skip_damaged: bool
) -> Dataset:
    """The dataset that was named, or the one that the model was trained on."""
    given = dict(option_pair(text) for text in options or [])
    if data is not None:
        return open_dataset(data, skip_damaged=skip_damaged, **given)
    folder = Path(model) if Path(model).is_dir() else Path(model).parent
    file = folder / "config.toml"
    if not file.is_file():
        raise ValueError(f"which data? {model!r} is not in a run's folder: give --data")
    config = make_config(read_config(file))
    skip_damaged = skip_damaged or config.skip_damaged
    return open_dataset(config.data, skip_damaged=skip_damaged, **{**config.data_options, **given})


def _open_trained(model: str) -> nn.Module:
    """The model in a run's folder or a file, on a GPU if there is one."""
    if Path(model).is_dir():
        from ..lab.run.folder import open_run_model

        network = open_run_model(Path(model))
    else:
        network = open_model(model, Build())
    return network.cuda() if torch.cuda.is_available() else network


def _print_scores(scores: Scores, where: str) -> None:
    out = Console(highlight=False)
    table = new_table(f"{where}, {scores.images} images", right=("value", "95% interval"))
    for score in scores.scores:
        interval = f"{score.low:.4f} to {score.high:.4f}"
        table.add_row(escape(score.name), f"{score.value:.4f}", interval)
    out.print(table)
    if scores.left_out:
        names = ", ".join(map(repr, scores.left_out))
        out.print(f"Left out, with one class only in these images: {escape(names)}", soft_wrap=True)
