"""An explanation in a file, and read back with every number as it was: JSON, CSV or Parquet."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..extras import needed_for
from ..table import as_csv, as_frame
from .advice import Zeroing
from .basis import Basis, make_basis
from .explanation import ABOUT, Explanation, Layer, sum_up
from .spectrum import Spectrum, reduced

if TYPE_CHECKING:
    import pandas as pd

_BANDS = ("low_chance", "energy_chance")  # pairs: two columns each
_WORDS = ("layer", "kernel", "fixed_by")
_MAYBE = ("saliency", "saliency_share", "steered_parameters")  # columns that may be all empty


def as_table(why: Explanation) -> pd.DataFrame:
    """A row per layer, keyed by module path; the spectra in columns `ed_0`, `ed_1`, …"""
    return as_frame(_rows(why), "layer").astype(dict.fromkeys(_MAYBE, float))


def _rows(why: Explanation) -> list[dict[str, Any]]:
    rows = []
    for layer in why.as_dict()["layers"]:
        row: dict[str, Any] = {}
        for name, value in layer.items():
            if name == "kernel":
                row[name] = "x".join(map(str, value))
            elif name in _BANDS:
                row |= {f"{name}_from": value[0], f"{name}_to": value[1]}
            elif name == "ed":
                row |= {f"ed_{i}": energy for i, energy in enumerate(value)}
            else:
                row[name] = value
        rows.append(row)
    return rows


def write_explanation(why: Explanation, path: Path) -> None:
    """Write it as the ending of the path says."""
    record = why.as_dict()
    if path.suffix == ".json":
        path.write_text(json.dumps(record, indent=1), encoding="utf-8")
        return
    del record["layers"]
    about = json.dumps(record)
    if path.suffix == ".parquet":
        with needed_for("a .parquet file"):
            import pyarrow  # noqa: F401 (pandas writes by it)
        frame = as_table(why)
        frame.attrs = {"explainfix": about}
        frame.to_parquet(path)
    elif path.suffix == ".csv":
        path.write_text(f"# {about}\n{as_csv(_rows(why))}", encoding="utf-8")
    else:
        raise ValueError(f"{str(path)!r} must end in .json, .parquet or .csv")


def read_explanation(path: Path) -> Explanation:
    """What `write_explanation` wrote, or a `ValueError` that says it is something else."""
    try:
        return rebuild(_read(path))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{str(path)!r} holds no explanation ({error!r})") from None


def _read(path: Path) -> dict[str, Any]:
    """The record of `Explanation.as_dict`, whatever the form of the file."""
    if path.suffix == ".parquet":
        with needed_for("a .parquet file"):
            import pandas as pd
            import pyarrow  # noqa: F401 (pandas reads by it)
        frame = pd.read_parquet(path)
        record = json.loads(frame.attrs["explainfix"])
        rows = frame.reset_index().to_dict("records")
    else:
        first, _, rest = path.read_text(encoding="utf-8").partition("\n")
        if path.suffix == ".json":
            return dict(json.loads(f"{first}\n{rest}"))
        record = json.loads(first[2:])
        rows = list(csv.DictReader(rest.splitlines()))
    return {**record, "layers": [_layer({str(k): v for k, v in row.items()}) for row in rows]}


def _layer(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table as the record has it; empty cells are gaps."""
    layer: dict[str, Any] = {"layer": ""} | dict.fromkeys(("fixed_by", *_MAYBE))
    for name, value in row.items():
        if not _is_gap(value):
            layer[name] = value if name in _WORDS else float(value)
    layer["kernel"] = [int(side) for side in layer["kernel"].split("x")]
    layer["ed"] = [layer[f"ed_{i}"] for i in range(math.prod(layer["kernel"]))]
    return layer | {name: [layer[f"{name}_from"], layer[f"{name}_to"]] for name in _BANDS}


def _is_gap(value: object) -> bool:
    return value in (None, "") or (isinstance(value, float) and math.isnan(value))


def rebuild(record: dict[str, Any]) -> Explanation:
    """The explanation whose `as_dict` this is."""
    spectra: dict[str, Spectrum] = {}
    facts: dict[str, Layer] = {}
    made: dict[tuple[int, ...], Basis] = {}
    for layer in record["layers"]:
        path, shape = layer["layer"], tuple(layer["kernel"])
        if shape not in made:
            if record["basis"] == "pca":  # it is not in the file
                made[shape] = Basis(torch.zeros(math.prod(shape), *shape), None)
            else:
                made[shape] = make_basis(record["basis"], shape, lambda: torch.empty(0))
        steered = layer["steered_parameters"]
        spectra[path] = reduced(torch.tensor(layer["ed"], dtype=torch.float64), made[shape])
        facts[path] = Layer(
            shape=shape,
            kernels=int(layer["kernels"]),
            parameters=int(layer["parameters"]),
            fixed_by=layer["fixed_by"],
            saliency=layer["saliency"],
            low_share=layer["low_share"],
            low_chance=(layer["low_chance"][0], layer["low_chance"][1]),
            energy_chance=(layer["energy_chance"][0], layer["energy_chance"][1]),
            needed=int(layer["filters_needed"]),
            steered=None if steered is None else int(steered),
            samples=None,
        )
    return Explanation(
        spectra=spectra,
        layers=facts,
        totals=sum_up(spectra, facts, made, weighted=record["weighted"]),
        bases=made,
        zeroing=tuple(Zeroing(**step) for step in record["zeroing"]),
        **{name: record[name] for name in ABOUT},
    )
