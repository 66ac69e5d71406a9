"""Files of a dataset, in a folder or in a zip as downloaded, and which are damaged."""

from __future__ import annotations

import io
import os
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from . import cache
from .images import DamagedError, Levels, check_image, image_size

MANY, SOME = 32_000, 4_000  # of more than so many files, these are decoded to open them


@dataclass(frozen=True)
class Tree:
    """A folder, or a zip read as if it were one; names are relative and use `/`."""

    path: Path
    _open: dict[int, zipfile.ZipFile] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def zipped(self) -> bool:
        return self.path.is_file()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All files, in the order of their names."""
        if self.zipped:
            found = [entry.filename for entry in self._zip().infolist() if not entry.is_dir()]
        else:
            found = [
                (Path(folder) / name).relative_to(self.path).as_posix()
                for folder, _, names in os.walk(self.path, followlinks=True)
                for name in names
            ]
        hidden = ("__MACOSX/", ".")  # what macOS adds to zips and folders
        return tuple(
            sorted(
                name
                for name in found
                if not name.startswith(hidden) and not name.rpartition("/")[2].startswith(".")
            )
        )

    def read(self, name: str) -> io.BytesIO:
        """The bytes of a file, as something to read from."""
        data = self._zip().read(name) if self.zipped else (self.path / name).read_bytes()
        return io.BytesIO(data)

    def stamp(self, names: Iterable[str]) -> str:
        """What changes when one of these files does: names, sizes and times of change."""
        if self.zipped:
            return f"{_stamp(self.path)} {' '.join(names)}"
        return " ".join(f"{name} {_stamp(f'{self.path}/{name}')}" for name in names)

    def lacks(self, name: str) -> bool:
        """Whether a file is missing or empty."""
        if self.zipped:
            return not self._zip().getinfo(name).file_size
        return _stamp(f"{self.path}/{name}").startswith(("missing", "0 "))

    def full(self, name: str) -> str:
        """The name with the path of the folder or zip it is in."""
        return f"{self.path.absolute().as_posix()}/{name}"

    def _zip(self) -> zipfile.ZipFile:
        """Open in this process: two that share one would disturb each other's place in it."""
        process = os.getpid()
        if process not in self._open:
            self._open.clear()
            try:
                self._open[process] = zipfile.ZipFile(self.path)
            except (zipfile.BadZipFile, OSError) as error:
                raise ValueError(f"{str(self.path)!r} cannot be read as a zip: {error}") from None
        return self._open[process]

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_open": {}}


def _stamp(path: Path | str) -> str:
    try:
        known = os.stat(path)  # noqa: PTH116 (Paths of 200,000 files would cost seconds)
    except FileNotFoundError:
        return "missing"
    return f"{known.st_size} {known.st_mtime_ns}"


def find_damaged(
    tree: Tree, names: Sequence[str], *, levels: Levels = "file", every: bool = True
) -> dict[str, list[str]]:
    """The images that cannot be decoded, by what is wrong with them, as in "damaged: it is empty".

    The answer is kept until a file changes. Unless it must be `every` one of many files, those that
    are missing or empty are found, and of the others some are decoded, evenly spread.
    """
    key = f"damaged {levels} {tree.path.absolute().as_posix()}"
    if len(names) > MANY and not every:
        key = f"some {key}"
        spread = names[:: -(-len(names) // SOME)]
        names = list(dict.fromkeys([*spread, *filter(tree.lacks, names)]))

    def find() -> list[str]:
        reasons = {name: _damage(tree, name, levels) for name in names}
        return [text for pair in reasons.items() if pair[1] for text in pair]

    told = cache.remember_names(key, tree.stamp(names), find)
    found: dict[str, list[str]] = defaultdict(list)
    for name, reason in zip(told[::2], told[1::2], strict=True):
        found[reason].append(name)
    return dict(found)


def _damage(tree: Tree, name: str, levels: Levels) -> str:
    """What is wrong with an image that cannot be decoded, or nothing."""
    try:
        check_image(tree.read(name), name, levels=levels)
    except DamagedError as error:
        return f"damaged: {error.reason}"
    except FileNotFoundError:
        return "missing"
    except (ValueError, zipfile.BadZipFile, OSError) as error:
        return "damaged: " + (" ".join(str(error).split()) or type(error).__name__)
    return ""


def report_damaged(
    path: str, problems: Mapping[str, Sequence[str]], *, skip: bool
) -> tuple[str, ...]:
    """The files with a problem ("damaged: …", "without a mask"): an error, or all to be skipped."""
    found = {what: names for what, names in problems.items() if names}
    if found and not skip:
        told = [f"{few(names, 'file')} {what}" for what, names in found.items()]
        if more := sum(map(len, list(found.values())[5:])):
            told[5:] = [f"{more} more"]
        raise ValueError(f"{path!r} has {'; '.join(told)}. skip_damaged leaves them out")
    return tuple(name for names in found.values() for name in names)


def check_one_size(files: Iterable[tuple[Tree, str]], remedy: str) -> None:
    """An error if images differ in size: a batch could not be made of them."""
    seen: dict[tuple[int, ...], str] = {}
    for tree, name in files:
        seen.setdefault(image_size(tree.read(name), name), name)
        if len(seen) > 1:
            (one, first), (other, second) = seen.items()
            raise ValueError(
                f"images to train on differ in size: {first!r} is {one[0]}x{one[1]}, "
                f"{second!r} {other[0]}x{other[1]}; give {remedy}"
            )


def found_in(path: str) -> str:
    """What is there instead of what was looked for."""
    if not path:
        return "no path was given"
    if not Path(path).is_dir():
        return f"{path!r} is {'a file' if Path(path).exists() else 'not there'}"
    names = sorted(e.name for e in Path(path).iterdir() if not e.name.startswith("."))
    return f"{path!r} holds {few(names, 'thing') if names else 'nothing'}"


def few(names: Sequence[str], what: str) -> str:
    """A count and the first few.

    >>> few(["a", "b", "c", "d"], "image")
    "4 images ('a', 'b', 'c', …)"
    """
    shown = ", ".join(map(repr, names[:3])) + (", …" if len(names) > 3 else "")
    return f"{len(names)} {what}{'s' if len(names) != 1 else ''} ({shown})"
