import pickle
import zipfile
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image

from explainfix.lab.data.dataset import open_dataset


@pytest.fixture
def classes(tmp_path, picture):
    """Twenty cats and ten dogs."""
    for name, count in (("cat", 20), ("dog", 10)):
        for k in range(count):
            picture(tmp_path / f"{name}/{k:02d}.png", 12, 12, mode="RGB" if k % 2 else "L")
    (tmp_path / "notes.txt").touch()
    return tmp_path


@pytest.fixture
def masks(tmp_path, picture):
    for k in range(10):
        picture(tmp_path / f"images/{k}.jpg", 10, 12)
        levels = picture(tmp_path / f"masks/{k}.png", 10, 12)
        Image.fromarray((levels > 99) * np.uint8(255)).save(tmp_path / f"masks/{k}.png")
    return tmp_path


class TestClasses:
    def test_a_stratified_split(self, classes):
        data = open_dataset(f"folder:{classes}", val_share=0.2, test_share=0.1)
        assert data.task == "multiclass"
        assert data.classes == ("cat", "dog")
        labels = {s: Counter(int(x.target) for x in data.split(s)) for s in data.splits}
        assert labels == {"train": {0: 14, 1: 7}, "val": {0: 4, 1: 2}, "test": {0: 2, 1: 1}}
        names = [name for split in data.splits.values() for name in split.names]
        assert len(names) == len(set(names)) == 30
        again = open_dataset(f"folder:{classes}", val_share=0.2, test_share=0.1)
        assert all(again.split(s).names == data.split(s).names for s in data.splits)

    def test_grey_and_colour(self, classes):
        for grey, channels in ((False, 3), (True, 1)):
            data = open_dataset(f"folder:{classes}", grey=grey, size=6)
            assert data.in_channels == channels
            assert {sample.image.shape for sample in data.split("train")} == {(channels, 6, 6)}
        data = open_dataset(f"folder:{classes}", grey=True)
        name = next(name for name in data.split("train").names if name.endswith("1.png"))
        with Image.open(classes / name) as picture:
            expected = np.asarray(picture.convert("L")) / 255  # rounded to a level by Pillow
        sample = data.split("train")[data.split("train").names.index(name)]
        np.testing.assert_allclose(sample.image[0], expected, atol=1.01 / 255)

    def test_given_splits(self, classes, tmp_path):
        for split in ("train", "val", "test"):
            for name in ("cat", "dog"):
                (tmp_path / "given" / split).mkdir(parents=True, exist_ok=True)
                target = tmp_path / "given" / split / name
                target.mkdir()
                for k in range(3):
                    source = classes / name / f"{k:02d}.png"
                    (target / f"{k}.png").write_bytes(source.read_bytes())
        data = open_dataset(f"folder:{tmp_path / 'given'}")
        assert {name: len(split) for name, split in data.splits.items()} == {
            "train": 6, "val": 6, "test": 6,
        }  # fmt: skip
        assert all(name.startswith("val/") for name in data.split("val").names)

    def test_zipped(self, classes, tmp_path):
        with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
            for path in classes.rglob("*.png"):
                archive.write(path, path.relative_to(classes))
        plain, packed = (
            open_dataset(f"folder:{classes}"),
            open_dataset(f"folder:{tmp_path}/all.zip"),
        )
        assert plain.split("val").names == packed.split("val").names
        sent = pickle.loads(pickle.dumps(packed))  # as to a worker
        for other in (packed, sent):
            assert torch.equal(plain.split("val")[0].image, other.split("val")[0].image)
        with zipfile.ZipFile(tmp_path / "all.zip") as archive:
            assert len(archive.namelist()) == 30

    def test_below_the_home(self, classes, monkeypatch):
        monkeypatch.setenv("HOME", str(classes.parent))
        assert len(open_dataset(f"folder:~/{classes.name}").split("train")) == 20


