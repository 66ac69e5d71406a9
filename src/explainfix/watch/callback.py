"""Watch in Lightning: a callback for the Trainer of either package, `lightning` or
`pytorch_lightning`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..extras import installed, needed_for
from .timeline import Timeline
from .trackers import Log
from .watch import OnChange, Watch

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def lightning_callback(
    *,
    every: int | None = None,
    log: Log | None = None,
    page: str | Path | None = None,
    page_every: int | None = None,
    file: str | Path | None = None,
    fixed: OnChange = "raise",
    basis: str = "dct2",
    overwrite: bool = False,
) -> Any:
    """A callback that watches the module as it trains; the options are those of `Watch`.

    Without `log` the numbers go to the loggers of the Trainer. A checkpoint of the Trainer keeps
    the timeline. Of several processes the first writes; all check the fixed filters.
    """

    def begin(module: Any, first: bool, log: Log | None, timeline: Timeline | None) -> Watch:
        return Watch(
            module,
            every=every,
            log=log if first else None,
            page=page if first else None,
            page_every=page_every,
            file=file if first else None,
            fixed=fixed,
            basis=basis,
            timeline=timeline,
            overwrite=overwrite or timeline is not None,  # it goes on with its own files
        )

    made: Any = type("WatchCallback", (_Hooks, _callback_class()), {"__module__": __name__})
    return made(begin, log)


def _callback_class() -> type:
    """The class of the package that is in use, or of the first that is installed."""
    for name in _PACKAGES:
        if name in sys.modules:
            return _class_in(name)
    there = (name for name in _PACKAGES if installed(name.partition(".")[0]))
    with needed_for("a callback for Lightning"):
        return _class_in(next(there, _PACKAGES[0]))


def _class_in(package: str) -> type:
    found: type = importlib.import_module(package).Callback
    return found


class _Hooks:
    """What the callback does; the rest comes from the class of Lightning."""

    def __init__(self, begin: Callable[..., Watch], log: Log | None) -> None:
        self._begin, self._log = begin, log
        self._before: Timeline | None = None  # from a checkpoint
        self.watch: Watch | None = None

    @property
    def timeline(self) -> Timeline | None:
        """What was seen so far."""
        return self.watch.timeline if self.watch else self._before

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        log = self._log or _loggers_of(trainer)
        self.watch = self._begin(pl_module, trainer.is_global_zero, log, self.timeline)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if self.watch:
            self.watch.step(trainer.global_step)

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        if self.watch:
            self.watch.epoch(trainer.current_epoch + 1)

    def on_train_end(self, *_: Any) -> None:
        if self.watch:
            self.watch.close()

    def on_exception(self, *_: Any) -> None:
        if self.watch:
            self.watch.__exit__(Exception, Exception(), None)

    def state_dict(self) -> dict[str, Any]:
        return {"timeline": self.timeline.as_dict()} if self.timeline else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if "timeline" in state_dict:
            self._before = Timeline.from_dict(state_dict["timeline"])


def _loggers_of(trainer: Any) -> Log:
    def log(numbers: Mapping[str, float], step: int) -> None:
        for logger in trainer.loggers:
            logger.log_metrics(dict(numbers), step)

    return log
