"""Models on disk: one safetensors file that says how to rebuild the model. No pickle is written."""

import json
import os
import secrets
import stat
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, is_dataclass
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
from .layers import attributes_as_found, spatial_layers, weight_name
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
    header = _read_header(path, metadata[_HEADER])
    fixed = header.fixed
    target = _rebuild(path, header.origin) if model is None else model
    with attributes_as_found(target, on_error_only=True):
        pending = header.cuts[len(cuts_of(target)) :]  # a model given may be pruned, or not yet
        try:
            cut_again_(target, pending)
        except Exception as error:  # whatever a damaged cut leads to
            raise ValueError(
                f"{str(path)!r} does not fit the model, or its header is damaged: {error}"
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
        if model is not None:
            _check_dtypes(own, given, path)
        for name in progress(missing) if progress else missing:
            try:
                given[name] = regenerate(missing[name])
            except TypeError as error:  # an option that the method does not have
                raise _damaged(path, error) from error
        given |= {name: given[first] for name, first in aliases.items()}
        if model is None:
            for name, value in own.items():  # a model saved in half precision comes back so
                value.data = value.data.to(given[name].dtype)
        target.load_state_dict(given)
    formerly_fixed = recipes(target)
    for layer_path, layer in spatial_layers(target).items():
        if layer_path in fixed or layer_path in formerly_fixed:
            mark_fixed(layer, fixed.get(layer_path))
    if origin_of(target) is None:
        set_origin(target, header.origin)
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


@dataclass(frozen=True)
class _Header:
    """What a file says about the model in it."""

    format: int
    origin: Origin | None
    fixed: dict[str, KernelRecipe]
    aliases: dict[str, str]
    cuts: list[Cut]


def _read_header(path: Path, text: str) -> _Header:
    try:
        raw = json.loads(text)
        if raw["format"] != _FORMAT:
            raise ValueError(
                f"{str(path)!r} has format {raw['format']!r}, this explainfix reads {_FORMAT}"
            )
        header: _Header = _read(raw, _Header, "header")
        for recipe in header.fixed.values():
            if not isinstance(getattr(torch, recipe.dtype, None), torch.dtype):
                raise TypeError(f"no such type: {recipe.dtype!r}")
            if min(recipe.shape, default=0) < 1:
                raise TypeError(f"no such shape: {recipe.shape}")
        for kept in (kept for cut in header.cuts for kept in cut.keep.values()):
            rows = [row if isinstance(row, list) else [row] for row in kept]
            if any(index < 0 for row in rows for index in row):
                raise TypeError("an index that is kept is negative")
            if len({len(row) for row in rows}) > 1:
                raise TypeError("groups keep unequal numbers of channels")
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise _damaged(path, error) from None
    return header


def _damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(f"the explainfix header of {str(path)!r} is damaged: {error!r}")


def _read(value: Any, hint: Any, where: str) -> Any:
    """What JSON gave as what its type hint says it is, or a `TypeError` that says where it fails.

    >>> _read({"keep": {"a|0": [1, 2]}, "groups": {}}, Cut, "cut")
    Cut(keep={'a|0': [1, 2]}, groups={}, attributes={})
    >>> _read({"keep": 3, "groups": {}}, Cut, "cut")
    Traceback (most recent call last):
    TypeError: cut.keep is 3
    """
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind is Any:
        return value
    if kind in (types.UnionType, typing.Union):
        for choice in inner:
            with suppress(TypeError):
                return _read(value, choice, where)
    elif is_dataclass(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        if strange := set(value) - set(hints):
            raise TypeError(f"{where} has {', '.join(map(repr, sorted(strange)))}")
        parts = {n: _read(part, hints[n], f"{where}.{n}") for n, part in value.items()}
        return typing.cast("Any", kind)(**parts)
    elif kind in (dict, Mapping) and isinstance(value, dict):
        return {key: _read(part, inner[1], f"{where}[{key!r}]") for key, part in value.items()}
    elif kind in (list, tuple) and isinstance(value, list):
        return kind(_read(part, inner[0], f"{where}[{i}]") for i, part in enumerate(value))
    elif kind is float and type(value) is int:
        return float(value)
    elif type(value) is kind:  # not isinstance: True is no number here
        return value
    raise TypeError(f"{where} is {value!r}")


def _shape_alone(recipe: KernelRecipe) -> Tensor:
    """What stands for kernels that are not made yet."""
    return torch.empty(recipe.shape, dtype=getattr(torch, recipe.dtype), device="meta")


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
    temporary = path.parent / f".{path.stem}.{secrets.token_hex(4)}{path.suffix}"
    # The kernel applies the umask; to ask for it would change it for all threads meanwhile.
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    mode = stat.S_IMODE(os.fstat(handle).st_mode)
    os.close(handle)
    try:
        yield temporary
        temporary.chmod(mode)  # a writer may have made the file anew
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


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
