"""Where models come from: the paper's, torchvision, timm, smp, MONAI, your own file.

Each source builds a network of a name for a number of classes and input channels (`None`: its
usual ones), pretrained or not, and lists its names. Packages are imported when first asked.
"""

import inspect
import warnings
from typing import Any

from torch import nn

from ..extras import installed, needed_for
from ..registry import ModelSource, models, unknown
from .adapt import load_weights_, set_input_channels_
from .deeplab import ENCODERS, DeepLabV3Plus
from .own import build_own
from .unetd import UNetD

# MONAI's networks that give one tensor of logits, and what they need besides numbers of channels;
# U-Net's levels are those of MONAI's own examples.
_LEVELS = {"channels": (16, 32, 64, 128, 256), "strides": (2, 2, 2, 2)}
_MONAI: dict[str, dict[str, Any]] = {
    "AttentionUnet": _LEVELS,
    "BasicUNet": {},
    "DenseNet121": {},
    "DenseNet169": {},
    "DenseNet201": {},
    "DenseNet264": {},
    "DynUNet": {
        "kernel_size": (3,) * 5,
        "strides": (1, 2, 2, 2, 2),
        "upsample_kernel_size": (2,) * 4,
    },
    "HighResNet": {},
    "MedNeXt": {},
    "SegResNet": {},
    "SegResNetDS": {},
    "UNet": {**_LEVELS, "num_res_units": 2, "norm": "batch"},
    "VNet": {},
}


def _unetd(
    name: str, num_classes: int | None, in_channels: int | None, pretrained: bool
) -> nn.Module:
    if name != "unetd":
        raise ValueError(f"unknown model 'unetd:{name}': it is just 'unetd'")
    if pretrained:
        raise ValueError("there are no pretrained weights for 'unetd'; pass weights=FILE")
    return UNetD(**_given(num_classes=num_classes, in_channels=in_channels))


def _deeplab(
    name: str, num_classes: int | None, in_channels: int | None, pretrained: bool
) -> nn.Module:
    if name not in ENCODERS:
        raise unknown("encoder for deeplabv3plus", name, ENCODERS)
    if pretrained:
        raise ValueError("there are no pretrained weights for 'deeplabv3plus'; pass weights=FILE")
    model = DeepLabV3Plus(name, **_given(num_classes=num_classes))
    if in_channels is not None:
        set_input_channels_(model, in_channels, keep=False)
    return model


def _torchvision(
    name: str, num_classes: int | None, in_channels: int | None, pretrained: bool
) -> nn.Module:
    with needed_for(f"torchvision:{name}"):
        import torchvision.models as tv
    if name not in _torchvision_names():
        raise unknown("torchvision model", name, _torchvision_names(), "explainfix list models")
    builder = tv.get_model_builder(name)
    has_backbone = "weights_backbone" in inspect.signature(builder).parameters

    def build(**options: Any) -> nn.Module:
        # By default a builder without weights of its own still downloads those of its backbone.
        backbone = {"weights_backbone": None} if has_backbone else {}
        model: nn.Module = builder(**backbone, **options)
        return model

    with warnings.catch_warnings():
        # Some builders announce that their default initialisation will change one day.
        warnings.simplefilter("ignore", FutureWarning)
        if not pretrained:
            model = build(weights=None, **_given(num_classes=num_classes))
        else:
            model = _fetch(name, lambda: build(weights=tv.get_model_weights(name).DEFAULT))
            if num_classes is not None:
                model = _with_new_head(model, build(weights=None, num_classes=num_classes))
    if in_channels is not None:
        set_input_channels_(model, in_channels, keep=pretrained)
        _set_colour_transform(model, like=model, only_if=in_channels == 3)
    return model


def _with_new_head(trained: nn.Module, model: nn.Module) -> nn.Module:
    """Give `model`, built for other classes, the trained weights of all but its heads.

    Trained networks may lack auxiliary heads that new ones have, or the other way round.
    """
    own = model.state_dict()
    state = own | {name: value for name, value in trained.state_dict().items() if name in own}
    load_weights_(model, state, "the pretrained weights", lambda: trained)
    _set_colour_transform(model, like=trained)
    return model


def _set_colour_transform(model: nn.Module, *, like: nn.Module, only_if: bool = True) -> None:
    """Some pretrained networks re-normalise their three colours: an attribute, not a weight."""
    flag = "transform_input"
    if hasattr(like, flag):
        setattr(model, flag, getattr(like, flag) and only_if)


