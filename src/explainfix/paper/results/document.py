"""docs/results.md from outcomes: every experiment, with small pictures, and one table of methods.

The outcomes are kept beside it, in docs/results/NAME.json, so that anybody can write the page again
or judge again. What stands above the mark is written by hand and stays.

python -m explainfix.paper.results.document docs [reproduced]
"""

from __future__ import annotations

import io
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ...lab.run.checkpoint import writing
from ...lab.run.folder import is_finished, read_run
from ...lab.sweep.progress import duration
from .. import list_experiments
from ..experiment import ClaimKind
from ..reproduce import measure_finished
from ..setting import DATASETS, Scale, Setting, kind_of
from .ledger import LEDGER, read_ledger, write_ledger
from .methods import compare_methods, markdown_table
from .record import Record, as_text, read_kept, read_outcome, show
from .steps import read_steps

RESULTS, KEPT = "results.md", "results"
WIDTH = 1000  # pixels of a picture
MARK = "<!-- below: written by explainfix.paper.results.document -->"
_HEAD = "# Results\n\n"
_INTRO = (
    "## All claims\n\n"
    "The paper's experiments at scale `{scale}`. A verdict follows a rule that was written down "
    "before\nthe run ([how](reproduce.md)); *undecided* means that the runs are too few, too short "
    "or on too\nlittle data to tell, *not tested* that they say nothing about it. Claims that hold "
    "by construction\nare checks of the software and are counted apart, and so are those that are "
    "ours. What differs\nfrom the paper's setting is said with each experiment, and so is what was "
    "already known when a\nrule was made.\n"
)
_KINDS: dict[ClaimKind, str] = {
    "finding": "findings of the paper",
    "construction": "checks that hold by construction",
    "beyond": "claims of ours",
}


def write_results(folder: Path | None, docs: Path, scale: Scale = "cpu") -> Path:
    """Take the outcomes at a scale into docs/results, if a folder is given, and write the page."""
    kept = docs / KEPT
    if folder is not None:
        gather(folder, kept, scale)
    records = read_kept(kept)
    if not records:
        raise ValueError(f"{str(kept)!r} holds no outcome")
    shown = {picture for record in records for picture in _pictures(record)}
    for old in kept.glob("*.png"):
        if old.name not in shown:
            old.unlink()
    parts = [compare_methods(records, read_steps(kept))]
    parts += [_INTRO.format(scale=records[0]["scale"]), _overview(records)]
    parts += [_section(record, _pictures(record)) for record in records]
    page = docs / RESULTS
    before = page.read_text(encoding="utf-8").partition(MARK)[0] if page.is_file() else _HEAD
    with writing(page) as temporary:
        temporary.write_text("\n".join([before + MARK, "", *filter(None, parts)]), encoding="utf-8")
    return page


def gather(folder: Path, kept: Path, scale: Scale) -> None:
    """Take over the outcomes at a scale, small pictures of their figures, and all runs' scores.

    What experiments measure of weights is measured of all runs that are there, and goes with their
    scores. What is kept of other experiments stays.
    """
    found = {name: read_outcome(folder / f"{name}-{scale}") for name in list_experiments()}
    finished = list(map(read_run, filter(is_finished, sorted((folder / "runs").glob("*")))))
    if not finished and not any(found.values()):
        raise ValueError(f"{str(folder)!r} holds no outcome at scale {scale!r}, and no run")
    kept.mkdir(parents=True, exist_ok=True)
    drawn = [datasets.names[-1] for datasets in DATASETS.values()]
    real = [run for run in finished if run.config.data not in drawn]
    given = {kind_of(run.config.data): run.config.data for run in real}
    ledger = kept / LEDGER
    if given:
        known = read_ledger(ledger) if ledger.is_file() else {}
        measure_finished(Setting(scale, given, folder, known=known))
    write_ledger(ledger, real)
    for name, record in found.items():
        if record is None:
            continue
        for number, figure in enumerate(record["figures"], start=1):
            with writing(kept / f"{name}-{number}.png") as temporary:
                source = folder / f"{name}-{scale}" / figure["file"]
                temporary.write_bytes(_small(source.read_bytes()))
        with writing(kept / f"{name}.json") as temporary:
            anywhere = record | {"command": _anywhere(record["command"])}
            temporary.write_text(as_text(anywhere), encoding="utf-8")


