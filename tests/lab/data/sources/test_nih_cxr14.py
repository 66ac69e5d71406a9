import numpy as np
import pytest
import torch
from PIL import Image

from explainfix.lab.data.dataset import open_dataset


@pytest.fixture
def official(tmp_path, picture):
    """Ten patients with two images each, of which two are to test on, in two image folders."""
    rows = "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age\n"
    lists = {"train_val_list.txt": "", "test_list.txt": ""}
    for patient in range(10):
        for visit in (0, 1):
            name = f"{patient:08d}_{visit:03d}.png"
            picture(tmp_path / f"images_{1 + visit:03d}/images/{name}", 40, 40)
            findings = "Edema|Hernia" if patient % 2 else "No Finding"
            rows += f"{name},{findings},{visit},{patient},60\n"
            lists["test_list.txt" if patient >= 8 else "train_val_list.txt"] += f"{name}\n"
    (tmp_path / "Data_Entry_2017.csv").write_text(rows)
    for name, text in lists.items():
        (tmp_path / name).write_text(text)
    return tmp_path


class TestOfficial:
    def test_labels_and_splits(self, official):
        data = open_dataset(f"nih-cxr14:{official}", val_share=0.25)
        patients = {s: {name[:8] for name in data.split(s).names} for s in data.splits}
        assert [len(patients[split]) for split in ("train", "val", "test")] == [6, 2, 2]
        assert not patients["train"] & patients["val"]
        assert patients["test"] == {"00000008", "00000009"}
        assert data.classes == (
            "Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Effusion",
        )  # fmt: skip
        assert data.split("test")[0].target.tolist() == [0, 0, 0, 0, 0]
        assert data.split("test")[2].target.tolist() == [0, 1, 0, 0, 0]
        images = data.split("train")
        each = torch.stack([images[index].target for index in range(len(images))])
        assert torch.equal(images.targets, each)
        everything = open_dataset(f"nih-cxr14:{official}", classes="all")
        target = everything.split("test")[2].target
        assert [everything.classes[k] for k in target.nonzero()[:, 0]] == ["Edema", "Hernia"]
        assert len(everything.classes) == 14

    def test_pictures(self, official):
        whole = open_dataset(f"nih-cxr14:{official}").split("test")
        with Image.open(official / "images_001/images/00000008_000.png") as picture:
            np.testing.assert_allclose(whole[0].image[0], np.asarray(picture) / 255, rtol=1e-6)
        reduced = open_dataset(f"nih-cxr14:{official}", size=20).split("test")
        for _ in range(2):  # decoded, then as kept
            assert reduced[0].image.shape == (1, 20, 20)
            assert reduced[0].image.mean() == pytest.approx(float(whole[0].image.mean()), abs=0.01)

    def test_damaged(self, official):
        (official / "images_001/images/00000008_000.png").unlink()
        (official / "images_001/images/00000009_000.png").write_bytes(b"no picture")
        message = r"1 file \('00000008_000.png'\) missing; 1 file \(.*00000009_000.png'\) damaged"
        with pytest.raises(ValueError, match=message):
            open_dataset(f"nih-cxr14:{official}")
        data = open_dataset(f"nih-cxr14:{official}", skip_damaged=True)
        assert data.split("test").names == ("00000008_001.png", "00000009_001.png")
        assert len(data.damaged) == 2

    def test_mistakes(self, official, tmp_path):
        with pytest.raises(ValueError, match=r"needs a .npz or a folder with .* no path was given"):
            open_dataset("nih-cxr14")
        table = official / "Data_Entry_2017.csv"
        text = table.read_text()
        table.write_text(text.replace("Edema", "Edma", 1))
        message = "unknown finding of '00000001_000.png' .* 'Edma': did you mean 'Edema'"
        with pytest.raises(ValueError, match=message):
            open_dataset(f"nih-cxr14:{official}")
        table.write_text("\n".join(text.splitlines()[:-1]))
        with pytest.raises(ValueError, match=r"no row for 1 listed image \('00000009_001"):
            open_dataset(f"nih-cxr14:{official}")


class TestPrepared:
    @pytest.fixture
    def arrays(self):
        generator = np.random.default_rng(0)
        classes = ["Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Effusion"]
        found = {"classes": np.array(classes)}
        for split, count in (("train", 6), ("val", 2), ("test", 3)):
            found[f"{split}_images"] = generator.integers(0, 256, (count, 16, 16), dtype=np.uint8)
            found[f"{split}_labels"] = generator.integers(0, 2, (count, 5), dtype=np.uint8)
            found[f"{split}_names"] = np.array([f"{split}{k}.png" for k in range(count)])
        return found

    def test_its_own_splits(self, arrays, tmp_path):
        np.savez(tmp_path / "a.npz", **arrays)
        for path in (tmp_path / "a.npz", tmp_path):
            data = open_dataset(f"nih-cxr14:{path}")
            assert {name: len(split) for name, split in data.splits.items()} == {
                "train": 6, "val": 2, "test": 3,
            }  # fmt: skip
            image, target = data.split("test")[1]
            np.testing.assert_allclose(image[0], arrays["test_images"][1] / 255, rtol=1e-6)
            np.testing.assert_array_equal(target, arrays["test_labels"][1][[1, 3, 2, 0, 4]])
        assert open_dataset(f"nih-cxr14:{tmp_path}", size=8).split("val")[0].image.shape[1:] == (
            8, 8,
        )  # fmt: skip

    def test_mistakes(self, arrays, tmp_path):
        path = tmp_path / "a.npz"
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match="has no finding 'Emphysema': it has Atelectasis"):
            open_dataset(f"nih-cxr14:{path}", classes="all")
        np.savez(path, **{**arrays, "val_names": arrays["val_names"][:1]})
        with pytest.raises(ValueError, match=r"'val' .* has 2 images, 2 labels and 1 names"):
            open_dataset(f"nih-cxr14:{path}")
        del arrays["val_names"]
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match="has no array 'val_names'"):
            open_dataset(f"nih-cxr14:{path}")
        path.write_bytes(b"PK\x03\x04 but no zip")
        with pytest.raises(ValueError, match="cannot be read"):
            open_dataset(f"nih-cxr14:{path}")

    def test_the_real_file(self, real_data):
        data = open_dataset(f"nih-cxr14:{real_data / 'nih_cxr14'}")
        counts = {name: len(split) for name, split in data.splits.items()}
        assert counts == {"train": 3544, "val": 410, "test": 1045}
        patients = [{name[:8] for name in split.names} for split in data.splits.values()]
        assert sum(map(len, patients)) == len(set.union(*patients))
        positives = torch.stack([sample.target for sample in data.split("test")]).sum(0)
        assert positives[data.classes.index("Edema")] == 12
