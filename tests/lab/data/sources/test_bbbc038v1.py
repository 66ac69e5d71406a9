import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from explainfix.lab.data.dataset import open_dataset
from explainfix.lab.data.sources.bbbc038v1 import decode_runs


def decode_slowly(runs, height, width):
    mask = np.zeros((height, width), dtype=bool)
    numbers = [int(number) for number in runs.split()]
    for start, length in zip(numbers[::2], numbers[1::2], strict=True):
        for pixel in range(start - 1, start - 1 + length):
            mask[pixel % height, pixel // height] = True
    return mask


def encode_slowly(mask):
    numbers, inside = [], False
    for place, pixel in enumerate(mask.T.ravel(), start=1):
        if pixel and not inside:
            numbers += [place, 0]
        inside = bool(pixel)
        if inside:
            numbers[-1] += 1
    return " ".join(map(str, numbers))


class TestRuns:
    @settings(deadline=None)
    @given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32 - 1))
    def test_equal_to_a_loop(self, height, width, seed):
        mask = np.random.default_rng(seed).random((height, width)) < 0.5
        runs = encode_slowly(mask)
        np.testing.assert_array_equal(decode_slowly(runs, height, width), mask)
        np.testing.assert_array_equal(decode_runs(runs, height, width), mask)

    def test_overlapping_runs_are_one(self):
        np.testing.assert_array_equal(decode_runs("1 4 2 4", 3, 3), decode_slowly("1 4 2 4", 3, 3))

    @pytest.mark.parametrize("runs", ["0 2", "9 2", "3"])
    def test_beyond_the_picture(self, runs):
        with pytest.raises(ValueError, match="does not fit an image of 3x3"):
            decode_runs(runs, 3, 3)


@pytest.fixture
def official(tmp_path, picture):
    """The official layout: eight images to train on, two to test on, three of stage 2."""

    def make(folder: Path, top: str = "") -> Path:
        for number in range(8):
            image = folder / f"stage1_train{top}" / f"a{number}"
            picture(image / f"images/a{number}.png", 8, 6 + number % 2, mode="RGBA")
            for half in (0, 1):  # two nuclei that touch
                mask = np.zeros((8, 6 + number % 2), dtype=np.uint8)
                mask[2 + 2 * half : 4 + 2 * half, 1:4] = 255
                path = image / f"masks/m{half}.png"
                path.parent.mkdir(exist_ok=True)
                Image.fromarray(mask).save(path)
        for stage, names in (("stage1_test", "bc"), ("stage2_test_final", "def")):
            for name in names:
                picture(folder / stage / name / f"images/{name}.png", 5, 4, mode="RGB")
        (folder / "stage1_solution.csv").write_text(
            "ImageId,EncodedPixels,Height,Width,Usage\n"
            "b,1 2,5,4,Private\nb,7 3,5,4,Private\nc,20 1,5,4,Private\n"
        )
        (folder / "stage2_solution_final.csv").write_text(
            "ImageId,EncodedPixels,Height,Width,Usage\n"
            "d,1 2,5,4,Private\ne,1 1,5,4,Ignored\nf,2 2,5,4,Public\n"
        )
        return folder

    return make


def same(one, other):
    assert one.names == other.names
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a.image, b.image)
        assert torch.equal(a.target, b.target)


class TestLayouts:
    def test_splits_and_masks(self, official, tmp_path):
        folder = official(tmp_path)
        data = open_dataset(f"bbbc038v1:{folder}", val_share=0.25)
        counts = {name: len(split) for name, split in data.splits.items()}
        assert counts == {"train": 6, "val": 2, "test": 2, "stage2": 2}
        assert not set(data.split("train").names) & set(data.split("val").names)
        assert data.split("stage2").names == ("d", "f")  # e is ignored

        name = data.split("train").names[0]
        image, target = data.split("train")[0]
        levels = np.asarray(Image.open(folder / f"stage1_train/{name}/images/{name}.png"))
        np.testing.assert_allclose(image, levels[..., :3].transpose(2, 0, 1) / 255, rtol=1e-6)
        expected = np.zeros(levels.shape[:2])
        expected[2:6, 1:4] = 1
        np.testing.assert_array_equal(target[0], expected)
        np.testing.assert_array_equal(
            data.split("test")[0].target[0], decode_slowly("1 2 7 3", 5, 4)
        )

    def test_zipped_and_a_folder_deeper_are_the_same(self, official, tmp_path):
        plain = open_dataset(f"bbbc038v1:{official(tmp_path / 'plain')}")
        zipped = tmp_path / "zipped"
        zipped.mkdir()
        for table in (tmp_path / "plain").glob("*.csv"):
            (zipped / table.name).write_bytes(table.read_bytes())
        for stem in ("stage1_train", "stage1_test", "stage2_test_final"):
            with zipfile.ZipFile(zipped / f"{stem}.zip", "w") as archive:
                archive.writestr(f"__MACOSX/{stem}/a0/images/._a0.png", b"not an image")
                for path in (tmp_path / "plain" / stem).rglob("*.png"):
                    archive.write(path, path.relative_to(tmp_path / "plain"))
        packed = open_dataset(f"bbbc038v1:{zipped}")
        for split in plain.splits:
            same(plain.split(split), packed.split(split))

    def test_all_of_stage_1_to_train_on(self, official, tmp_path):
        data = open_dataset(f"bbbc038v1:{official(tmp_path)}", val_share=0)
        assert len(data.split("train")) == 8
        with pytest.raises(ValueError, match="no split 'val': choose from 'train', 'test'"):
            data.split("val")

    def test_another_seed_is_another_split(self, official, tmp_path):
        official(tmp_path)
        val = {
            seed: open_dataset(f"bbbc038v1:{tmp_path}", seed=seed, val_share=0.5).split("val").names
            for seed in range(5)
        }
        again = open_dataset(f"bbbc038v1:{tmp_path}", seed=0, val_share=0.5)
        assert again.split("val").names == val[0]
        assert len(set(val.values())) > 1


