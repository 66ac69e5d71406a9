"""Is all of the package in its wheel? python tools/check_wheel.py dist/explainfix-*.whl"""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Without these a page, or a recipe, could not be made: known even where git is not.
NEEDED = ("report/page.html", "report/page.css", "report/page.js", "report/story.html",
          "report/frame.html", "paper/results/outcome.html", "filters/imagenet.safetensors",
          "py.typed")  # fmt: skip


def check_wheel(wheel: Path, wanted: set[str]) -> str:
    """A line about a wheel, or an error that names what it lacks, or has too much."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        page = next(name for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(page).decode()
    found = {name for name in names if not name.partition("/")[0].endswith(".dist-info")}
    if missing := sorted(wanted - found):
        raise ValueError(f"{wheel.name} lacks {', '.join(missing)}")
    if more := sorted(found - wanted):
        raise ValueError(f"{wheel.name} has what is not in the package: {', '.join(more)}")
    if "](docs/" in text:
        raise ValueError(f"{wheel.name}: its page links to files that are not on the index")
    return f"{wheel.name}: {len(found)} files, {wheel.stat().st_size / 1e6:.1f} MB, complete"


def package_files() -> set[str]:
    """What git knows of the package, as a wheel names it."""
    listed = subprocess.run(
        ["git", "ls-files", "src/explainfix"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = {name.removeprefix("src/") for name in listed.stdout.splitlines()}
    return files | {f"explainfix/{name}" for name in NEEDED}


if __name__ == "__main__":
    try:
        print(check_wheel(Path(sys.argv[1]), package_files()))
    except ValueError as error:
        sys.exit(str(error))
