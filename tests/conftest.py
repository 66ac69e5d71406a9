"""What the tests share: the folder of real weights, small networks, and a real browser."""

import os
import shutil
from pathlib import Path

import hypothesis
import pytest
import torch
from torch import nn

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-background-networking "
    "--disable-component-update --disable-sync --no-first-run"
)

collect_ignore = ["foreign", "foreign.py"]  # a program with packages of its own, not tests

# How long an example takes says how busy the machine is, not whether a law holds.
hypothesis.settings.register_profile("without a clock", deadline=None)
hypothesis.settings.load_profile("without a clock")

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the workers share the cores: more threads wait for each other


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Every test draws the same numbers, alone or among others."""
    torch.manual_seed(0)


def shared_folder(part: str) -> Path:
    """A folder of real files; without it the tests that need it say so and skip."""
    default = Path(__file__).parents[2] / "shared"
    folder = Path(os.environ.get("EXPLAINFIX_SHARED", default)) / part
    if not folder.is_dir():
        pytest.skip(f"nothing real here: set EXPLAINFIX_SHARED to the folder that has {part}/")
    return folder


@pytest.fixture(scope="session")
def real_weights() -> Path:
    """The folder of real trained filters."""
    return shared_folder("weights")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real images."""
    return shared_folder("data")


@pytest.fixture
def every_convolution() -> nn.ModuleDict:
    """Spatial layers of every kind and a few odd shapes, and two layers that are not spatial."""
    return nn.ModuleDict(
        {
            "line": nn.Conv1d(4, 6, 5),
            "plain": nn.Conv2d(4, 6, 3),
            "stem": nn.Conv2d(3, 16, 7),
            "wide": nn.Conv2d(4, 6, (1, 7), bias=False),
            "oblong": nn.Conv2d(4, 6, (3, 5)),
            "even": nn.Conv2d(4, 6, 2),
            "grouped": nn.Conv2d(4, 6, 3, groups=2),
            "depthwise": nn.Conv2d(12, 12, 5, groups=12),
            "volume": nn.Conv3d(2, 3, (3, 3, 2)),
            "up_line": nn.ConvTranspose1d(4, 6, 4, stride=2),
            "up": nn.ConvTranspose2d(4, 6, 2, stride=2),
            "up_volume": nn.ConvTranspose3d(2, 3, 3, groups=1),
            "pointwise": nn.Conv2d(4, 6, 1),
            "norm": nn.BatchNorm2d(6),
        }
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