def _pictures(record: Record) -> list[str]:
    return [f"{record['name']}-{number}.png" for number in range(1, len(record["figures"]) + 1)]


def count_words(records: Sequence[Record], kind: ClaimKind) -> str:
    """How many claims of a kind have each verdict, in a sentence.

    >>> claims = [{"kind": "finding", "word": word} for word in ("agrees", "agrees", "undecided")]
    >>> count_words([{"claims": claims}], "finding")
    '3 findings of the paper: 2 agree, 0 disagree, 1 is undecided, 0 are not tested.'
    """
    claims = [claim for record in records for claim in record["claims"]]
    words = Counter(claim["word"] for claim in claims if claim["kind"] == kind)

    def said(word: str, one: str, many: str) -> str:
        return f"{words[word]} {one if words[word] == 1 else many}"

    return f"{sum(words.values())} {_KINDS[kind]}: " + ", ".join(
        [
            said("agrees", "agrees", "agree"),
            said("disagrees", "disagrees", "disagree"),
            said("undecided", "is undecided", "are undecided"),
            said("not tested", "is not tested", "are not tested") + ".",
        ]
    )


def _overview(records: list[Record]) -> str:
    done = {record["name"] for record in records}
    missing = [name for name in list_experiments() if name not in done]
    left = f"\n\nNot run yet: {', '.join(missing)}." if missing else ""
    counts = "\n".join(f"- {count_words(records, kind)}" for kind in _KINDS)
    tables = []
    for kind, title in _KINDS.items():
        rows = [
            [
                f"[{record['name']}](#{record['name']})",
                record["reference"],
                claim["text"],
                f"**{claim['word']}**" if claim["word"].endswith("agrees") else claim["word"],
            ]
            for record in records
            for claim in record["claims"]
            if claim["kind"] == kind
        ]
        for row, before in zip(reversed(rows), reversed(rows[:-1]), strict=False):
            if row[0] == before[0]:
                row[0] = row[1] = ""
        if rows:
            table = markdown_table(["", "paper", "claim", "verdict"], rows)
            tables.append(f"### {title.capitalize()}\n\n{table}")
    return f"{counts}{left}\n\n" + "\n\n".join(tables) + "\n"


def _section(record: Record, pictures: list[str]) -> str:
    count = len(record["runs"])
    trained = (
        f"{count} run{'s' * (count > 1)}, {duration(record['training_seconds'])} of training; "
    )
    lines = [
        f"## {record['name']}",
        f"{record['title']} ({record['reference']}).",
        f"```console\n$ {_anywhere(record['command'])}\n```",
        markdown_table(
            ["claim", "paper", "ours", "verdict"],
            [
                [claim[key] for key in ("text", "paper", "ours", "word")]
                for claim in record["claims"]
            ],
        ),
    ]
    for picture, figure in zip(pictures, record["figures"], strict=True):
        lines.append(f"![{figure['caption']}]({KEPT}/{picture})\n\n*{figure['caption']}*")
    for table in record["tables"]:
        rows = [[show(cell) for cell in row] for row in table["rows"]]
        lines.append(f"{table['caption']}:\n\n{markdown_table(table['columns'], rows)}")
    if record["notes"]:
        lines.append("\n".join(f"- {note}" for note in record["notes"]))
    rules = "\n".join(f"- {claim['text']} {claim['rule']}" for claim in record["claims"])
    lines.append(f"<details><summary>The rules</summary>\n\n{rules}\n\n</details>")
    time = f"{trained if count else ''}{duration(record['seconds'])} for this outcome"
    lines.append(f"{time}; explainfix {record['version']}, {record['date']}.")
    return "\n\n".join(lines) + "\n"


def _anywhere(command: str) -> str:
    """A command without the folders that the data was in and the runs are in.

    >>> _anywhere("explainfix reproduce steering --data bbbc038v1:/my/own --folder /my/runs")
    'explainfix reproduce steering --data bbbc038v1:FOLDER'
    """
    return re.sub(r"(--data [\w-]+):\S+", r"\1:FOLDER", re.sub(r" --folder \S+", "", command))


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
    source = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    print(f"Wrote {write_results(source, Path(sys.argv[1]))}")
