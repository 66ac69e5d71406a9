"""Print the lower bound of every dependency in pyproject.toml as a constraint for pip.

python tools/lower_bounds.py > constraints.txt
"""

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lower_bounds(requirements: Iterable[str]) -> list[str]:
    """Each requirement `name>=version` as `name==version`; a `ValueError` for any without a bound.

    >>> lower_bounds(["torch>=2.6", "ray[tune]>=2.40,<3"])
    ['torch==2.6', 'ray==2.40']
    >>> lower_bounds(["rich"])
    Traceback (most recent call last):
    ValueError: 'rich' has no lower bound: write it as name>=version
    """
    bounds = []
    for requirement in requirements:
        found = re.match(r"([\w.-]+)\s*(?:\[.*\])?\s*>=\s*([\w.]+)", requirement)
        if found is None:
            raise ValueError(f"{requirement!r} has no lower bound: write it as name>=version")
        bounds.append(f"{found[1]}=={found[2]}")
    return bounds


def requirements(project: dict[str, object]) -> list[str]:
    """All that a project asks for, with and without extras, apart from extras of its own."""
    extras = project["optional-dependencies"].values()
    every = [*project["dependencies"], *(each for extra in extras for each in extra)]
    return [each for each in every if not each.startswith(f"{project['name']}[")]


if __name__ == "__main__":
    try:
        pins = lower_bounds(requirements(tomllib.loads(PROJECT.read_text())["project"]))
    except ValueError as error:
        sys.exit(str(error))
    print(*pins, sep="\n")
