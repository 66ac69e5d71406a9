"""Models on disk: one safetensors file that says how to rebuild the model. No pickle is written."""

import copy
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from .fix import (
    KernelRecipe,
    Progress,
    can_regenerate,
    carry_recipe,
    changed_layers,
    mark_fixed,
    recipes,
    regenerate,
)
from .layers import spatial_layers
from .prune.cut import Cut, cut_again_, cuts_of
from .registry import models

_ORIGIN = "explainfix_origin"  # the attribute under which a model knows where it came from
_HEADER = "explainfix"  # the key of our header in the file's metadata
_FORMAT = 1


@dataclass(frozen=True)
class Origin:
    """What `create_model` was asked for, and so what rebuilds the architecture."""

    source: str
    name: str
    num_classes: int | None
    in_channels: int | None

    @property
    def spec(self) -> str:
        return self.name if self.source in ("unetd", "python") else f"{self.source}:{self.name}"


def set_origin(model: nn.Module, origin: Origin | None) -> None:
    """Tell a model where it came from, and let its state_dict carry the recipes it may get."""
    setattr(model, _ORIGIN, origin)
    for layer in spatial_layers(model).values():
        carry_recipe(layer)


def origin_of(model: nn.Module) -> Origin | None:
    """Where the model came from, if `create_model` or `load` made it."""
    return getattr(model, _ORIGIN, None)


def save(model: nn.Module, path: str | Path, *, overwrite: bool = False) -> None:
    """Write the model to one safetensors file that `load` turns back into the same model.

    Fixed kernels that their recipe gives back bit for bit are left out. The file appears under its
    name only when it is complete.

    >>> import explainfix as xf
    >>> model = xf.create_model("unetd")
    >>> recipe = xf.fix_(model, "ghaar")
    >>> folder = getfixture("tmp_path")
    >>> xf.save(model, folder / "unetd.safetensors")
    >>> xf.check_fixed(xf.load(folder / "unetd.safetensors"))
    """
    path = Path(path)
    check_free(path, overwrite=overwrite)
    fixed, changed = recipes(model), changed_layers(model)
    left_out = {f"{p}.weight" for p, r in fixed.items() if p not in changed and can_regenerate(r)}
    origin = origin_of(model)
    tensors: dict[str, Tensor] = {}
    first_name: dict[int, str] = {}
    aliases: dict[str, str] = {}  # tied weights are written once
    for name, value in model.state_dict(keep_vars=True).items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name!r} in the model's state is no tensor and cannot be saved")
        if first_name.setdefault(id(value), name) != name:
            aliases[name] = first_name[id(value)]
        elif name not in left_out:
            tensors[name] = value.detach().cpu().contiguous().clone()
    header = {
        "format": _FORMAT,
        "origin": asdict(origin) if origin else None,
        "fixed": {p: asdict(recipe) for p, recipe in fixed.items()},
        "aliases": aliases,
        "cuts": [asdict(cut) for cut in cuts_of(model)],
    }
    with written(path, overwrite=overwrite) as temporary:
        save_file(tensors, temporary, {_HEADER: json.dumps(header, sort_keys=True)})


