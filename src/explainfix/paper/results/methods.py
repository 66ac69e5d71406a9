"""The table of networks and methods: each against the same network with learned filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from ..figures import LABELS
from ..verdict import difference, signed
from ..xrays import NETWORKS
from .record import Record, read_scores

Steps = Mapping[tuple[str, str], str]  # by network and method: what a step takes

# Where the table is from: an experiment, its scores, and the field of the keys that has the method;
# what is left of a key, but for the seed, is the network.
SOURCES = (
    ("classification", "test AUC", "method"),
    ("methods", "test AUC", "method"),
    ("forms", "test AUC", "form"),
    ("steering", "Dice", "method"),
)
ALONE = {"steering": "U-NetD", "forms": "ResNet18, from scratch"}


def compare_methods(records: Sequence[Record], steps: Steps) -> str:
    """One table: networks and what their filters are, against learned ones."""
    by_name = {record["name"]: record for record in records}
    rows: dict[tuple[str, str], list[Any]] = {}
    for experiment, name, field in SOURCES:
        record = by_name.get(experiment)
        if record is None or name not in record["scores"]:
            continue
        weights = _weights(record, field)
        for network, mine in _by_network(record, name, field).items():
            base = mine.get("learned", {})
            for method, ours in mine.items():
                seeds = [seed for seed in ours if seed in base]
                if method == "learned" or len(seeds) < 2:
                    continue
                found = difference([ours[s] for s in seeds], [base[s] for s in seeds])
                row = (network, method)
                rows.setdefault(
                    row,
                    [network, LABELS.get(method, method), len(seeds), name, signed(found),
                     *weights.get(row, ("–", "–")), steps.get(row, "–")],
                )  # fmt: skip
    if not rows:
        return ""
    columns = [
        "network", "filters", "seeds", "score", "less learned (95%)", "weights", "that learn",
        "a step takes",
    ]  # fmt: skip
    return (
        "## Networks and methods\n\nEach against the same network with learned filters, seed by "
        "seed; weights, and the time of a\nstep of training, as a share of its own. Steps were "
        "timed apart from the runs, with nothing else\nrunning, all filters of a network in turn; "
        "[how fast, how lean](benchmarks.md) has larger images and\nmore ways to train.\n\n"
        f"{markdown_table(columns, list(rows.values()))}\n"
    )


def _by_network(record: Record, name: str, field: str) -> dict[str, dict[str, dict[int, float]]]:
    """By network and method, the score of every seed."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for key, score in read_scores(record)[name].items():
        methods = found.setdefault(network_of(record, vars(key)), {})
        methods.setdefault(getattr(key, field), {})[key.seed] = score
    return found


def network_of(record: Record, fields: Mapping[str, Any]) -> str:
    """The title of the network that a key of an experiment's runs is of."""
    if "family" not in fields:
        return ALONE[record["name"]]
    begin = {"scratch": "from scratch"}.get(fields["begin"], fields["begin"])
    return f"{NETWORKS[record['scale']][fields['family']].title}, {begin}"


def _weights(record: Record, field: str) -> dict[tuple[str, str], tuple[str, str]]:
    """By network and method: all weights and those that learn, as shares of the learned one's."""
    every: dict[tuple[str, str], list[float]] = {}
    learned: dict[tuple[str, str], list[float]] = {}
    for row in record["trained"]["rows"]:
        fields = dict(zip(record["trained"]["fields"], row, strict=True))
        key = (network_of(record, fields), fields[field])
        every.setdefault(key, []).append(fields["parameters"])
        learned.setdefault(key, []).append(fields["learned"])
    return {
        key: (_share(every, key), _share(learned, key))
        for key in every
        if (key[0], "learned") in every
    }


def _share(found: Mapping[tuple[str, str], Sequence[float]], key: tuple[str, str]) -> str:
    return f"{median(found[key]) / median(found[key[0], 'learned']):.0%}"


def markdown_table(columns: list[str], rows: list[list[Any]]) -> str:
    """A Markdown table."""
    cells = [
        [str(cell).replace("|", r"\|").replace("\n", " ") for cell in row]
        for row in (columns, ["---"] * len(columns), *rows)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
