"""The name of a run: the same options give the same name, so that no run is done twice."""

import dataclasses
import hashlib
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ...store.header import HEADER, read_header
from ...zoo.opening import files_of, split_run, split_weights
from ...zoo.own import split_factory
from .config import RunConfig, make_config, read_config

FORMAT = 4  # what the options of a run mean: to be raised if the same options give another run
HARMLESS = ("workers", "checkpoint_seconds", "tensorboard")  # no result depends on these
LATER = {"compile": False}  # options younger than FORMAT: runs without them keep their names


def run_name(config: RunConfig) -> str:
    """The run's folder: readable, and different for different runs.

    It changes with any option that may change the result, with the content of the files that
    `model`, `weights`, `fix_guide`, `zero_from` and `teacher` name, and with what runs of this
    version mean.
    """
    return f"{run_title(config)}-{_digest(config)}"


def run_title(config: RunConfig) -> str:
    """What of the name is for people: the model, the data, and how filters were fixed.

    >>> run_title(RunConfig(model="nets/mine.py:unet", data="folder:my/photos", fix="ghaar"))
    'mine_unet-folder_photos-ghaar'
    """
    source, _, path = config.data.partition(":")
    data = f"{source}_{Path(path).stem}" if path else source
    return _joined(_model_title(config.model), data, _filters(config))


def decisive(config: RunConfig) -> dict[str, Any]:
    """The options that change what a run does."""
    return {k: v for k, v in dataclasses.asdict(config).items() if k not in HARMLESS}


def differences(path: Path, config: RunConfig) -> dict[str, tuple[Any, Any]]:
    """The options that change results and are others in a file that `to_toml` wrote: there, here.

    One that the file does not have did not exist then: it was as its default is.
    """
    there = dataclasses.asdict(make_config(read_config(path)))
    there |= dict.fromkeys(re.findall(r"^# (\w+) =$", path.read_text(), re.MULTILINE))  # no value
    here = decisive(config)
    return {name: (there[name], here[name]) for name in here if there[name] != here[name]}


def _digest(config: RunConfig) -> str:
    given = (config.model, config.weights, config.fix_guide, config.zero_from, config.teacher)
    files = [_fingerprint(text) for text in given if text]
    options = {k: v for k, v in decisive(config).items() if k not in LATER or v != LATER[k]}
    text = json.dumps([FORMAT, options, files], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def _model_title(model: str) -> str:
    """A model by its name, its run's or file's, or its own file's and factory's; its weights'."""
    if run := split_run(model):
        return "_".join((run[0].resolve().name, run[1]))
    name, weights = split_weights(model)
    own = split_factory(name)
    title = Path(name).stem if name.endswith(".safetensors") else name
    if own:
        title = f"{Path(own[0]).stem}_{own[1]}"
    return f"{title}_{Path(weights).stem}" if weights else title


def _filters(config: RunConfig) -> str:
    """How filters are fixed: by this run, or in the file that it begins with."""
    if config.fix is not None:
        return config.fix + ("_mixed" if config.mix else "_steered" if config.steer else "")
    for path in files_of(config.model):
        with suppress(OSError, SafetensorError, KeyError, ValueError), safe_open(path, "pt") as f:
            fixed = read_header(path, (f.metadata() or {})[HEADER]).fixed
            return "_".join(sorted({recipe.method for recipe in fixed.values()})) or "learned"
    return "learned"


def _joined(*parts: str) -> str:
    return "-".join(re.sub(r"[^\w.]+", "_", part) for part in parts)


def _fingerprint(text: str) -> str:
    digests = [hashlib.blake2b(f.read_bytes(), digest_size=8).hexdigest() for f in files_of(text)]
    return "".join(digests)
