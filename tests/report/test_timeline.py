"""The page of a timeline: what it says without a script, and its slider in a real browser."""

import json
import re

import pytest
import torch
from torch import nn

import explainfix as xf
from explainfix.report.timeline import timeline_data
from explainfix.watch import Watch

HOSTILE = "</script><script>alert(1)</script>"
CUT = """() => [...document.querySelectorAll("main *, header *, footer *")]
  .filter((node) => !node.closest(".scroll, .table-frame, .unseen, svg, [hidden]"))
  .filter((node) => node.getClientRects().length)
  .filter((node) => {
    const box = node.getBoundingClientRect();
    return box.right > innerWidth + 1 || box.left < -1;
  })
  .map((node) => node.outerHTML.slice(0, 80))"""


def watched(layers=4, epochs=5, *, names=None, fixed=(), steps=True):
    """A timeline whose first layer moves from flat to fine, the others a little."""
    stack = [nn.Conv2d(2, 8, 3) for _ in range(layers)]
    model = nn.ModuleDict(
        dict(zip(names or (f"conv{i}" for i in range(layers)), stack, strict=True))
    )
    model["stem"] = nn.Conv2d(1, 8, 5)
    stack[0].weight.data.fill_(1.0)
    if fixed:
        xf.fix_(model, "ghaar", layers=list(fixed))
    watch = Watch(model, title="A network that learns")
    fine = torch.tensor([[1.0, -2, 1], [-2, 4, -2], [1, -2, 1]])
    for epoch in range(epochs):
        for _ in range(10 * steps):
            watch.step()
        part = (epoch + 1) / epochs
        stack[0].weight.data.copy_(1 - part + fine * part)
        watch.epoch()
    return watch.timeline


@pytest.fixture
def show(open_file, tmp_path):
    def open_page(line, **options):
        file = tmp_path / "moved.html"
        line.to_html(file, overwrite=True)
        return open_file(file, **options)

    return open_page


def text_of(line, tmp_path):
    line.to_html(tmp_path / "a.html", overwrite=True)
    return (tmp_path / "a.html").read_text()


def test_nothing_is_fetched_and_names_are_data(tmp_path):
    page = text_of(watched(2, names=[HOSTILE, 'a"b']), tmp_path)
    assert "<script>alert" not in page
    outside = [url for url in re.findall(r"https?://[^\s\"'<>%]+", page) if "w3.org" not in url]
    assert outside == []
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert data["layers"][0]["path"] == HOSTILE


def test_shares_on_the_page_are_those_of_the_timeline():
    line = watched()
    data = timeline_data(line)
    for layer in data["layers"]:
        rows = torch.tensor(layer["shares"], dtype=torch.float64)
        assert torch.allclose(rows.sum(1), torch.ones(6, dtype=torch.float64))
        assert torch.allclose(rows, line.shares(layer["path"]))
        half = (rows - rows[0]).abs().sum(1) / 2  # the definition, by hand
        assert layer["drift"] == pytest.approx(half.tolist())
    assert data["layers"][0]["drift"][-1] == pytest.approx(1)  # from all flat to nothing flat
    assert data["shapes"][0]["limits"]["difference"] == pytest.approx(1)


def test_a_long_training_is_shown_in_part_and_it_is_said(tmp_path):
    model = nn.Sequential(*[nn.Conv2d(2, 2, 9) for _ in range(40)])
    watch = Watch(model, every=1)
    for _ in range(99):
        watch.step()
    data = timeline_data(watch.timeline)
    assert data["summary"]["snapshots"] == 100
    assert 2 <= data["summary"]["shown"] < 100
    assert data["moments"][0]["name"] == "the start"
    assert data["moments"][-1]["name"] == "step 99"
    page = text_of(watch.timeline, tmp_path)
    assert f"snapshots, {data['summary']['shown']} of them shown" in page
    assert len(page) < 4_000_000


def test_without_a_script_the_table_has_the_numbers(show):
    page = show(watched(), java_script_enabled=False)
    assert page.locator("noscript p").first.is_visible()
    assert page.locator("#moment-bar").is_hidden()
    heads = [re.sub(r"\W*$", "", text) for text in page.locator("thead th").all_inner_texts()]
    assert heads[-5:] == [f"epoch {i}" for i in range(1, 6)]
    row = page.locator("#layers tbody tr").first.locator("td, th").all_inner_texts()
    assert row[1] == "conv0"
    assert row[-1] == "100%"


def test_the_slider_moves_the_heatmap_and_the_cursor(show):
    page = show(watched())
    cell = page.locator(".grid [data-layer='0'][data-filter='0']")
    assert cell.get_attribute("aria-label") == "conv0, basis filter 0: flat, −100%"
    slider = page.locator("#moment")
    slider.focus()
    page.keyboard.press("Home")
    assert page.locator("#moment-name").inner_text() == "the start"
    assert cell.get_attribute("aria-label").endswith(", 0%")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "epoch 2, step 20"
    cursor, frame = (
        page.locator(f".curves {part}").bounding_box() for part in (".cursor", ".frame")
    )
    assert (cursor["x"] - frame["x"]) / frame["width"] == pytest.approx(0.4, abs=0.01)
    page.keyboard.press("End")
    assert cell.get_attribute("aria-label").endswith("−100%")


