"""The networks that `landscape` compares ours with: scattering, Gabor filters, magnitude pruning.

Beside them EfficientNet as the authors trained it, and MobileNetV2 of other widths. A run names one
as FILE.py:FACTORY, so that any process can build it; the last lines are the names.
"""

import math
from functools import partial
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from explainfix.extras import needed_for
from explainfix.layers import spatial_layers
from explainfix.zoo import create_model

GABOR_LAYERS = 5  # from the input on
PRUNED = 0.9  # the share of the weights of all convolutions that magnitude pruning takes
ORIENTATIONS = 8


class Gabor(nn.Module):
    """A convolution's kernels as Gabor functions: a cosine under a Gaussian, of unit norm.

    Orientation, wavelength, width and phase of every kernel are learned; its norm is that of the
    weight it replaces, which is learned as well.
    """

    x: Tensor
    y: Tensor

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        grid = (*shape[:2], 1, 1)
        half = max(shape[2:]) / 2
        self.angle = nn.Parameter(torch.rand(grid) * math.pi)
        self.wavelength = nn.Parameter(2 + torch.rand(grid) * 2 * half)
        self.width = nn.Parameter(half * (0.4 + 0.4 * torch.rand(grid)))
        self.phase = nn.Parameter(torch.rand(grid) * 2 * math.pi)
        y, x = (torch.arange(side) - (side - 1) / 2 for side in shape[2:])
        self.register_buffer("x", x[None, :].expand(shape[2], -1).clone())
        self.register_buffer("y", y[:, None].expand(-1, shape[3]).clone())

    def forward(self, weight: Tensor) -> Tensor:
        along = self.x * self.angle.cos() + self.y * self.angle.sin()
        apart = self.x.square() + self.y.square()
        envelope = torch.exp(-apart / (2 * self.width.square() + 1e-3))
        wave = torch.cos(2 * math.pi * along / self.wavelength.clamp(min=2) + self.phase)
        kernels = envelope * wave
        norm = kernels.square().sum((2, 3), keepdim=True).add(1e-8).sqrt()
        return kernels / norm * weight.square().sum((2, 3), keepdim=True).add(1e-8).sqrt()


def gabor(base: str, num_classes: int = 5, in_channels: int = 1) -> nn.Module:
    """A network whose first spatial layers have Gabor kernels."""
    model = create_model(base, num_classes=num_classes, in_channels=in_channels)
    for layer in islice(spatial_layers(model).values(), GABOR_LAYERS):
        parametrize.register_parametrization(layer, "weight", Gabor(layer.weight.shape))
    return model


class Scattering(nn.Module):
    """Wavelet scattering of second order, `(n, c, h, w)` to `(n, c·k, h/2^J, w/2^J)`.

    |x ∗ ψ| and ||x ∗ ψ| ∗ ψ'| at coarser scales, then a Gaussian blur. ψ are Morlet wavelets; all
    filters are fixed.
    """

    def __init__(self, scales: int) -> None:
        super().__init__()
        self.scales = scales
        self.wavelets = nn.ModuleList(_fixed(morlets(0.8 * 2**scale)) for scale in range(scales))
        self.blur = _fixed(gaussian(0.8 * 2**scales)[None], stride=2**scales)

    @property
    def outputs(self) -> int:
        """The number of maps for each input channel."""
        pairs = self.scales * (self.scales - 1) // 2
        return 1 + ORIENTATIONS * self.scales + ORIENTATIONS**2 * pairs

    def forward(self, images: Tensor) -> Tensor:
        n, channels = images.shape[:2]
        first = images.reshape(n * channels, 1, *images.shape[2:])
        found = [first]
        for scale, wavelets in enumerate(self.wavelets):
            once = modulus(wavelets(first))
            found.append(once)
            alone = once.reshape(-1, 1, *once.shape[2:])
            found += [
                modulus(coarser(alone)).reshape(len(once), -1, *once.shape[2:])
                for coarser in islice(self.wavelets, scale + 1, None)
            ]
        maps = torch.cat(found, 1)
        blurred: Tensor = self.blur(maps.reshape(-1, 1, *maps.shape[2:]))
        return blurred.reshape(n, channels * maps.shape[1], *blurred.shape[2:])


def modulus(pairs: Tensor) -> Tensor:
    """√(re² + im²) of maps whose first half is real and whose second is imaginary."""
    real, imaginary = pairs.chunk(2, 1)
    return (real.square() + imaginary.square() + 1e-12).sqrt()


def morlets(width: float) -> Tensor:
    """Morlet wavelets of one scale: real parts of all orientations, then imaginary, `(2L, k, k)`.

    Each has zero mean, and together with its like of other scales covers the frequencies.
    """
    window = gaussian(width)
    reach = window.shape[-1] // 2
    y, x = torch.meshgrid(*[torch.arange(-reach, reach + 1.0)] * 2, indexing="ij")
    frequency = 0.75 * math.pi / (width / 0.8)
    parts = []
    for number in range(ORIENTATIONS):
        angle = math.pi * number / ORIENTATIONS
        phase = frequency * (x * math.cos(angle) + y * math.sin(angle))
        wave = torch.exp(1j * phase)
        parts.append(window * (wave - (window * wave).sum()))
    waves = torch.stack(parts)
    return torch.cat([waves.real, waves.imag])


