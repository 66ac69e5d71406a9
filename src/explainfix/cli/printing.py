"""What commands print: progress, tables, JSON; and where they may write."""

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from ..store import check_free

T = TypeVar("T")


def check_output(output: Path | None, *kinds: str, overwrite: bool) -> None:
    """Raise unless a file of one of these kinds can be written, before any work is done for it."""
    if output is None:
        return
    if output.suffix not in kinds:
        wanted = kinds[0] if len(kinds) == 1 else f"one of {', '.join(kinds)}"
        raise ValueError(f"{str(output)!r} must end in {wanted}")
    check_free(output, overwrite=overwrite)


def new_table(*left: str, right: Iterable[str] = ()) -> Table:
    """An empty table without lines; the columns named last are of numbers."""
    table = Table(*left, box=None, pad_edge=False)
    for heading in right:
        table.add_column(heading, justify="right")
    return table


def track_progress(items: Iterable[T], title: str, total: int | None = None) -> Iterable[T]:
    """A progress bar, on a terminal only, gone when done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return items
    if total is None:
        known = list(items)
        items, total = known, len(known)
    return track(items, title, total, console=console, transient=True)


def show_status(title: str) -> AbstractContextManager[object]:
    """A line that says what is being done, on a terminal only, gone when done."""
    console = Console(stderr=True)
    return console.status(title) if console.is_terminal else nullcontext()


def describe_size(size: int) -> str:
    """A number of bytes for people.

    >>> describe_size(812), describe_size(7_400), describe_size(57_200_000)
    ('812 bytes', '7.4 kB', '57.2 MB')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def print_note(note: str) -> None:
    """A sentence that is no part of the result, where a pipe does not see it."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"Note: {escape(note)}")


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2))
