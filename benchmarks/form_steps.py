"""A step of training, and inference, of each form: learned, fixed, mixed and steered.

    python benchmarks/form_steps.py [--bf16]

ResNet18 (batch 4 at 224 px) and a plain U-Net (batch 10 at 128 px), channels last, GHaar. Ratios
are to the learned network; the contestants take turns in one process.
"""

import copy
import sys

import pandas as pd
import torch
from torch import nn

import explainfix as xf
from explainfix.lab.run.process import keep_kernels
from training import Contestant, as_text, in_last, markdown, measure

NETWORKS = {
    "ResNet18": ("torchvision:resnet18", (4, 3, 224, 224)),
    "plain U-Net": ("benchmarks/plain_unet.py:unet", (10, 3, 128, 128)),
}
FILTERS = (1, 2, 3)


class InHalf(nn.Module):
    """A network under autocast to bfloat16."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.network(x)


def contestants(spec: str, shape: tuple[int, ...], half: bool) -> dict[str, Contestant]:
    x, learned = torch.randn(shape), xf.create_model(spec).train()
    found = {"learned": learned}
    for name, mix in (("fixed", False), ("mixed", True)):
        found[name] = copy.deepcopy(learned)
        xf.fix_(found[name], "ghaar", scale="fan_in", mix=mix)
    for filters in FILTERS:
        name = f"steered, {filters} filter{'s' * (filters > 1)}"
        found[name] = copy.deepcopy(learned)
        xf.steer_(found[name], "ghaar", filters=filters)
    moved = {name: in_last(network, x) for name, network in found.items()}
    if half:
        for name, contestant in list(moved.items()):
            moved[f"{name}, bf16"] = Contestant(InHalf(contestant.network), contestant.x)
    return moved


def main() -> None:
    keep_kernels()
    for title, (spec, shape) in NETWORKS.items():
        rows = measure(contestants(spec, shape, "--bf16" in sys.argv))
        text: pd.DataFrame = as_text(rows)
        text.index.name = title
        print(f"\n{rows['seconds'].iloc[0]:.2f} s a step, learned.\n\n{markdown(text)}", flush=True)


if __name__ == "__main__":
    main()
