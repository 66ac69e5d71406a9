"""The explanation in words and numbers: what it means, and what to do about it.

Every sentence carries its figure, and the threshold it was held against.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from ..marks.untrained import RANDOM

if TYPE_CHECKING:
    from .explanation import Explanation, Layer

IDLE_SHARE = 0.25  # a layer is idle below this share of an even share of the saliency
TAIL_RATIO = 0.5  # a stage tails off if its later half has less than this times the earlier half
LOSS_ALLOWED = 0.05  # zeroing goes as far as this share of the saliency
LITTLE = 0.1  # with less of its weights left to learn, a fixed network learns badly
SAVED = 0.1  # steering is worth a word if it saves this share of the weights
BLIND = 0.01  # with less of its energy in the constant filter a layer passes no brightness
ODD = 0.25  # of noise at most this share of the energies is outside the band of chance
STEPS = (0.5, 0.8, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Advice:
    """One thing worth knowing: a title, a sentence or two, the figure behind it, its threshold."""

    kind: Literal[
        "untrained", "brightness", "learning", "steering", "frequency", "chance", "layers",
        "stages", "zeroing", "data",
    ]  # fmt: skip
    title: str
    text: str
    figure: float
    threshold: float

    def __str__(self) -> str:
        return f"{self.title}. {self.text}"


@dataclass(frozen=True)
class Zeroing:
    """What goes when the least salient kernels are zeroed, over the whole network."""

    share: float
    kernels: int
    parameters: int
    saliency_lost: float
    empty_layers: int


def zeroing_curve(
    saliency: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Zeroing, ...]:
    """What zeroing 50% to 99% of all kernels, the least salient first, would take away."""
    scores = torch.cat([value.flatten().double().cpu() for value in saliency.values()])
    sizes = [int(torch.tensor(shapes[path]).prod()) for path in saliency]
    counts = torch.tensor([value.numel() for value in saliency.values()])
    elements = torch.repeat_interleave(torch.tensor(sizes), counts)
    layer = torch.repeat_interleave(torch.arange(len(sizes)), counts)
    order = torch.argsort(scores, stable=True)
    lost = scores[order].cumsum(0) / scores.sum().clamp(min=1e-300)
    steps = []
    for share in STEPS:
        count = int(share * len(scores))
        if count:
            gone = order[:count]
            emptied = torch.bincount(layer[gone], minlength=len(sizes)) == counts
            parameters = int(elements[gone].sum())
            steps.append(
                Zeroing(share, count, parameters, float(lost[count - 1]), int(emptied.sum()))
            )
    return tuple(steps)


def stage_of(paths: list[str]) -> dict[str, str]:
    """The stage each layer belongs to: the first part of its path that differs among layers.

    >>> stage_of(["features.block1.0.conv", "features.block1.1.conv", "features.block2.0.conv"])
    {'features.block1.0.conv': 'features.block1', 'features.block1.1.conv': 'features.block1',
    'features.block2.0.conv': 'features.block2'}
    """
    parts = [path.split(".") for path in paths]
    first, last = min(parts), max(parts)  # what these two share, all share
    alike = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    shared = next(alike, 0)
    return {path: ".".join(part[: shared + 1]) for path, part in zip(paths, parts, strict=True)}


def advise(why: Explanation) -> list[Advice]:
    """Everything worth saying about an explanation, the most useful first.

    Of random weights only what will still hold when they are learned. Fixed filters are as
    somebody wanted them, and kernels that chance could have made say nothing: neither is a reason
    to recommend a rule.
    """
    if why.untrained:
        return [*_untrained(), *_brightness(why), *_learning(why)]
    said = [
        *_brightness(why),
        *_learning(why),
        *_steering(why),
        *_zeroing(why),
        *_idle_stages(why),
        *_idle_layers(why),
        *_frequencies(why),
        *_chance(why),
    ]
    if not why.weighted:
        text = (
            "Without data every kernel counts the same: this shows what the filters are, not which "
            "of them the network uses."
        )
        said.append(Advice("data", "Give data to see what matters", text, 0.0, 0.0))
    return said


def _untrained() -> list[Advice]:
    text = RANDOM.partition(": ")[2].capitalize() + " Train the model, or give it weights."
    return [Advice("untrained", "Random weights", text, 0.0, 0.0)]


def _is_learned(layer: Layer) -> bool:
    return layer.fixed_by is None


def _is_noise(why: Explanation, path: str) -> bool:
    """Whether random kernels of the same norms would show about this spectrum."""
    layer, energies = why.layers[path], why[path].ed
    if not layer.low_chance[0] <= layer.low_share <= layer.low_chance[1]:
        return False
    low, high = layer.energy_chance
    return float(((energies < low) | (energies > high)).double().mean()) <= ODD


def _brightness(why: Explanation) -> list[Advice]:
    """Is there a layer that lets the mean of its input through?"""
    if why.basis == "pca":  # which has no constant filter
        return []
    most = max(float(e.ed[0] / e.ed.sum().clamp(min=1e-300)) for e in why.values())
    if most >= BLIND:
        return []
    text = (
        f"No spatial layer has {BLIND:.0%} of its energy in the constant filter (the most is "
        f"{most:.2%}), so brightness does not pass, only its changes. A network that must tell "
        "bright from dark learns badly so: take ghaar, guidedsteer, or psine centred in its range."
    )
    return [Advice("brightness", "Blind to brightness", text, most, BLIND)]


def _learning(why: Explanation) -> list[Advice]:
    """Is enough left to learn when the spatial filters are fixed?"""
    spatial = sum(layer.parameters for layer in why.layers.values())
    left = 1 - spatial / why.parameters
    dense = [path for path, layer in why.layers.items() if layer.steered is not None]
    if left >= LITTLE or not dense:
        return []
    fixed = all(why.layers[path].fixed_by for path in dense)
    text = (
        f"{len(dense)} dense spatial layers hold {1 - left:.1%} of the weights: "
        + (f"as they are fixed, {left:.1%} is " if fixed else f"fixed, {left:.1%} would be ")
        + "left to learn. Put a learned 1x1 behind each (mix_, --mix), or steer them (steer_)."
    )
    return [Advice("learning", "Little is left to learn", text, left, LITTLE)]


def _steering(why: Explanation) -> list[Advice]:
    """Would the filters that hold nearly all of the energy make a smaller network?"""
    dense = {p: layer for p, layer in why.layers.items() if layer.steered is not None}
    if not dense or why.basis == "pca" or any(layer.fixed_by for layer in dense.values()):
        return []
    worth = [
        path
        for path, layer in dense.items()
        if (layer.steered or 0) < layer.parameters and not _is_noise(why, path)
    ]
    before = sum(layer.parameters for layer in dense.values())
    saved = sum(dense[p].parameters - (dense[p].steered or 0) for p in worth)
    if saved < SAVED * before:
        return []
    text = (
        f"In {len(worth)} of {len(dense)} dense layers a part of the filters holds 95% of the "
        f"energy. Steered by those (steer_, energy=0.95), the dense layers would have "
        f"{1 - saved / before:.0%} of their weights and multiply-adds."
    )
    return [Advice("steering", "Some frequencies are hardly used", text, saved / before, SAVED)]


def _frequencies(why: Explanation) -> list[Advice]:
    """Averaged over layers, so that one loud layer does not speak for all."""
    learned = [path for path, layer in why.layers.items() if _is_learned(layer)]
    paths = learned or list(why)
    layers = [why.layers[path] for path in paths]
    low = sum(layer.low_share for layer in layers) / len(layers)
    even = sum(sum(layer.low_chance) / 2 for layer in layers) / len(layers)
    noise = sum(_is_noise(why, path) for path in learned)
    if low > 1.1 * even:
        title = "Low frequencies are favoured"
        do = "Steered filters that favour them too, ghaar or guidedsteer, suit this network."
    elif low < 0.9 * even:
        title = "High frequencies are favoured"
        do = "Look for noise or checkerboards in the filters; smoother fixed filters may help."
    else:
        title = "No frequency is favoured"
        do = "So it is with untrained filters and with DCT2; single layers may differ."
    if not learned:
        rules = sorted({layer.fixed_by for layer in layers if layer.fixed_by})
        do = f"That is how they were fixed, by {' and '.join(rules)}."
    elif 2 * noise > len(learned):
        do = (
            f"But {noise} of {len(learned)} layers look like noise: no rule is to be had from that."
        )
    whose = "a layer's" if len(paths) == len(why) else "a learned layer's"
    text = (
        f"On average {low:.0%} of {whose} energy is in low frequencies; an even spread would put "
        f"{even:.0%} there. {do}"
    )
    return [Advice("frequency", title, text, low, even)]


def _chance(why: Explanation) -> list[Advice]:
    learned = {path: layer for path, layer in why.layers.items() if _is_learned(layer)}
    if not learned:
        return []
    inside = [
        path
        for path, layer in learned.items()
        if layer.low_chance[0] <= layer.low_share <= layer.low_chance[1]
    ]
    share = len(inside) / len(learned)
    count = f"{len(learned) - len(inside)} of {len(learned)}"
    text = (
        f"{count} {'learned ' * (len(learned) < len(why))}layers have a share of low frequencies "
        "that random kernels of the same norms would show less than 5% of the time."
    )
    if inside:
        text += f" The others cannot be told from chance: {_names(inside)}."
    title = "Structure, not chance" if share < 0.5 else "Much of this could be chance"
    return [Advice("chance", title, text, 1 - share, 0.5)]


def _idle_layers(why: Explanation) -> list[Advice]:
    if not why.weighted:
        return []
    threshold = IDLE_SHARE / len(why)
    idle = [path for path in why if (why.share_of(path) or 0.0) < threshold]
    if not idle:
        return []
    share = sum(why.layers[path].saliency or 0.0 for path in idle) / why.total_saliency
    parameters = sum(why.layers[path].parameters for path in idle)
    text = (
        f"{len(idle)} of {len(why)} spatial layers carry less than {threshold:.1%} of the saliency "
        f"each, {share:.1%} together, with {parameters:,} parameters: {_names(idle)}. "
        + (
            "They are the first candidates for pruning."
            if 2 * len(idle) < len(why)
            else "So many are no candidates for pruning: more data may spread the saliency."
        )
    )
    return [Advice("layers", "Some layers are nearly idle", text, share, threshold)]


def _idle_stages(why: Explanation) -> list[Advice]:
    """The paper's repeating trend: within a stage, the later layers matter less."""
    if not why.weighted:
        return []
    stages: dict[str, list[str]] = {}
    for path, stage in stage_of(list(why)).items():
        stages.setdefault(stage, []).append(path)
    ratios: dict[str, float] = {}
    for stage, paths in stages.items():
        if len(paths) >= 3:
            half = len(paths) // 2
            first, last = (
                sum(why.layers[p].saliency or 0.0 for p in part) / len(part)
                for part in (paths[:half], paths[-half:])
            )
            ratios[stage] = last / first if first else 1.0
    tailing = {stage: ratio for stage, ratio in ratios.items() if ratio < TAIL_RATIO}
    if not tailing:
        return []
    named = ", ".join(f"{stage} ({ratio:.0%})" for stage, ratio in tailing.items())
    text = (
        f"In {len(tailing)} of {len(ratios)} stages the later half of the layers has less than "
        f"{TAIL_RATIO:.0%} of the saliency of the earlier half: {named}. "
        "Shorter stages would do nearly the same work."
    )
    return [Advice("stages", "Stages tail off", text, min(tailing.values()), TAIL_RATIO)]


