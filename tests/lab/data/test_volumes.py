"""Volumes against the packages that write them, and DICOM slices in any order."""

import io
import sys

import nibabel
import numpy as np
import pydicom
import pytest
import torch
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

from explainfix.cli.evaluating import _list_images
from explainfix.lab.data.archive import Tree
from explainfix.lab.data.dataset import open_dataset
from explainfix.lab.data.images import read_image, resize
from explainfix.lab.data.volumes import find_series, read_affine, read_volume, write_volume

AFFINE = np.array([[0, -0.8, 0, 40], [0.8, 0, 0, -30], [0, 0, 2.5, 7], [0, 0, 0, 1.0]])


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("EXPLAINFIX_CACHE", str(tmp_path_factory.mktemp("cache")))


def nifti(path, values, kind=nibabel.Nifti1Image):
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(kind(values, AFFINE), path)
    return path


def opened(path):
    return [io.BytesIO(path.read_bytes())]


def series(folder, volume, uid, *, slope=1, intercept=0):
    """Slices `(d, h, w)`, 2 mm apart, under names that do not follow their places."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, levels in enumerate(volume):
        data = Dataset()
        data.file_meta = FileMetaDataset()
        data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID = CTImageStorage
        data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID = generate_uid()
        data.SeriesInstanceUID = uid
        data.ImagePositionPatient = [5, 6, 2 * place - 10]
        data.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
        data.PixelSpacing = [0.5, 0.25]  # between rows, between columns
        data.Rows, data.Columns = levels.shape
        data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
        data.BitsAllocated = data.BitsStored = 16
        data.HighBit, data.PixelRepresentation = 15, 0
        data.RescaleSlope, data.RescaleIntercept = slope, intercept
        data.PixelData = levels.astype(np.uint16).tobytes()
        name = f"{(place * 7 + 3) % len(volume):03d}-{uid[-3:]}.dcm"
        pydicom.dcmwrite(folder / name, data, enforce_file_format=True)


class TestNifti:
    @pytest.mark.parametrize("ending", ["nii", "nii.gz"])
    @pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
    def test_depth_comes_first(self, tmp_path, ending, kind):
        values = np.arange(2 * 3 * 4, dtype=np.int16).reshape(2, 3, 4)  # x, y, z
        path = nifti(tmp_path / f"a.{ending}", values, kind)
        volume = read_volume(opened(path))
        assert volume.levels.shape == (1, 4, 3, 2)
        np.testing.assert_array_equal(volume.levels[0, 3, 1, 0], values[0, 1, 3])
        np.testing.assert_array_equal(volume.levels[0], values.T)
        np.testing.assert_allclose(volume.affine, AFFINE)

    def test_channels_between_percentiles_of_their_own(self, tmp_path):
        values = np.random.default_rng(0).normal(0, 1, (8, 9, 10, 2)) * [1, 1000] - [0, 3000]
        image = read_image(nifti(tmp_path / "a.nii.gz", values.astype(np.float32)))
        assert image.shape == (2, 10, 9, 8)
        for channel in range(2):
            low, high = np.quantile(values[..., channel], [0.005, 0.995])
            wanted = ((values[..., channel].T - low) / (high - low)).clip(0, 1)
            np.testing.assert_allclose(image[channel], wanted, atol=1e-4)

    def test_a_mask_goes_back_on_its_voxels(self, tmp_path):
        mask = torch.randint(3, (4, 3, 2), dtype=torch.uint8)
        write_volume(tmp_path / "m.nii.gz", mask, AFFINE)
        again = nibabel.load(tmp_path / "m.nii.gz")
        np.testing.assert_array_equal(np.asarray(again.dataobj), mask.numpy().T)
        assert again.get_data_dtype() == np.uint8
        np.testing.assert_allclose(again.affine, AFFINE, atol=1e-6)

    def test_mistakes(self, tmp_path, monkeypatch):
        path = nifti(tmp_path / "a.nii.gz", np.full((2, 2, 2), np.nan))
        with pytest.raises(ValueError, match=r"a.nii.gz' cannot be decoded: it holds NaN"):
            read_image(path)
        path.write_bytes(path.read_bytes()[:40])
        with pytest.raises(ValueError, match=r"a.nii.gz' cannot be decoded"):
            read_image(path)
        with pytest.raises(ValueError, match="volumes have no normalise=window"):
            read_image(path, levels="window")
        monkeypatch.setitem(sys.modules, "nibabel", None)
        with pytest.raises(ImportError, match=r"NIfTI needs nibabel.*pip install .*\[medical\]"):
            read_image(path)


class TestSeries:
    def test_slices_are_put_in_the_order_of_their_places(self, tmp_path):
        volume = np.random.default_rng(0).integers(0, 4000, (5, 4, 3))
        series(tmp_path / "ct/case", volume, "1.2.345", slope=2, intercept=-1000)
        tree = Tree(tmp_path)
        [(name, files)] = find_series(tree).items()
        assert (name, len(files)) == ("ct/case", 5)
        read = read_volume([tree.read(file) for file in files])
        np.testing.assert_array_equal(read.levels[0], volume * 2.0 - 1000)
        affine = read_affine([tmp_path / file for file in files])
        # by hand: column, row and slice to millimetres, to the left and back being negative
        np.testing.assert_allclose(affine @ [1, 1, 1, 1], [-5.25, -6.5, -8, 1])

    def test_two_in_a_folder_and_pictures_that_are_none(self, tmp_path):
        volume = np.ones((3, 4, 4))
        for uid in ("1.2.345", "1.2.346"):
            series(tmp_path / "case", volume, uid)
        series(tmp_path / "single", volume[:1], "1.2.347")
        found = find_series(Tree(tmp_path))
        assert {name: len(files) for name, files in found.items()} == {
            "case/1.2.345": 3, "case/1.2.346": 3,
        }  # fmt: skip
        assert sorted(find_series(Tree(tmp_path / "case"))) == ["1.2.345", "1.2.346"]

    def test_the_folder_itself(self, tmp_path):
        series(tmp_path, np.ones((3, 4, 4)), "1.2.345")
        assert list(find_series(Tree(tmp_path))) == [""]
        [(name, files)] = _list_images([tmp_path])
        assert (name, len(files)) == (tmp_path.name, 3)
        nifti(tmp_path / "more.v2.nii.gz", np.ones((4, 4, 3)))
        assert [name for name, _ in _list_images([tmp_path / "more.v2.nii.gz"])] == ["more.v2"]


class TestFolder:
    @pytest.fixture
    def cases(self, tmp_path):
        random = np.random.default_rng(0)
        for k in range(6):
            shape = (8, 9 + k, 7)
            nifti(tmp_path / f"images/c{k}.nii.gz", random.normal(size=shape).astype(np.float32))
            mask = random.integers(0, 3, shape).astype(np.uint8)
            nifti(tmp_path / f"masks/c{k}.nii.gz", mask)
        return tmp_path

    def test_cubes(self, cases):
        data = open_dataset(f"folder:{cases}", crop=8, flips="both")
        assert (data.task, data.in_channels, data.preparation.window) == ("segmentation", 1, 8)
        assert data.classes == ("background", "1", "2")
        image, mask = data.split("train")[0]
        assert image.shape[0] == 1
        assert mask.shape == (1, *image.shape[1:])
        cube = data.augment(data.split("train")[0], np.random.default_rng(0))
        assert cube.image.shape == cube.target.shape == (1, 8, 8, 8)
        assert cube.target.isnan().sum() == 64  # a depth of seven, padded

    def test_all_axes_are_flipped(self, cases):
        data = open_dataset(f"folder:{cases}", crop=7, flips="both")
        sample = data.split("train")[0]
        random = np.random.default_rng(0)
        flip = data.steps[-1]
        seen = set()
        for _ in range(60):
            flipped = flip(sample, random)
            for axes in [(), (1,), (2,), (3,), (1, 2), (1, 3), (2, 3), (1, 2, 3)]:
                if torch.equal(flipped.image, sample.image.flip(axes)):
                    assert torch.equal(flipped.target, sample.target.flip(axes))
                    seen.add(axes)
        assert len(seen) == 8

    def test_one_size(self, cases):
        data = open_dataset(f"folder:{cases}", size=6)
        assert {s.image.shape for s in data.split("train")} == {(1, 6, 6, 6)}
        assert set(data.split("train")[0].target.unique().tolist()) <= {0, 1, 2}
        with pytest.raises(ValueError, match="volumes need crop="):
            open_dataset(f"folder:{cases}")

    def test_normalised(self, cases):
        assert open_dataset(f"folder:{cases}", crop=4).preparation.levels == "percentiles"
        data = open_dataset(f"folder:{cases}", crop=4, normalise="dataset")
        seen = torch.cat([data.prepare(s).image.flatten() for s in data.split("train")])
        assert abs(seen.mean()) < 1e-4
        assert abs(seen.std() - 1) < 1e-3
        with pytest.raises(ValueError, match="volumes have no normalise=window: take percentiles"):
            open_dataset(f"folder:{cases}", crop=4, normalise="window")

    def test_series_with_masks_and_in_classes(self, tmp_path):
        for k in range(6):
            volume = np.random.default_rng(k).integers(0, 4000, (4, 5, 6))
            series(tmp_path / f"a/images/p.{k}", volume, f"1.2.{k}")
            nifti(tmp_path / f"a/masks/p.{k}.nii.gz", np.ones((6, 5, 4), np.uint8))
            series(tmp_path / f"b/{'ill' if k % 2 else 'well'}/p{k}", volume, f"1.2.{k}")
        data = open_dataset(f"folder:{tmp_path / 'a'}", crop=4)
        assert data.split("train")[0].image.shape == (1, 4, 5, 6)
        assert data.split("train").names[0].startswith("images/p.")
        data = open_dataset(f"folder:{tmp_path / 'b'}", crop=4)
        assert (data.task, data.classes) == ("multiclass", ("ill", "well"))
        assert data.split("train")[0].image.shape == (1, 4, 5, 6)

    def test_pictures_beside_volumes(self, cases):
        for part in ("images", "masks"):
            Image.new("L", (8, 8)).save(cases / part / "flat.png")
        with pytest.raises(ValueError, match=r"holds 6 volumes .* and 1 picture \('images/flat"):
            open_dataset(f"folder:{cases}", crop=8)


def test_volumes_are_resized_along_each_axis():
    ramp = torch.linspace(0, 1, 12)
    volume = ramp.view(1, -1, 1, 1).expand(1, 12, 8, 10).contiguous()
    small = resize(volume, 6)
    assert small.shape == (1, 6, 6, 6)
    torch.testing.assert_close(small[0, :, 2, 3], ramp.view(6, 2).mean(1), atol=0.02, rtol=0)
    across = resize(volume.permute(0, 3, 2, 1).contiguous(), 6)
    torch.testing.assert_close(across[0].permute(2, 1, 0), small[0], atol=1e-6, rtol=0)
