"""activations: what networks and a Haar wavelet transform see in an image, and whether it is edges.

Both are held against the gradient of the image, and against the same gradient moved elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...lab.data.dataset import Dataset
from ...lab.measure.statistics import mean_interval
from ...lab.run.folder import Run
from ...layers import spatial_layers
from ...zoo import create_model
from .. import xrays
from ..contrast import Measure, samples, say_all
from ..experiment import Claim, Evidence, Experiment, Rows
from ..figures import COLOURS, Figure, bare, new_figure, tidy
from ..networks import find_pretrained, missing_note
from ..scores import Array
from ..setting import Setting
from ..verdict import signed

Maps = dict[str, Tensor]  # by layer, or level of the transform: `(channels, h, w)`

HAAR = "Haar transform"
LEVELS = 3
SMALLEST = 8  # pixels: smaller maps are left out
CHANNELS = 16  # of each layer, drawn at random
WEAK = 0.1  # a correlation below this says that maps have little to do with edges
INK = tuple(COLOURS[name] for name in ("ghaar", "ones", "psine", "unchanged", "dct2"))

_WORDS = {"name": "network", "number": "image"}
_ELSEWHERE = "less that with the same moved by a random distance"
_EDGES = Measure(f"correlation of size with the image's gradient, {_ELSEWHERE}", words=_WORDS)
_ALIKE = Measure(
    f"correlation of size with the vertical coefficients of the first level, {_ELSEWHERE}",
    words=_WORDS,
)
_COEFFICIENTS = "the coefficients, mean over levels and directions"
_ACTIVATIONS = "random activations, mean over spatial layers and channels"
_SHORT = partial(say_all, digits=2)
WAVELETS = (_EDGES.mean(_COEFFICIENTS, name=HAAR) > WEAK).said(lambda found: signed(found[()], 2))
NETWORKS, ALIKE = (
    (measure.each(_ACTIVATIONS) > WEAK).for_every("name").said(_SHORT)
    for measure in (_EDGES, _ALIKE)
)
CLAIMS = (
    Claim(
        "wavelets",
        "The coefficients of a Haar wavelet transform are edge features.",
        "edges",
        WAVELETS,
        on="wavelets",
    ),
    Claim(
        "networks",
        "The activations of a network are edge features.",
        "edges",
        NETWORKS,
        on="networks",
    ),
    Claim(
        "alike",
        "Activations and wavelet coefficients show the same edges.",
        "alike to the eye",
        ALIKE,
        on="alike",
    ),
)


def train(setting: Setting) -> dict[xrays.Key, Run]:
    """A learned ResNet of classification; at the paper's scale one from ImageNet, untrained."""
    if setting.scale == "paper":
        return {}
    start = xrays.stand_ins(setting, "scratch")["resnet"]
    key = xrays.Key(start.family, start.begin, "learned", 0)
    return setting.sweep({key: xrays.configure(setting, start, "learned", 0)})


def judge(setting: Setting, runs: Mapping[xrays.Key, Run]) -> Evidence:
    """Run every network on some test images and measure."""
    images = first_images(setting.open_data("xrays"), setting.pick(smoke=4, cpu=24, paper=24))
    networks = open_networks(setting, runs)
    haar = measure_haar(images)
    edges: dict[str, Array] = {}
    alike: dict[str, Array] = {}
    depths: dict[str, Array] = {}
    for name, network in setting.tracked(list(networks.items()), "Activations"):
        found = measure(network, images)
        edges[name], alike[name] = found[..., 0].mean(1), found[..., 1].mean(1)
        depths[name] = found[..., 0].mean(0)
    return Evidence(
        scores={
            "wavelets": samples({HAAR: haar}),
            "networks": samples(edges),
            "alike": samples(alike),
        },
        tables={
            "Correlation with edges, less that with edges elsewhere": table(
                {HAAR: haar} | edges, alike
            )
        },
        figures={
            "A test image and its gradient; randomly drawn activations of each network, from "
            "early layers (left) to late ones; vertical, horizontal and diagonal coefficients of "
            "a Haar transform, three levels": draw(networks, images),
            "Correlation with edges by depth, from the first spatial layer to the last whose maps "
            f"are at least {SMALLEST} pixels; dashed: the Haar transform": plot_depths(
                depths, float(haar.mean())
            ),
        },
        notes=notes(setting, len(images)),
    )


def first_images(data: Dataset, count: int) -> list[Tensor]:
    """Test images `(1, h, w)`, prepared as for evaluation."""
    split = data.split("test")
    return [data.prepare(split[i]).image for i in range(min(count, len(split)))]


