"""What the experiments on x-rays share: networks, options, runs by key, and how a run scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from safetensors.torch import save_file
from torch import nn

from ..lab.run.checkpoint import writing
from ..lab.run.config import RunConfig
from ..lab.run.folder import Run
from ..zoo.opening import split_weights
from .contrast import Measure
from .networks import FOLDER, create_seeded, factory, load_trunk, weights_file
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
    """A network of a family at a scale.

    `trained` is its name with ImageNet weights where that is another, or the name of the file that
    has them; `begins` how it is trained, `epochs` for how long from scratch and `seeds` how often
    at cpu scale, for claims on this network alone (docs/reproduce.md says why).
    """

    title: str
    model: str
    trained: str | None = None
    begins: tuple[Begin, ...] = ("scratch", "pretrained")
    epochs: int = 8
    seeds: int = 5


# The paper's EfficientNet starts from AdvProp weights, which timm has as "ap"; its dropout and
# BatchNorm are the authors' (rivals.py). What stands in at cpu scale has, like the paper's, learned
# 1x1 convolutions between its spatial ones: a ResNet18, which has none, is in `forms`. From scratch
# an EfficientNet hardly learns in so few steps: MobileNetV2, which it is made of, does.
NETWORKS: dict[Scale, dict[str, Network]] = {
    "smoke": {
        "resnet": Network("tiny ResNet", "timm:test_resnet", begins=("scratch",)),
        "efficientnet": Network("tiny EfficientNet", "timm:test_efficientnet"),
    },
    "cpu": {
        "resnet": Network("ResNet26", "timm:resnet26", begins=("scratch",), seeds=3),
        "densenet": Network("DenseNet121", "torchvision:densenet121", begins=("scratch",)),
        "mobilenet": Network("MobileNetV2", "torchvision:mobilenet_v2", "MobileNetV2", epochs=12),
        "efficientnet": Network(
            "EfficientNet-lite0",
            "timm:efficientnet_lite0",
            "EfficientNet-lite0",
            ("pretrained",),
            seeds=8,
        ),
    },
    "paper": {
        "resnet": Network("ResNet50", "torchvision:resnet50"),
        "densenet": Network("DenseNet121", "torchvision:densenet121"),
        "efficientnet": Network(
            "EfficientNet-b0", "efficientnet_b0", "timm:tf_efficientnet_b0.ap_in1k"
        ),
    },
}
FAMILIES = ("resnet", "densenet", "efficientnet")  # of the paper
FINDINGS = 5  # CheXpert's
TUNING = 12  # epochs from ImageNet weights at cpu scale
BRIEF = 4  # the same where ImageNet's filters stay, fixed or learned: scores are flat from there
BRIEF_SEEDS = 12  # of these, which spread more and cost less
MANY_SEEDS = 24  # of the cheapest, on which claims were a hair from decided with half as many
POOLED = 3  # seeds of each network at cpu scale, for claims on several networks together
GUIDE = "imagenet"  # the guide that ships, of networks without ImageNet weights of their own


@dataclass(frozen=True)
class Start:
    """Where runs begin: a network, random or trained on ImageNet."""

    family: str
    begin: Begin
    title: str
    options: Mapping[str, Any]  # of a RunConfig: model, weights, epochs
    guide: str = GUIDE  # of GuidedSteer
    seeds: int = 5  # at cpu scale

    @property
    def fields(self) -> dict[str, str]:
        """Those of the keys of its runs."""
        return {"family": self.family, "begin": self.begin}


def starts(setting: Setting, begin: Begin) -> list[Start]:
    """The networks from random weights, or those whose ImageNet weights can be had."""
    found = []
    for family, network in NETWORKS[setting.scale].items():
        if begin not in network.begins:
            continue
        title = f"{network.title}, {'pretrained' if begin == 'pretrained' else 'from scratch'}"
        options: dict[str, Any] = {"model": model_name(setting, network)}
        if setting.scale == "cpu":
            options |= lasting(network.epochs if begin == "scratch" else TUNING)
        guide = trained_name(setting, family)
        if begin == "pretrained":
            if guide is None:
                continue
            options |= own_weights(setting, network, guide)
        found.append(Start(family, begin, title, options, guide or GUIDE, network.seeds))
    return found


def lasting(epochs: int) -> dict[str, int]:
    """The options of a run of so many epochs at cpu scale: scored four times, or twice."""
    return {"epochs": epochs, "evaluate_every": max(2, epochs // 4)}


def model_name(setting: Setting, network: Network) -> str:
    """As a run has it."""
    return network.model if ":" in network.model else factory(network.model)


def own_weights(setting: Setting, network: Network, trained: str) -> dict[str, str]:
    """The options of a run that begins with a network's ImageNet weights."""
    if ":" not in network.model:
        return {"model": factory(f"{network.model}_imagenet")}
    name, file = split_weights(trained)
    return {"model": name, "weights": str(beginning(Path(file))) if file else "pretrained"}


