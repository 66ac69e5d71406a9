"""A real browser, and pages opened in it from disk."""

import shutil

import pytest

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-background-networking "
    "--disable-component-update --disable-sync --no-first-run"
)


@pytest.fixture(scope="module")
def browser():
    how = "the tests of the page in a real browser were left out; to run them: "
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        pytest.skip(how + "apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api", reason=how + "pip install playwright")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture
def open_file(browser):
    """Opens a page from disk; at the end it must have complained of nothing and fetched nothing."""
    contexts, trouble, requests, files = [], [], [], set()

    def open_page(file, *, width=1280, height=900, **options):
        files.add(file.as_uri())
        context = browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", **options
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(5000)
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: (trouble.append("dialog"), dialog.dismiss()))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == []
    assert set(requests) == files