def load(
    path: str | Path, model: nn.Module | None = None, *, progress: Progress | None = None
) -> nn.Module:
    """The model in a file written by `save`: rebuilt, or put into the `model` you pass.

    Regenerated kernels are checked against their digests. On any error `model` is as it was.
    `progress` wraps the loop over the layers to regenerate.
    """
    path = Path(path)
    tensors, metadata = _read_safetensors(path)
    if _HEADER not in metadata:
        raise ValueError(
            f"{str(path)!r} was not written by explainfix.save; if it holds weights, pass it to "
            "create_model(SPEC, weights=FILE)"
        )
    try:
        header = json.loads(metadata[_HEADER])
        if header["format"] != _FORMAT:
            raise ValueError(
                f"{str(path)!r} has format {header['format']!r}, this explainfix reads {_FORMAT}"
            )
        origin = Origin(**header["origin"]) if header["origin"] else None
        fixed = {p: _recipe(entry) for p, entry in header["fixed"].items()}
        aliases: dict[str, str] = dict(header["aliases"])
        cuts = [Cut(**entry) for entry in header["cuts"]]
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"the explainfix header of {str(path)!r} is damaged: {error!r}") from None

    target = _rebuild(path, origin) if model is None else model
    pending = cuts[len(cuts_of(target)) :]  # a model passed in may be pruned already, or not yet
    shape = copy.deepcopy(target) if model is not None and pending else target
    try:
        cut_again_(shape, pending)
    except (RuntimeError, IndexError) as error:
        raise ValueError(f"{str(path)!r} does not fit the model: {error}") from None
    missing = [p for p, r in fixed.items() if f"{p}.weight" not in tensors and can_regenerate(r)]
    for layer in progress(missing) if progress else missing:
        tensors[f"{layer}.weight"] = regenerate(fixed[layer])
    tensors |= {name: tensors[first] for name, first in aliases.items() if first in tensors}

    own: dict[str, Tensor] = shape.state_dict(keep_vars=True)
    check_fit(own, tensors, str(path))
    if model is None:
        for name, value in own.items():  # a model saved in half precision comes back so
            value.data = value.data.to(tensors[name].dtype)
    else:
        _check_dtypes(own, tensors, path)
    if shape is not target:
        cut_again_(target, pending)
    target.load_state_dict(tensors)
    formerly_fixed = recipes(target)
    for layer_path, layer in spatial_layers(target).items():
        if layer_path in fixed or layer_path in formerly_fixed:
            mark_fixed(layer, fixed.get(layer_path))
    if origin_of(target) is None:
        set_origin(target, origin)
    return target


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a weights file of whatever origin: safetensors, or a `.pth` of tensors alone.

    A `.pth` is read with `weights_only=True`, so that nothing in it is executed; a training
    checkpoint's "state_dict" or "model" entry is found, and DDP's "module." prefix taken off.
    """
    path = Path(path)
    if _is_pickle(path):
        return _read_pth(path)
    tensors, metadata = _read_safetensors(path)
    if _HEADER in metadata:
        raise ValueError(
            f"{str(path)!r} was written by explainfix.save and holds a whole model: open it "
            "with load"
        )
    return tensors


def check_free(path: Path, *, overwrite: bool) -> None:
    """Raise unless a file can be written to `path`, before any work is done for it."""
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; give a file name")
    if path.exists() and not overwrite:
        raise FileExistsError(
            f"{str(path)!r} exists already; choose another name, or overwrite=True (--force)"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(path.parent)!r} of the output does not exist")


def check_fit(own: Mapping[str, Tensor], given: Mapping[str, Tensor], what: str) -> None:
    """Raise, with the first few differences, unless names and shapes agree."""
    wrong = [f"{name!r} is missing" for name in own if name not in given]
    wrong += [f"{name!r} is not in the model" for name in given if name not in own]
    wrong += [
        f"{name!r} is {tuple(given[name].shape)}, the model's {tuple(own[name].shape)}"
        for name in own
        if name in given and own[name].shape != given[name].shape
    ]
    if wrong:
        more = f"; and {len(wrong) - 4} more differences" if len(wrong) > 4 else ""
        raise ValueError(f"{what!r} does not fit the model: {'; '.join(wrong[:4])}{more}")


def _check_dtypes(own: Mapping[str, Tensor], given: Mapping[str, Tensor], path: Path) -> None:
    for name, value in own.items():
        if value.dtype != given[name].dtype:
            raise ValueError(
                f"{str(path)!r} holds {name!r} in {given[name].dtype}, the model in {value.dtype}; "
                "convert the model first, or let load build it"
            )


def _recipe(entry: dict[str, Any]) -> KernelRecipe:
    if not isinstance(getattr(torch, entry["dtype"], None), torch.dtype):
        raise TypeError(f"no such type: {entry['dtype']!r}")
    return KernelRecipe(**{**entry, "shape": tuple(entry["shape"])})


def _rebuild(path: Path, origin: Origin | None) -> nn.Module:
    if origin is None or origin.source == "python":
        # A weights file is data: it must not choose which Python file to run.
        built = f" (it was built by {origin.spec!r})" if origin else ""
        raise ValueError(
            f"{str(path)!r} holds a model of your own{built}: build it and pass it, "
            "load(path, model=...)"
        )
    build = models.find(origin.source).build
    model = build(origin.name, origin.num_classes, origin.in_channels, False)
    set_origin(model, origin)
    return model


@contextmanager
def written(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """A temporary path to write to, which becomes `path` if all goes well and is gone otherwise."""
    check_free(path, overwrite=overwrite)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _is_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(9)
    # safetensors begins with eight bytes of length, which may look like anything, and then "{".
    return (start[:1] == b"\x80" or start[:4] == b"PK\x03\x04") and start[8:] != b"{"


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    if _is_pickle(path):
        raise ValueError(
            f"{str(path)!r} is a PyTorch pickle, not a safetensors file; pass it to "
            "create_model(SPEC, weights=FILE)"
        )
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{str(path)!r} is damaged or no safetensors file ({error})") from None


def _read_pth(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises half a dozen unrelated types
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{str(path)!r} is damaged, or holds more than tensors, which is not read "
            f"({type(error).__name__}: {reason})"
        ) from None
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not _all_tensors(content.values()):
        raise ValueError(f"{str(path)!r} holds no state_dict, that is no names with tensors")
    if content and all(name.startswith("module.") for name in content):
        content = {name.removeprefix("module."): value for name, value in content.items()}
    return dict(content)


def _all_tensors(values: Iterable[object]) -> bool:
    return all(isinstance(value, Tensor) for value in values)