def brief(setting: Setting, start: Start, seeds: int = BRIEF_SEEDS) -> Start:
    """The same start with few epochs and more seeds at cpu scale."""
    if setting.scale != "cpu":
        return start
    return replace(start, options={**start.options, **lasting(BRIEF)}, seeds=seeds)


def all_starts(setting: Setting) -> list[Start]:
    """From scratch, then pretrained."""
    return [*starts(setting, "scratch"), *starts(setting, "pretrained")]


def few_starts(setting: Setting) -> list[Start]:
    """All, but at cpu scale only one from scratch, the ResNet: for what needs weights again."""
    found = all_starts(setting)
    if setting.scale != "cpu":
        return found
    return [start for start in found if start.begin == "pretrained" or start.family == "resnet"]


def stand_ins(setting: Setting, begin: Begin) -> dict[str, Start]:
    """What stands for each of the paper's networks, if anything does."""
    found = {start.family: start for start in starts(setting, begin)}
    if begin == "scratch" and "mobilenet" in found:
        found["efficientnet"] = found["mobilenet"]
    return {family: found[family] for family in FAMILIES if family in found}


def titles(setting: Setting) -> dict[tuple[str, str], str]:
    """Those of all networks, by family and begin."""
    return {(start.family, start.begin): start.title for start in all_starts(setting)}


def best_starts(setting: Setting) -> list[Start]:
    """Each of the paper's networks from ImageNet weights if they can be had, else from scratch."""
    found = stand_ins(setting, "scratch") | stand_ins(setting, "pretrained")
    return list(found.values())


def trained_name(setting: Setting, family: str) -> str | None:
    """The trained network of a family, as NAME or NAME@FILE; `None` where there are no weights.

    Nothing is downloaded except at paper scale. At cpu scale weights are used if they are at hand;
    at smoke scale those of a network that nobody trained.
    """
    network = NETWORKS[setting.scale][family]
    if setting.scale == "paper":
        return network.trained or network.model
    if "pretrained" not in network.begins:
        return None
    if setting.scale == "cpu" and not weights_file(network.trained or "").is_file():
        return None
    file = setting.folder / "weights" / f"{network.model.partition(':')[2]}.safetensors"
    if not setting.dry and not file.is_file():
        model = create_seeded(network.model)
        if setting.scale == "cpu":
            load_trunk(model, network.trained or "")
        file.parent.mkdir(parents=True, exist_ok=True)
        begin = with_small_head(network.model, model)
        for path, one in ((beginning(file), begin), (file, model)):
            with writing(path) as temporary:
                save_file({k: v.contiguous() for k, v in one.state_dict().items()}, temporary)
    return f"{network.model}@{file}"


def beginning(file: Path) -> Path:
    """The file that runs begin with, beside the file of the whole network."""
    return file.with_stem(f"{file.stem}-begin")


def with_small_head(spec: str, trained: nn.Module) -> nn.Module:
    """A trained network with a new head for the findings that begins near zero.

    timm's heads begin so large that the few steps of cpu scale are spent on making them small.
    """
    model = create_seeded(spec, num_classes=FINDINGS)
    theirs = trained.state_dict()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if theirs[name].shape == value.shape:
                value.copy_(theirs[name])
            else:
                value.mul_(0.01 / value.std() if value.dim() > 1 else 0.0)
    return model


