import os

import numpy as np
import pytest

from explainfix.lab.data import cache
from explainfix.lab.data.archive import Tree
from explainfix.lab.data.dataset import open_dataset


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("EXPLAINFIX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Counted:
    """Makes an array, and counts how often."""

    def __init__(self, value=7):
        self.value, self.times = value, 0

    def __call__(self):
        self.times += 1
        return np.full((2, 3), self.value, dtype=np.uint8)


def test_made_once(folder):
    make = Counted()
    for _ in range(3):
        np.testing.assert_array_equal(cache.remember("key", "stamp", make), make())
        make.times -= 1
    assert make.times == 1
    assert [path.suffix for path in folder.rglob("*") if path.is_file()] == [".safetensors"]


def test_never_stale(folder, monkeypatch):
    cache.remember("key", "before", Counted(1))
    assert cache.remember("key", "after", Counted(2)).max() == 2
    assert cache.remember("key", "before", Counted(3)).max() == 3
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 1  # nothing piles up
    monkeypatch.setattr(cache, "FORMAT", "next")
    assert cache.remember("key", "before", Counted(4)).max() == 4
    assert cache.remember("another", "before", Counted(5)).max() == 5


def test_a_damaged_file_is_made_again(folder):
    cache.remember("key", "stamp", Counted(1))
    (path,) = folder.rglob("*.safetensors")
    for broken in (path.read_bytes()[:-3], b"", b"nonsense"):
        path.write_bytes(broken)
        assert cache.remember("key", "stamp", Counted(2)).max() == 2
        assert cache.remember("key", "stamp", Counted(3)).max() == 2


def test_where_nothing_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("EXPLAINFIX_CACHE", str(tmp_path / "file"))
    make = Counted()
    for _ in range(2):
        assert cache.remember("key", "stamp", make).max() == 7
    assert make.times == 2


def test_an_interrupted_write_leaves_nothing(folder, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cache.Path, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        cache.remember("key", "stamp", Counted())
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_names(folder):
    assert cache.remember_names("key", "1", lambda: ["a b", "ü/c.png"]) == ("a b", "ü/c.png")
    assert cache.remember_names("key", "1", lambda: ["x"]) == ("a b", "ü/c.png")
    assert cache.remember_names("key", "2", list) == ()
    assert cache.remember_names("key", "2", lambda: ["x"]) == ()


def test_where(monkeypatch, tmp_path):
    monkeypatch.delenv("EXPLAINFIX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "explainfix"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_folder().parts[-2:] == (".cache", "explainfix")


def test_a_file_that_changes_is_decoded_again(tmp_path):
    """The whole way: an image is replaced by one of the same size between two readings."""
    from PIL import Image

    root = tmp_path / "data/stage1_train"
    for name in ("a", "b"):
        for part in ("images", "masks"):
            (root / name / part).mkdir(parents=True)
            Image.new("L", (4, 4), 200).save(root / name / part / "x.png")
    spec = f"bbbc038v1:{tmp_path / 'data'}"
    image = open_dataset(spec, val_share=0).split("train")[0].image
    assert image.max() == image.min() == np.float32(200 / 255)
    path = root / "a/images/x.png"
    before = path.stat()
    Image.new("L", (4, 4), 100).save(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert open_dataset(spec, val_share=0).split("train")[0].image.max() == np.float32(100 / 255)


def test_stamps(tmp_path):
    (tmp_path / "a").write_text("1")
    tree = Tree(tmp_path)
    first = tree.stamp(["a"])
    assert tree.stamp(["a"]) == first
    (tmp_path / "a").write_text("22")
    assert tree.stamp(["a"]) != first
    assert "missing" in tree.stamp(["b"])
