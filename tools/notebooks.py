"""Run the notebooks of the documentation and store them with their outputs.

    python tools/notebooks.py [NOTEBOOK ...]

Each runs from a fresh kernel, in an empty folder that is gone afterwards. Stored is what a reader
sees: no times of execution and no versions, so that a second run changes little. A notebook is its
own source: edit it with any editor of notebooks, then run this.
"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
SECONDS = 300  # a cell may take, on a busy machine


def main(names: list[str]) -> None:
    for path in map(Path, names) if names else sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = run(path, Path(folder))
        nbformat.write(tidy(notebook), path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def run(path: Path, folder: Path) -> NotebookNode:
    """The notebook with its outputs, run in a folder; an error in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    # One thread: the same numbers on any number of cores. What IPython keeps goes to the folder.
    with tempfile.TemporaryDirectory() as own:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "IPYTHONDIR": own}
        client = NotebookClient(
            notebook, timeout=SECONDS, resources={"metadata": {"path": str(folder)}}
        )
        client.execute(env=environment)
    return notebook


def tidy(notebook: NotebookNode) -> NotebookNode:
    """The same without what differs between two runs that show the same."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                output.data.pop("image/jpeg", None)  # a picture of Pillow comes as both
    return notebook


if __name__ == "__main__":
    main(sys.argv[1:])
