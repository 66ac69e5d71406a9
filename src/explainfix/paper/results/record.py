"""An outcome on disk: outcome.json, figures and one HTML page; each whole, or as it was.

outcome.json has the scores that the rules judged, so that anybody can apply the rules again.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections import Counter
from dataclasses import asdict, make_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ...lab.run.checkpoint import writing
from ...lab.sweep.progress import duration
from ...report.page import fill_template
from ..contrast import Scores
from ..experiment import Evidence, Experiment, Rows, judge_claims, list_experiments
from ..figures import draw_picture
from ..verdict import Verdict

FORMAT = 2
OUTCOME, PAGE = "outcome.json", "page.html"
PACKAGES = ("torch", "torchvision", "timm", "numpy", "scipy", "segmentation-models-pytorch")

Record = dict[str, Any]  # what outcome.json holds


def write_outcome(
    folder: Path, experiment: Experiment, evidence: Evidence, about: dict[str, Any]
) -> Record:
    """Write figures and outcome.json; `about` is the scale, the command, the seconds."""
    verdicts = judge_claims(experiment.claims, evidence.scores, evidence.untested)
    folder.mkdir(parents=True, exist_ok=True)
    figures = []
    for number, (caption, figure) in enumerate(evidence.figures.items(), start=1):
        names = {"file": f"figure-{number}.png", "dark": f"figure-{number}-dark.png"}
        for dark, name in enumerate(names.values()):
            with writing(folder / name) as temporary:
                temporary.write_bytes(draw_picture(figure, dark=bool(dark)))
        figures.append({"caption": caption, **names})
    record: Record = {
        "format": FORMAT,
        "version": _version(),
        "name": experiment.name,
        "title": experiment.title,
        "reference": experiment.reference,
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "packages": {name: found for name in PACKAGES if (found := _installed(name))},
        **about,
        "claims": [
            {
                "key": claim.key,
                "text": claim.text,
                "paper": claim.paper,
                "rule": str(claim.rule),
                "kind": claim.kind,
                **asdict(verdicts[claim.key]),
            }
            for claim in experiment.claims
        ],
        "untested": evidence.untested,
        "scores": {name: _listed(scores) for name, scores in evidence.scores.items()},
        "tables": [
            {"caption": caption, **_plain(table)} for caption, table in evidence.tables.items()
        ],
        "figures": figures,
        "notes": evidence.notes,
    }
    with writing(folder / OUTCOME) as temporary:
        temporary.write_text(as_text(record), encoding="utf-8")
    kept = {name for entry in figures for name in entry.values()}
    for old in folder.glob("figure-*.png"):
        if old.name not in kept:
            old.unlink()
    return record


def read_outcome(folder: Path) -> Record | None:
    """The outcome in a folder, `None` if there is none; of another version, an error."""
    file = folder / OUTCOME
    if not file.is_file():
        return None
    try:
        record: Record = json.loads(file.read_text(encoding="utf-8"))
        found = (record["format"], record["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{str(file)!r} is damaged: {error}") from None
    if found != (FORMAT, _version()):
        raise ValueError(
            f"{str(file)!r} is of explainfix {found[1]}, format {found[0]}; this is {_version()}, "
            f"format {FORMAT}: choose another --folder, or --force to write over the outcome "
            "(runs are kept)"
        )
    return record


def read_kept(kept: Path) -> list[Record]:
    """The outcomes in docs/results, of whatever version, in the order of the experiments."""
    records = []
    for name in list_experiments():
        file = kept / f"{name}.json"
        if file.is_file():
            record: Record = json.loads(file.read_text(encoding="utf-8"))
            if record.get("format") != FORMAT:
                raise ValueError(f"{str(file)!r} has format {record.get('format')}, not {FORMAT}")
            records.append(record)
    return records


def write_page(folder: Path, record: Record) -> Path:
    """Write the page of the outcome in a folder."""
    path = folder / PAGE
    with writing(path) as temporary:
        temporary.write_text(render_page(folder, record), encoding="utf-8")
    return path


def render_page(folder: Path, record: Record) -> str:
    """The page as text; the pictures are read from the folder."""

    def picture(name: str) -> str:
        return "data:image/png;base64," + base64.b64encode((folder / name).read_bytes()).decode()

    words = Counter(claim["word"] for claim in record["claims"])
    return fill_template(
        "outcome.html",
        {**record, "words": words},
        folder=Path(__file__).parent,
        filters={"show": show, "duration": duration, "picture": picture},
    )


def judge_again(experiment: Experiment, record: Record) -> list[str]:
    """Apply the rules of now to the scores of an outcome; what comes out otherwise, in words."""
    verdicts = judge_claims(experiment.claims, read_scores(record), record["untested"])
    stored = {claim["key"]: claim for claim in record["claims"]}
    found = [
        f"the claim {key!r} is {'missing' if key in verdicts else 'no longer made'}"
        for key in sorted(set(verdicts) ^ set(stored))
    ]
    for claim in experiment.claims:
        if claim.key not in stored:
            continue
        there, now = stored[claim.key], verdicts[claim.key]
        if there["rule"] != str(claim.rule):
            found.append(f"{claim.key!r} was judged by another rule: {there['rule']}")
        if Verdict(there["word"], there["ours"]) != now:
            found.append(
                f"{claim.key!r} was {there['word']} ({there['ours']}), and is {now.word} "
                f"({now.ours})"
            )
    return found


def read_scores(record: Record) -> dict[str, Scores]:
    """The scores of an outcome by their keys."""
    found: dict[str, Scores] = {}
    for name, table in record["scores"].items():
        key = make_dataclass("Key", table["fields"], frozen=True)
        found[name] = {key(*row): score for *row, score in table["rows"]}
    return found


def as_text(record: Record) -> str:
    """As outcome.json has it, a row of scores, or of what was trained, on one line."""
    names = list(record["scores"])
    marked = record | {"scores": {name: f"@{number}@" for number, name in enumerate(names)}}
    tables = [record["scores"][name] for name in names]
    if "trained" in record:
        marked["trained"] = f"@{len(tables)}@"
        tables.append(record["trained"])
    text = json.dumps(marked, indent=1, allow_nan=False, ensure_ascii=False)
    for number, table in enumerate(tables):
        rows = ",\n   ".join(json.dumps(row, allow_nan=False) for row in table["rows"])
        fields = json.dumps(table["fields"])
        text = text.replace(
            f'"@{number}@"', f'{{\n   "fields": {fields},\n   "rows": [\n   {rows}]}}'
        )
    return text + "\n"


def show(cell: Any) -> str:
    """A cell of a table as people read it.

    >>> [show(cell) for cell in (None, 116695, 0.04143, 2e-5, 12.345, 12345.6, "GHaar", True)]
    ['–', '116,695', '0.0414', '2e-05', '12.3', '12,346', 'GHaar', 'yes']
    """
    if cell is None:
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        size = abs(cell)
        if 0 < size < 0.001:
            return f"{cell:.2g}"
        return f"{cell:,.{4 if size < 2 else 1 if size < 100 else 0}f}"
    return str(cell)


def _listed(scores: Scores) -> dict[str, Any]:
    """Scores as the fields of their keys, and rows of those with the score last."""
    fields = list(vars(next(iter(scores)))) if scores else []
    rows = [[*map(_cell, vars(key).values()), float(score)] for key, score in scores.items()]
    return {"fields": fields, "rows": rows}


def _plain(table: Rows) -> dict[str, Any]:
    """A table as columns and rows of what JSON can hold."""
    columns = list(dict.fromkeys(column for row in table for column in row))
    return {
        "columns": columns,
        "rows": [[_cell(row.get(column)) for column in columns] for row in table],
    }


def _cell(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, bool | int | float) else str(value)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _version() -> str:
    from ... import __version__

    return __version__