class TestTraining:
    def test_crops_and_what_the_network_gets(self, official, tmp_path):
        data = open_dataset(f"bbbc038v1:{official(tmp_path)}", crop=4)
        generator = np.random.default_rng(0)
        for sample in data.split("train"):
            image, target = data.augment(sample, generator)
            assert image.shape == (3, 4, 4)
            assert target.shape == (1, 4, 4)
        assert data.prepare(sample).image.mean() == pytest.approx(0.5, abs=1e-6)

    def test_label_noise(self, official, tmp_path):
        data = open_dataset(f"bbbc038v1:{official(tmp_path)}", crop=64, label_noise=0.25)
        # a crop beyond the image is not counted, noise or not
        target = data.augment(data.split("train")[0], np.random.default_rng(0)).target
        assert int(target.isnan().logical_not().sum()) in (48, 56)


class TestMistakes:
    def test_damaged(self, official, tmp_path):
        official(tmp_path)
        for name in ("a1/images/a1.png", "a2/masks/m0.png"):
            path = tmp_path / "stage1_train" / name
            path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(
            ValueError, match=r"has 2 files \('stage1_train/a1.*\) damaged: it is truncated. skip_"
        ):
            open_dataset(f"bbbc038v1:{tmp_path}")
        data = open_dataset(f"bbbc038v1:{tmp_path}", skip_damaged=True, val_share=0.5)
        assert data.damaged == ("stage1_train/a1/images/a1.png", "stage1_train/a2/masks/m0.png")
        names = {*data.split("train").names, *data.split("val").names}
        assert names == {"a0", "a3", "a4", "a5", "a6", "a7"}

    def test_without_partner(self, official, tmp_path):
        official(tmp_path)
        (tmp_path / "stage1_train/a1/images/a1.png").unlink()
        for mask in (tmp_path / "stage1_train/a2/masks").iterdir():
            mask.unlink()
        message = r"1 file \('stage1_train/a2/images/a2.png'\) without a mask; 1 file .* without an"
        with pytest.raises(ValueError, match=message):
            open_dataset(f"bbbc038v1:{tmp_path}")
        data = open_dataset(f"bbbc038v1:{tmp_path}", skip_damaged=True)
        assert len(data.split("train")) + len(data.split("val")) == 6

    def test_layout(self, official, tmp_path):
        with pytest.raises(ValueError, match=r"'bbbc038v1' needs the folder .* no path was given"):
            open_dataset("bbbc038v1")
        with pytest.raises(ValueError, match="is not there"):
            open_dataset(f"bbbc038v1:{tmp_path / 'none'}")
        (tmp_path / "readme.txt").touch()
        with pytest.raises(ValueError, match=r"no stage1_train.zip .* holds 1 thing \('readme"):
            open_dataset(f"bbbc038v1:{tmp_path}")
        official(tmp_path)
        with pytest.raises(ValueError, match=r"differ in size: .* is 8x6, .* 8x7; give crop="):
            open_dataset(f"bbbc038v1:{tmp_path}", crop=None)
        (tmp_path / "stage1_solution.csv").write_text("Image,Pixels\n")
        with pytest.raises(ValueError, match="has no column 'ImageId': found 'Image', 'Pixels'"):
            open_dataset(f"bbbc038v1:{tmp_path}")
        (tmp_path / "stage1_solution.csv").unlink()
        with pytest.raises(ValueError, match=r"its masks, stage1_solution.csv, are not"):
            open_dataset(f"bbbc038v1:{tmp_path}")
        (tmp_path / "stage1_train.zip").write_bytes(b"PK\x03\x04 but no zip")
        (tmp_path / "stage1_train").rename(tmp_path / "elsewhere")
        with pytest.raises(ValueError, match="cannot be read as a zip"):
            open_dataset(f"bbbc038v1:{tmp_path}")


class TestRealImages:
    """The 670 and 65 images themselves."""

    @pytest.fixture
    def data(self, real_data):
        return open_dataset(f"bbbc038v1:{real_data / 'bbbc038v1'}")

    def test_counts(self, data):
        counts = {name: len(split) for name, split in data.splits.items()}
        assert counts == {"train": 603, "val": 67, "test": 65}
        assert data.damaged == ()
        names = [set(split.names) for split in data.splits.values()]
        assert len(set.union(*names)) == 735

    def test_masks_are_the_union_of_their_files(self, data, real_data):
        train = data.split("train")
        with zipfile.ZipFile(real_data / "bbbc038v1/stage1_train.zip") as archive:
            for index in (0, 100, 300):
                name, union = train.names[index], 0
                for file in archive.namelist():
                    if file.startswith(f"{name}/masks/"):
                        with archive.open(file) as mask:
                            union = union | (np.asarray(Image.open(mask)) > 0)
                np.testing.assert_array_equal(train[index].target[0], union)
                runs = encode_slowly(union)
                np.testing.assert_array_equal(decode_runs(runs, *union.shape), union)

    def test_nuclei_are_brighter_after_robust_normalisation(self, real_data):
        data = open_dataset(f"bbbc038v1:{real_data / 'bbbc038v1'}", normalise="robust")
        gaps = []
        for sample in data.split("test"):
            image, target = (part.numpy() for part in data.prepare(sample))
            inside = target[0] > 0
            gaps.append(float(image[:, inside].mean() - image[:, ~inside].mean()))
        assert sum(gap > 0.2 for gap in gaps) >= 0.9 * len(gaps), sorted(gaps)[:10]
