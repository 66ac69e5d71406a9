"""docs/results.md from outcomes: every experiment at a scale, with small pictures.

What stands above the mark is written by hand and stays.

python -m explainfix.paper.document reproduced docs
"""

from __future__ import annotations

import io
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from ..lab.run.checkpoint import writing
from ..lab.sweep.progress import duration
from . import list_experiments
from .record import Record, read_outcome, show
from .setting import Scale

RESULTS, PICTURES = "results.md", "results"
WIDTH = 1000  # pixels of a picture
MARK = "<!-- below: written by explainfix.paper.document -->"
_HEAD = "# Results\n\n"
_INTRO = (
    "## All claims\n\n"
    "The paper's experiments at scale `{scale}`. A verdict follows a rule that was written down "
    "before\nthe run ([how](reproduce.md)); *undecided* means that the runs are too few, too short "
    "or on too\nlittle data to tell. What differs from the paper's setting is said with each "
    "experiment, and so\nis what was already known when a rule was made.\n"
)


def write_results(folder: Path, docs: Path, scale: Scale = "cpu") -> Path:
    """Write results.md below its mark, and its pictures; pictures of other outcomes go."""
    found = [read_outcome(folder / f"{name}-{scale}") for name in list_experiments()]
    records = [record for record in found if record is not None]
    if not records:
        raise ValueError(f"{str(folder)!r} holds no outcome at scale {scale!r}")
    pictures = docs / PICTURES
    pictures.mkdir(parents=True, exist_ok=True)
    parts, kept = [_INTRO.format(scale=scale), _overview(records)], set()
    for record in records:
        names = []
        for number, figure in enumerate(record["figures"], start=1):
            name = f"{record['name']}-{number}.png"
            with writing(pictures / name) as temporary:
                source = folder / f"{record['name']}-{scale}" / figure["file"]
                temporary.write_bytes(_small(source.read_bytes()))
            names.append(name)
        kept.update(names)
        parts.append(_section(record, names))
    for old in pictures.glob("*.png"):
        if old.name not in kept:
            old.unlink()
    page = docs / RESULTS
    before = page.read_text(encoding="utf-8").partition(MARK)[0] if page.is_file() else _HEAD
    with writing(page) as temporary:
        temporary.write_text("\n".join([before + MARK, "", *parts]), encoding="utf-8")
    return page


def _overview(records: list[Record]) -> str:
    words = Counter(claim["word"] for record in records for claim in record["claims"])
    agree, disagree, open_ = (words[word] for word in ("agrees", "disagrees", "undecided"))
    counts = f"{agree} agree, {disagree} disagree, {open_} are undecided"
    rows = [
        [
            f"[{record['name']}](#{record['name']})",
            record["reference"],
            claim["text"],
            f"**{claim['word']}**" if claim["word"] != "undecided" else claim["word"],
        ]
        for record in records
        for claim in record["claims"]
    ]
    for row, before in zip(reversed(rows), reversed(rows[:-1]), strict=False):
        if row[0] == before[0]:
            row[0] = row[1] = ""
    done = {record["name"] for record in records}
    missing = [name for name in list_experiments() if name not in done]
    left = f" Not run yet: {', '.join(missing)}." if missing else ""
    table = _table(["", "paper", "claim", "verdict"], rows)
    return f"{sum(words.values())} claims: {counts}.{left}\n\n{table}\n"


def _section(record: Record, pictures: list[str]) -> str:
    count = len(record["runs"])
    trained = (
        f"{count} run{'s' * (count > 1)}, {duration(record['training_seconds'])} of training; "
    )
    lines = [
        f"## {record['name']}",
        f"{record['title']} ({record['reference']}).",
        f"```console\n$ {_anywhere(record['command'])}\n```",
        _table(
            ["claim", "paper", "ours", "verdict"],
            [
                [claim[key] for key in ("text", "paper", "ours", "word")]
                for claim in record["claims"]
            ],
        ),
    ]
    for picture, figure in zip(pictures, record["figures"], strict=True):
        lines.append(f"![{figure['caption']}]({PICTURES}/{picture})\n\n*{figure['caption']}*")
    for table in record["tables"]:
        rows = [[show(cell) for cell in row] for row in table["rows"]]
        lines.append(f"{table['caption']}:\n\n{_table(table['columns'], rows)}")
    if record["notes"]:
        lines.append("\n".join(f"- {note}" for note in record["notes"]))
    rules = "\n".join(f"- {claim['text']} {claim['rule']}" for claim in record["claims"])
    lines.append(f"<details><summary>The rules</summary>\n\n{rules}\n\n</details>")
    time = f"{trained if count else ''}{duration(record['seconds'])} for this outcome"
    lines.append(f"{time}; explainfix {record['version']}, {record['date']}.")
    return "\n\n".join(lines) + "\n"


def _anywhere(command: str) -> str:
    """A command without the folder that the data was in.

    >>> _anywhere("explainfix reproduce steering --data bbbc038v1:/my/own --workers 2")
    'explainfix reproduce steering --data bbbc038v1:FOLDER --workers 2'
    """
    return re.sub(r"(--data [\w-]+):\S+", r"\1:FOLDER", command)


def _table(columns: list[str], rows: list[list[Any]]) -> str:
    """A Markdown table."""
    cells = [
        [str(cell).replace("|", r"\|").replace("\n", " ") for cell in row]
        for row in (columns, ["---"] * len(columns), *rows)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _small(picture: bytes) -> bytes:
    """A picture for the docs: not too wide, few colours, on white."""
    from PIL import Image

    out = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as image:
        plain = image.convert("RGB")
        if plain.width > WIDTH:
            plain = plain.resize((WIDTH, round(plain.height * WIDTH / plain.width)))
        plain.quantize(128).save(out, format="PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    print(f"Wrote {write_results(Path(sys.argv[1]), Path(sys.argv[2]))}")
