"""The documentation site builds without a warning, and works from disk without a network."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import explainfix

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "tools/docs/build.py"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
NOTEBOOK = new_notebook(
    cells=[
        new_markdown_cell("# A lesson of the tests\n\n[Explain](../explain.md) $x^2$"),
        new_code_cell("6 * 7", outputs=[new_output("stream", text="forty-two\n")]),
    ]
)


def build(site, docs):
    command = [sys.executable, str(BUILD), str(site), str(docs)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def copy_of_docs(folder):
    docs = shutil.copytree(ROOT / "docs", folder / "docs")
    (docs / "notebooks").mkdir(exist_ok=True)
    nbformat.write(NOTEBOOK, docs / "notebooks/00-test.ipynb")
    return docs


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(folder / "site", copy_of_docs(folder))
    assert done.returncode == 0, done.stderr
    assert not re.search("warning|error", done.stderr, flags=re.IGNORECASE), done.stderr
    return folder / "site"


def test_the_reference_has_every_public_name():
    pages = "\n".join(page.read_text() for page in (ROOT / "docs/reference").glob("*.md"))
    shown = set(re.findall(r"^::: explainfix\.(\w+)$", pages, flags=re.MULTILINE))
    assert shown == set(explainfix.__all__)


def test_addresses_of_other_hosts_are_found(tmp_path):
    spec = importlib.util.spec_from_file_location("build_docs", BUILD)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = '<a href="https://x.org">fine</a><img src="a.png"><script src="//cdn.org/x.js"></script>'
    (tmp_path / "page.html").write_text(page)
    (tmp_path / "look.css").write_text("@font-face { src: url('https://fonts.org/a.woff') }")
    found = list(module.foreign_addresses(tmp_path))
    assert found == ["page.html: //cdn.org/x.js", "look.css: https://fonts.org/a.woff"]


@pytest.mark.zoo
class TestSite:
    def test_a_docstring_with_its_example(self, site):
        page = (site / "reference/filters.html").read_text()
        assert 'id="explainfix.fix_"' in page
        assert "&gt;&gt;&gt; " in page  # as code, not as three quotations
        assert "<blockquote>" not in page

    def test_every_command(self, site):
        page = (site / "reference/cli.html").read_text()
        for command in ("explain", "fix", "train", "prune"):
            assert f'id="explainfix-{command}"' in page
        assert "--data-option" in page

    def test_formulas(self, site):
        page = (site / "explanation/spectra.html").read_text()
        assert page.count("<math") > 20
        assert "$" not in re.sub(r"<(pre|code|script|style).*?</\1>", "", page, flags=re.DOTALL)

    def test_a_notebook_with_its_outputs(self, site):
        page = (site / "notebooks/00-test.html").read_text()
        assert "forty-two" in page
        assert "<math>" in page
        assert 'href="../explain.html"' in page
        assert "A lesson of the tests" in (site / "index.html").read_text()  # in the navigation

    def test_search_from_disk_without_a_network(self, site):
        program = next(filter(None, map(shutil.which, CHROMIUM)), None)
        if program is None:
            pytest.skip("the site was not tried in a browser; to do so: apt-get install chromium")
        api = pytest.importorskip("playwright.sync_api")
        requests, trouble = [], []
        with api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            page = browser.new_page()
            page.on("request", lambda request: requests.append(request.url))
            page.on("console", lambda message: trouble.append(message.text))
            page.on("pageerror", lambda error: trouble.append(str(error)))
            page.goto((site / "index.html").as_uri())
            page.get_by_role("textbox", name="Search").click()
            page.keyboard.type("parseval")
            found = page.locator(".md-search-result__item").first
            found.wait_for(timeout=20_000)
            assert "steering" in found.inner_text().lower()
            browser.close()
        assert [each for each in requests if not each.startswith(("file:", "data:"))] == []
        assert trouble == []


@pytest.mark.zoo
def test_a_broken_anchor_is_an_error(tmp_path):
    docs = copy_of_docs(tmp_path)
    with (docs / "check.md").open("a") as page:
        page.write("\n[Nowhere](prune.md#nowhere)\n")
    done = build(tmp_path / "site", docs)
    assert done.returncode != 0
    assert "#nowhere" in done.stderr
