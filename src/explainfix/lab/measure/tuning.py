"""Which settings train a network fastest on this machine? Tried for a few seconds, not guessed."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from ...layout import CHANNELS_LAST
from ...running import reason_of
from ..run.config import Precision
from .compiling import Compiling, try_compiling
from .timing import Ratio, Timing, take_turns, training_step
from .ways import Settings, Way

FREE = 1.02  # a saving of memory may make a step this much longer
WORTH = 0.9  # what has a price beside time must bring a step to this, beyond doubt
LEAST = 6  # rounds: of fewer, the least and the largest are no 95% interval of the median
HOPELESS = 3.0  # so many times the first step of the network as it is


@dataclass(frozen=True)
class Tried:
    """One way to train: its settings, its step as a share of the first's, and what it keeps.

    One that was `dropped`, for this reason, has neither.
    """

    name: str
    step: Ratio | None = None
    seconds: float | None = None
    kept_bytes: int | None = None
    dropped: str | None = None


@dataclass(frozen=True)
class Tuning:
    """What was chosen, why, what it gains and risks, and everything that was tried."""

    settings: Settings
    gain: Ratio  # a step as a share of one with the settings as they were; neither is compiled
    why: tuple[str, ...]
    risks: tuple[str, ...]
    tried: tuple[Tried, ...]
    compiling: Compiling | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What was chosen, as options of a run."""
        compiled = self.compiling is not None and self.compiling.chosen
        return {**asdict(self.settings), "compile": compiled}

    @property
    def flags(self) -> list[str]:
        """What to give to `explainfix train`."""
        return [*self.settings.flags, *(["--compile"] if self.options["compile"] else [])]

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {"flags": self.flags, **asdict(self)}


