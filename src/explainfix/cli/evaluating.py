"""Commands that use trained models: evaluate, predict."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

import torch
from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from torch import nn

from ..lab.data.archive import Tree
from ..lab.data.dataset import Dataset, Signature, open_dataset
from ..lab.data.images import EXTENSIONS
from ..lab.run.config import RunConfig, make_config, read_config
from ..lab.run.folder import CONFIG, DATA, find_run, open_run_model, read_signature
from ..lab.run.metrics import Scores
from .app import OUTPUT, Build, Force, Json, Whole, app, open_model, option_pair
from .inputs import Options
from .printing import check_output, new_table, print_json, print_note, track_progress

About = TypeVar("About", bound=Signature)
Trained = Annotated[
    str,
    Parameter(help="A run's folder, a file that explainfix saved, or a model as NAME@FILE."),
]


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
    batch_size: Whole = 1,
    resamples: Whole = 1000,
    window: Whole | None = None,
    recalibrate: Whole = 0,
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
    window
        The side of the squares or cubes in which images are segmented, overlapping by half
        (default: of volumes, that of the cubes trained on).
    recalibrate
        Average BatchNorm's statistics anew over so many batches of the training images first; the
        model on disk stays as it is.
    output
        A .safetensors file for the predictions.
    """
    if recalibrate < 0:
        raise ValueError(f"--recalibrate must be at least 0, not {recalibrate}")
    if batch_size < 1 or resamples < 1:
        raise ValueError("--batch-size and --resamples must be at least 1")
    check_output(output, ".safetensors", overwrite=force)
    source = source or SplitChoice()
    split = source.split
    dataset = _open_data(model, source.data, source.data_option, skip_damaged=source.skip_damaged)
    dataset = _with_window(dataset, window)
    for note in dataset.notes:
        print_note(note)
    images = dataset.split(split)
    network = _open_trained(model)
    from ..lab.prediction.predict import Predictions
    from ..lab.run.evaluation import evaluate

    if recalibrate:
        _recalibrate(network, dataset, model, recalibrate)

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
    threshold: float = 0.5,
    probabilities: Annotated[bool, Parameter(negative="")] = False,
    window: Whole | None = None,
    data: str | None = None,
    data_option: Annotated[list[str] | None, Parameter(negative="")] = None,  # images may follow
    force: Force = False,
) -> None:
    """Let a model look at images: masks drawn over them, or a table of classes.

    A run knows how its images are prepared; a model alone needs --data.

    Parameters
    ----------
    images
        Image files, or folders with images in them, however deep; of a DICOM series, its folder.
    output
        The folder to write to.
    threshold
        The probability above which a pixel, or a finding, is there.
    probabilities
        Write the probabilities of masks too, as TIFF files of floats, or NIfTI for volumes.
    window
        The side of the squares or cubes in which images are segmented, overlapping by half
        (default: of volumes, that of the cubes trained on).
    data
        The dataset whose preparation and classes to use (default: as the run has them).
    data_option
        An option of the dataset, NAME=VALUE; may be repeated.
    """
    if not 0 < threshold < 1:
        raise ValueError(f"--threshold must be above 0 and below 1, not {threshold:g}")
    files = _list_images(images)
    if output.exists() and not force:
        raise FileExistsError(f"{str(output)!r} exists already; choose another name, or --force")
    about = _with_window(_open_signature(model, data, data_option), window)
    network = _open_trained(model)
    from ..lab.prediction.predict import predict_files

    written = predict_files(
        network,
        about,
        track_progress(files, "Predicting"),
        output,
        threshold=threshold,
        keep_probabilities=probabilities,
    )
    noun = "file" if len(written) == 1 else "files"
    Console(highlight=False, soft_wrap=True).print(
        f"Wrote {len(written)} {noun} to {escape(str(output))}."
    )


def _list_images(given: list[Path]) -> list[tuple[str, list[Path]]]:
    """The images that were given or are in folders that were, by the names to write under."""
    from ..lab.data.listing import list_images, stem_of

    found: dict[str, list[Path]] = {}
    for path in given:
        if path.is_dir():
            inside = {
                name or path.resolve().name: [path / file for file in files]
                for name, files in list_images(Tree(path)).items()
            }
            if not inside:
                raise ValueError(f"there is no image in {str(path)!r}: {', '.join(EXTENSIONS)}")
        elif path.is_file():
            inside = {path.name: [path]}
        else:
            raise FileNotFoundError(f"there is no file {str(path)!r}")
        for name, files in inside.items():
            stem = stem_of(name) if len(files) == 1 else name
            if stem in found:
                raise ValueError(
                    f"{str(found[stem][0])!r} and {str(files[0])!r} would be written under the "
                    "same name: give them one after the other, or a folder that holds both"
                )
            found[stem] = files
    return list(found.items())


def _open_data(
    model: str, data: str | None, options: list[str] | None, *, skip_damaged: bool
) -> Dataset:
    """The dataset that was named, or the one that the model was trained on."""
    given = dict(option_pair(text) for text in options or [])
    run = find_run(model)
    if run is None and data is None:
        raise ValueError(f"which data? {model!r} is not in a run's folder: give --data")
    config = make_config(read_config(run[0] / CONFIG)) if run else None
    if config is None or (data and data.partition(":")[0] != config.data.partition(":")[0]):
        return open_dataset(data or "", skip_damaged=skip_damaged, **given)
    # What was trained on, or more of its kind: opened and prepared alike.
    skip_damaged = skip_damaged or config.skip_damaged
    try:
        dataset = open_dataset(
            data or config.data, skip_damaged=skip_damaged, **{**config.data_options, **given}
        )
    except ValueError as error:
        if data:
            raise
        raise ValueError(f"the data of this run, {config.data!r}: {error}; give --data") from None
    if run and not given and (run[0] / DATA).is_file():
        dataset = replace(dataset, preparation=read_signature(run[0])[1].preparation)
    return dataset


def _with_window(about: About, window: int | None) -> About:
    if window is None:
        return about
    if window < 1:
        raise ValueError(f"--window must be at least 1, not {window}")
    return replace(about, preparation=replace(about.preparation, window=window))


def _open_signature(model: str, data: str | None, options: list[str] | None) -> Signature:
    """How images are prepared and what comes out: of the run, or of the dataset that was named."""
    if data is not None:
        return _open_data(model, data, options, skip_damaged=True)
    if options:
        raise ValueError("--data-option needs --data: a run's images are prepared as they were")
    if (run := find_run(model)) is None:
        raise ValueError(
            f"how are images prepared? {model!r} is not in a run's folder: give --data"
        )
    return read_signature(run[0])[1]


def _open_trained(model: str) -> nn.Module:
    """The model in a run's folder or a file, on a GPU if there is one."""
    run = find_run(model)
    network = open_run_model(*run) if run else open_model(model, Build())
    return network.cuda() if torch.cuda.is_available() else network


def _recalibrate(network: nn.Module, dataset: Dataset, model: str, steps: int) -> None:
    """Average BatchNorm's statistics over batches like those that the run was trained with."""
    from ..lab.data.loader import Share
    from ..lab.run.evaluation import average_statistics_

    run = find_run(model)
    config = make_config(read_config(run[0] / CONFIG)) if run else RunConfig()
    share = Share(config.batch_size, config.accumulate)
    split = config.train_split
    if not average_statistics_(network, dataset, split, share, steps=steps, seed=config.seed):
        print_note("--recalibrate has nothing to do: the model has no BatchNorm with statistics")


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
