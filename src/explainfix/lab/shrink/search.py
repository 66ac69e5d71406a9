"""shrink: rounds of ranking, cutting, fine-tuning and measuring, that can be killed.

Everything is a function of the options and of what is on disk. A folder holds a folder for each
round: the networks that were cut, the runs that fine-tuned them, their outcomes on validation, and,
once it is done, round.json; and the original, if rounds learn from it. The same call goes on with
whatever is missing.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...store import save
from ..measure.timing import Ratio
from ..run.config import RunConfig
from ..run.folder import locked
from ..run.metrics import Outcomes, Score, score, score_difference
from ..sweep.sweep import Workers, sweep
from . import page as page  # registers how an outcome is drawn
from .candidates import Bench, Candidate, make_candidates
from .cost import compare_costs, size_of
from .goal import COSTS, Asked, End, Try, images_needed, next_move
from .original import Original, find_original
from .outcome import OnTest, Shrunk
from .progress import ShrinkMoment as ShrinkMoment
from .progress import ShrinkReport as ShrinkReport
from .progress import seconds_left
from .rounds import (
    MADE,
    OUTCOMES,
    RESULT,
    Round,
    describe_layers,
    read_outcomes,
    read_round,
    write_json,
    write_outcomes,
    write_round,
)

_OVER = 1.1  # a candidate whose cost is measured may be over what was aimed at by so much


class NoiseError(ValueError):
    """The validation images cannot tell as small a loss as was named."""


def shrink(
    model: str | RunConfig,
    asked: Asked,
    *,
    runs: str | Path = "runs",
    workers: Workers = Workers(),  # noqa: B008 (frozen)
    report: ShrinkReport | None = None,
) -> Shrunk:
    """Make a trained network smaller, round by round, and choose the smallest that is good enough.

    `model` is a run's folder, or the options of a run: its network is trained first, unless it
    comes with trained weights (FILE.safetensors, NAME@FILE). Rounds fine-tune with the options of
    the run, at a share of its rate. The choice is made on validation; test images are scored once,
    for the network that was chosen. If a target is not reached, the best network is kept and `end`
    says why. Killed at any moment, the same call goes on; whatever is done, is read.
    """
    report = report or (lambda moment: None)
    original = find_original(model, Path(runs), workers, report)
    folder = original.folder(Path(runs), asked)
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder):
            return _Search(folder, original, asked, workers, report).run()
    except BaseException:
        if new and not any(folder.glob("round-*")):  # nothing came of it but an error
            shutil.rmtree(folder)
        raise


@dataclass
class _Search:
    """A search and its folder."""

    folder: Path
    original: Original
    asked: Asked
    workers: Workers
    report: ShrinkReport
    rounds: list[Round] = field(default_factory=list)

    def run(self) -> Shrunk:
        """Do the rounds that are not done yet, and choose."""
        self._keep(self._begun())
        while True:
            self._check_noise()
            done = [each.done(self.asked.cost, self.asked.max_loss) for each in self.rounds[1:]]
            move = next_move(self.asked, done)
            if isinstance(move, End):
                return self._chosen(move)
            self._keep(self._round(move))

    def _keep(self, done: Round) -> None:
        self.rounds.append(done)
        left = seconds_left(self.asked, self.rounds)
        self.report(ShrinkMoment(done.number, "done", done, left))

    def _say(self, text: str) -> None:
        left = seconds_left(self.asked, self.rounds)
        self.report(ShrinkMoment(len(self.rounds), text, None, left))

    def _place(self, number: int) -> Path:
        return self.folder / f"round-{number:02}"

    def _begun(self) -> Round:
        """The original as round 0."""
        place = self._place(0)
        if (known := read_round(place)) is not None:
            return known
        self._say("measuring the original")
        write_json(self.folder / "asked.json", dataclasses.asdict(self.asked))
        network, x = self.original.open(), self.original.batch(self.asked)
        outcomes = self.original.outcomes(network, self.original.split)
        whole = score(outcomes).scores[0]
        costs = compare_costs(network, network, x, runtime=self.asked.runtime, rounds=8)
        itself = dict.fromkeys(COSTS, 1.0)  # whatever the clock says
        done = Round(
            0,
            0,
            self.original.model,
            "as it is",
            1.0,
            1.0,
            whole.value,
            Score(whole.name, 0.0, 0.0, 0.0),
            replace(costs, latency=Ratio(1.0, 1.0, 1.0), shares=itself),
            describe_layers(network, x),
        )
        place.mkdir(parents=True, exist_ok=True)
        write_outcomes(place / OUTCOMES, outcomes)
        write_round(place, done)
        return done

    def _check_noise(self) -> None:
        """Stop if the first round shows that validation cannot tell the loss that was named."""
        asked, rounds = self.asked, self.rounds
        if asked.max_loss is None or asked.despite_noise or len(rounds) < 2:
            return
        change = rounds[1].change
        low, high = change.low or 0.0, change.high or 0.0
        half = (high - low) / 2
        if half <= asked.max_loss:
            return
        images = len(self._outcomes_of(0))
        raise NoiseError(
            f"max_loss {asked.max_loss:g} is below the noise of the validation images: with "
            f"{images} of them the difference to the original is known to ±{half:.3f}; that of the "
            f"first round is {change.value:+.3f} ({low:+.3f} to {high:+.3f}). About "
            f"{images_needed(images, half, asked.max_loss):,} images would do; or name a max_loss "
            f"of {half:.3f} or more, or go on from here with despite_noise=True (--despite-noise). "
            f"The round is kept in {str(self.folder)!r}"
        )

    def _outcomes_of(self, number: int) -> Outcomes:
        return read_outcomes(self._place(number) / OUTCOMES, self.original.dataset)

    def _round(self, move: Try) -> Round:
        """One round: made, fine-tuned and measured, as far as it is not yet."""
        number, began = len(self.rounds), time.monotonic()
        place, asked = self._place(number), self.asked
        if (known := read_round(place)) is not None:
            return known
        parent = self.rounds[move.parent + 1]
        made = self._made(place, parent, move)
        files = {way: place / f"{way}.safetensors" for way in made["ways"]}
        self._say("fine-tuning")
        tuning = partial(self.original.tuning, asked=asked, teacher=self._teacher())
        done = sweep(
            {way: tuning(file) for way, file in files.items()},
            runs=place / "runs",
            workers=self.workers,
            report=lambda moment: self._say(moment.line),
        )
        way = max(done, key=lambda name: done[name].result["best"])  # on validation
        self._say("measuring")
        model = str(done[way].folder)
        network, x = self.original.open(model), self.original.batch(asked)
        outcomes = self.original.outcomes(network, self.original.split)
        costs = compare_costs(self.original.open(), network, x, runtime=asked.runtime)
        write_outcomes(place / OUTCOMES, outcomes)
        finished = Round(
            number,
            parent.number,
            model,
            way,
            move.aim,
            costs.shares["params" if asked.cost == "params" else "macs"],
            score(outcomes).scores[0].value,
            score_difference(self._outcomes_of(0), outcomes),
            costs,
            describe_layers(network, x),
            made["tried"],
            made["smallest"],
            round(time.monotonic() - began, 1),
        )
        write_round(place, finished)
        return finished

    def _teacher(self) -> Path | None:
        """The file of the original that rounds learn from, if they are to."""
        file = self.folder / "teacher.safetensors"
        if self.asked.distil is None:
            return None
        if not file.is_file():
            save(self.original.open(), file)
        return file

    def _made(self, place: Path, parent: Round, move: Try) -> dict[str, Any]:
        """The ways whose networks are to be fine-tuned, and how all ways did on trial."""
        if (place / MADE).is_file():
            held: dict[str, Any] = json.loads((place / MADE).read_text())
            return held
        self._say("cutting")
        one = self.original.batch(self.asked)[:1]
        whole = size_of(self.original.open(), one)[0]
        by_params = self.asked.cost == "params"
        bench = Bench(
            self.original.open(parent.model),
            one,
            self.original.config,
            self.original.dataset,
            self.asked.ranking,
            "parameters" if by_params else "multiply_adds",
            move.knob * (whole.parameters if by_params else whole.multiply_adds),
            self.asked.batches,
            self.asked.rate,
        )
        tried: dict[str, Candidate] = {}
        for candidate in make_candidates(bench, steer=self.asked.steer):
            tried[candidate.way] = candidate
            self._say(f"tried {candidate.way}: loss {candidate.loss:.4f} after a few steps")
        place.mkdir(parents=True, exist_ok=True)
        best = self._sorted(list(tried.values()), move.aim)[: self.asked.finalists]
        for candidate in best:
            save(candidate.network, place / f"{candidate.way}.safetensors", overwrite=True)
        made = {
            "ways": [each.way for each in best],
            "tried": {way: each.loss for way, each in tried.items()},
            "smallest": all(each.smallest for each in best),
        }
        write_json(place / MADE, made)
        return made

    def _sorted(self, found: list[Candidate], aim: float) -> list[Candidate]:
        """The candidates by their loss; where time or memory is asked for, those over it last."""
        cost, over = self.asked.cost, dict.fromkeys((each.way for each in found), False)
        if cost not in ("params", "macs"):
            original, x = self.original.open(), self.original.batch(self.asked)
            for each in found:
                costs = compare_costs(
                    original, each.network, x, runtime=self.asked.runtime, rounds=12, seconds=4
                )
                over[each.way] = costs.shares[cost] > _OVER * aim
        return sorted(found, key=lambda each: (over[each.way], each.loss))

    def _chosen(self, end: End) -> Shrunk:
        """The smallest network that is good enough, scored once on test."""
        asked, rounds = self.asked, self.rounds
        good = [each for each in rounds if each.is_good(asked.max_loss)]
        chosen = min(good, key=lambda each: each.costs.shares[asked.cost])
        tested = self._tested(chosen)
        if asked.target is not None and not end.reached:
            came = f"it came to {chosen.costs.shares[asked.cost]:.2f}"
            end = End(False, f"{asked.cost} {asked.target:g} was not reached, {came}: {end.why}")
        return Shrunk(
            self.folder,
            self.original.title,
            self.original.config.lr or 0.0,
            asked,
            tuple(rounds),
            chosen.number,
            end,
            tested,
        )

    def _tested(self, chosen: Round) -> OnTest | None:
        """Both networks on test; what was scored once is read."""
        if "test" not in self.original.dataset.splits or not chosen.number:
            return None
        path = self._place(chosen.number) / RESULT
        if path.is_file():
            held = json.loads(path.read_text())
            scores = {name: Score(**held[name]) for name in ("original", "small", "change")}
            return OnTest(held["split"], held["images"], **scores)
        self._say("scoring test images")
        networks = self.original.open(), self.original.open(chosen.model)
        before, after = (self.original.outcomes(each, "test") for each in networks)
        one, other = (score(each, resamples=1000).scores[0] for each in (before, after))
        tested = OnTest("test", len(before), one, other, score_difference(before, after))
        write_json(path, dataclasses.asdict(tested))
        return tested