def options(setting: Setting) -> dict[str, Any]:
    """What all runs on x-rays share; at cpu scale each network has its number of epochs."""
    size = {"size": 48} if setting.scale == "cpu" and not on_chexpert(setting) else {}
    return {
        "data": setting.data("xrays"),
        "data_options": setting.data_options("xrays") | size,
        "evaluate_on": ("val", "test"),
        "evaluate_every": setting.pick(smoke=1, cpu=2, paper=1),
        "epochs": setting.pick(smoke=2, cpu=BRIEF, paper=40),
        "batch_size": setting.pick(smoke=8, cpu=32, paper=4),
        "lr": rate(setting),
        "schedule": setting.pick(smoke="onecycle", cpu="onecycle", paper="constant"),
        "channels_last": setting.scale == "cpu",
        "precision": setting.precision,
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
    *,
    paper: int,
    pooled: bool = False,
    **changes: Any,
) -> dict[Key, Run]:
    """All methods from all starts with all seeds, of which there are so many at paper scale."""
    return setting.sweep(
        {
            Key(start.family, start.begin, method, seed): configure(
                setting, start, method, seed, **changes
            )
            for start in begins
            for method in methods
            for seed in seeds(setting, start, paper=paper, pooled=pooled)
        }
    )


def seeds(setting: Setting, start: Start, *, paper: int, pooled: bool = False) -> range:
    """Those that a network is trained with; fewer where several are judged together."""
    return range(setting.pick(smoke=2, cpu=POOLED if pooled else start.seeds, paper=paper))


def configure(setting: Setting, start: Start, method: str, seed: int, **changes: Any) -> RunConfig:
    """The run of a method from a start; `changes` come last."""
    fixed: dict[str, Any] = {}
    if method != "learned":
        fixed = {"fix": method, "fix_seed": seed}
    if method == "guidedsteer":
        fixed["fix_guide"] = start.guide
    return RunConfig(**{**options(setting), **start.options, **fixed, "seed": seed, **changes})


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


def notes(setting: Setting, runs: Mapping[Any, Run], *, usual: bool = True) -> list[str]:
    """What differs from the paper in experiments on x-rays; `usual` networks are `NETWORKS`."""
    configs = [run.config for run in runs.values()]
    said = []
    if setting.scale == "smoke":
        said.append(
            "Drawn images, tiny networks and a training of seconds: the numbers mean nothing. What "
            'is "pretrained" is a network with random weights that all seeds share.'
        )
    elif not on_chexpert(setting):
        said.append(
            f"{setting.data('xrays').partition(':')[0]} stands in for CheXpert: fewer images, "
            "other labels, other patients. The findings are CheXpert's five, "
            f"the images {configs[0].data_options.get('size', 'up to 320')} pixels square."
        )
    if setting.scale == "cpu":
        epochs = sorted({config.epochs for config in configs})
        said.append(
            f"{' or '.join(map(str, epochs))} epochs over all images with batches of "
            f"{configs[0].batch_size} and one cycle of the rate up to {rate(setting):g}; the "
            "paper's epochs have 15,000 images in batches of 4 and a constant rate of 0.0001. "
            "Size, rate, epochs and networks were chosen in a few trials, whose test scores were "
            "seen too."
        )
        if usual:
            said.append(
                "ResNet26, of bottlenecks, stands in for ResNet50; MobileNetV2 for EfficientNet-b0 "
                "from scratch, which hardly learns in so few steps, and EfficientNet-lite0 for "
                f"the pretrained one. {_about_weights(setting)}"
            )
    said.append(
        "A run's score is the mean over the last quarter of its epochs; the paper does not say "
        "which epoch it shows."
    )
    return said


def _about_weights(setting: Setting) -> str:
    found = [start.title.partition(",")[0] for start in starts(setting, "pretrained")]
    if found:
        return (
            f"ImageNet weights are at hand for {' and '.join(found)} only: the others begin with "
            "random ones, and their GuidedSteer is guided by what ships of ImageNet's filters."
        )
    return (
        f"No ImageNet weights are at hand (set {FOLDER} to the folder that has weights/): all "
        "networks begin with random ones."
    )