def tune(
    model: nn.Module,
    x: Tensor,
    *,
    seconds: float = 20.0,
    given: Mapping[str, Any] | None = None,
    compiling: bool = False,
) -> Tuning:
    """Try training steps on copies of a model with a batch `x`; the model stays as it is.

    Layouts and precisions race first. What wins is measured again, beside the model as it is and
    its frugal self, so that luck in the first race is not taken for a gain. A layout is chosen if
    it is faster beyond doubt, a lower precision if it saves a tenth of a step, frugality if it
    saves memory and makes a step at most 2% longer. Settings that are `given`, by the names of
    `Settings`, stay. `compiling` tries torch.compile too, if there is time for it, in the place of
    frugality.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(f"{type(model).__name__} has no parameter left to learn")
    given = given or {}
    plain = Settings(**given)
    with torch.random.fork_rng([x.device] if x.device.type == "cuda" else []):  # for dropout
        ways, dropped = _enter(model, x, _candidates(plain, given, x))
        first = _race(ways, seconds / 2)
        best, why = _choose(plain, ways, first)
        kept = {settings: way.kept_bytes() for settings, way in ways.items()}
        ways = {settings: ways[settings] for settings in (plain, best)}  # frees the others
        frugal = replace(best, frugal=True)
        if "frugal" not in given:
            ways[frugal] = Way(model, x, frugal)
            kept[frugal] = ways[frugal].kept_bytes()
        second = _race(ways, seconds / 2) if len(ways) > 1 else first
        tried = [_tried(second if s in ways else first, s, n) for s, n in kept.items()]
        chosen, why_chosen = _confirm(plain, best, first, second)
        if chosen == best and frugal in ways:
            chosen, why_frugal = _choose_memory(best, frugal, second, kept)
            why_chosen.append(why_frugal)
        found = None
        if compiling:
            ways.clear()
            settings = replace(chosen, frugal=False)  # the compiler decides what is kept
            found = try_compiling(model, x, settings, seconds=seconds, worth=WORTH)
            why_chosen.append(found.why)
            chosen = settings if found.chosen else chosen
    return Tuning(
        chosen,
        second.ratio(str(chosen), str(plain)),
        (*(f"Dropped {one.name}: {one.dropped}." for one in dropped), *why, *why_chosen),
        tuple(_risks(plain, chosen, compiled=found is not None and found.chosen)),
        (*tried, *dropped),
        found,
    )


def _candidates(plain: Settings, given: Mapping[str, Any], x: Tensor) -> list[Settings]:
    """Layouts and precisions, those that are given alone; the model as it is first."""
    layouts = [False, True]
    if "channels_last" in given or x.dim() not in CHANNELS_LAST:
        layouts = [plain.channels_last]
    precisions: list[Precision] = [plain.precision]
    if "precision" not in given:
        precisions.append("bf16-mixed")
    return [replace(plain, channels_last=c, precision=p) for p, c in product(precisions, layouts)]


def _enter(
    model: nn.Module, x: Tensor, candidates: Iterable[Settings]
) -> tuple[dict[Settings, Way], list[Tried]]:
    """Let each do its first step: those with a chance, and those that are dropped at once.

    A precision that the machine has to imitate takes many times as long, whatever the layout.
    """
    ways: dict[Settings, Way] = {}
    dropped: list[Tried] = []
    limit, slow = float("inf"), ""
    training_step(nn.Conv2d(1, 1, 1).to(x), x.new_ones(1, 1, 1, 1))()  # PyTorch's own start
    for settings in candidates:
        if settings.precision == slow:
            dropped.append(Tried(str(settings), dropped=f"{slow} is too slow here"))
            continue
        way = Way(model, x, settings)
        try:
            seconds = way.time_step()
        except RuntimeError as error:
            if not ways:  # not even as it is
                inputs = f"inputs {tuple(x.shape)}"
                raise ValueError(f"no training step on {inputs}: {reason_of(error)}") from error
            dropped.append(Tried(str(settings), dropped=f"it does not run: {reason_of(error)}"))
            continue
        if not ways:
            limit = HOPELESS * seconds
        if seconds > limit:
            times = HOPELESS * seconds / limit
            reason = f"its first step took {times:.0f} times as long"
            dropped.append(Tried(str(settings), seconds=seconds, dropped=reason))
            if settings.precision != next(iter(ways)).precision:
                slow = settings.precision
            continue
        ways[settings] = way
    return ways, dropped


def _race(ways: Mapping[Settings, Way], seconds: float) -> Timing:
    steps = {str(settings): way.step for settings, way in ways.items()}
    return take_turns(steps, seconds=seconds, least=LEAST)


def _tried(raced: Timing, settings: Settings, kept: int) -> Tried:
    name = str(settings)
    return Tried(name, raced.ratio(name), raced.seconds(name), kept)


def _choose(plain: Settings, ways: Iterable[Settings], raced: Timing) -> tuple[Settings, list[str]]:
    """The fastest without risk, then the fastest at all if that is worth its risk."""
    safe, risky = plain, []
    for settings in ways:
        if settings.precision != plain.precision:
            risky.append(settings)
        elif raced.ratio(str(settings), str(safe)).high < 1:
            safe = settings
    if not risky:
        return safe, []
    fastest = min(risky, key=lambda settings: raced.seconds(str(settings)))
    ratio = raced.ratio(str(fastest), str(safe))
    if ratio.high < WORTH:
        return fastest, []
    said = f"Not {fastest.precision}: at best a step takes {ratio} of the time"
    return safe, [f"{said}, and for fewer digits that must be below {WORTH:g} beyond doubt."]


def _confirm(
    plain: Settings, best: Settings, first: Timing, second: Timing
) -> tuple[Settings, list[str]]:
    """What won, if it wins again."""
    if best == plain:
        return plain, ["No other layout or precision is faster beyond doubt."]
    again = second.ratio(str(best))
    if again.high < 1:
        return best, [f"{_capital(str(best))}: a step takes {again} of the time."]
    before = first.ratio(str(best))
    return plain, [
        f"Not {best}: a step took {before} of the time at first, but {again} when tried again."
    ]


def _choose_memory(
    best: Settings, frugal: Settings, raced: Timing, kept: Mapping[Settings, int]
) -> tuple[Settings, str]:
    ratio, share = raced.ratio(str(frugal), str(best)), kept[frugal] / kept[best]
    if share > 0.99:
        return best, "Not frugal: there is nothing to save."
    said = f"{share:.2f} of the memory kept for backward, in {ratio} of the time"
    if ratio.middle <= FREE:
        return frugal, f"Frugal: {said}."
    return best, f"Not frugal: {said}, and more than {FREE - 1:.0%} longer is not free."


def _risks(plain: Settings, chosen: Settings, *, compiled: bool) -> Iterable[str]:
    """What may be different with the settings that were chosen, and are new."""
    if chosen.channels_last != plain.channels_last:
        yield "Channels last adds up in another order: numbers differ in their last digits."
    if chosen.precision != plain.precision:
        yield (
            "bf16-mixed: of the 24 bits of a number convolutions and products see 8, 2 to 3 "
            "digits; weights and their updates stay float32. Compare the scores of a short run."
        )
    if chosen.frugal != plain.frugal:
        yield "Frugal computes the same numbers: no risk."
    if compiled:
        yield "Compiled for every size of image anew; numbers differ in their last digits."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