def gaussian(width: float) -> Tensor:
    """A Gaussian `(k, k)` that sums to one and reaches to three widths."""
    reach = math.ceil(3 * width)
    line = torch.exp(-torch.arange(-reach, reach + 1.0).square() / (2 * width**2))
    plane = torch.outer(line, line)
    return plane / plane.sum()


def _fixed(filters: Tensor, stride: int = 1) -> nn.Conv2d:
    size = filters.shape[-1]
    layer = nn.Conv2d(1, len(filters), size, stride, size // 2, bias=False)
    layer.weight = nn.Parameter(filters[:, None].clone(), requires_grad=False)
    return layer


def scattering(scales: int, num_classes: int = 5, in_channels: int = 1) -> nn.Module:
    """Scattering, then a learned classifier without any spatial filter."""
    features = Scattering(scales)
    width = 128
    return nn.Sequential(
        features,
        nn.BatchNorm2d(features.outputs * in_channels),
        nn.Conv2d(features.outputs * in_channels, width, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, num_classes),
    )


class Magnitude(nn.Module):
    """A network whose convolutions lose their smallest weights at a step of training."""

    step: Tensor

    def __init__(self, network: nn.Module, when: int) -> None:
        super().__init__()
        self.network, self.when = network, when
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        for layer in self._layers():
            prune.identity(layer, "weight")

    def _layers(self) -> list[nn.Conv2d]:
        return [m for m in self.network.modules() if isinstance(m, nn.Conv2d)]

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.step += 1
            if int(self.step) == self.when:
                self._prune()
        logits: Tensor = self.network(images)
        return logits

    def _prune(self) -> None:
        # prune.global_unstructured is the same, but fails on weights that are channels last.
        layers = self._layers()
        sizes = [layer.weight.detach().abs() for layer in layers]
        ordered = torch.cat([size.flatten() for size in sizes]).sort().values
        limit = ordered[round(PRUNED * len(ordered)) - 1]
        for layer, size in zip(layers, sizes, strict=True):
            prune.custom_from_mask(layer, "weight", size > limit)


def magnitude(base: str, when: int, num_classes: int = 5, in_channels: int = 1) -> nn.Module:
    """A network pruned by magnitude at step `when`, half-way of its training."""
    model = create_model(base, num_classes=num_classes, in_channels=in_channels)
    return Magnitude(model, when)


def settle_(model: nn.Module) -> nn.Module:
    """Turn kernels that are computed, by Gabor functions or masks, into plain ones."""
    for module in list(model.modules()):
        if parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight")
        elif hasattr(module, "weight_orig"):
            prune.remove(module, "weight")
    return model


def efficientnet(
    name: str, pretrained: bool = False, num_classes: int = 5, in_channels: int = 1
) -> nn.Module:
    """timm's network with the dropout, drop-connect and BatchNorm of the authors' code."""
    with needed_for("an EfficientNet"):
        import timm
    model: nn.Module = timm.create_model(
        name,
        pretrained=pretrained,
        num_classes=num_classes,
        in_chans=in_channels,
        drop_rate=0.2,
        drop_path_rate=0.2,
        bn_momentum=0.01,
        bn_eps=1e-3,
    )
    return model


def mobilenet(width: float, num_classes: int = 5, in_channels: int = 1) -> nn.Module:
    """torchvision's MobileNetV2, so many times as wide."""
    with needed_for("a MobileNetV2"):
        from torchvision.models import mobilenet_v2
    model: nn.Module = mobilenet_v2(width_mult=width, num_classes=num_classes)
    stem = model.get_submodule("features.0.0")
    assert isinstance(stem, nn.Conv2d)
    grey = nn.Conv2d(in_channels, stem.out_channels, 3, 2, 1, bias=False)
    nn.init.kaiming_normal_(grey.weight, mode="fan_out")
    model.set_submodule("features.0.0", grey)
    return model


gabor_smoke = partial(gabor, "timm:test_resnet")
gabor_cpu = partial(gabor, "timm:resnet26")
gabor_paper = partial(gabor, "torchvision:resnet50")
scattering_smoke = scattering_cpu = partial(scattering, 2)
scattering_paper = partial(scattering, 3)
magnitude_smoke = partial(magnitude, "timm:test_resnet", 4)
magnitude_cpu = partial(magnitude, "timm:resnet26", 444)
magnitude_paper = partial(magnitude, "torchvision:resnet50", 75_000)
efficientnet_b0 = partial(efficientnet, "tf_efficientnet_b0")
efficientnet_b1 = partial(efficientnet, "tf_efficientnet_b1")
efficientnet_b2 = partial(efficientnet, "tf_efficientnet_b2")
efficientnet_b3 = partial(efficientnet, "tf_efficientnet_b3")
efficientnet_b4 = partial(efficientnet, "tf_efficientnet_b4")
efficientnet_b5 = partial(efficientnet, "tf_efficientnet_b5")
efficientnet_b0_imagenet = partial(efficientnet, "tf_efficientnet_b0.ap_in1k", True)
mobilenet_050 = partial(mobilenet, 0.5)
mobilenet_140 = partial(mobilenet, 1.4)