def open_networks(setting: Setting, runs: Mapping[xrays.Key, Run]) -> dict[str, nn.Module]:
    """The trained networks of this scale by name."""
    if setting.scale == "paper":
        return {"ResNet50 on ImageNet": create_model("torchvision:resnet50", weights="pretrained")}
    title = xrays.NETWORKS[setting.scale]["resnet"].title
    trained = setting.with_weights(runs)
    networks = {f"{title} on x-rays": run.model("best") for run in trained.values()}
    if setting.scale == "cpu":
        pretrained = find_pretrained("MobileNetV2", "EfficientNet-lite0")
        networks |= {f"{name} on ImageNet": model for name, model in pretrained.items()}
    return networks


def activations(network: nn.Module, image: Tensor) -> Maps:
    """The outputs of the spatial layers on an image `(1, h, w)`, those that are large enough."""
    layers = spatial_layers(network)
    found: Maps = {}
    handles = [
        layer.register_forward_hook(lambda _, __, out, path=path: found.update({path: out[0]}))
        for path, layer in layers.items()
    ]
    colours = next(iter(layers.values())).in_channels
    batch = image[None] if colours == 1 else (image.expand(1, colours, -1, -1) - 0.45) / 0.225
    try:
        with torch.no_grad():
            network.eval()(batch)
    finally:
        for handle in handles:
            handle.remove()
    return {path: maps for path, maps in found.items() if min(maps.shape[1:]) >= SMALLEST}


