"""What a recorded pass does not show: where the numbers in a split or a reshape come from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor, nn

from ..recording.graph import Graph, Node

Key = tuple[type, str, int]
MOST = 60  # failures, before nothing is believed any more


@dataclass(frozen=True)
class Written:
    """A number of channels that a module keeps as an attribute, or as an item of a list there."""

    module: str
    attribute: str
    item: int | None
    labels: Tensor  # what it counts


@dataclass
class Trust:
    """How far operations are believed to follow the channels, per class of module and place in it.

    First guess: the numbers come from the shape of the input; then: from an attribute of the
    module that equals them, one after the other, which is rewritten; if none of it does what was
    expected, they are written into the code, and the channels stay. Where no guess is left to
    give up, everything that a module touches stays.
    """

    guesses: dict[Key, int] = field(default_factory=dict)  # how many guesses have failed
    held: set[str] = field(default_factory=set)  # modules all of whose channels stay
    failures: int = 0

    def failed(self, graph: Graph, node: Node) -> int:
        """How many guesses about this operation have failed."""
        return self.guesses.get(key_of(graph, node), 0)

    def lose(self, graph: Graph, node: Node, made: Iterable[Node], untried: set[Key]) -> None:
        """The cut network did something unexpected at `node`: believe less of what led to it.

        `made` are the operations about which something was guessed, `untried` those of them with
        other guesses left.
        """
        self.failures += 1
        if self.failures > MOST:
            self.held.add("")
        near = [other for other in made if other.module == node.module]
        near.sort(key=lambda other: other is not node)
        for other in near:
            key = key_of(graph, other)
            if key in untried:
                self.guesses[key] = self.guesses.get(key, 0) + 1
                return
        path = node.module
        while path in self.held and path:
            path = path.rpartition(".")[0]
        self.held.add(path)


def key_of(graph: Graph, node: Node) -> Key:
    return type(graph.modules[node.module]), node.name, node.place


def attributes_equal(module: nn.Module, number: int) -> list[tuple[str, int | None]]:
    """Where a module keeps a number: names of attributes, and the item for those with several."""
    if type(module).__module__.startswith("torch.nn"):
        return []  # what these keep is put right by the cut itself
    found: list[tuple[str, int | None]] = []
    for name, held in vars(module).items():
        if type(held) is int and held == number:
            found.append((name, None))
        elif isinstance(held, (list, tuple)) and all(type(item) is int for item in held):
            found += [(name, place) for place, item in enumerate(held) if item == number]
    return found
