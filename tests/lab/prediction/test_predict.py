"""Predictions of files of any origin: masks and pictures, or a table of classes."""

import numpy as np
from PIL import Image

import explainfix as xf
from explainfix.lab.data.dataset import open_dataset
from explainfix.lab.prediction.predict import predict_files


def test_files_of_any_origin(tmp_path):
    data = open_dataset("nuclei", count=4, size=32)
    grey = np.linspace(0, 255, 40 * 50).reshape(40, 50).astype(np.uint8)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(np.stack([grey] * 3, -1)).save(tmp_path / "colour.png")
    files = [(name, [tmp_path / f"{name}.png"]) for name in ("grey", "colour")]
    written = predict_files(xf.create_model("unetd"), data, files, tmp_path / "out")
    assert [file.name for file in written] == [
        "grey.mask.png", "grey.overlay.png", "colour.mask.png", "colour.overlay.png",
    ]  # fmt: skip
    masks = [np.asarray(Image.open(file)) for file in written[::2]]
    assert masks[0].shape == (40, 50)
    assert (masks[0] == masks[1]).all()
    assert set(np.unique(masks[0])) <= {0, 255}


def test_classes_become_a_table(tmp_path):
    data = open_dataset("xray-like", count=4, size=32)
    Image.fromarray(np.zeros((32, 32), np.uint8)).save(tmp_path / "a.png")
    model = xf.create_model("torchvision:resnet18", num_classes=5, in_channels=1)
    [table] = predict_files(model, data, [("a", [tmp_path / "a.png"])], tmp_path / "out")
    head, row = table.read_text().splitlines()
    assert head == ",".join(["image", *data.classes, "predicted"])
    *values, found = row.split(",")[1:]
    assert found.split("; ") == [
        name for name, value in zip(data.classes, values, strict=True) if float(value) > 0.5
    ]
