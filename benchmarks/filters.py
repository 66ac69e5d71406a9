"""Seconds of CPU that each method takes on a whole network, and its ratio to a plain loop.

    python benchmarks/filters.py

The plain loop makes one kernel at a time with NumPy, as one would first write it. It is timed on a
sample of kernels and scaled up: a whole ResNet50 would take it minutes. Both run in this process,
one after the other, for each method and network.
"""

import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy.special import ive

import explainfix as xf

NETWORKS = ["torchvision:resnet50", "torchvision:densenet121", "torchvision:efficientnet_b0"]
SAMPLE = 200  # kernels a layer
random = np.random.default_rng(0)


def loop_ones(shape, _):
    return np.ones(shape)


def loop_dct2(shape, _):
    n, m = shape
    k, j = random.integers(n), random.integers(m)
    rows = np.cos(np.pi / n * k * (np.arange(n) + 0.5))
    columns = np.cos(np.pi / m * j * (np.arange(m) + 0.5))
    kernel = np.outer(rows, columns)
    return kernel / np.linalg.norm(kernel)


def loop_ghaar(shape, _):
    n, m = shape
    f = random.uniform(0, 1)
    rows = np.cos(2 * (n - 1) * f * np.linspace(0, np.pi, n))
    columns = np.cos(2 * (m - 1) * f * np.linspace(0, np.pi, m))
    h, v, d = random.uniform(-1, 1, 3)
    return (
        h * np.outer(rows, np.ones(m))
        + v * np.outer(np.ones(n), columns)
        + d * np.outer(rows, columns)
    )


def loop_psine(shape, _):
    terms = int(4 + 2 ** (6 * random.uniform()))
    highest = random.uniform(1, 5)
    kernel = np.zeros(shape)
    for _ in range(terms):
        waves = [
            np.cos(
                random.uniform(0, highest) * np.linspace(0, np.pi, size)
                + random.uniform(0, 2 * np.pi)
            )
            for size in shape
        ]
        power = random.integers(1, (terms - 1) // 2 + 1)
        kernel += random.uniform(-1, 1) * np.outer(*waves) ** power
    kernel -= kernel.mean()
    return kernel / np.linalg.norm(kernel)


def loop_covariance(shape, _):
    roots = []
    for size in shape:
        x = np.arange(size) - (size - 1) / 2
        squares = x[:, None] ** 2 + x**2 + (x[:, None] - x) ** 2
        roots.append(np.linalg.cholesky(np.exp(-squares / (0.6 * size))))
    return roots[0] @ random.standard_normal(shape) @ roots[1].T


def loop_masterkeys(shape, _):
    lines = []
    for size in shape:
        gaussian = ive(np.abs(np.arange(size + 2) - (size + 1) / 2), 0.75)
        first, second = np.convolve(gaussian, [0.5, 0, -0.5]), np.convolve(gaussian, [1, -2, 1])
        lines.append((gaussian[1:-1], first[2:-2], second[2:-2]))
    orders = [(0, 0), (0, 1), (1, 0), (0, 2), (2, 0), (1, 1)]
    kernels = [np.outer(lines[0][i], lines[1][j]) for i, j in orders]
    kernels += [kernels[3] + kernels[4], kernels[0] - (kernels[3] + kernels[4]) / 2]
    kernel = kernels[random.integers(len(kernels))] * random.choice([-1, 1])
    return kernel / np.linalg.norm(kernel)


def loop_guidedsteer(shape, guide):
    rows, mean, root, bandwidth = guide
    noise = bandwidth * random.standard_normal(len(mean)) @ root
    kernel = rows[random.integers(len(rows))] - mean + noise
    return (mean + kernel / np.sqrt(1 + bandwidth**2)).reshape(shape)


def loop_unchanged(shape, guide):
    return guide[0][random.integers(len(guide[0]))].reshape(shape)


LOOPS = {name.removeprefix("loop_"): f for name, f in list(globals().items()) if "loop_" in name}


def loop_seconds(method, layers):
    """The plain loop over every kernel, estimated from a sample of each layer's kernels."""
    total = 0.0
    for layer in layers.values():
        rows = layer.weight.detach().double().flatten(2).flatten(0, 1).numpy()
        mean = rows.mean(axis=0)
        values, axes = np.linalg.eigh(np.cov(rows.T, bias=True))
        root = np.sqrt(np.maximum(values, 0))[:, None] * axes.T
        guide = rows, mean, root, len(rows) ** (-1 / (len(mean) + 4)) / 4
        count = min(SAMPLE, len(rows))
        started = time.process_time()
        for _ in range(count):
            LOOPS[method](layer.kernel_size, guide)
        total += (time.process_time() - started) / count * len(rows)
    return total


def main():
    torch.manual_seed(0)
    table = Table("network", "method", box=None, pad_edge=False, header_style="bold")
    for heading in ("explainfix", "plain loop", "ratio"):
        table.add_column(heading, justify="right")
    for spec in NETWORKS:
        model = xf.create_model(spec)
        for method in xf.list_filters():
            started = time.process_time()
            xf.fix_(model, method)
            ours = time.process_time() - started
            loop = loop_seconds(method, xf.spatial_layers(model))
            name = spec.partition(":")[2]
            table.add_row(name, method, f"{ours:.2f} s", f"{loop:.2f} s", f"{loop / ours:.0f}x")
        table.add_section()
    console = Console(highlight=False)
    console.print("Seconds of CPU to set every spatial filter of a network, fitting included\n")
    console.print(table)


if __name__ == "__main__":
    main()