def _torchvision_names() -> list[str]:
    if not installed("torchvision"):
        return []
    import torchvision.models as tv

    return [name for name in tv.list_models() if not name.startswith("quantized_")]


def _timm(
    name: str, num_classes: int | None, in_channels: int | None, pretrained: bool
) -> nn.Module:
    with needed_for(f"timm:{name}"):
        import timm
    architecture = name.split(".")[0]  # "resnet50.a1_in1k" names weights too
    if not timm.is_model(architecture):
        raise unknown("timm model", name, timm.list_models(), "explainfix list models")
    options = _given(num_classes=num_classes, in_chans=in_channels)

    def build() -> nn.Module:
        model: nn.Module = timm.create_model(name, pretrained=pretrained, **options)
        return model

    return _fetch(name, build) if pretrained else build()


def _timm_names() -> list[str]:
    if not installed("timm"):
        return []
    import timm

    return list(timm.list_models())


def _smp(
    name: str, num_classes: int | None, in_channels: int | None, pretrained: bool
) -> nn.Module:
    with needed_for(f"smp:{name}"):
        import segmentation_models_pytorch as smp
    architecture, _, encoder = name.partition("/")
    if architecture not in smp.MODEL_ARCHITECTURES_MAPPING:
        known = smp.MODEL_ARCHITECTURES_MAPPING
        raise unknown("segmentation model", architecture, known, "explainfix list models")
    encoders = smp.encoders.get_encoder_names()
    if encoder and not encoder.startswith("tu-") and encoder not in encoders:
        raise unknown("encoder", encoder, encoders)
    options = _given(classes=num_classes, in_channels=in_channels, encoder_name=encoder or None)

    def build() -> nn.Module:
        weights = "imagenet" if pretrained else None
        model: nn.Module = smp.create_model(architecture, encoder_weights=weights, **options)
        return model

    return _fetch(name, build) if pretrained else build()


def _smp_names() -> list[str]:
    if not installed("segmentation_models_pytorch"):
        return []
    import segmentation_models_pytorch as smp

    return sorted(smp.MODEL_ARCHITECTURES_MAPPING)


def _monai(
    name: str, num_classes: int | None, in_channels: int | None, pretrained: bool
) -> nn.Module:
    """A network for volumes, or for pictures as NAME/2d; one channel and one class by default."""
    architecture, _, dimension = name.partition("/")
    if architecture not in _MONAI:
        raise unknown("MONAI network", architecture, _MONAI, "explainfix list models")
    if dimension not in ("", "2d", "3d"):
        raise ValueError(f"unknown dimension {dimension!r} in 'monai:{name}': 2d or 3d")
    if pretrained:
        raise ValueError(f"there are no pretrained weights for 'monai:{name}'; pass weights=FILE")
    with needed_for(f"monai:{name}"):
        import monai.networks.nets as nets
    try:
        model: nn.Module = getattr(nets, architecture)(
            spatial_dims=2 if dimension == "2d" else 3,
            in_channels=in_channels or 1,
            out_channels=num_classes or 1,
            **_MONAI[architecture],
        )
    except (AssertionError, ValueError, RuntimeError) as error:
        raise ValueError(f"MONAI cannot build {name!r} so: {error}") from error
    return model


def _given(**options: Any) -> dict[str, Any]:
    """The options that are not `None`."""
    return {name: value for name, value in options.items() if value is not None}


def _fetch(name: str, build: Any) -> nn.Module:
    """Run a builder that may download, and say it plainly when that fails."""
    try:
        model: nn.Module = build()
    except Exception as error:  # each hub raises its own types
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"the pretrained weights of {name!r} could not be had ({reason}); download them where "
            "you can and pass weights=FILE"
        ) from error
    return model


models["unetd"] = ModelSource(_unetd, lambda: ["unetd"])
models["deeplabv3plus"] = ModelSource(
    _deeplab, lambda: list(ENCODERS) if installed("torchvision") else [], "torchvision"
)
models["torchvision"] = ModelSource(_torchvision, _torchvision_names, "torchvision")
models["timm"] = ModelSource(_timm, _timm_names, "timm")
models["smp"] = ModelSource(_smp, _smp_names, "smp")
models["monai"] = ModelSource(_monai, lambda: list(_MONAI) if installed("monai") else [], "medical")
models["python"] = ModelSource(build_own, list)
