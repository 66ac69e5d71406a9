"""The page of an outcome in a real browser: wide, on a phone, in the dark."""

import shutil

import pytest
from matplotlib.figure import Figure

from explainfix.paper.experiment import Claim, Evidence, Experiment
from explainfix.paper.results.record import write_outcome, write_page
from explainfix.paper.verdict import InWords, Verdict

LONG = "a_very_long_name_without_any_place_to_break_it_" * 4


@pytest.fixture(scope="module")
def browser():
    program = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    if program is None:
        pytest.skip("the page was not tested in a real browser: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outcome")
    words = ("agrees", "disagrees", "undecided", "not tested")
    claims = tuple(
        Claim(
            word, f"It {word}.", LONG, InWords("A rule.", lambda _, word=word: Verdict(word, "0"))
        )
        for word in words
    )
    figure = Figure(figsize=(12, 3))
    figure.subplots().plot([0, 1])
    table = [{"name": LONG, **{f"column {i}": 0.5 for i in range(12)}}]
    evidence = Evidence({"AUC": {}}, {"T": table}, {"F": figure}, [LONG])
    none = dict.fromkeys(("smoke", "cpu", "paper"), "")
    about = {
        "scale": "cpu", "command": "explainfix " + LONG, "seconds": 1.0, "runs": [],
        "training_seconds": 0.0,
    }  # fmt: skip
    experiment = Experiment("x", "Title", "Fig. 1", claims, none, dict, lambda *_: evidence)
    return write_page(folder, write_outcome(folder, experiment, evidence, about))


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_and_shows_the_picture_for_the_theme(browser, page_file, width, scheme):
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True
    )
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(page_file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    other = {"light": "dark", "dark": "light"}[scheme]
    assert page.locator(f"img.{scheme}").is_visible()
    assert not page.locator(f"img.{other}").is_visible()
    page.click("#theme")
    assert page.locator(f"img.{other}").is_visible()
    assert not page.locator(f"img.{scheme}").is_visible()
    page.click(".claim summary >> nth=0")
    assert page.locator(".claim details p >> nth=0").is_visible()
    assert complaints == []
    context.close()
