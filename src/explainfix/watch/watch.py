"""Watch: what any training loop calls after a step, after an epoch and at the end."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from ..explanation.spectrum import chance, spectrum
from ..layers import Convolution, select_layers
from ..recipe import changed_layers, describe_changes, recipe_of, recipes
from ..registry import bases, unknown
from ..store import check_free
from .timeline import Snapshot, Timeline, Watched, basis_of
from .trackers import Log

OnChange = Literal["raise", "warn", "ignore"]


class Watch:
    """Looks at a network while it trains: are its fixed filters fixed, how do its spectra move?

    It looks when it is made, then at every `epoch()`, or, given `every`, at every so many `step()`.
    Each look checks the fixed filters (`fixed` says what happens when one has changed), adds a
    snapshot to `timeline`, and gives its numbers to `log`. The file and the page are written at
    `close()`, the file after every epoch too, and the page after every `page_every` of them.

    Parameters
    ----------
    log
        Called with a dictionary of numbers by name and a step; see `watch.trackers`.
    page, file
        Where to write the page (.html) and the timeline (.json).
    timeline
        Of the same training until it was interrupted: it is gone on with.

    >>> model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3))
    >>> with Watch(model, log=lambda numbers, step: print(step, len(numbers))) as watch:
    ...     for epoch in range(2):
    ...         _ = model[0].weight.data.add_(0.1)  # your training
    ...         watch.epoch()
    0 6
    1 6
    2 6
    >>> print(watch.timeline)
    Timeline of Sequential by dct2: 2 layers, 3 snapshots
    0 moved most: ...% of its energy.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        every: int | None = None,
        log: Log | None = None,
        page: str | Path | None = None,
        page_every: int | None = None,
        file: str | Path | None = None,
        fixed: OnChange = "raise",
        basis: str = "dct2",
        title: str | None = None,
        timeline: Timeline | None = None,
        overwrite: bool = False,
    ) -> None:
        for name, count in (("every", every), ("page_every", page_every)):
            if count is not None and count < 1:
                raise ValueError(f"{name} must be at least 1, not {count!r}")
        if fixed not in ("raise", "warn", "ignore"):
            raise unknown("choice for fixed", fixed, ("raise", "warn", "ignore"))
        bases.find(basis)
        select_layers(model)  # raises if there are none
        self.page, self.file = (None if path is None else Path(path) for path in (page, file))
        for path in filter(None, (self.page, self.file)):
            check_free(path, overwrite=overwrite)
        self.model, self.log, self.fixed = model, log, fixed
        self.every, self.page_every = every, page_every
        self.timeline = timeline or Timeline(title or type(model).__name__, basis, {})
        last = self.timeline.snapshots[-1] if self.timeline.snapshots else None
        self._epoch, self._step = (last.epoch, last.step) if last else (0, 0)
        self._told: tuple[str, ...] = ()
        if last is None:
            self._look()

    def step(self, step: int | None = None) -> None:
        """After a step of the optimizer; `step` is how many there were, if you count them."""
        before, self._step = self._step, self._step + 1 if step is None else step
        if self.every and self._step // self.every > before // self.every:
            self._look()

    def epoch(self, epoch: int | None = None) -> None:
        """After an epoch; `epoch` is how many there were, if you count them."""
        self._epoch = self._epoch + 1 if epoch is None else epoch
        try:
            if not self.every:
                self._look()
        finally:
            page = self.page_every is not None and self._epoch % self.page_every == 0
            self._write(page=page)

    def close(self) -> None:
        """At the end: look once more if anything was done since; write the file and the page."""
        try:
            last = self.timeline.snapshots[-1]
            if self._step != last.step or (not self._step and self._epoch != last.epoch):
                self._look()
        finally:
            self._write(page=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:  # what was seen until then; there is an error already
            self._write(page=True)

    def _look(self) -> None:
        wrong = changed_layers(self.model)
        snapshot, layers = look_at(
            self.model, self.timeline.basis, (self._epoch, self._step), tuple(wrong)
        )
        self.timeline = self.timeline.added(snapshot, layers)
        if self.log:
            self.log(self.timeline.metrics(), self._step or self._epoch)
        if wrong and self.fixed != "ignore":
            said = f"at {snapshot.name}: {describe_changes(wrong, len(recipes(self.model)))}"
            if self.fixed == "raise":
                raise ValueError(said)
            if snapshot.changed != self._told:  # once for the same layers
                warnings.warn(said, stacklevel=3)
        self._told = snapshot.changed

    def _write(self, *, page: bool) -> None:
        if self.file:
            self.timeline.save(self.file, overwrite=True)
        if page and self.page:
            self.timeline.to_html(self.page, overwrite=True)


def look_at(
    model: nn.Module, basis: str, moment: tuple[int, int], changed: tuple[str, ...] = ()
) -> tuple[Snapshot, dict[str, Watched]]:
    """A snapshot of a model after so many epochs and steps, and what is known about its layers.

    Layers without weights yet, lazy ones or those on the meta device, are left out.
    """
    ed: dict[str, Tensor] = {}
    bands: dict[str, tuple[float, float]] = {}
    layers: dict[str, Watched] = {}
    made = {}
    for path, layer in select_layers(model).items():
        with weight_at_rest(layer) as weight:
            if is_lazy(weight) or weight.is_meta:
                continue
            shape, kernels = tuple(layer.kernel_size), weight.detach().flatten(0, 1)
        if shape not in made:
            made[shape] = basis_of(basis, shape)
        recipe = recipe_of(layer)
        ed[path] = spectrum(kernels, made[shape]).ed
        bands[path] = chance(kernels, made[shape]).energy
        layers[path] = Watched(shape, len(kernels), recipe.method if recipe else None)
    return Snapshot(*moment, ed, bands, changed), layers


@contextmanager
def weight_at_rest(layer: Convolution) -> Iterator[Tensor]:
    """A layer's weight; one that is computed is computed as in evaluation.

    In training some parametrizations, as spectral_norm, change with every look.
    """
    if not parametrize.is_parametrized(layer, "weight"):
        yield layer.weight
        return
    computed: nn.Module = cast("nn.ModuleDict", layer.parametrizations)["weight"]
    parts = [(part, part.training) for part in computed.modules()]
    try:
        for part, _ in parts:
            part.training = False
        with torch.no_grad():
            yield layer.weight
    finally:
        for part, training in parts:
            part.training = training
