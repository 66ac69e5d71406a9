"""What the tests share: the folder of real weights, if there is one, and small networks."""

import os
from pathlib import Path

import hypothesis
import pytest
import torch
from torch import nn

collect_ignore = ["foreign", "foreign.py"]  # a program with packages of its own, not tests

# How long an example takes says how busy the machine is, not whether a law holds.
hypothesis.settings.register_profile("without a clock", deadline=None)
hypothesis.settings.load_profile("without a clock")

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the workers share the cores: more threads wait for each other


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Every test draws the same numbers, alone or among others."""
    torch.manual_seed(0)


def shared_folder(part: str) -> Path:
    """A folder of real files; without it the tests that need it say so and skip."""
    default = Path(__file__).parents[2] / "shared"
    folder = Path(os.environ.get("EXPLAINFIX_SHARED", default)) / part
    if not folder.is_dir():
        pytest.skip(f"nothing real here: set EXPLAINFIX_SHARED to the folder that has {part}/")
    return folder


@pytest.fixture(scope="session")
def real_weights() -> Path:
    """The folder of real trained filters."""
    return shared_folder("weights")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real images."""
    return shared_folder("data")


@pytest.fixture
def every_convolution() -> nn.ModuleDict:
    """Spatial layers of every kind and a few odd shapes, and two layers that are not spatial."""
    return nn.ModuleDict(
        {
            "line": nn.Conv1d(4, 6, 5),
            "plain": nn.Conv2d(4, 6, 3),
            "stem": nn.Conv2d(3, 16, 7),
            "wide": nn.Conv2d(4, 6, (1, 7), bias=False),
            "oblong": nn.Conv2d(4, 6, (3, 5)),
            "even": nn.Conv2d(4, 6, 2),
            "grouped": nn.Conv2d(4, 6, 3, groups=2),
            "depthwise": nn.Conv2d(12, 12, 5, groups=12),
            "volume": nn.Conv3d(2, 3, (3, 3, 2)),
            "up_line": nn.ConvTranspose1d(4, 6, 4, stride=2),
            "up": nn.ConvTranspose2d(4, 6, 2, stride=2),
            "up_volume": nn.ConvTranspose3d(2, 3, 3, groups=1),
            "pointwise": nn.Conv2d(4, 6, 1),
            "norm": nn.BatchNorm2d(6),
        }
    )
