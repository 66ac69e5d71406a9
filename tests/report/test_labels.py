import pytest
from torch import nn

import explainfix as xf
from explainfix.report.labels import short_labels


@pytest.mark.parametrize(
    "name", ["timm:mobilenetv2_100", "torchvision:resnet18", "torchvision:densenet121"]
)
def test_every_layer_has_a_label_of_its_own(name):
    paths = list(xf.spatial_layers(xf.create_model(name)))
    labels = short_labels(paths)
    assert len(set(labels)) == len(paths)
    assert max(map(len, labels)) <= 26


def test_blocks_are_told_apart_wherever_their_names_differ():
    start = "a_long_name_of_a_module_that_all_have"
    end = "and_a_long_end"
    paths = [f"{start}.x{i}{'y' * 30}.{end}" for i in range(3)]
    assert len(set(short_labels(paths))) == 3
    paths = [f"{'y' * 30}{i}{'z' * 30}" for i in range(3)]
    assert len(set(short_labels(paths))) == 3
    assert short_labels(["only.one"]) == ["only.one"]
    assert short_labels([]) == []
    assert short_labels(list(xf.spatial_layers(nn.Conv2d(1, 1, 3)))) == [""]
