"""The page and the card of a search: scores against costs, and what went from each layer."""

from __future__ import annotations

import datetime
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...registry import views
from ...report.notebook import Card, card_of
from ...report.page import embed_json, fill_template
from ...store import written
from .goal import COSTS, WORDS, Asked
from .outcome import Shrunk, signed
from .rounds import Round

FOLDER = Path(__file__).parent


@views.register("shrunk")
def write_page(found: Shrunk, path: str | Path, *, overwrite: bool = False) -> None:
    """Write the page of a search: one file that fetches nothing."""
    text = render(page_data(found))
    with written(Path(path), overwrite=overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8")


def render(data: dict[str, Any]) -> str:
    """The page as text."""
    script = (FOLDER / "shrunk.js").read_text("utf-8")
    values = {**data, "json": embed_json(data), "script": script}
    return fill_template("shrunk.html", values, folder=FOLDER, raw=("json", "script"))


def page_data(found: Shrunk) -> dict[str, Any]:
    """Everything the page shows, as plain numbers and text."""
    from ... import __version__

    name = found.original.change.name
    order = (found.asked.cost, *(cost for cost in COSTS if cost != found.asked.cost))
    return {
        "title": found.title,
        "version": __version__,
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "warning": None if found.reached else f"Not all that was asked for: {found.end.why}.",
        "sentence": f"{found}.".replace("..", "."),
        "numbers": _numbers(found),
        "score": name.upper() if name == "auc" else name.capitalize(),
        "costs": [{"name": cost, "word": WORDS[cost]} for cost in order],
        "max_loss": found.asked.max_loss,
        "chosen": found.chosen,
        "rounds": [_round_data(found, each) for each in found.rounds],
        "notes": _notes(found),
    }


def _round_data(found: Shrunk, each: Round) -> dict[str, Any]:
    return {
        "number": each.number,
        "parent": each.parent,
        "way": each.way,
        "score": each.score,
        "low": each.change.low or 0.0,
        "high": each.change.high or 0.0,
        "change": signed(each.change) if each.number else "",
        "good": each.is_good(found.asked.max_loss),
        "shares": dict(each.costs.shares),
        "tried": dict(each.tried),
        "command": command_from(found, each),
        "layers": {path: asdict(layer) for path, layer in each.layers.items()},
    }


def command_from(found: Shrunk, each: Round) -> str:
    """What to type to go on from a round's network."""
    asked = found.asked
    words = ["explainfix", "shrink", each.model, "--epochs", str(asked.epochs)]
    if each.number:  # its run has the rate of a round
        words += ["--lr", f"{found.lr:g}"]
    if asked.rate != Asked.rate:
        words += ["--rate", f"{asked.rate:g}"]
    if asked.distil is not None:
        words += ["--distil", f"{asked.distil:g}"]
    if asked.max_loss is not None:
        words += ["--max-loss", f"{asked.max_loss:g}"]
    if asked.target is not None:
        words += [f"--{asked.cost}", f"{asked.target:g}"]
    return shlex.join([*words, "-o", "smaller.safetensors"])


def _numbers(found: Shrunk) -> list[dict[str, str]]:
    small, original = found.small.costs, found.original.costs
    numbers = [
        {
            "value": f"{small.parameters:,}",
            "name": f"of {original.parameters:,} parameters",
        },
        {
            "value": f"{1000 * small.seconds:.1f} ms",
            "name": f"a batch; the original {1000 * small.beside:.1f} ms",
        },
    ]
    if found.tested is not None:
        value = f"{found.tested.small.value:.4f}"
        words = f"on test; the original {found.tested.original.value:.4f}"
        numbers.append({"value": value, "name": words})
    return numbers


def _notes(found: Shrunk) -> list[str]:
    asked, shape = found.asked, found.small.costs.latency
    limit = "anything" if asked.max_loss is None else f"{asked.max_loss:g}"
    taught = ""
    if asked.distil is not None:
        taught = f", {asked.distil:g} of its loss being the distance to the original's outputs"
    notes = [
        f"Asked for: a loss of at most {limit}"
        + (f", {asked.target:g} of the {WORDS[asked.cost]}." if asked.target else "."),
        f"The search ended: {found.end.why}.",
        "Every round was chosen by validation images. Test images were scored once, for the "
        "network that was chosen.",
        f"Channels are ranked by {asked.ranking}; each round was fine-tuned for {asked.epochs} "
        f"epochs at {asked.rate:g} times the rate of training{taught}.",
        f"Latency is that of {asked.runtime} PyTorch in turns with the original, batch of "
        f"{asked.batch}: {shape} of it." if asked.runtime == "eager" else
        f"Latency is that of ONNX Runtime in turns with the original: {shape} of it.",
    ]  # fmt: skip
    if found.tested is not None:
        tested = found.tested
        notes.append(
            f"On {tested.images} test images: {tested.small.value:.4f} "
            f"({tested.small.low:.4f} to {tested.small.high:.4f}), the original "
            f"{tested.original.value:.4f} ({tested.original.low:.4f} to "
            f"{tested.original.high:.4f}); paired difference {signed(tested.change)}."
        )
    return notes


@card_of.register
def _(found: Shrunk) -> Card:
    rows = [
        [
            "original" if each.number == 0 else str(each.number),
            each.way,
            *(f"{each.costs.shares[cost]:.2f}" for cost in COSTS),
            f"{each.score:.4f}",
            signed(each.change) if each.number else "",
            "chosen" if each.number == found.chosen else "",
        ]
        for each in found.rounds
    ]
    return Card(
        title=f"{found.title}, shrunk",
        sentences=[f"{found}.", f"The search ended: {found.end.why}."],
        headings=["round", "cut by", *COSTS, "score", "change", ""],
        rows=rows,
    )
