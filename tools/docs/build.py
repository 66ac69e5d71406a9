"""Build the documentation site: python tools/docs/build.py [SITE [DOCS]]

The pages of docs/ are copied first. On the way notebooks become pages, with the outputs that they
were stored with, and the page of the command line gets its commands. Whatever MkDocs warns of is an
error, and so is a page that would load anything from another host.
"""

import html
import logging
import re
import shutil
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import MkDocsException

ROOT = Path(__file__).parents[2]
COMMANDS = "<!-- the commands -->"
# What a browser fetches by itself: tag → attribute. Links that a reader may click are none.
FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
ELSEWHERE = re.compile(r"^(https?:)?//")


def build_site(site: Path, docs: Path = ROOT / "docs") -> None:
    """Write the site of these pages into a folder; a `ValueError` if it is not as it should be."""
    with TemporaryDirectory() as folder:
        pages = Path(folder) / "docs"
        shutil.copytree(docs, pages, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        notebooks = convert_notebooks(pages)
        index = pages / "index.md"  # the front page has no neighbours to list
        index.write_text(f"---\nhide: [navigation]\n---\n{index.read_text()}")
        commands = pages / "reference/cli.md"
        commands.write_text(commands.read_text().replace(COMMANDS, describe_commands()))
        options = {"docs_dir": str(pages), "site_dir": str(site)}
        config = load_config(str(ROOT / "mkdocs.yml"), **options)
        tutorials = next(part["Tutorials"] for part in config.nav if "Tutorials" in part)
        tutorials += notebooks
        try:
            config.plugins.on_startup(command="build", dirty=False)
            build(config)
        except MkDocsException as problem:
            raise ValueError(str(problem)) from problem
        finally:
            config.plugins.on_shutdown()
    write_math_font(site)
    foreign = list(foreign_addresses(site))
    if foreign:
        raise ValueError("the site would load from other hosts:\n" + "\n".join(foreign))


def convert_notebooks(pages: Path) -> list[str]:
    """Turn each notebook below this folder into a page; the paths of the pages, in order."""
    import nbformat
    from nbconvert import MarkdownExporter

    made = []
    for notebook in sorted(pages.rglob("*.ipynb")):
        page = notebook.with_suffix(".md")
        held = nbformat.read(notebook, as_version=4)
        held.metadata.setdefault("language_info", {"name": "python"})
        text, resources = MarkdownExporter().from_notebook_node(
            held, resources={"output_files_dir": f"{notebook.stem}_files"}
        )
        page.write_text(text)
        for name, picture in resources["outputs"].items():
            file = page.parent / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(picture)
        notebook.unlink()
        made.append(page.relative_to(pages).as_posix())
    for page in pages.rglob("*.md") if made else ():
        page.write_text(re.sub(r"(\]\([^)\s:]+)\.ipynb(?=[)#])", r"\1.md", page.read_text()))
    return made


def describe_commands() -> str:
    """The help of every command, as the command line itself has it, in Markdown."""
    from explainfix.cli import app

    text = app.generate_docs(heading_level=2, max_heading_level=3, flatten_commands=True)
    return text[text.index("**Commands**") :]  # the page has a title and a contents of its own


def write_math_font(site: Path) -> None:
    """Give the site a font with the characters of its formulas: not every system has one."""
    import ziamath
    from fontTools import subset

    pages = (file.read_text() for file in site.rglob("*.html"))
    formulas = "".join(found for page in pages for found in re.findall(r"<math.*?</math>", page))
    options = subset.Options(layout_features=["*"], notdef_outline=True)
    # A program for drawing formulas, which brings STIX Two Math along.
    font = subset.load_font(
        Path(ziamath.__file__).parent / "fonts/STIXTwoMath-Regular.ttf", options
    )
    subsetter = subset.Subsetter(options)
    subsetter.populate(text=html.unescape(formulas) + "√")  # which MathML draws unasked
    subsetter.subset(font)
    font.save(site / "math.ttf")


def foreign_addresses(site: Path) -> Iterator[str]:
    """Each address of another host that a page or a style of the site would load."""
    for file in sorted(site.rglob("*.html")):
        for address in _Fetched.of(file.read_text()):
            if ELSEWHERE.match(address):
                yield f"{file.relative_to(site)}: {address}"
    for file in sorted(site.rglob("*.css")):
        text = file.read_text()
        for address in re.findall(r"(?:url\(|@import\s+)[\"']?([^\"')\s]+)", text):
            if ELSEWHERE.match(address):
                yield f"{file.relative_to(site)}: {address}"


class _Fetched(HTMLParser):
    """The addresses that a page makes a browser fetch."""

    @classmethod
    def of(cls, page: str) -> list[str]:
        """
        >>> _Fetched.of('<script src="https://cdn/x.js"></script><a href="https://paper">x</a>')
        ['https://cdn/x.js']
        """
        parser = cls()
        parser.feed(page)
        return parser.found

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = dict(attrs)
        address = held.get(FETCHED.get(tag, ""))
        if address and not (tag == "link" and held.get("rel") in ("canonical", "prev", "next")):
            self.found.append(address)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    given = [Path(argument).absolute() for argument in sys.argv[1:3]]
    try:
        build_site(*(given or [ROOT / "build/site"]))
    except ValueError as problem:
        sys.exit(f"error: {problem}")