def haar_transform(image: Tensor, levels: int = LEVELS) -> Maps:
    """The discrete Haar transform of `(h, w)`: by level its vertical, horizontal, diagonal parts.

    A vertical coefficient is a difference from left to right: it sees vertical edges.

    >>> haar_transform(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), 1)["level 1"].flatten().tolist()
    [-1.0, 0.0, 0.0]
    """
    found: Maps = {}
    for level in range(1, levels + 1):
        image = image[: image.shape[0] // 2 * 2, : image.shape[1] // 2 * 2]
        a, b, c, d = (image[i::2, j::2] for i in (0, 1) for j in (0, 1))
        found[f"level {level}"] = torch.stack([a - b + c - d, a + b - c - d, a - b - c + d]) / 2
        image = (a + b + c + d) / 2
    return found


def gradient_size(image: Tensor) -> Tensor:
    """|∇I| of `(h, w)` by central differences, its sides kept."""
    padded = F.pad(image[None, None], (1, 1, 1, 1), mode="replicate")[0, 0]
    across = (padded[1:-1, 2:] - padded[1:-1, :-2]) / 2
    down = (padded[2:, 1:-1] - padded[:-2, 1:-1]) / 2
    return torch.hypot(across, down)


def measure(network: nn.Module, images: Sequence[Tensor]) -> Array:
    """`(images, layers, 2)`: how much better activations fit edges, and the vertical coefficients
    of the first level, than either moved elsewhere."""
    rows = []
    for number, image in enumerate(images):
        random = torch.Generator().manual_seed(number)
        wanted = [gradient_size(image[0]), haar_transform(image[0], 1)["level 1"][0].abs()]
        row = []
        for maps in activations(network, image).values():
            chosen = maps[torch.randperm(len(maps), generator=random)[:CHANNELS]]
            row.append([lead(chosen, target, random) for target in wanted])
        rows.append(row)
    return np.array(rows)


def measure_haar(images: Sequence[Tensor]) -> Array:
    """`(images,)`: the same of the transform's coefficients."""
    found = []
    for number, image in enumerate(images):
        random = torch.Generator().manual_seed(number)
        edges = gradient_size(image[0])
        levels = [m for m in haar_transform(image[0]).values() if min(m.shape[1:]) >= SMALLEST // 2]
        found.append(float(np.mean([lead(maps, edges, random) for maps in levels])))
    return np.array(found)


def lead(maps: Tensor, target: Tensor, random: torch.Generator) -> float:
    """The mean correlation of the maps' sizes with a target, less that with the target moved.

    A map's size is how far it is from its median; the target is pooled to the maps' resolution,
    and moved, round the edges, by a quarter to three quarters of each side.
    """
    pooled = F.adaptive_avg_pool2d(target[None, None], (maps.shape[1], maps.shape[2]))[0, 0]
    sides = torch.tensor(pooled.shape)
    shift = (sides * (0.25 + 0.5 * torch.rand(2, generator=random))).long().tolist()
    moved = pooled.roll(shift, (0, 1))
    sizes = (maps - maps.flatten(1).median(1).values[:, None, None]).abs().flatten(1)
    return float((correlations(sizes, pooled) - correlations(sizes, moved)).mean())


def correlations(rows: Tensor, target: Tensor) -> Tensor:
    """Pearson's correlation of each row with the target; zero for a constant one.

    >>> rows = torch.tensor([[1.0, 2, 3], [3, 2, 1], [5, 5, 5]])
    >>> correlations(rows, torch.arange(3.0)).round(decimals=4).tolist()
    [1.0, -1.0, 0.0]
    """
    a = rows - rows.mean(1, keepdim=True)
    b = target.flatten() - target.mean()
    norms = a.norm(dim=1) * b.norm()
    return torch.where(norms > 1e-12, (a @ b) / norms.clamp(min=1e-12), 0.0)


def table(edges: Mapping[str, Array], alike: Mapping[str, Array]) -> Rows:
    """A row for the transform and for each network."""
    return [
        {
            "": name,
            "images": len(values),
            "with the gradient": signed(mean_interval(values), 2),
            "with vertical coefficients": (
                signed(mean_interval(alike[name]), 2) if name in alike else "–"
            ),
        }
        for name, values in edges.items()
    ]


def draw(networks: Mapping[str, nn.Module], images: Sequence[Tensor]) -> Figure:
    """Rows of small pictures of one image."""
    columns, image = 9, images[0]
    rows: dict[str, list[Tensor]] = {}
    for name, network in networks.items():
        every_map = list(activations(network, image).values())
        found = [m for m in every_map if min(m.shape[1:]) >= 2 * SMALLEST] or every_map
        random = torch.Generator().manual_seed(0)
        places = torch.linspace(0, len(found) - 1, columns).round().long().tolist()
        rows[name] = [
            found[p][int(torch.randint(len(found[p]), (), generator=random))] for p in places
        ]
    rows[HAAR] = [part for maps in haar_transform(image[0]).values() for part in maps]
    figure = new_figure(7.0, 0.86 * (len(rows) + 1))
    grid = figure.subplots(len(rows) + 1, columns, squeeze=False)
    for axes in grid.flat:
        bare(axes)
    bare(grid[0, 0], "image\nand gradient", size=7)
    grid[0, 0].imshow(image[0].numpy(), cmap="gray")
    grid[0, 1].imshow(gradient_size(image[0]).numpy(), cmap="gray")
    for line, (name, pictures) in zip(grid[1:], rows.items(), strict=True):
        for axes, picture in zip(line, pictures, strict=True):
            centred = picture - picture.median()
            limit = float(centred.abs().flatten().quantile(0.99)) or 1.0
            axes.imshow(centred.numpy(), cmap="gray", vmin=-limit, vmax=limit)
        bare(line[0], name.replace(" on ", "\non "), size=7)
    return figure


def plot_depths(depths: Mapping[str, Array], haar: float) -> Figure:
    """A line per network."""
    figure = new_figure(7.0, 2.8)
    axes = figure.subplots()
    for colour, (name, values) in zip(INK, depths.items(), strict=False):
        places = np.linspace(0, 1, len(values))
        axes.plot(places, values, ".-", color=colour, linewidth=1.5, label=name)
    axes.axhline(haar, color=COLOURS["learned"], linestyle="--", linewidth=1.2)
    axes.axhline(0, color=COLOURS["learned"], linewidth=0.8)
    axes.set_xticks([0, 1], ["first layer", "last"])
    axes.legend(fontsize=8, frameon=False)
    tidy(axes, x="depth", y="correlation, less control")
    return figure


def notes(setting: Setting, images: int) -> list[str]:
    """What differs from the paper."""
    said = [
        f"The paper shows one picture; here {images} test images are measured, {CHANNELS} "
        f"channels of every spatial layer whose maps are at least {SMALLEST} pixels.",
        "An activation is what a spatial convolution gives, before its normalisation.",
        f"A correlation below {WEAK} counts as none: earlier measurements on other networks, of "
        "0.05 to 0.13, were known when that was set.",
    ]
    if setting.scale == "smoke":
        said.append("A tiny network on drawn images, hardly trained: the numbers mean little.")
    if setting.scale == "cpu":
        wanted = ("MobileNetV2", "EfficientNet-lite0")
        said.append("The paper's network is a ResNet50 trained on ImageNet.")
        said += missing_note(find_pretrained(*wanted), *wanted)
    return said


EXPERIMENT = Experiment(
    name="activations",
    title="Networks and wavelets as edge detectors",
    reference="Fig. 2, Sec. 2",
    needs=("xrays",),
    claims=CLAIMS,
    cost={"smoke": "5 s", "cpu": "1 min after classification", "paper": "1 min and a download"},
    train=train,
    judge=judge,
)
