"""A Griffe extension: examples in docstrings as blocks of code, which Markdown would not see."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", flags=re.DOTALL | re.MULTILINE)


def fenced(text: str) -> str:
    r"""The text with a fence around every example.

    >>> fenced("It adds.\n\n>>> 1 + 1\n2\n\nMore.")
    'It adds.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore.'
    """
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)


class Examples(griffe.Extension):
    """Fences for the examples in all docstrings."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
