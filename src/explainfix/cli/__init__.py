"""The shell's door: parses, calls, prints. Exit code 0, or 2 with one line for a user's mistake."""

import os
import re
import sys
from collections.abc import Sequence

import cyclopts
from rich.console import Console
from rich.markup import escape

from . import checking as checking  # registers the commands
from . import evaluating as evaluating
from . import explaining as explaining
from . import exporting as exporting
from . import fixing as fixing
from . import pruning as pruning
from . import reproducing as reproducing
from . import shrinking as shrinking
from . import steering as steering
from . import training as training
from . import tuning as tuning
from .app import app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except cyclopts.CycloptsError as error:
        return _mistake(str(error))
    except (ValueError, OSError, ImportError) as error:
        if isinstance(error, BrokenPipeError):  # the reader, `head` say, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return _mistake(_in_words(error))
    except KeyboardInterrupt:
        return 130
    return code or 0


def _mistake(message: str) -> int:
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", message)  # libraries colour their messages
    line = " ".join(plain.split())
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        f"[bold red]error:[/bold red] {escape(line)}"
    )
    return 2


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{str(error.filename)!r}: {error.strerror}"
    return str(error)
