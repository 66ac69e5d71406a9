"""Masks as class numbers: whatever the file, and whatever values were chosen."""

import numpy as np
import pytest
import torch
from PIL import Image

from explainfix.lab.data import masks
from explainfix.lab.data.archive import Tree
from explainfix.lab.data.masks import Labels, find_labels, read_levels

NUMBERS = np.array([[0, 1, 2], [2, 0, 0]])


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("EXPLAINFIX_CACHE", str(tmp_path_factory.mktemp("cache")))


def save(path, levels, mode=None, **options):
    picture = Image.fromarray(np.asarray(levels, dtype=np.uint8))
    if mode == "P":
        picture.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 7, 7, 7])
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, **options)


def found(folder, train, others=(), **options):
    tree = Tree(folder)
    return find_labels(tree, {n: (n,) for n in train}, {n: (n,) for n in others}, **options)


@pytest.fixture
def three(tmp_path):
    save(tmp_path / "a.png", NUMBERS)
    save(tmp_path / "b.png", NUMBERS * 0)
    return tmp_path


class TestLevels:
    def test_grey_palette_and_16_bits(self, tmp_path):
        save(tmp_path / "grey.png", NUMBERS)
        save(tmp_path / "palette.png", NUMBERS, "P")
        Image.fromarray((NUMBERS * 300).astype(np.uint16)).save(tmp_path / "deep.png")
        Image.fromarray((NUMBERS * 300).astype(np.uint16)).save(tmp_path / "deep.tif")
        tree = Tree(tmp_path)
        with Image.open(tmp_path / "palette.png") as picture:
            assert picture.mode == "P"
        for name, times in (
            ("grey.png", 1),
            ("palette.png", 1),
            ("deep.png", 300),
            ("deep.tif", 300),
        ):
            np.testing.assert_array_equal(read_levels(tree, [name]), NUMBERS * times, err_msg=name)

    def test_colours(self, tmp_path):
        colours = np.zeros((2, 2, 3))
        colours[0, 1], colours[1, 0], colours[1, 1] = (255, 0, 0), (0, 0, 255), (255, 255, 255)
        save(tmp_path / "a.png", colours)
        labels = found(tmp_path, ["a.png"])
        assert labels.classes == ("background", "255", "#0000ff", "#ff0000")
        numbers = labels.numbers(read_levels(Tree(tmp_path), ["a.png"]))
        assert numbers.tolist() == [[[0, 3], [2, 1]]]
        (tmp_path / "classes.txt").write_text(
            "#000000 sky\n#ff0000 car\n#0000ff sea\n#ffffff snow\n"
        )
        assert found(tmp_path, ["a.png"]).classes == ("sky", "snow", "sea", "car")

    def test_grey_saved_as_colours_is_grey(self, tmp_path):
        save(tmp_path / "a.png", np.stack([NUMBERS] * 3, -1))
        np.testing.assert_array_equal(read_levels(Tree(tmp_path), ["a.png"]), NUMBERS)

    def test_jpeg_blurs(self, tmp_path):
        disc = np.hypot(*np.mgrid[-20:21, -20:21]) < 12
        save(tmp_path / "a.jpg", disc * 255, quality=60)
        levels = read_levels(Tree(tmp_path), ["a.jpg"])
        assert set(np.unique(levels)) == {0, 255}
        assert ((levels == 255) != disc).mean() < 0.02


class TestLabels:
    def test_two_values_are_one_class(self, tmp_path):
        for k, high in enumerate((255, 1, 38)):
            save(tmp_path / f"{k}/a.png", NUMBERS.clip(0, 1) * high)
            labels = found(tmp_path / str(k), ["a.png"])
            assert (labels.values, labels.classes) == ((0, high), ("mask",))
            numbers = labels.numbers(np.array([[0, high]]))
            assert numbers.tolist() == [[[0, 1]]]

    def test_more_are_classes(self, three):
        labels = found(three, ["a.png"], ["b.png"])
        assert (labels.values, labels.classes) == ((0, 1, 2), ("background", "1", "2"))

    def test_a_background_that_never_occurs(self, tmp_path):
        save(tmp_path / "a.png", NUMBERS + 3)
        assert found(tmp_path, ["a.png"]).classes == ("background", "3", "4", "5")

    def test_only_background(self, three):
        assert found(three, ["b.png"]).numbers(NUMBERS).tolist() == [[[0, 1, 1], [1, 0, 0]]]
        with pytest.raises(ValueError, match=r"'a.png' holds the value 1, .* only 0"):
            found(three, ["b.png"], ["a.png"])

    def test_names(self, three):
        (three / "classes.txt").write_text("0 nothing\n\n1 liver\n2 left kidney\n9 spleen\n")
        labels = found(three, ["b.png"], ["a.png"])
        assert labels.classes == ("nothing", "liver", "left kidney", "spleen")
        assert labels.values == (0, 1, 2, 9)
        (three / "classes.txt").write_text("0 nothing\n1 liver\n")
        with pytest.raises(ValueError, match=r"'a.png' holds the value 2, classes.txt only 0, 1"):
            found(three, ["a.png"])
        assert found(three, ["a.png"], ignore=2).classes == ("liver",)
        (three / "classes.txt").write_text("liver\n")
        with pytest.raises(ValueError, match=r"the line 'liver' of classes.txt is not VALUE NAME"):
            found(three, ["a.png"])

    def test_a_value_that_is_not_in_training(self, three):
        save(three / "c.png", NUMBERS * 2)
        with pytest.raises(ValueError, match=r"'c.png' holds the value 4, .* only 0, 1, 2"):
            found(three, ["a.png"], ["b.png", "c.png"])

    def test_void(self, tmp_path):
        save(tmp_path / "a.png", np.where(NUMBERS == 2, 255, NUMBERS))
        assert found(tmp_path, ["a.png"]).classes == ("background", "1", "255")
        labels = found(tmp_path, ["a.png"], ignore=255)
        assert labels.classes == ("mask",)
        numbers = labels.numbers(np.array([[0, 1, 255]]))
        torch.testing.assert_close(numbers, torch.tensor([[[0, 1, torch.nan]]]), equal_nan=True)

    def test_objects_that_are_numbered(self, tmp_path):
        save(tmp_path / "a.png", np.arange(100).reshape(10, 10))
        with pytest.raises(ValueError, match=r"hold 100 values: .* masks=binary"):
            found(tmp_path, ["a.png"])
        assert Labels().numbers(np.arange(3)[None]).tolist() == [[[0, 1, 1]]]

    def test_floats(self, tmp_path):
        Image.fromarray(np.array([[0.5, 1.0]], dtype=np.float32)).save(tmp_path / "a.tif")
        with pytest.raises(ValueError, match=r"'a.tif' is no mask: .* not whole numbers"):
            found(tmp_path, ["a.tif"])

    def test_values_are_looked_for_once(self, three, monkeypatch):
        first = found(three, ["a.png"])
        with monkeypatch.context() as patch:
            patch.setattr(masks, "read_levels", lambda *_: pytest.fail("decoded again"))
            assert found(three, ["a.png"]) == first
        save(three / "a.png", NUMBERS * 3)
        assert found(three, ["a.png"]).classes == ("background", "3", "6")