class TestMasks:
    def test_pairs(self, masks):
        data = open_dataset(f"folder:{masks}")
        assert data.task == "segmentation"
        assert {name: len(split) for name, split in data.splits.items()} == {
            "train": 6, "val": 2, "test": 2,
        }  # fmt: skip
        name, sample = data.split("train").names[0], data.split("train")[0]
        with Image.open(masks / name.replace("images", "masks").replace("jpg", "png")) as mask:
            np.testing.assert_array_equal(sample.target[0], np.asarray(mask) > 0)
        assert sample.image.shape == (3, 10, 12)
        small = open_dataset(f"folder:{masks}", size=8).split("train")[0]
        assert small.target.shape == (1, 8, 8)
        assert set(small.target.unique().tolist()) <= {0.0, 1.0}

    @pytest.fixture
    def several(self, masks):
        """Masks of 0, 1 and 2, as palette pictures."""
        for k in range(10):
            numbers = np.random.default_rng(k).integers(0, 3, (10, 12), dtype=np.uint8)
            mask = Image.fromarray(numbers)
            mask.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0])
            mask.save(masks / f"masks/{k}.png")
        return masks

    def test_several_classes(self, several):
        data = open_dataset(f"folder:{several}")
        assert data.classes == ("background", "1", "2")
        name, sample = data.split("val").names[0], data.split("val")[0]
        with Image.open(several / name.replace("images", "masks").replace("jpg", "png")) as mask:
            np.testing.assert_array_equal(sample.target[0], np.asarray(mask))
        whole = open_dataset(f"folder:{several}", masks="binary")
        assert whole.classes == ("mask",)
        assert torch.equal(whole.split("val")[0].target, sample.target.clamp(max=1))
        with_void = open_dataset(f"folder:{several}", ignore=2)
        assert with_void.classes == ("mask",)
        assert torch.equal(with_void.split("val")[0].target.isnan(), sample.target == 2)

    def test_classes_are_resized_by_what_covers_most(self, masks):
        """One class in each of four quarters, a strip of another too thin to win, and void."""
        numbers = np.repeat(np.repeat([[0, 1], [2, 255]], 12, 0), 12, 1).astype(np.uint8)
        numbers[:, 12] = 1
        for k in range(10):
            Image.fromarray(np.zeros((24, 24), np.uint8)).save(masks / f"images/{k}.jpg")
            Image.fromarray(numbers).save(masks / f"masks/{k}.png")
        data = open_dataset(f"folder:{masks}", size=4, ignore=255)
        wanted = torch.tensor([[0, 1], [2, torch.nan]]).repeat_interleave(2, 0)
        wanted = wanted.repeat_interleave(2, 1)[None]
        torch.testing.assert_close(data.split("train")[0].target, wanted, equal_nan=True)

    def test_without_partner(self, masks):
        (masks / "masks/3.png").unlink()
        (masks / "images/4.jpg").unlink()
        message = (
            r"1 file \('images/3.jpg'\) without a mask; 1 file \('masks/4.png'\) without an im"
        )
        with pytest.raises(ValueError, match=message):
            open_dataset(f"folder:{masks}")
        data = open_dataset(f"folder:{masks}", skip_damaged=True)
        assert data.damaged == ("images/3.jpg", "masks/4.png")
        assert sum(map(len, data.splits.values())) == 8

    def test_sizes_that_differ(self, masks, picture):
        Image.fromarray(np.zeros((9, 12), np.uint8)).save(masks / "masks/0.png")
        data = open_dataset(f"folder:{masks}", test_share=0, val_share=0)
        with pytest.raises(
            ValueError, match=r"'images/0.jpg' and its mask .* differ in size: 10x1"
        ):
            data.split("train")[0]


class TestMistakes:
    def test_damaged(self, classes):
        path = classes / "cat/00.png"
        path.write_bytes(path.read_bytes()[:-30])
        with pytest.raises(
            ValueError, match=r"has 1 file \('cat/00.png'\) damaged: it is truncated. skip_"
        ):
            open_dataset(f"folder:{classes}")
        assert open_dataset(f"folder:{classes}", skip_damaged=True).damaged == ("cat/00.png",)

    def test_mixed_sizes(self, classes, picture):
        for k in range(20):
            picture(classes / f"cat/{k:02d}.png", 14, 12)
        with pytest.raises(ValueError, match=r"differ in size: .* give size= or crop="):
            open_dataset(f"folder:{classes}")
        data = open_dataset(f"folder:{classes}", crop=8)
        generator = np.random.default_rng(0)
        shapes = {data.augment(sample, generator).image.shape for sample in data.split("train")}
        assert shapes == {(3, 8, 8)}

    def test_layout(self, tmp_path):
        with pytest.raises(ValueError, match="needs a folder or zip, as in folder:PATH"):
            open_dataset("folder")
        with pytest.raises(ValueError, match=r"is not laid out as CLASS/.*: found no files"):
            open_dataset(f"folder:{tmp_path}")
        (tmp_path / "a.csv").touch()
        with pytest.raises(ValueError, match=r"found 1 file \('a.csv'\)"):
            open_dataset(f"folder:{tmp_path}")
