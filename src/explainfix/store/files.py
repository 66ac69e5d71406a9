"""Files that are there whole or not at all."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def check_free(path: Path, *, overwrite: bool) -> None:
    """Raise unless a file can be written to `path`, before any work is done for it."""
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; give a file name")
    if path.exists() and not overwrite:
        raise FileExistsError(
            f"{str(path)!r} exists already; choose another name, or overwrite=True (--force)"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(path.parent)!r} of the output does not exist")


@contextmanager
def written(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """A temporary path to write to, which becomes `path` if all goes well and is gone otherwise."""
    check_free(path, overwrite=overwrite)
    temporary = path.parent / f".{path.stem}.{secrets.token_hex(4)}{path.suffix}"
    # The kernel applies the umask; to ask for it would change it for all threads meanwhile.
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    mode = stat.S_IMODE(os.fstat(handle).st_mode)
    os.close(handle)
    try:
        yield temporary
        temporary.chmod(mode)  # a writer may have made the file anew
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
