"""Models on disk: one safetensors file that says how to rebuild the model. No pickle is written."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ..layers import Track, attributes_as_found, spatial_layers, weight_name
from ..marks.changes import changes_of, remember
from ..marks.untrained import is_untrained, mark_untrained
from ..recipe import KernelRecipe, can_regenerate, changed_layers, mark_fixed, recipes, regenerate
from ..registry import models
from ..running import reason_of
from .files import check_free, written
from .header import FORMAT, HEADER, Header, Origin, damaged, origin_of, read_header, set_origin
from .weights import check_fit, read_safetensors


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
    left_out = {weight_name(p) for p, r in fixed.items() if p not in changed and can_regenerate(r)}
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
        "format": FORMAT,
        "origin": asdict(origin) if origin else None,
        "fixed": {p: asdict(recipe) for p, recipe in fixed.items()},
        "aliases": aliases,
        "untrained": is_untrained(model),
        "changes": [asdict(change) for change in changes_of(model)],
    }
    with written(path, overwrite=overwrite) as temporary:
        save_file(tensors, temporary, {HEADER: json.dumps(header, sort_keys=True)})


def load(
    path: str | Path, model: nn.Module | None = None, *, progress: Track | None = None
) -> nn.Module:
    """The model in a file written by `save`: rebuilt, or put into the `model` you pass.

    Regenerated kernels are checked against their digests. On any error `model` is as it was.
    `progress` wraps the loop over the layers to regenerate.
    """
    path = Path(path)
    if model is None:
        return load_built(path, partial(_rebuild, path), progress=progress)
    return _load(path, model, *_read(path), convert=False, progress=progress)


def load_built(
    path: str | Path,
    build: Callable[[Origin | None], nn.Module],
    *,
    progress: Track | None = None,
) -> nn.Module:
    """The same into what `build` makes of the origin that the file names, in the file's dtypes."""
    path = Path(path)
    tensors, header = _read(path)
    model = build(header.origin)
    return _load(path, model, tensors, header, convert=True, progress=progress)


def _read(path: Path) -> tuple[dict[str, Tensor], Header]:
    tensors, metadata = read_safetensors(path)
    if HEADER not in metadata:
        raise ValueError(
            f"{str(path)!r} was not written by explainfix.save; if it holds weights, say of which "
            "model: NAME@FILE, or create_model(NAME, weights=FILE)"
        )
    return tensors, read_header(path, metadata[HEADER])


def _load(
    path: Path,
    target: nn.Module,
    tensors: dict[str, Tensor],
    header: Header,
    *,
    convert: bool,
    progress: Track | None,
) -> nn.Module:
    fixed = header.fixed
    with attributes_as_found(target, on_error_only=True):
        try:
            for change in header.changes[len(changes_of(target)) :]:  # one given may have had some
                change.again_(target)
                remember(target, change)
        except Exception as error:  # whatever a damaged change leads to
            raise ValueError(
                f"{str(path)!r} does not fit the model, or its header is damaged: "
                f"{reason_of(error)}"
            ) from error
        missing = {
            weight_name(p): recipe
            for p, recipe in fixed.items()
            if weight_name(p) not in tensors and can_regenerate(recipe)
        }
        given = tensors | {name: _shape_alone(recipe) for name, recipe in missing.items()}
        aliases = {name: first for name, first in header.aliases.items() if first in given}
        given |= {name: given[first] for name, first in aliases.items()}
        own: dict[str, Tensor] = target.state_dict(keep_vars=True)
        check_fit(own, given, str(path))
        if not convert:
            _check_dtypes(own, given, path)
        for name in progress(missing) if progress else missing:
            try:
                given[name] = regenerate(missing[name])
            # An option that the method does not have, or a value that the option does not.
            except (AttributeError, KeyError, TypeError) as error:
                raise damaged(path, error) from error
        given |= {name: given[first] for name, first in aliases.items()}
        if convert:
            for name, value in own.items():  # a model saved in half precision comes back so
                value.data = value.data.to(given[name].dtype)
        target.load_state_dict(given)
    formerly_fixed = recipes(target)
    for layer_path, layer in spatial_layers(target).items():
        if layer_path in fixed or layer_path in formerly_fixed:
            mark_fixed(layer, fixed.get(layer_path))
    if origin_of(target) is None:
        set_origin(target, header.origin)
    mark_untrained(target, header.untrained)
    return target


def _check_dtypes(own: Mapping[str, Tensor], given: Mapping[str, Tensor], path: Path) -> None:
    for name, value in own.items():
        if value.dtype != given[name].dtype:
            raise ValueError(
                f"{str(path)!r} holds {name!r} in {given[name].dtype}, the model in {value.dtype}; "
                "convert the model first, or let load build it"
            )


def _shape_alone(recipe: KernelRecipe) -> Tensor:
    """What stands for kernels that are not made yet."""
    return torch.empty(recipe.shape, dtype=getattr(torch, recipe.dtype), device="meta")


def _rebuild(path: Path, origin: Origin | None) -> nn.Module:
    if origin is None or origin.source == "python":
        # A weights file is data: it must not choose which Python file to run.
        whole = f"{origin.spec if origin else 'FILE.py:FACTORY'}@{path}"
        raise ValueError(
            f"{str(path)!r} holds a model of your own: say what builds it, {whole!r}, or in Python "
            "load(path, model=...)"
        )
    build = models.find(origin.source).build
    model = build(origin.name, origin.num_classes, origin.in_channels, False)
    set_origin(model, origin)
    return model