def _zeroing(why: Explanation) -> list[Advice]:
    if not why.zeroing:
        return []
    allowed = [step for step in why.zeroing if step.saliency_lost <= LOSS_ALLOWED]
    sound = [step for step in allowed if 2 * step.empty_layers < len(why)]
    step = sound[-1] if sound else why.zeroing[0]
    if sound:
        emptied = "1 layer" if step.empty_layers == 1 else f"{step.empty_layers} layers"
        text = (
            f"The least salient {step.share:.0%} of the kernels, {step.kernels:,} with "
            f"{step.parameters:,} parameters, carry {step.saliency_lost:.1%} of the saliency, "
            f"below {LOSS_ALLOWED:.0%}."
            + (f" Zeroing them would empty {emptied}." if step.empty_layers else "")
        )
        title = "Most kernels are not needed"
    elif allowed:
        text = (
            f"Zeroing the least salient {step.share:.0%} would lose {step.saliency_lost:.1%} of "
            f"the saliency, but empty {step.empty_layers} of {len(why)} layers: zero less, or keep "
            "layers out of it (keep, --keep)."
        )
        title = "The saliency is in few layers"
    else:
        text = (
            f"Zeroing the least salient {step.share:.0%} would already lose "
            f"{step.saliency_lost:.1%} of the saliency, more than {LOSS_ALLOWED:.0%}."
        )
        title = "Most kernels are in use"
    return [Advice("zeroing", title, text, step.saliency_lost, LOSS_ALLOWED)]


def _names(paths: list[str]) -> str:
    shown = ", ".join(paths[:4])
    return f"{shown} and {len(paths) - 4} more" if len(paths) > 4 else shown
