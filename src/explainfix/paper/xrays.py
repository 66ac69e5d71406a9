"""What the experiments on x-rays share: networks, options, runs by key, and how a run scores."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from safetensors.torch import save_file

from ..lab.run.checkpoint import writing
from ..lab.run.config import RunConfig
from ..lab.run.folder import Run
from ..zoo.opening import split_weights
from .contrast import Measure
from .networks import FOLDER, TRUNKS, create_seeded, load_in_order
from .scores import METHODS, part
from .setting import Scale, Setting

K = TypeVar("K")
Begin = Literal["scratch", "pretrained"]


@dataclass(frozen=True)
class Key:
    """What tells the runs apart."""

    family: str
    begin: Begin
    method: str
    seed: int


AUC = Measure("test AUC", Key)


@dataclass(frozen=True)
class Network:
    """A network of a family at a scale; `trained` is its name with weights, if it differs."""

    title: str
    model: str
    trained: str | None = None


# The paper's EfficientNet starts from AdvProp weights, which timm has as "ap". In the few steps of
# cpu scale EfficientNets hardly learn, as their new heads begin with large weights: MobileNetV2,
# which they are made of, does.
NETWORKS: dict[Scale, dict[str, Network]] = {
    "smoke": {
        "resnet": Network("tiny ResNet", "timm:test_resnet"),
        "efficientnet": Network("tiny EfficientNet", "timm:test_efficientnet"),
    },
    "cpu": {
        "resnet": Network("ResNet18", "torchvision:resnet18"),
        "densenet": Network("DenseNet121", "torchvision:densenet121"),
        "efficientnet": Network("MobileNetV2", "torchvision:mobilenet_v2"),
    },
    "paper": {
        "resnet": Network("ResNet50", "torchvision:resnet50"),
        "densenet": Network("DenseNet121", "torchvision:densenet121"),
        "efficientnet": Network(
            "EfficientNet-b0", "timm:tf_efficientnet_b0", "timm:tf_efficientnet_b0.ap_in1k"
        ),
    },
}


@dataclass(frozen=True)
class Start:
    """Where runs begin: a network, random or trained on ImageNet."""

    family: str
    begin: Begin
    title: str
    options: Mapping[str, Any]  # of a RunConfig: model and weights
    guide: str | None  # of GuidedSteer; without one, the learned run of the same seed

    @property
    def fields(self) -> dict[str, str]:
        """Those of the keys of its runs."""
        return {"family": self.family, "begin": self.begin}


def starts(setting: Setting, begin: Begin) -> list[Start]:
    """All networks from random weights, or those whose ImageNet weights can be had."""
    found = []
    for family, network in NETWORKS[setting.scale].items():
        title = f"{network.title}, {'pretrained' if begin == 'pretrained' else 'from scratch'}"
        options: dict[str, Any] = {"model": network.model}
        guide = trained_name(setting, family)
        if begin == "pretrained":
            if guide is None:
                continue
            name, file = split_weights(guide)
            options = {"model": name, "weights": file or "pretrained"}
        found.append(Start(family, begin, title, options, guide))
    return found


def all_starts(setting: Setting) -> list[Start]:
    """From scratch, then pretrained."""
    return [*starts(setting, "scratch"), *starts(setting, "pretrained")]


def titles(setting: Setting) -> dict[tuple[str, str], str]:
    """Those of all networks, by family and begin."""
    return {(start.family, start.begin): start.title for start in all_starts(setting)}


def best_starts(setting: Setting) -> list[Start]:
    """Each network from ImageNet weights if they can be had, else from scratch."""
    trained = {start.family: start for start in starts(setting, "pretrained")}
    return [trained.get(start.family, start) for start in starts(setting, "scratch")]


def trained_name(setting: Setting, family: str) -> str | None:
    """The trained network of a family, as NAME or NAME@FILE; `None` where there are no weights.

    Nothing is downloaded except at paper scale. At cpu scale the weights of MobileNetV2 are used if
    they are at hand; at smoke scale those of a network that nobody trained.
    """
    network = NETWORKS[setting.scale][family]
    if setting.scale == "paper":
        return network.trained or network.model
    if family != "efficientnet":
        return None
    weights = Path(os.environ.get(FOLDER, "../shared")) / "weights" / TRUNKS["MobileNetV2"][0]
    if setting.scale == "cpu" and not weights.is_file():
        return None
    file = setting.folder / "weights" / f"{network.model.partition(':')[2]}.safetensors"
    if not setting.dry and not file.is_file():
        model = create_seeded(network.model)
        if setting.scale == "cpu":
            load_in_order(model.get_submodule("features"), weights)
        file.parent.mkdir(parents=True, exist_ok=True)
        with writing(file) as temporary:
            save_file({k: v.contiguous() for k, v in model.state_dict().items()}, temporary)
    return f"{network.model}@{file}"


def options(setting: Setting) -> dict[str, Any]:
    """What all runs on x-rays share."""
    size = {"size": 48} if setting.scale == "cpu" and not on_chexpert(setting) else {}
    return {
        "data": setting.data("xrays"),
        "data_options": setting.data_options("xrays") | size,
        "evaluate_on": ("val", "test"),
        "epochs": setting.pick(smoke=2, cpu=4, paper=40),
        "batch_size": setting.pick(smoke=8, cpu=32, paper=4),
        "lr": rate(setting),
        "schedule": setting.pick(smoke="onecycle", cpu="onecycle", paper="constant"),
        "channels_last": setting.scale == "cpu",
    }


def rate(setting: Setting) -> float:
    """The learning rate."""
    return setting.pick(smoke=1e-3, cpu=1e-3, paper=1e-4)


def on_chexpert(setting: Setting) -> bool:
    return setting.data("xrays").startswith("chexpert")


def methods(setting: Setting) -> list[str]:
    """The columns of the paper's Fig. 10; Ones, which it has not, where there is time."""
    return [method for method in METHODS if setting.scale != "cpu" or method != "ones"]


