"""A story at the head of a page: what its parts become."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from explainfix import explain, fix_
from explainfix.report.scale import against_chance
from explainfix.report.story import Chapter, Gallery, Row, Story, Table, story_data
from explainfix.report.write import write_page


def network():
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 2, 5))


def chapters():
    first, second = network(), network()
    fix_(second, "ones")
    black = np.zeros((4, 6, 3), np.uint8)
    table = Table(["filters", "Dice"], [Row("learned", [0.8], "Best <b>."), Row("ones", [0.5])])
    seen = [(explain(first, title="learned"), "As random."), (explain(second, title="ones"), "")]
    return [
        Chapter("What it looks for", ["One.", "Two."], spectra=seen),
        Chapter("Scores", table=table, gallery=Gallery({"image": [black], "mask": [black + 255]})),
    ]


def only(chapter: Chapter) -> dict:
    [made] = story_data(Story("title", "answer", [chapter]))["chapters"]
    return made


class TestSpectra:
    def test_layers_of_the_commonest_shape_on_one_scale(self):
        learned, ones = only(chapters()[0])["spectra"]
        assert [column["path"] for column in learned["columns"]] == ["0", "1"]  # the 5x5 is alone
        assert learned["rows"] == 9
        # box filters have the flat pattern alone: all of it above chance, all else below
        for column in ones["columns"]:
            assert column["cells"] == [1.0] + [-1.0] * 8
        # random kernels on the same scale are pale
        cells = [cell for column in learned["columns"] for cell in column["cells"]]
        assert max(map(abs, cells)) < 0.5

    def test_what_chance_could_have_given_is_faint(self):
        layer = nn.Conv2d(1, 1, 3)
        layer.weight.data = torch.ones(1, 1, 3, 3) + 0.1 * torch.randn(1, 1, 3, 3)
        why = explain(nn.Sequential(layer))
        [spectra] = only(Chapter("a", spectra=[(why, "")]))["spectra"]
        plain = np.clip(np.array(against_chance(why["0"].ed.tolist(), [1 / 9] * 9)) / 3, -1, 1)
        low, high = why.layers["0"].energy_chance
        faint = [low <= energy <= high for energy in why["0"].ed.tolist()]
        assert np.allclose(spectra["columns"][0]["cells"], np.where(faint, 0.3, 1.0) * plain)


class TestGallery:
    def test_pictures_are_in_the_page_pixel_for_pixel(self):
        picture = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
        made = only(Chapter("a", gallery=Gallery({"one": [picture], "two": [picture[..., 0]]})))
        (one, two) = made["gallery"]["rows"][0]
        for address, expected in ((one, picture), (two, picture[..., 0])):
            kind, _, data = address.partition(";base64,")
            assert kind == "data:image/png"
            with Image.open(io.BytesIO(base64.b64decode(data))) as read:
                assert np.array_equal(np.asarray(read), expected)

    def test_mistakes(self):
        black = np.zeros((2, 2), np.uint8)
        with pytest.raises(ValueError, match=r"as many pictures under each name.*'b': 2"):
            only(Chapter("a", gallery=Gallery({"a": [black], "b": [black, black]})))
        with pytest.raises(ValueError, match=r"of bytes, not \(2, 2\) of float64"):
            only(Chapter("a", gallery=Gallery({"a": [np.zeros((2, 2))]})))


def test_a_row_must_fit_its_headings():
    with pytest.raises(ValueError, match="'learned' has 2 cells, not 1"):
        only(Chapter("a", table=Table(["filters", "Dice"], [Row("learned", [1, 2])])))


def test_the_page_tells_it_in_order(tmp_path):
    file = tmp_path / "page.html"
    why = explain(network(), title="the network")
    write_page(why, file, story=Story("A title", "An answer.", chapters(), detail="Below"))
    page = file.read_text()
    order = ["<h1>A title", "An answer.", "What it looks for", "One.", "As random.", "Scores",
             "Best &lt;b&gt;.", 'alt="mask, picture 1"', "Below", "spatial layers"]  # fmt: skip
    places = [page.index(text, page.index("<body")) for text in order]
    assert places == sorted(places)
    why.to_html(tmp_path / "plain.html")
    plain = (tmp_path / "plain.html").read_text()
    assert "<h1>the network" in plain
    assert "chapter" not in plain
