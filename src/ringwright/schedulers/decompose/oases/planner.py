"""How many ranks should cut each block? An integer program over blocks and degrees, whose costs know that halves take turns.

With halves the sum of a block's first half goes beside the block's second half, and that of the second beside the next block's
first one: ``f_1 + sum of max(f_i, c_i) + max(f_i+1, c_i) + c_n`` forward. Backward runs the other way round, with each block
computed again and back: ``f_i + b_i`` in place of ``f_i``. Where the degree changes between two blocks, activations are gathered.

Source: Li et al., arXiv 2305.16121, and lucasleesw/oases (Apache-2.0): its program has the same terms, but pairs a block's
sum with the one behind it in backward too, and asks CBC. Here HiGHS solves it (extra ``solve``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.schedulers.search import Constraints, integer_program

GATHER = 1.0  # what a change of degree costs, in sums of the block before it


@dataclass(frozen=True)
class PlannedLayer:
    """A block, by degree (how many ranks cut it): seconds of half a batch forward and backward, of its sum, and bytes held."""

    forward_s: Mapping[int, float]
    backward_s: Mapping[int, float]
    sum_s: Mapping[int, float]
    held_bytes: Mapping[int, float]


@dataclass(frozen=True)
class DegreePlan:
    """A degree for each block, the seconds of a step by the costs of the program, and the bytes that a rank holds."""

    degrees: tuple[int, ...]
    seconds: float
    held_bytes: float


def planned(layers: Sequence[PlannedLayer], memory_bytes: float, *, gather: float = GATHER) -> DegreePlan:
    """Return the degree of each block with which a step is shortest, within ``memory_bytes`` of a rank.

    UsageError without blocks or without a degree that a block has; InfeasibleError where no plan fits, with the least that does.
    """
    if not layers or any(not layer.forward_s for layer in layers):
        raise UsageError("there is nothing to plan", remedy="a block or more, each with a degree or more")
    least = sum(min(layer.held_bytes.values()) for layer in layers)
    if least > memory_bytes:
        what = f"no degrees fit into {memory_bytes / 2**30:.1f} GiB: the least is {least / 2**30:.1f} GiB"
        raise InfeasibleError(what, remedy=f"{least / 2**30:.1f} GiB or more a rank, more ranks, or fewer layers")
    cost = {
        _node(at, degree): _alone(layers, at, degree) for at, layer in enumerate(layers) for degree in layer.forward_s
    }
    rows, sums = list[Mapping[str, float]](), list[tuple[float, float]]()

    def row(coefficients: Mapping[str, float], low: float, high: float) -> None:
        rows.append(coefficients)
        sums.append((low, high))

    for at, layer in enumerate(layers):
        row({_node(at, degree): 1.0 for degree in layer.forward_s}, 1.0, 1.0)
        if not at:
            continue
        before = layers[at - 1].forward_s
        pairs = {(one, two): f"e{at}:{one}:{two}" for one in before for two in layer.forward_s}
        cost |= {name: between(layers[at - 1], layer, pair, gather) for pair, name in pairs.items()}
        for one in before:
            row({_node(at - 1, one): -1.0} | {name: 1.0 for pair, name in pairs.items() if pair[0] == one}, 0.0, 0.0)
        for two in layer.forward_s:
            row({_node(at, two): -1.0} | {name: 1.0 for pair, name in pairs.items() if pair[1] == two}, 0.0, 0.0)
    nodes = [(at, degree) for at, layer in enumerate(layers) for degree in layer.forward_s]
    row({_node(at, degree): layers[at].held_bytes[degree] / memory_bytes for at, degree in nodes}, 0.0, 1.0)
    least_of, most_of = zip(*sums, strict=True)
    whole = [_node(*node) for node in nodes]
    solved = integer_program(
        cost, Constraints(tuple(rows), least_of, most_of), whole=whole, bounds=dict.fromkeys(cost, (0.0, 1.0))
    )
    degrees = tuple(
        next(degree for degree in layer.forward_s if solved.values[_node(at, degree)] > 0.5)
        for at, layer in enumerate(layers)
    )
    return DegreePlan(degrees, seconds(layers, degrees, gather), held(layers, degrees))


def seconds(layers: Sequence[PlannedLayer], degrees: Sequence[int], gather: float = GATHER) -> float:
    """Return the seconds of a step with these degrees, by the costs of the program."""
    alone = sum(_alone(layers, at, degree) for at, degree in enumerate(degrees))
    pairs = zip(layers, layers[1:], pairwise(degrees), strict=False)
    return alone + sum(between(one, two, pair, gather) for one, two, pair in pairs)


def held(layers: Sequence[PlannedLayer], degrees: Sequence[int]) -> float:
    """Return the bytes that a rank holds with these degrees."""
    return sum(layer.held_bytes[degree] for layer, degree in zip(layers, degrees, strict=True))


def _node(at: int, degree: int) -> str:
    return f"s{at}:{degree}"


def _alone(layers: Sequence[PlannedLayer], at: int, degree: int) -> float:
    """Return what a block costs by itself: its second half beside the sum of its first, and the ends of the passes."""
    layer = layers[at]
    forward, back, sent = (
        layer.forward_s[degree],
        layer.forward_s[degree] + layer.backward_s[degree],
        layer.sum_s[degree],
    )
    total = max(forward, sent) + max(back, sent)
    total += forward + sent if at == 0 else 0.0  # forward begins here, and backward's last sum has nothing beside it
    return total + (back + sent if at == len(layers) - 1 else 0.0)


def between(one: PlannedLayer, two: PlannedLayer, degrees: tuple[int, int], gather: float) -> float:
    """Return what two blocks cost together: the first half of one beside the sum of the other's second, in both passes."""
    left, right = degrees
    total = max(two.forward_s[right], one.sum_s[left])
    total += max(one.forward_s[left] + one.backward_s[left], two.sum_s[right])
    if left != right:
        total += gather * one.sum_s[left] + min(one.sum_s[left], two.forward_s[right])
    return total