def train_methods(
    setting: Setting,
    begins: Iterable[Start],
    methods: Sequence[str],
    seeds: Iterable[int],
    **changes: Any,
) -> dict[Key, Run]:
    """All methods from all starts with all seeds; a guide that must be learned first is."""
    shared = options(setting) | changes
    chosen = {
        Key(start.family, start.begin, method, seed): start
        for start in begins
        for method in methods
        for seed in seeds
    }
    first, later = {}, {}
    for key, start in chosen.items():
        if key.method != "guidedsteer" or start.guide is not None:
            first[key] = _config(start, key, shared, start.guide)
        else:
            later[key] = replace(key, method="learned")
    first |= {
        teacher: _config(chosen[key], teacher, shared, None)
        for key, teacher in later.items()
        if teacher not in first
    }
    runs = setting.sweep(first)
    guided = {
        key: _config(chosen[key], key, shared, str(runs[teacher].folder / "best.safetensors"))
        for key, teacher in later.items()
    }
    found = runs | setting.sweep(guided)
    return {key: found[key] for key in (*chosen, *(k for k in runs if k not in chosen))}


def _config(start: Start, key: Key, shared: Mapping[str, Any], guide: str | None) -> RunConfig:
    fixed: dict[str, Any] = {}
    if key.method != "learned":
        fixed = {"fix": key.method, "fix_seed": key.seed}
    if key.method == "guidedsteer":
        fixed["fix_guide"] = guide
    return RunConfig(**{**start.options, **shared, **fixed, "seed": key.seed})


def final(run: Run, column: str = "test auc") -> float:
    """The mean score over the last quarter of the epochs."""
    return float(part(run, column, after=0.75 * run.config.epochs).mean())


def finals(runs: Mapping[K, Run], column: str = "test auc") -> dict[K, float]:
    """The same of all runs."""
    return {key: final(run, column) for key, run in runs.items()}


def finding_scores(run: Run) -> list[float]:
    """The test AUC of each finding."""
    columns = [name for name in run.history[-1] if name.startswith("test auc ")]
    return [final(run, column) for column in columns or ["test auc"]]


def notes(
    setting: Setting, runs: Mapping[Any, Run], *, usual: bool = True, weights: bool = True
) -> list[str]:
    """What differs from the paper in experiments on x-rays.

    `usual` says that the networks are those of `networks`, `weights` that some are pretrained.
    """
    config = next(iter(runs.values())).config
    said = []
    if setting.scale == "smoke":
        said.append(
            "Drawn images, tiny networks and a training of seconds: the numbers mean nothing."
        )
        if weights:
            said.append('"Pretrained" is a network with random weights that all seeds share.')
    elif not on_chexpert(setting):
        said.append(
            f"{setting.data('xrays').partition(':')[0]} stands in for CheXpert: fewer images, "
            "other labels, other patients. The findings are CheXpert's five, "
            f"the images {config.data_options.get('size', 'up to 320')} pixels square."
        )
    if setting.scale == "cpu":
        said.append(
            f"{config.epochs} epochs over all images with batches of {config.batch_size} and one "
            f"cycle of the rate up to {rate(setting):g}; the paper's epochs have 15,000 images in "
            "batches of 4 and a constant rate of 0.0001. Size, rate and networks were chosen in a "
            "few trials with another seed, whose test scores were seen too."
        )
        if usual:
            titles = ", ".join(network.title for network in NETWORKS[setting.scale].values())
            said.append(
                f"{titles} instead of the paper's ResNet50, DenseNet121 and EfficientNet-b0, which "
                "take too long or hardly learn in so few steps."
            )
        if weights:
            said.append(_about_weights(setting))
    said.append(
        "A run's score is the mean over the last quarter of its epochs; the paper does not say "
        "which epoch it shows."
    )
    return said


def _about_weights(setting: Setting) -> str:
    if starts(setting, "pretrained"):
        return (
            "ImageNet weights are at hand for MobileNetV2 only: other networks are trained "
            "from scratch, and their GuidedSteer is guided by the learned run of the same seed."
        )
    return (
        f"No ImageNet weights are at hand (set {FOLDER} to the folder that has weights/): all "
        "networks are trained from scratch."
    )
