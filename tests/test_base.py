"""Without extras: what the base promises needs no package outside of it."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from explainfix.extras import EXTRAS, needed_for, require

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "explainfix"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Run as the program of a new process: imports of these names fail as if nobody had installed them.
HIDE = """
import importlib.abc, runpy, sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

hidden = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Hidden())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name in hidden else found(name, *a)
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def distributions(requirements: list[str]) -> set[str]:
    """All that pip would install for these, without extras."""
    found: set[str] = set()
    left = [Requirement(text) for text in requirements]
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        if name in found or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        left += map(Requirement, requires(name) or [])
    return found


def test_the_base_needs_nothing_else(tmp_path):
    base = distributions(PROJECT["dependencies"]) | {"explainfix"}
    installed = packages_distributions()
    hidden = {
        name
        for name, owners in installed.items()
        if not base & {canonicalize_name(owner) for owner in owners} and name.isidentifier()
    }
    assert hidden >= set(EXTRAS) & set(installed)
    assert not hidden & {"torch", "numpy", "rich"}
    command = [sys.executable, "-c", HIDE, ",".join(hidden), str(ROOT / "tools" / "newcomer.py")]
    run = subprocess.run(
        [*command, str(tmp_path / "new")], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert "all that the base promises works" in run.stdout


def test_every_extra_is_what_installs_its_packages():
    """The table in `extras` and the one in pyproject.toml say the same."""
    extras = PROJECT["optional-dependencies"]
    owners = packages_distributions()
    for package, extra in EXTRAS.items():
        named = {canonicalize_name(Requirement(text).name) for text in extras[extra]}
        assert named & {canonicalize_name(owner) for owner in owners[package]}, package


def imports(tree: ast.AST, *, guarded: bool = False) -> list[tuple[str, bool, int]]:
    """The packages that are imported, and whether `needed_for` or a look for them is around it."""
    found = []
    for node in ast.iter_child_nodes(tree):
        inside = guarded
        if isinstance(node, ast.With):
            inside |= any("needed_for" in ast.unparse(item) for item in node.items)
        if isinstance(node, ast.If):
            inside |= "TYPE_CHECKING" in ast.unparse(node.test)
        if isinstance(node, ast.FunctionDef):
            inside |= "if not installed(" in ast.unparse(node)
        if isinstance(node, ast.Import):
            found += [(name.name.partition(".")[0], inside, node.lineno) for name in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.append((node.module.partition(".")[0], inside, node.lineno))
        found += imports(node, guarded=inside)
    return found


def test_every_import_of_an_extra_says_how_to_install_it():
    """All of them, those that no test reaches too; the door of `paper` asks for the whole lab."""
    base = {name.partition(">")[0].replace("-", "_") for name in PROJECT["dependencies"]}
    base |= {"explainfix", "markupsafe", *sys.stdlib_module_names}
    wrong = []
    for file in PACKAGE.rglob("*.py"):
        at_home = file.relative_to(PACKAGE).parts[0] == "paper"
        for package, guarded, line in imports(ast.parse(file.read_text())):
            if package not in base and not guarded and not (at_home and EXTRAS[package] == "lab"):
                wrong.append(f"{file.relative_to(ROOT)}:{line} imports {package}")
    assert not wrong


def test_an_import_that_is_not_ours_fails_as_it_would():
    missing = pytest.raises(ModuleNotFoundError, match="No module named 'nothing_like_it'")
    with missing, needed_for("a table"):
        import nothing_like_it  # noqa: F401


def test_a_whole_extra_can_be_asked_for(monkeypatch):
    require("lab", "an experiment")
    monkeypatch.setattr("explainfix.extras.installed", lambda package: package != "tifffile")
    line = "an experiment needs tifffile, which is not installed: pip install 'explainfix[lab]'"
    with pytest.raises(ImportError, match=re.escape(line)):
        require("lab", "an experiment")
