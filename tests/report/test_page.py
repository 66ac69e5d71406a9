"""The page of an explanation: what is in its text, and how it behaves in a real browser."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from explainfix import explain
from explainfix.report.labels import short_labels
from explainfix.report.page import render_page
from explainfix.report.scale import against_chance, chance_limit, differences
from explainfix.report.write import page_data

HOSTILE = """</script><script>alert(1)</script><!-- "quoted" & 'single' <b>"""


def basis_of(shape):
    """The DCT-II basis of a shape from low to high frequency, and its frequencies."""
    frequencies = sorted(np.ndindex(*shape), key=lambda f: (sum(f), f))
    cosine = [[np.cos(np.pi * (np.arange(n) + 0.5) * k / n) for k in range(n)] for n in shape]
    filters = []
    for frequency in frequencies:
        product = np.ones(())
        for axis, k in enumerate(frequency):
            product = np.multiply.outer(product, cosine[axis][k])
        filters.append((product / np.linalg.norm(product)).ravel().tolist())
    return filters, [list(frequency) for frequency in frequencies]


def example(shapes, *, weighted=True, samples=24, comparison=False, pruning=False, paths=None):
    """What a page is made of, for a network whose layers have these kernel shapes."""
    random = np.random.default_rng(0)
    layers, by_name = [], {}
    for index, shape in enumerate(shapes):
        name, size = "x".join(map(str, shape)), int(np.prod(shape))
        filters, frequencies = basis_of(shape)
        energy = np.exp(-np.sum(frequencies, 1) + random.normal(0, 0.2, size))
        energy *= (1 + index) if weighted else 1 / energy.sum()
        axes = [
            [float(energy[np.equal(np.array(frequencies)[:, axis], k)].sum()) for k in range(n)]
            for axis, n in enumerate(shape)
        ]
        square = len(set(shape)) == 1
        layer = {
            "path": paths[index] if paths else f"layer{index // 4 + 1}.{index % 4}.conv2",
            "stage": f"layer{index // 4 + 1}",
            "shape": name,
            "kernels": 64 * (index + 1),
            "parameters": 64 * (index + 1) * size,
            "fixed": "ghaar" if index == 1 else None,
            "saliency_share": 1 / len(shapes) if weighted else None,
            "needed": 1 + index % size,
            "filters": size,
            "steered": None if index == 0 else 16 * size * (index + 1),
            "low_share": 0.3 + 0.6 * index / len(shapes),
            "low_chance": [0.28, 0.36],
            "ed": energy.tolist(),
            "e1": axes,
            "e0": np.mean(axes, 0).tolist() if square else None,
            "band": [0.8 * energy.mean(), 1.2 * energy.mean()],
            "samples": random.normal(size=(samples, size)).tolist(),
        }
        layer["against"] = against_chance(layer["ed"], [1 / size] * size)
        layer["other"] = None
        if comparison:
            ed = layer["ed"][::-1]
            layer["other"] = {key: layer[key] for key in ("kernels", "band", "samples")} | {
                "ed": ed,
                "against": layer["against"][::-1],
                "difference": differences(layer["ed"], ed),
            }
        layers.append(layer)
        entry = by_name.setdefault(
            name,
            {"name": name, "shape": list(shape), "basis": filters, "frequencies": frequencies}
            | {"limits": {"chance": 0.5, "difference": 0.5}}
            | {"layers": [], "total": {"ed": [0.0] * size, "e1": [], "e0": layer["e0"]}},
        )
        entry["layers"].append(index)
        entry["total"]["ed"] = np.add(entry["total"]["ed"], energy).tolist()
    for layer, label in zip(layers, short_labels([layer["path"] for layer in layers]), strict=True):
        layer["label"] = label
    for entry in by_name.values():
        mine = [layers[index]["against"] for index in entry["layers"]]
        entry["limits"]["chance"] = chance_limit(mine)
    compared = [
        {key: layer[key] for key in ("path", "kernels", "fixed")}
        | {"distance": 0.1, "changed": 3, "moved": 0.02, "change": "2%"}
        | {"low_before": 0.3, "low_after": 0.4}
        for layer in reversed(layers)
    ]
    return {
        "title": "torchvision:resnet50",
        "warning": None,
        "version": "0.1.0",
        "date": "2026-11-16",
        "basis": "dct2",
        "weighted": weighted,
        "weighting": "Weighted by saliency over 15 batches" if weighted else "Not weighted",
        "summary": {
            "parameters": 25_557_032,
            "spatial_parameters": sum(layer["parameters"] for layer in layers),
            "layers": len(layers),
            "kernels": sum(layer["kernels"] for layer in layers),
            "fixed_layers": 1,
        },
        "advice": [
            {"kind": kind, "title": f"About {kind}", "text": "Half of it lies in 3 of 9 patterns."}
            for kind in ("frequency", "layers", "stages", "zeroing", "chance")
        ],
        "scales": [("difference", "B minus A"), ("before", "A"), ("after", "B")]
        if comparison
        else [("chance", "Against chance"), *([("energy", "Energy")] if weighted else [])],
        "shapes": list(by_name.values()),
        "layers": layers,
        "skipped": [{"path": "fc", "reason": "not a convolution"}],
        "comparison": {
            "before": "before.safetensors",
            "after": "after.safetensors",
            "verdict": "All 2 fixed layers are as they were fixed. 3 of 4 layers changed.",
            "tone": "good",
            "layers": compared,
        }
        if comparison
        else None,
        "pruning": pruned([layer["path"] for layer in layers]) if pruning else None,
        "story": None,
    }


def pruned(paths):
    """What the page says about pruning a network of these layers and a classifier."""
    before, after = 25_557_032, 6_271_640
    return {
        "answer": "75% of the parameters are gone.",
        "exactness": "The cut is exact up to rounding, in training as well.",
        "notes": ["1,098,720 kernels zeroed, 90% of all: those that matter least."],
        "barriers": [
            {"text": f"{64 * i} channels stay because of", "operation": "foo", "module": paths[0]}
            for i in range(3)
        ],
        "totals": [
            {"name": name, "before": f"{before:,}", "after": f"{after:,}", "share": after / before}
            for name in ("Parameters", "Memory", "Multiply-adds")
        ],
        "layers": [
            {"path": path, "inputs_before": 512, "inputs_after": 512 - i}
            | {"outputs_before": 512, "outputs_after": 512 - 40 * (i % 5)}
            | {"parameters_before": 2_359_296, "parameters_after": 2_359_296 // (i + 1)}
            | {"kernels_zeroed": 1000 * i, "constants_folded": i, "ghosts_dropped": 0}
            | {"weights_filled": 0}
            for i, path in enumerate([*paths, "fc"])
        ],
    }


RESNET = [(7, 7)] + [(3, 3)] * 11


# Without a browser


def embedded(page: str):
    """The JSON of a page, found as a browser finds it: up to the first end of a script."""
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script', page)[1]
    )


def test_hostile_names_stay_text():
    data = example([(3, 3)] * 3, paths=[HOSTILE, "b", "c"], comparison=True, pruning=True)
    data["title"] = data["comparison"]["after"] = data["warning"] = data["skipped"][0]["path"] = (
        HOSTILE
    )
    page = render_page(data)
    assert "<script>alert" not in page
    assert "<!-- " not in page
    assert embedded(page)["layers"][0]["path"] == HOSTILE


def test_what_is_not_a_number_becomes_null():
    data = example([(3, 3)] * 2)
    data["layers"][0] |= {"low_share": float("nan"), "low_chance": [float("nan"), float("inf")]}
    data["layers"][0]["ed"][2] = float("-inf")
    page = render_page(data)
    layer = embedded(page)["layers"][0]
    assert layer["low_share"] is None
    assert layer["low_chance"] == [None, None]
    assert layer["ed"][2] is None
    assert not re.search(r"\b(NaN|nan|Infinity|inf)\b", page.split('id="data">')[1].split("<")[0])


def test_nothing_is_fetched_and_nothing_is_left_unfilled():
    page = render_page(example(RESNET, comparison=True, pruning=True))
    outside = [url for url in re.findall(r"https?://[^\s\"'<>%]+", page) if "w3.org" not in url]
    assert outside == []
    assert "{{" not in page.split('id="data">')[0].split("</style>")[1]


def test_sixty_layers_stay_small():
    assert len(render_page(example([(3, 3)] * 60)).encode()) < 600_000


def test_a_missing_key_is_an_error():
    data = example([(3, 3)])
    del data["weighting"]
    with pytest.raises(Exception, match="weighting"):
        render_page(data)


# In a browser


@pytest.fixture
def show(open_file, tmp_path):
    """Opens the page of some data."""

    def open_page(data, **options):
        file: Path = tmp_path / "page.html"
        file.write_text(render_page(data), encoding="utf-8")
        return open_file(file, **options)

    return open_page


def focused(page, attribute):
    return page.evaluate(f"document.activeElement.dataset.{attribute}")


def tab_to(page, selector):
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement.matches({selector!r})"):
            return
    pytest.fail(f"Tab does not reach {selector}")


def scrolls_sideways(page):
    return page.evaluate("document.documentElement.scrollWidth > innerWidth")


def test_hover_tells_layer_filter_and_value(show):
    page = show(example(RESNET))
    cell = page.locator(".grid [data-layer='5'][data-filter='2']")
    cell.hover()
    tip = page.locator("#tooltip")
    text = tip.inner_text()
    assert "layer2.1.conv2" in text
    assert "basis filter 2: vertical 1, horizontal 0" in text
    assert re.search(r"\d+(\.\d)?% of the layer · ([\d.]+× chance|no more than chance)", text)
    page.locator("h1").hover()
    assert tip.is_hidden()


def test_scale_switches_from_chance_to_energy(show):
    page = show(example(RESNET))
    cell = page.locator(".grid [data-layer='5'][data-filter='0']")
    assert cell.get_attribute("aria-label").endswith("× chance")
    page.locator("#scale").get_by_text("Energy", exact=True).click()
    assert re.search(r", [\d.]+$", cell.get_attribute("aria-label"))
    assert page.locator(".cell.parted").count() == 0


def colours(page, layer):
    """The red and blue bytes of the cells of a layer."""
    script = """node => {
      const paint = document.createElement("canvas").getContext("2d");
      paint.fillStyle = getComputedStyle(node).backgroundColor;
      paint.fillRect(0, 0, 1, 1);
      return [...paint.getImageData(0, 0, 1, 1).data];
    }"""
    cells = page.locator(f".grid [data-layer='{layer}']").all()
    return [(rgb[0], rgb[2]) for rgb in (cell.evaluate(script) for cell in cells)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_networks_that_are_nearly_even_do_not_look_alike(show, scheme):
    """Twelve percent of a layer is more than chance, ten is less: orange and blue."""
    data = example([(3, 3)] * 3, weighted=False)
    mostly = [0.14, 0.10, 0.10, 0.12, 0.11, 0.11, 0.10, 0.11, 0.11]
    for layer, energies in zip(data["layers"], (mostly, mostly[::-1], mostly), strict=True):
        layer["ed"] = energies
        layer["against"] = against_chance(energies, [1 / 9] * 9)
        layer["band"] = [0.108, 0.115]
    data["layers"][2]["band"] = [0.05, 0.2]  # of few kernels: all of it could be chance
    data["shapes"][0]["limits"]["chance"] = chance_limit(
        layer["against"] for layer in data["layers"]
    )
    page = show(data, color_scheme=scheme)
    first, second, third = (colours(page, layer) for layer in range(3))
    assert first[0][0] > first[0][1] + 60  # orange
    assert first[1][1] > first[1][0] + 15  # blue
    assert second == first[::-1]
    even = first[4][0] - first[4][1]  # 0.11 is chance
    for (red, blue), (faint_red, faint_blue) in zip(first[:4], third[:4], strict=True):
        assert abs(faint_red - faint_blue - even) < 0.5 * abs(red - blue - even)


def test_labels_tell_blocks_apart(show):
    paths = [f"layer{i}.0.conv2" for i in range(1, 5)]
    page = show(example([(3, 3)] * 4, paths=paths))
    assert page.locator(".names > span").all_inner_texts() == paths
    paths = [f"blocks.{i}.a_module_with_a_long_name.conv_dw" for i in range(4)]
    shown = show(example([(3, 3)] * 4, paths=paths)).locator(".names > span").all_inner_texts()
    assert len(set(shown)) == 4
    assert max(map(len, shown)) <= 18


def test_random_weights_are_said_at_the_top(show):
    data = example([(3, 3)] * 3)
    assert show(data).locator(".warning").count() == 0
    page = show(data | {"warning": "Random weights: this shows the initialisation."})
    warning = page.locator(".warning")
    assert warning.inner_text() == "Random weights: this shows the initialisation."
    assert warning.bounding_box()["y"] < page.locator(".numbers").bounding_box()["y"]


def test_one_scale_is_enough_when_all_layers_weigh_the_same(show):
    page = show(example([(3, 3)] * 4, weighted=False))
    assert page.locator("#scale").is_hidden()
    assert page.locator(".totals").count() == 0


def test_keys_walk_the_heatmap_and_open_a_layer(show):
    page = show(example(RESNET))
    tab_to(page, ".grid [role=gridcell]")
    assert (focused(page, "layer"), focused(page, "filter")) == ("1", "0")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    assert (focused(page, "layer"), focused(page, "filter")) == ("2", "1")
    assert page.locator("#tooltip").is_visible()
    page.keyboard.press("End")
    assert focused(page, "layer") == "11"
    page.keyboard.press("ArrowRight")  # there is nothing further
    assert focused(page, "layer") == "11"
    assert page.locator(".grid [tabindex='0']").count() == 1
    page.keyboard.press("Enter")
    assert page.locator("#panel-title").inner_text() == "layer3.3.conv2"
    assert page.evaluate("document.activeElement.id") == "panel"
    page.keyboard.press("Escape")
    assert page.locator("#panel").is_hidden()
    assert (focused(page, "layer"), focused(page, "filter")) == ("11", "1")


def test_panel_shows_spectrum_directions_and_kernels(show):
    page = show(example(RESNET))
    page.locator(".grid [data-layer='1']").first.click()
    panel = page.locator("#panel")
    assert panel.locator(".sheet .picture").count() == 24
    assert panel.locator("section").first.locator(".slot").count() == 9
    assert panel.locator("section").first.locator(".chance:visible").count() == 2  # band and key
    assert panel.locator(".axes figcaption").all_inner_texts() == ["vertical", "horizontal"]
    assert "ghaar" in panel.inner_text()
    page.locator("#next").click()
    assert page.locator("#panel-title").inner_text() == "layer1.2.conv2"
    page.locator("#previous").click()
    page.locator("#previous").click()
    assert page.locator("#panel-title").inner_text() == "layer1.0.conv2"
    assert page.locator("#previous").is_disabled()
    page.locator("#close").click()
    assert panel.is_hidden()


def test_bars_stand_against_the_chance_band_on_one_scale(show):
    data = example([(3, 3)] * 2)
    data["layers"][0] |= {"ed": [4.0, 2.0, 1.0, 1, 1, 1, 1, 1, 1], "band": [1.0, 2.0]}
    page = show(data)
    page.locator(".grid [data-layer='0']").first.click()
    chart = page.locator("#panel .chart").first
    band = chart.locator(".plot > .chance").bounding_box()
    second, third = (chart.locator(".bar").nth(i).bounding_box() for i in (1, 2))
    assert band["y"] == pytest.approx(second["y"], abs=1.5)
    assert band["y"] + band["height"] == pytest.approx(third["y"], abs=1.5)


def test_table_sorts_both_ways_and_filters(show):
    page = show(example(RESNET))
    head = page.locator("#layers thead th").filter(has_text="Parameters")
    column = page.locator("#layers tbody tr td:nth-child(5)")

    def numbers():
        return [int(text.replace(",", "")) for text in column.all_inner_texts()]

    assert head.get_attribute("aria-sort") == "none"
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert numbers() == sorted(numbers(), reverse=True)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert numbers() == sorted(numbers())
    page.locator("#filter").fill("LAYER2")
    assert page.locator("#layers tbody tr:visible").count() == 4
    assert page.locator("#filter-count").inner_text() == "4 of 12 layers"
    page.locator("#layers tbody tr:visible td").last.click()
    assert page.locator("#panel-title").inner_text().startswith("layer2.")


def test_names_sort_as_people_count(show):
    paths = [f"layer{n}.conv" for n in (10, 2, 1)]
    page = show(example([(3, 3)] * 3, paths=paths))
    page.locator("#layers thead button").filter(has_text="Layer").click()
    names = page.locator("#layers tbody th").all_inner_texts()
    assert names == ["layer1.conv", "layer2.conv", "layer10.conv"]


def test_chance_is_said_in_words_too(show):
    page = show(example(RESNET))
    first = page.locator("#layers tbody tr").first
    assert "as chance" in first.inner_text()
    assert page.locator("#layers .badge").count() == 2  # 0.30 and 0.35 lie in 0.28 to 0.36


CONTRAST = """selectors => {
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const bytes = (colour) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = colour;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  const light = (rgb) => rgb.slice(0, 3).map((byte) => byte / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  return selectors.map((selector) => {
    const node = document.querySelector(selector);
    let behind = node;
    while (bytes(getComputedStyle(behind).backgroundColor)[3] < 255) behind = behind.parentElement;
    const pair = [getComputedStyle(node).color, getComputedStyle(behind).backgroundColor]
      .map((colour) => light(bytes(colour))).sort();
    return (pair[1] + 0.05) / (pair[0] + 0.05);
  });
}"""
WORDS = [
    *("h1", ".numbers li", ".advice p", ".advice h3", ".lead", ".switch input:checked + span"),
    *(".soft", ".grid .head", ".names span span", "tbody button", "thead button", "td", ".badge"),
    *(".happened li", ".totals-table th", "#pruning .answer span", "#pruning tbody .was"),
    *(".answer", ".skipped li", ".reading li", "footer", "#theme", ".sum span", ".legend"),
]


def background(page):
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return [int(part) for part in re.findall(r"\d+", colour)]


def test_dark_and_light_switch_are_remembered_and_readable(show):
    page = show(example(RESNET, comparison=True, pruning=True), color_scheme="light")
    assert min(background(page)) > 200
    assert min(page.evaluate(CONTRAST, WORDS)) >= 4.5
    page.locator("#theme").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert max(background(page)) < 60
    assert min(page.evaluate(CONTRAST, WORDS)) >= 4.5
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.locator("#theme").click()
    assert min(background(page)) > 200


def test_the_system_chooses_the_theme_first(show):
    page = show(example([(3, 3)]), color_scheme="dark")
    assert max(background(page)) < 60
    assert page.locator("#theme-name").inner_text() == "Light"


@pytest.mark.parametrize("columns", [12, 120])
def test_a_phone_needs_no_sideways_scrolling(show, columns):
    shapes = [(7, 7)] + [(3, 3)] * columns
    data = example(shapes, comparison=True, pruning=True, samples=4)
    page = show(data, width=390, height=844)
    assert not scrolls_sideways(page)
    page.locator("#layers tbody button").nth(2).click()
    assert not scrolls_sideways(page)
    box = page.locator("#panel").bounding_box()
    assert (box["x"], box["width"]) == (0, 390)
    assert box["y"] + box["height"] == 844


def test_print_is_light_and_complete(show):
    data = example([(3, 3)] * 40, comparison=True, pruning=True, samples=2)
    page = show(data, color_scheme="dark")
    page.locator("#theme").click()
    page.locator("#theme").click()  # dark, chosen by hand
    page.locator("#layers tbody button").first.click()
    page.emulate_media(media="print")
    assert min(background(page)) == 255
    for part in (
        "h1",
        ".advice",
        "#pruning",
        ".grid",
        "#layers",
        "#comparison",
        ".skipped",
        ".reading",
    ):
        assert page.locator(part).first.is_visible(), part
    for part in ("#panel", "#theme", "#scale", "#filter"):
        assert page.locator(part).is_hidden(), part
    for frame in page.locator(".table-frame").all():
        assert frame.evaluate("node => node.scrollHeight <= node.clientHeight + 1")
    assert not scrolls_sideways(page)


def test_comparison_appears_only_with_data(show):
    assert show(example([(3, 3)] * 3)).locator("#comparison, #changes").count() == 0
    page = show(example([(3, 3)] * 3, comparison=True))
    assert page.locator("#comparison .answer").inner_text().startswith("All 2 fixed layers are")
    assert page.locator("#changes .paired").count() == 3


def test_a_comparison_has_its_verdict_first_then_the_difference_then_layers(show):
    page = show(example([(3, 3)] * 4, comparison=True))
    places = [
        page.locator(part).first.bounding_box()["y"] for part in (".answer", ".grid", "#changes")
    ]
    assert places == sorted(places)
    names = page.locator("#changes tbody th").all_inner_texts()
    assert names == [f"layer1.{i}.conv2" for i in (3, 2, 1, 0)]  # as given: the most changed first
    cell = page.locator(".grid [data-layer='1'][data-filter='0']")
    assert re.search(r", −\d+%$", cell.get_attribute("aria-label"))
    red, blue = colours(page, 1)[0]
    assert blue > red  # less than before
    cell.hover()
    assert re.search(r"\d+% → [\d.]+% of the layer", page.locator("#tooltip").inner_text())
    page.locator("#scale").get_by_text("B", exact=True).click()
    assert cell.get_attribute("aria-label").endswith("× chance")
    page.locator("#changes tbody tr").first.click()
    heads = page.locator("#panel h3").all_inner_texts()
    assert heads[:2] == ["Spectrum in A", "Spectrum in B"]
    assert page.locator("#panel .sheet").count() == 2


CUT = """() => [...document.querySelectorAll("main *, header *, footer *")]
  .filter((node) => !node.closest(".scroll, .table-frame, .unseen, [hidden]"))
  .filter((node) => node.getClientRects().length)
  .filter((node) => {
    const box = node.getBoundingClientRect();
    return box.right > innerWidth + 1 || box.left < -1;
  })
  .map((node) => node.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize("comparison", [False, True])
def test_nothing_is_cut_off_on_a_phone(show, comparison):
    data = example(RESNET, comparison=comparison, pruning=not comparison, samples=4)
    data["title"] = data["weighting"] = "a_name_without_a_space" * 6
    data["warning"] = "Random weights in some_long_file_name.safetensors: this shows"
    page = show(data, width=390, height=844)
    assert page.evaluate(CUT) == []


def test_frames_show_that_they_scroll(show):
    page = show(example(RESNET), width=390, height=844)
    edges = page.locator(".edges", has=page.locator("#layers"))
    shade = "node => getComputedStyle(node, '::after').opacity"
    page.wait_for_function("document.querySelector('.edges:has(#layers).more-right')")
    assert edges.evaluate(shade) == "1"
    edges.locator(".table-frame").evaluate("node => node.scrollTo(node.scrollWidth, 0)")
    page.wait_for_function("document.querySelector('.edges:has(#layers):not(.more-right)')")
    assert edges.evaluate(shade) == "0"
    assert "more-left" in edges.get_attribute("class")
    wide = show(example([(3, 3)] * 3), width=1280)
    assert wide.locator(".edges.more-right").count() == 0


def told(paths):
    """A story of one chapter with all that one can hold, too wide for a telephone."""
    cells = [0.5, -0.5, None]
    return {
        "title": "torchvision:resnet50",
        "answer": "Filters that were never learned do as well.",
        "detail": "The learned network in detail",
        "chapters": [
            {
                "title": "What the network learned to look for",
                "text": ["It looks for edges."],
                "caption": "Orange is more than chance.",
                "spectra": [
                    {"title": name, "sentence": "Smooth at first.", "rows": len(cells)}
                    | {"columns": [{"path": path, "cells": cells} for path in paths]}
                    for name in ("learned", "ghaar", "psine")
                ],
                "table": {
                    "headings": ["spatial filters", "Dice", "learned", "parameters", "seconds"],
                    "rows": [
                        {"name": "learned", "cells": ["0.845 (0.812 to 0.872)"] * 4}
                        | {"said": "A sentence about this row, as long as sentences are. " * 2}
                    ],
                },
                "gallery": {
                    "caption": "Three images.",
                    "names": [f"network {i}" for i in range(9)],
                    "rows": [["data:image/gif;base64,R0lGODlhAQABAAAAACw="] * 9] * 3,
                },
            }
        ],
    }


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_story_is_all_in_sight(show, width, scheme):
    data = example([(3, 3)] * 3)
    data["story"] = told([layer["path"] for layer in data["layers"]])
    page = show(data, width=width, height=844, color_scheme=scheme)
    assert not scrolls_sideways(page)
    sentence = page.locator(".told td p").bounding_box()
    assert sentence["x"] >= 0
    assert sentence["x"] + sentence["width"] <= width
    assert page.locator(".gallery-grid img").count() == 27
    # a cell that is as strong as another has another colour if it is below chance
    fills = page.locator(".spectra-map g").first.locator("rect")
    colours = [fills.nth(i).evaluate("node => getComputedStyle(node).fill") for i in range(2)]
    assert colours[0] != colours[1]
    heads = page.locator("h2").all_inner_texts()
    assert heads[1] == "The learned network in detail"


def test_pruning_appears_only_with_data(show):
    assert show(example([(3, 3)] * 3)).locator("#pruning").count() == 0
    page = show(example([(3, 3)] * 3, pruning=True))
    section = page.locator("#pruning")
    assert section.locator(".answer").inner_text().startswith("75% of the parameters are gone.")
    assert section.locator(".totals-table tbody tr").first.inner_text().split() == [
        "Parameters", "25,557,032", "6,271,640", "25%",
    ]  # fmt: skip
    assert section.locator(".barriers li").count() == 3
    heads = section.locator(".sortable thead th").all_inner_texts()
    assert heads[-2:] == ["Kernels zeroed", "Folded"]  # no ghosts were dropped


def test_bars_of_channels_are_as_long_as_what_is_kept(show):
    page = show(example([(3, 3)] * 3, pruning=True))
    row = page.locator("#pruning .sortable tbody tr").nth(2)
    meter, fill = (row.locator(part).bounding_box() for part in (".meter", ".fill"))
    assert fill["width"] / meter["width"] == pytest.approx(432 / 512, abs=0.01)
    assert "432 of 512" in row.inner_text()


def test_pruned_layers_sort_and_open(show):
    page = show(example([(3, 3)] * 4, pruning=True))
    rows = page.locator("#pruning .sortable tbody tr")
    page.locator("#pruning thead button").filter(has_text="Parameters").click()
    assert rows.first.locator("th").inner_text() == "layer1.0.conv2"
    page.locator("#pruning thead button").filter(has_text="Layer").click()
    assert rows.first.locator("th").inner_text() == "fc"
    rows.first.click()  # it is not spatial: there is nothing to open
    assert page.locator("#panel").is_hidden()
    rows.nth(2).locator("button").click()
    assert page.locator("#panel-title").inner_text() == "layer1.1.conv2"
    assert page.locator("tr.chosen").count() == 2
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.textContent") == "layer1.1.conv2"


def test_hostile_names_are_shown_as_text(show):
    data = example([(3, 3)] * 2 + [(5, 5)], paths=[HOSTILE, 'a"b', "c&amp;d"], comparison=True)
    page = show(data)
    names = page.locator("#layers tbody th").all_inner_texts()
    assert names == [HOSTILE, 'a"b', "c&amp;d"]
    cell = page.locator(".grid [data-layer='0']").first
    cell.hover()
    assert HOSTILE in page.locator("#tooltip").inner_text()
    cell.click()
    assert page.locator("#panel-title").inner_text() == HOSTILE


def test_a_network_of_one_layer_has_a_small_figure(show):
    page = show(example([(3, 3)], weighted=False))
    assert page.locator(".grid").count() == 0
    cells = page.locator(".plane [role=gridcell]")
    assert cells.count() == 9
    tab_to(page, ".plane [role=gridcell]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert "vertical 1, horizontal 1" in page.locator("#tooltip").inner_text()
    page.keyboard.press("Enter")
    assert page.locator("#previous").is_disabled()
    assert page.locator("#next").is_disabled()


def test_a_network_without_spatial_layers_says_so_by_its_numbers(show):
    page = show(example([]))
    assert "0 spatial layers" in page.locator(".numbers").inner_text()
    assert page.locator("[role=gridcell]").count() == 0


def test_three_shapes_share_the_order_of_layers(show):
    page = show(example([(3, 3), (5, 5), (3, 3), (5, 5), (1, 7), (3, 3), (1, 7)]))
    assert page.locator(".grid").count() == 3

    def left(layer):
        return page.locator(f".grid [data-layer='{layer}']").first.bounding_box()["x"]

    places = [left(layer) for layer in range(7)]
    assert places == sorted(places)
    page.locator(".grid [data-layer='0']").first.focus()
    page.keyboard.press("ArrowRight")  # over the layer of another shape
    assert focused(page, "layer") == "2"


def test_a_hundred_and_twenty_layers_fit_beside_their_sums(show):
    page = show(example([(3, 3)] * 120, samples=2))
    assert page.locator(".grid [role=gridcell]").count() == 120 * 9
    assert page.locator(".names").count() == 0
    assert page.locator(".block .scroll").evaluate("node => node.scrollWidth <= node.clientWidth")


def test_lines_and_volumes(show):
    data = example([(5,), (5,), (3, 3, 3), (3, 3, 3), (2, 2, 2)])
    data["shapes"][2]["frequencies"] = None
    page = show(data)
    page.locator(".grid [data-layer='2']").first.click()
    axes = page.locator("#panel .axes figcaption").all_inner_texts()
    assert axes == ["depth", "vertical", "horizontal"]
    slices = page.locator("#panel .sheet rect")
    assert slices.count() == 24 * 27
    page.locator("#previous").click()
    assert page.locator("#panel .axes figcaption").all_inner_texts() == ["along"]
    assert page.locator(".plane [role=gridcell]").count() == 8


@pytest.mark.parametrize("layers", [1, 2])
def test_large_kernels_are_shown_in_part_and_it_is_said(show, layers):
    model = nn.Sequential(*[nn.Conv3d(2, 2, 16) for _ in range(layers)])
    page = show(page_data(explain(model)))
    captions = " ".join(page.locator("figcaption").all_inner_texts())
    assert "4,096 basis filters in 64 groups; pictures show the middle slice" in captions
    cells = page.locator("[role=gridcell]")
    assert cells.count() == 64 * layers
    cells.first.hover()
    assert "basis filters 0 to 63" in page.locator("#tooltip").inner_text()
    cells.first.click()
    assert page.locator("#panel .sheet rect").count() == 4 * 256


def test_gaps_in_the_numbers_are_shown_as_gaps(show):
    data = example([(3, 3)] * 3, weighted=False)
    data["layers"][0]["ed"][4] = float("nan")
    data["layers"][1] |= {"ed": [float("nan")] * 9, "band": [float("nan")] * 2, "samples": []}
    data["layers"][1] |= {"low_share": float("nan"), "e1": [], "e0": None}
    for layer in data["layers"]:
        layer["against"] = against_chance(layer["ed"], [1 / 9] * 9)
    page = show(data)
    cell = page.locator(".grid [data-layer='0'][data-filter='4']")
    assert "missing" in cell.get_attribute("class")
    cell.hover()
    assert "no value" in page.locator("#tooltip").inner_text()
    assert "Saliency share" not in page.locator("#layers thead").inner_text()
    page.locator(".grid [data-layer='1']").first.click()
    assert page.locator("#panel .sheet").count() == 0
    assert "NaN" not in page.locator("body").inner_text()
