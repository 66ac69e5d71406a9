import inspect
import json
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from explainfix.cli import main
from explainfix.lab.data.contact_sheet import contact_sheet
from explainfix.lab.data.dataset import (
    Sample,
    collate,
    dataset_options,
    list_datasets,
    open_dataset,
)
from explainfix.registry import datasets


@pytest.mark.parametrize("name", list_datasets())
class TestEveryDataset:
    def test_signature(self, name):
        parameters = list(inspect.signature(datasets.find(name)).parameters.values())
        assert [parameter.name for parameter in parameters[:2]] == ["path", "skip_damaged"]
        assert all(p.kind is p.KEYWORD_ONLY for p in parameters[1:])
        assert all(p.default is not p.empty for p in parameters[1:])

    def test_described(self, name):
        text = inspect.getdoc(inspect.getmodule(datasets.find(name)))
        assert text.startswith(f"{name}: ")

    def test_unknown_option(self, name):
        known = ", ".join(dataset_options(name))
        with pytest.raises(
            ValueError, match=rf"unknown option 'sede': .* \({name} takes {known}\)"
        ):
            open_dataset(name, sede=1)


class TestOptions:
    def test_texts_are_read(self):
        data = open_dataset("nuclei", count="5", size="40")
        assert len(data.split("train")) == 5
        assert data.split("train")[0].image.shape[-1] == 40

    @pytest.mark.parametrize(
        ("spec", "option", "value", "message"),
        [
            ("nuclei", "count", "many", "count must be a whole number, not 'many'"),
            ("nuclei", "count", 2.5, "count must be a whole number, not 2.5"),
            ("nuclei", "count", True, "count must be a whole number, not True"),
            ("nuclei", "count", None, "count must be a whole number, not None"),
            ("folder", "crop", "big", "crop must be a whole number or none, not 'big'"),
            ("folder", "grey", "maybe", "grey must be true or false, not 'maybe'"),
            ("folder", "val_share", "half", "val_share must be a number, not 'half'"),
            ("folder", "crop", 0, "crop must be at least 1, not 0"),
            ("xray-like", "seed", -1, "seed must be at least 0, not -1"),
            ("folder", "val_share", 1.5, "val_share must be from 0 to below 1, not 1.5"),
            ("bbbc038v1", "normalise", "robus", "unknown normalise 'robus': did you mean 'robust'"),
        ],
    )
    def test_mistakes(self, spec, option, value, message):
        with pytest.raises(ValueError, match=message):
            open_dataset(spec, **{option: value})

    def test_none(self, tmp_path):
        with pytest.raises(ValueError, match="is not laid out"):  # so the option was understood
            open_dataset(f"folder:{tmp_path}", crop="none", grey="True", val_share=0)

    def test_unknown_dataset(self):
        with pytest.raises(ValueError, match="unknown dataset 'nucle': did you mean 'nuclei'"):
            open_dataset("nucle")


def test_the_command(capsys):
    assert main(["list", "datasets", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["datasets"]
    assert list(printed) == list_datasets()
    assert printed["bbbc038v1"]["options"]["normalise"] == ["mean", "robust"]
    assert main(["list", "datasets"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in list_datasets())
    assert "--data-option normalise=mean|robust" in shown


class TestSplits:
    def test_unknown(self):
        with pytest.raises(ValueError, match="'nuclei' has no split 'dev': choose from 'train',"):
            open_dataset("nuclei").split("dev")

    def test_indices(self):
        images = open_dataset("nuclei", count=4, size=32).split("train")
        assert torch.equal(images[-1].image, images[3].image)
        with pytest.raises(IndexError):
            images[4]
        assert len(list(images)) == 4

    def test_workers_get_the_same(self):
        data = open_dataset("xray-like", count=6, size=32)
        again = pickle.loads(pickle.dumps(data))
        assert torch.equal(again.split("train")[2].image, data.split("train")[2].image)
        sample = data.split("train")[0]
        torch.testing.assert_close(
            again.augment(sample, np.random.default_rng(0)).image,
            data.augment(sample, np.random.default_rng(0)).image,
        )
        loader = DataLoader(data.split("train"), batch_size=3, num_workers=1, collate_fn=collate)
        assert [images.shape for images, _ in loader] == [(3, 1, 32, 32)] * 2


class TestCollate:
    def test_padding(self):
        small = Sample(torch.ones(1, 2, 3), torch.ones(1, 2, 3))
        large = Sample(torch.ones(1, 4, 2), torch.ones(1, 4, 2))
        images, targets = collate([small, large])
        assert images.shape == targets.shape == (2, 1, 4, 3)
        assert images.sum() == 6 + 8
        assert int(targets.isnan().sum()) == 24 - 6 - 8

    def test_labels(self):
        samples = [Sample(torch.ones(1, 2, 2), torch.tensor(k)) for k in (0, 2)]
        assert collate(samples)[1].tolist() == [0, 2]


class TestSheet:
    def test_masks_are_outlined(self):
        data = open_dataset("nuclei", count=6, size=64)
        sheet = contact_sheet(data, "train", 6, tile=80)
        assert sheet.size == (240, 160)
        yellow = (np.asarray(sheet) == (255, 220, 0)).all(-1)
        assert 100 < yellow.sum() < yellow.size / 3

    def test_labels_and_what_the_network_gets(self):
        data = open_dataset("xray-like", count=5, size=48)
        assert contact_sheet(data, "train", 9, tile=64).size == (192, 128)
        raw = np.asarray(contact_sheet(open_dataset("nuclei", count=2), "train", 2))
        prepared = contact_sheet(open_dataset("nuclei", count=2), "train", 2, stage="prepared")
        assert (raw != np.asarray(prepared)).any()
