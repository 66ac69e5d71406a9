"""DeepLabV3+ against the paper's table of parameters, and its sizes."""

import pytest
import torch

import explainfix as xf

PAPER = {"mobilenet_v2": (5_220_577, 2_977_344), "resnet50": (39_756_705, 26_182_848)}


@pytest.mark.parametrize(("encoder", "counts"), PAPER.items())
def test_parameters_are_those_of_the_paper(encoder, counts):
    model = xf.create_model(f"deeplabv3plus:{encoder}", num_classes=1)
    spatial = sum(layer.weight.numel() for layer in xf.spatial_layers(model).values())
    assert (sum(p.numel() for p in model.parameters()), spatial) == counts


@pytest.mark.parametrize("encoder", PAPER)
def test_sizes(encoder):
    model = xf.create_model(f"deeplabv3plus:{encoder}", num_classes=2, in_channels=1).eval()
    x = torch.rand(1, 1, 70, 96)
    with torch.inference_mode():
        early = model.early(x)
        assert early.shape[2:] == (18, 24)  # a quarter, rounded up
        assert model.late(early).shape[2:] == (5, 6)  # a sixteenth
        assert model(x).shape == (1, 2, 70, 96)


def test_a_wrong_encoder_is_named():
    with pytest.raises(ValueError, match="'resnet5': did you mean 'resnet50'"):
        xf.create_model("deeplabv3plus:resnet5")