def test_colour_may_show_chance_instead(show):
    page = show(watched())
    cell = page.locator(".grid [data-layer='0'][data-filter='8']")
    page.locator("#scale").get_by_text("Against chance").click()
    assert cell.get_attribute("aria-label").endswith("× chance")
    assert page.locator("[data-for=chance]").is_visible()
    assert page.locator("[data-for=difference]").is_hidden()


def test_play_runs_to_the_end_and_can_be_stopped(show):
    page = show(watched(epochs=3))
    play = page.locator("#play")
    play.click()
    assert play.get_attribute("aria-label") == "Pause"
    page.wait_for_function("document.querySelector('#moment').value === '1'")
    play.click()
    value = page.locator("#moment").input_value()
    assert play.get_attribute("aria-label") == "Play"
    page.wait_for_timeout(700)
    assert page.locator("#moment").input_value() == value
    play.click()
    page.wait_for_function("document.querySelector('#play').ariaLabel === 'Play'")
    assert page.locator("#moment").input_value() == "3"


def test_a_layer_is_chosen_by_cell_key_row_or_curve(show):
    page = show(watched())
    picked = page.locator("#picked")
    page.locator(".grid [data-layer='0']").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert picked.inner_text().startswith("conv1: drift 0%")
    assert page.locator("path.chosen").count() == 1
    page.locator("#layers tbody tr").first.click()
    page.mouse.move(0, 0)
    assert picked.inner_text().startswith("conv0: drift 100%, low frequencies 100% → ")
    at_once = "{block: 'center', behavior: 'instant'}"  # the page scrolls smoothly
    page.evaluate(f"document.querySelector('.curves').scrollIntoView({at_once})")
    box = page.locator(".curves .frame").bounding_box()
    page.mouse.click(box["x"] + 0.99 * box["width"], box["y"] + 2)  # its curve again: no longer
    page.mouse.move(0, 0)
    assert page.locator("path.chosen").count() == 0
    assert picked.inner_text() == ""


def test_what_is_pointed_at_is_told(show):
    page = show(watched())
    page.locator(".grid [data-layer='0'][data-filter='0']").hover()
    tip = page.locator("#tooltip")
    assert "conv0" in tip.inner_text()
    assert "100% → 0% of the layer" in tip.inner_text()
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_a_shape_of_one_layer_is_a_small_square(show):
    page = show(watched())
    assert page.locator(".plane [role=gridcell]").count() == 25
    assert "one layer: stem" in page.locator(".small figcaption").inner_text()


def test_fixed_layers_are_dashed_and_a_change_of_one_is_said(show):
    line = watched(fixed=["conv2"])
    page = show(line)
    assert page.locator("path.fixed").count() == 1
    assert "The one fixed layer stayed" in page.locator(".answer.good").inner_text()
    record = line.as_dict()
    record["snapshots"][3]["changed"] = ["conv2"]
    page = show(type(line).from_dict(record))
    assert "1 of 1 fixed layer changed: conv2." in page.locator(".answer.bad").inner_text()
    page.locator("#moment").fill("3")
    assert page.locator("#moment-name").inner_text().endswith("1 fixed layer changed")


def test_one_snapshot_alone_has_no_slider(show):
    page = show(watched(epochs=0))
    assert page.locator("#moment-bar").is_hidden()
    assert page.locator(".grid [role=gridcell]").count() == 36


def test_gaps_are_gaps(show):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.LazyConv2d(4, 3))
    watch = Watch(model)
    model(torch.randn(1, 1, 9, 9))
    watch.epoch()
    model[0].weight.data.fill_(float("nan"))
    watch.epoch()
    page = show(watch.timeline)
    missing = page.locator(".grid [data-layer='0'][data-filter='0']")
    assert "missing" in missing.get_attribute("class")
    assert missing.get_attribute("aria-label").endswith("no value")
    assert "NaN" not in page.locator("body").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_on_a_phone(show, scheme):
    line = watched(20, names=[f"a_name_without_a_space_of_a_layer_{i}" for i in range(20)])
    page = show(line, width=390, height=844, color_scheme=scheme)
    assert page.evaluate(CUT) == []
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark == ("rgb(17, 20, 26)" if scheme == "dark" else "rgb(247, 246, 243)")


def test_the_slider_stays_in_sight_over_the_curves(show):
    page = show(watched(), height=700)
    page.locator("#curves").scroll_into_view_if_needed()
    page.evaluate("document.querySelector('#curves').scrollIntoView({block: 'end'})")
    assert page.locator("#moment").is_visible()
    assert 0 <= page.locator("#moment-bar").bounding_box()["y"] < 40


def test_rows_sort(show):
    page = show(watched())
    page.locator("thead button").last.click()
    assert page.locator("#layers tbody th").first.inner_text() == "conv0"
    page.locator("thead button").last.click()
    assert page.locator("#layers tbody th").last.inner_text() == "conv0"
