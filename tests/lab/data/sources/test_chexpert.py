import numpy as np
import pytest
import torch
from PIL import Image

from explainfix.lab.data.dataset import collate, open_dataset

HEADER = (
    "Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Enlarged Cardiomediastinum,Cardiomegaly,"
    "Lung Opacity,Lung Lesion,Edema,Consolidation,Pneumonia,Atelectasis,Pneumothorax,"
    "Pleural Effusion,Pleural Other,Fracture,Support Devices\n"
)


def row(path, cardiomegaly="", edema="", consolidation="", atelectasis="", effusion=""):
    return (
        f"CheXpert-v1.0-small/{path},Female,68,Frontal,AP,1.0,,{cardiomegaly},,,{edema},"
        f"{consolidation},,{atelectasis},,{effusion},,,\n"
    )


@pytest.fixture
def official(tmp_path, picture):
    """Ten patients with two views each, and two to test on, of two sizes."""
    folder = tmp_path / "CheXpert-v1.0-small"
    train = HEADER
    for patient in range(10):
        for view in (1, 2):
            name = f"train/patient{patient:05d}/study1/view{view}_frontal.jpg"
            picture(folder / name, 40, 48)
            train += row(name, "1.0", "", "0.0", "-1.0", "1.0" if patient < 5 else "0.0")
    (folder / "train.csv").write_text(train)
    valid = HEADER
    for patient, width in ((1, 30), (2, 50)):
        name = f"valid/patient9000{patient}/study1/view1_frontal.jpg"
        picture(folder / name, 40, width)
        valid += row(name, "0.0", "0.0", "1.0", "0.0", "0.0")
    (folder / "valid.csv").write_text(valid)
    return folder


def test_labels(official):
    data = open_dataset(f"chexpert:{official}", crop=32)
    assert data.classes[0] == "Cardiomegaly"
    assert data.classes[-1] == "Pleural Effusion"
    for name, sample in zip(data.split("train").names, data.split("train"), strict=True):
        effusion = float(int(name.split("/")[1].removeprefix("patient")) < 5)
        torch.testing.assert_close(
            sample.target, torch.tensor([1, 0, 0, torch.nan, effusion]), equal_nan=True
        )
    assert data.split("test")[0].target.tolist() == [0, 0, 1, 0, 0]
    assert data.samples_per_epoch == 15_000


def test_labels_are_known_without_the_pictures(official):
    images = open_dataset(f"chexpert:{official}", crop=32).split("train")
    each = torch.stack([images[index].target for index in range(len(images))])
    assert torch.equal(images.targets.nan_to_num(-1), each.nan_to_num(-1))


def test_the_split_is_that_of_torch_with_seed_138(official):
    data = open_dataset(f"chexpert:{official}")
    order = torch.randperm(20, generator=torch.Generator().manual_seed(138))
    names = [
        f"train/patient{patient:05d}/study1/view{view}_frontal.jpg"
        for patient in range(10)
        for view in (1, 2)
    ]
    assert set(data.split("train").names) == {names[place] for place in order[:14]}
    assert len(data.split("val")) == 6
    assert not set(data.split("train").names) & set(data.split("val").names)


def test_by_patient(official):
    data = open_dataset(f"chexpert:{official}", by_patient=True)
    patients = {
        split: {name.split("/")[1] for name in data.split(split).names} for split in data.splits
    }
    assert [len(patients[split]) for split in ("train", "val", "test")] == [7, 3, 2]
    assert not patients["train"] & patients["val"]


def test_pictures(official):
    data = open_dataset(f"chexpert:{official.parent}", crop=32)  # the folder above does as well
    generator = np.random.default_rng(0)
    assert data.augment(data.split("train")[0], generator).image.shape == (1, 32, 32)
    large = open_dataset(f"chexpert:{official}", crop=64)
    assert large.augment(large.split("train")[0], generator).image.shape == (1, 64, 64)
    images, targets = collate([data.prepare(sample) for sample in data.split("test")])
    assert images.shape == (2, 1, 40, 50)
    assert images[0, :, :, 30:].eq(0).all()
    assert targets.shape == (2, 5)
    with Image.open(official / data.split("test").names[1]) as picture:
        np.testing.assert_allclose(images[1, 0], np.asarray(picture) / 255, rtol=1e-6)


def test_damaged_and_missing(official):
    first = official / "train/patient00001/study1/view1_frontal.jpg"
    first.write_bytes(first.read_bytes()[:200])
    (official / "valid/patient90001/study1/view1_frontal.jpg").unlink()
    message = r"\('train/patient00001.* damaged: it is truncated; 1 file \('valid.*\) missing"
    with pytest.raises(ValueError, match=message):
        open_dataset(f"chexpert:{official}")
    data = open_dataset(f"chexpert:{official}", skip_damaged=True)
    assert len(data.damaged) == 2
    assert len(data.split("train")) + len(data.split("val")) == 19
    assert len(data.split("test")) == 1


def test_of_many_files_some_are_decoded_and_none_is_missing(official, monkeypatch):
    monkeypatch.setattr("explainfix.lab.data.archive.MANY", 20)
    monkeypatch.setattr("explainfix.lab.data.archive.SOME", 4)
    names = open_dataset(f"chexpert:{official}", val_share=0.0).split("train").names
    whole = (official / names[1]).read_bytes()
    (official / names[1]).write_bytes(whole[:200])
    data = open_dataset(f"chexpert:{official}", val_share=0.0)
    with pytest.raises(ValueError, match=r"truncated\. skip_damaged leaves such files out"):
        data.split("train")[1]
    every = open_dataset(f"chexpert:{official}", val_share=0.0, skip_damaged=True)
    assert every.damaged == (names[1],)
    (official / names[2]).write_bytes(b"")
    (official / names[3]).unlink()
    (official / names[6]).write_bytes(whole[:200])  # 22 files in four parts: every sixth is decoded
    with pytest.raises(
        ValueError, match=r"has 1 file .* damaged: it is tru.* damaged: it is empty;.* missing"
    ):
        open_dataset(f"chexpert:{official}", val_share=0.0)


def test_mistakes(official, tmp_path):
    with pytest.raises(ValueError, match=r"needs the folder CheXpert-v1.0-small .* no path"):
        open_dataset("chexpert")
    text = (official / "valid.csv").read_text()
    (official / "valid.csv").write_text(text.replace("1.0,,0.0", "1.0,,yes"))
    with pytest.raises(ValueError, match=r"unknown label of 'Cardiomegaly' in valid.csv 'yes'"):
        open_dataset(f"chexpert:{official}")
    (official / "valid.csv").write_text(HEADER)
    with pytest.raises(ValueError, match=r"the split 'test' of .* is empty"):
        open_dataset(f"chexpert:{official}")
    (official / "valid.csv").write_text("Path,Sex\n")
    with pytest.raises(ValueError, match="has no column 'Cardiomegaly': found 'Path', 'Sex'"):
        open_dataset(f"chexpert:{official}")
    (official / "valid.csv").unlink()
    with pytest.raises(ValueError, match=r"needs the folder .*holds 3 things"):
        open_dataset(f"chexpert:{official}")
