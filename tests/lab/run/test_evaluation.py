"""Evaluation and predictions: of padded batches, of files, and of models that do not fit."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from torch import nn

from explainfix.lab.data.dataset import Dataset, Sample
from explainfix.lab.data.loader import Share
from explainfix.lab.data.preparation import Preparation
from explainfix.lab.prediction.predict import Predictions
from explainfix.lab.run.evaluation import collect_outcomes, compute_logits, evaluate, logits_of


class Squares:
    """Images of differing sizes whose bright pixels are the mask."""

    names = ("a", "b", "c")

    def __len__(self):
        return 3

    def __getitem__(self, index):
        size = 6 + 2 * index
        image = torch.rand(1, size, size + 1, generator=torch.Generator().manual_seed(index))
        return Sample(image, (image > 0.5).float())


SQUARES = Dataset(
    name="squares",
    task="segmentation",
    classes=("x",),
    preparation=Preparation(channels=1),
    splits={"test": Squares()},
)


class Bright(nn.Module):
    """Finds the mask, whatever is padded."""

    def __init__(self):
        super().__init__()
        self.level = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return x - self.level


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_padding_is_not_counted(batch_size):
    scores = evaluate(Bright(), SQUARES, batch_size=batch_size, resamples=10)
    assert scores["dice"].value == 1.0
    outcomes = collect_outcomes(Bright(), SQUARES, "test", Share(batch_size))
    wanted = [int(Squares()[i].target.sum()) for i in range(3)]
    assert outcomes.values[:, 0, 2].tolist() == wanted


def test_the_model_comes_back_as_it_went_in():
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.Dropout()).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    numbers = torch.get_rng_state()
    evaluate(model, SQUARES, resamples=1)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(numbers, torch.get_rng_state())


def test_shares_add_up_to_the_whole():
    model = nn.Conv2d(1, 1, 1)
    whole = collect_outcomes(model, SQUARES, "test", Share())
    shares = [collect_outcomes(model, SQUARES, "test", Share(rank=r, world=2)) for r in (0, 1)]
    assert torch.equal(shares[0].values + shares[1].values, whole.values)


def test_a_model_for_other_data():
    with pytest.raises(ValueError, match="was it made for other data"):
        evaluate(nn.Conv2d(1, 2, 1), SQUARES)
    with pytest.raises(ValueError, match="has no split 'tset'"):
        evaluate(Bright(), SQUARES, "tset")


@pytest.mark.parametrize("space", [(11, 7), (4, 9, 6)])
def test_a_window_slides_over_all_of_an_image(space):
    """A network that sees pixel by pixel says the same, however it is looked at."""
    images = torch.rand(2, 1, *space)
    seen = []

    class Watched(Bright):
        def forward(self, x):
            seen.append(tuple(x.shape[2:]))
            return super().forward(x)

    answer = compute_logits(Watched(), images, window=5)
    torch.testing.assert_close(answer, images - 0.5)
    assert set(seen) == {(5,) * len(space)}
    assert len(seen) > 1


def test_scores_of_windows():
    cubes = replace(SQUARES, preparation=replace(SQUARES.preparation, window=4))
    assert evaluate(Bright(), cubes, resamples=1)["dice"].value == 1.0


def test_a_window_without_monai(monkeypatch):
    monkeypatch.setitem(sys.modules, "monai.inferers", None)
    with pytest.raises(ImportError, match=r"needs monai.*pip install 'explainfix\[medical\]'"):
        compute_logits(Bright(), torch.rand(1, 1, 4, 4), window=2)


def test_logits_in_whatever_networks_return():
    logits = torch.ones(2)
    assert logits_of({"out": logits, "aux": 0}) is logits
    assert logits_of(logits) is logits
    with pytest.raises(ValueError, match="returns list"):
        logits_of([logits])


def test_predictions_are_saved_with_their_names(tmp_path):
    kept = Predictions(SQUARES, SQUARES.split("test"))
    evaluate(Bright(), SQUARES, batch_size=3, resamples=1, see=kept.see)
    kept.save(tmp_path / "p.safetensors")
    with safe_open(tmp_path / "p.safetensors", "pt") as file:
        assert json.loads(file.metadata()["names"]) == ["a", "b", "c"]
        for index, name in enumerate(Squares.names):
            sample = Squares()[index]
            wanted = ((sample.image - 0.5).sigmoid() * 255).round().byte()
            assert torch.equal(file.get_tensor(f"mask/{name}"), wanted)
