"""What the README and the docs tell a newcomer to type works, in the order given."""

import io
import re
import shlex
from contextlib import redirect_stdout
from glob import glob
from pathlib import Path

import pytest

from explainfix.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page):
    """The fenced blocks of a page: (language, text, whether it directly follows another)."""
    text, end = page.read_text(), 0
    for found in re.finditer(r"^```(\w+)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        yield *found.groups(), not text[end : found.start()].strip()
        end = found.end()


# Trainings of half a minute are left to the full suite.
EXAMPLES = [
    pytest.param(page, marks=[pytest.mark.zoo] * ("tutorials" in page.parts), id=name_of(page))
    for page in PAGES
]


@pytest.mark.parametrize("page", EXAMPLES)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed = None
    for language, text, follows in blocks(page):
        if language == "python":
            with redirect_stdout(io.StringIO()) as out:
                exec(text, names)
            printed = out.getvalue()
        elif language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                words = [found for word in words for found in sorted(glob(word)) or [word]]  # noqa: PTH207
                if words[:1] == ["explainfix"]:
                    with redirect_stdout(io.StringIO()) as out:
                        assert main(words[1:]) == 0, line
                    printed = out.getvalue()
        elif language == "text" and follows:  # the output of the block before
            assert [line.rstrip() for line in printed.splitlines()] == text.splitlines()


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_make_targets_in_the_text_exist():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\bmake (demo|test|quick|bench|\w+)(?=`|\s+#)", page.read_text()):
            assert target in targets, target
