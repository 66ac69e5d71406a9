"""The notebooks run from a fresh kernel, leave nothing behind, and are stored with outputs."""

import runpy
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
LARGEST = 300_000  # bytes: a code host still shows it at once


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


def test_all_lessons_are_here():
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06", "07"]


def test_stored_with_what_they_show(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    shown = outputs(notebook)
    assert all(output.output_type != "error" for output in shown)
    assert all(output.get("name") != "stderr" for output in shown)  # warnings, paths of a machine
    pictures = [output for output in shown if "image/png" in output.get("data", {})]
    assert len(pictures) >= 1
    assert path.stat().st_size < LARGEST
    assert all(not cell.metadata for cell in notebook.cells)
    links = nbformat.writes(notebook).split("](")[1:]
    for link in (link.split(")")[0] for link in links):
        assert (path.parent / link).exists(), link


@pytest.mark.zoo
def test_runs_from_a_fresh_kernel(path, tmp_path):
    tool = runpy.run_path(str(ROOT / "tools" / "notebooks.py"))
    done = tool["tidy"](tool["run"](path, tmp_path))
    assert not list(tmp_path.iterdir())
    # The numbers may differ a little from machine to machine; what kind of thing is shown may not.
    stored = nbformat.read(path, as_version=4)
    assert kinds(done) == kinds(stored)


def kinds(notebook):
    """Of every cell what it shows; text that was printed may come in one piece or in several."""
    return [
        sorted({kind for o in cell.get("outputs", ()) for kind in o.get("data", {o.get("name")})})
        for cell in notebook.cells
    ]
