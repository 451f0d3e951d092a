"""Which operations of a layer are kept, which are computed again in which window, which when they are needed: an integer program.

For every operation: kept, or computed again in one of the windows, or on demand, or not at all where nobody needs it. What it
reads must be kept, or computed again no later. A window holds no more work than it is long, times how well the two overlap. Kept
bytes count for every micro-batch under way, those computed again for one, in every layer for which they wait.

Source: Chen et al., arXiv 2406.08756; the abstracts name the two searches, the rows of the program are this project's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ringwright.ground.errors import InfeasibleError
from ringwright.schedulers.search import Constraints, integer_program

KEPT, DEMAND = "kept", "demand"  # where an operation's results come from, besides windows by name
TINY = 1e-6  # of a second, for all bytes together: of two answers that expose as much, the one that holds less


@dataclass(frozen=True)
class LayerOperation:
    """What a forward task does: seconds, bytes of what backward needs of it, the operations whose results it reads.

    ``is_needed`` by backward itself; ``is_once`` where it cannot be done again. Of several layers in one program, ``layer`` tells
    them apart, and ``windows`` are those that it may use (None: all).
    """

    name: str
    seconds: float
    held_bytes: int
    reads: tuple[str, ...] = ()
    is_needed: bool = True
    is_once: bool = False
    layer: int = 0
    windows: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Window:
    """A time in which a rank computes nothing, in their order: seconds, and in how many layers what is done in it waits.

    With 0 layers it is one of the backward pass of the layer above: what is done in it waits beside what that layer holds.
    """

    name: str
    seconds: float
    layers: int = 0


@dataclass(frozen=True)
class Recomputation:
    """What may be computed again, in which windows, by a rank with ``budget_bytes`` for it.

    ``copies`` micro-batches are under way, ``layers`` do alike; ``overlap`` is the share of a window that is good for work.
    A program of several layers looks for windows up to ``reach`` layers above. With ``has_turn`` there is room beside the budget
    for what the layer in turn computes again.
    """

    operations: tuple[LayerOperation, ...]
    windows: tuple[Window, ...]
    budget_bytes: float
    copies: int = 1
    layers: int = 1
    overlap: float = 1.0
    reach: int = 1
    has_turn: bool = False


@dataclass(frozen=True)
class RecomputeChoice:
    """Where the results of each operation come from: kept, demand or a window; those that nobody needs are not there."""

    source: Mapping[str, str] = field(default_factory=dict)
    exposed_s: float = 0.0
    held_bytes: float = 0.0


def chosen(problem: Recomputation, nodes: int = 20_000) -> RecomputeChoice:
    """Return the choice with which least is computed on demand; InfeasibleError where even that needs more memory.

    Asks HiGHS (extra ``solve``), at most ``nodes`` of branch and bound.
    """
    require_room(problem)
    free = _without_program(problem)
    if free is not None:
        return free
    names = {
        (each.name, where): f"{each.name}@{where}" for each in problem.operations for where in _sources(problem, each)
    }
    scale = TINY / max(1, sum(each.held_bytes for each in problem.operations) * problem.copies * problem.layers)
    cost = {}
    for each in problem.operations:
        for where in _sources(problem, each):
            late = each.seconds if where == DEMAND else 0.0
            cost[names[each.name, where]] = late + scale * sum(_held(problem, each, where))
    rows = [*_covered(problem, names), *_in_order(problem, names), *_fitting(problem, names)]
    constraints = Constraints(
        tuple(row for row, _, _ in rows), tuple(low for _, low, _ in rows), tuple(high for _, _, high in rows)
    )
    solved = integer_program(cost, constraints, whole=cost, bounds=dict.fromkeys(cost, (0.0, 1.0)), nodes=nodes)
    source = {name: where for (name, where), variable in names.items() if solved.values[variable] > 0.5}
    return judged(problem, used(problem, source))


def used(problem: Recomputation, source: Mapping[str, str]) -> dict[str, str]:
    """Return a choice without what nobody reads: a solver that is content may do again in a window what serves nothing."""
    known = {each.name: each for each in problem.operations}
    stack, used = [each.name for each in problem.operations if each.is_needed], set[str]()
    while stack:
        name = stack.pop()
        if name not in used:
            used.add(name)
            stack += known[name].reads if source[name] != KEPT else ()
    return {name: where for name, where in source.items() if name in used}


def judged(problem: Recomputation, source: Mapping[str, str]) -> RecomputeChoice:
    """Return a choice with what it exposes, in seconds of the layers in the program, and what it holds, in bytes at most."""
    known = {each.name: each for each in problem.operations}
    late = sum(known[name].seconds for name, where in source.items() if where == DEMAND)
    sizes = [(known[name], _held(problem, known[name], where)) for name, where in source.items()]
    most = max((sum(_at(problem, layer, *each) for each in sizes) for layer in _layers(problem)), default=0.0)
    return RecomputeChoice(dict(source), late, most)


def is_allowed(problem: Recomputation, source: Mapping[str, str]) -> bool:
    """Whether a choice gives backward all it needs, in order, within windows and memory."""
    known = {each.name: each for each in problem.operations}
    turn = {KEPT: -1, DEMAND: len(problem.windows)} | {each.name: at for at, each in enumerate(problem.windows)}
    if any(each.is_needed and each.name not in source for each in problem.operations):
        return False
    for name, where in source.items():
        if known[name].is_once and where != KEPT:
            return False
        if where != KEPT and any(
            other not in source or turn[source[other]] > turn[where] for other in known[name].reads
        ):
            return False
    for window in problem.windows:
        work = sum(known[name].seconds for name, where in source.items() if where == window.name)
        if work > window.seconds * problem.overlap * (1 + 1e-9):
            return False
    return judged(problem, source).held_bytes <= problem.budget_bytes * (1 + 1e-9)


def on_demand(problem: Recomputation) -> dict[str, str]:
    """Return the choice that holds least: all that backward needs is computed again when it does."""
    known = {each.name: each for each in problem.operations}
    source: dict[str, str] = {}
    stack = [each.name for each in problem.operations if each.is_needed]
    while stack:
        name = stack.pop()
        if name not in source:
            source[name] = KEPT if known[name].is_once else DEMAND
            stack += known[name].reads if source[name] == DEMAND else ()
    return source


def require_room(problem: Recomputation) -> None:
    """Raise InfeasibleError, naming the least that is needed, where what is on demand does not fit."""
    least = judged(problem, on_demand(problem)).held_bytes
    if least > problem.budget_bytes:
        what = f"activations need {least / 2**30:.2f} GiB at the least, of {max(0.0, problem.budget_bytes) / 2**30:.2f} GiB"
        raise InfeasibleError(what, remedy="more memory, smaller micro-batches, or more ranks a layer")


def _without_program(problem: Recomputation) -> RecomputeChoice | None:
    """Return the choice that keeps all, where that fits."""
    every = judged(problem, {each.name: KEPT for each in problem.operations if each.is_needed})
    return every if every.held_bytes <= problem.budget_bytes else None


def _sources(problem: Recomputation, operation: LayerOperation) -> list[str]:
    if operation.is_once:
        return [KEPT]
    mine = [each.name for each in problem.windows if operation.windows is None or each.name in operation.windows]
    return [KEPT, *mine, DEMAND]


def _held(problem: Recomputation, operation: LayerOperation, where: str) -> tuple[float, float, float]:
    """Return the bytes that an operation's results take all along, while its layer is in turn, and while one above is."""
    size = float(operation.held_bytes)
    own = 0.0 if problem.has_turn else size
    if where == KEPT:
        return size * problem.copies * problem.layers, 0.0, 0.0
    if where == DEMAND:
        return 0.0, own, 0.0
    waiting = next(each.layers for each in problem.windows if each.name == where)
    return (size * waiting, 0.0, 0.0) if waiting else (0.0, own, size)


def _layers(problem: Recomputation) -> dict[int, None]:
    return dict.fromkeys(each.layer for each in problem.operations)


def _at(problem: Recomputation, layer: int, operation: LayerOperation, held: tuple[float, float, float]) -> float:
    """Return the bytes of an operation's results while a layer is in turn; a layer alone stands for the one above it, too."""
    lasting, own, ahead = held
    is_above = 0 < layer - operation.layer <= problem.reach or len(_layers(problem)) == 1
    return lasting + own * (operation.layer == layer) + ahead * is_above


Row = tuple[Mapping[str, float], float, float]


def _covered(problem: Recomputation, names: Mapping[tuple[str, str], str]) -> Iterator[Row]:
    for each in problem.operations:
        yield {names[each.name, where]: 1.0 for where in _sources(problem, each)}, 1.0 if each.is_needed else 0.0, 1.0


def _in_order(problem: Recomputation, names: Mapping[tuple[str, str], str]) -> Iterator[Row]:
    """Yield, for an operation at each moment: what it reads was kept, or computed again by then."""
    known = {each.name: each for each in problem.operations}
    moments = [*(each.name for each in problem.windows), DEMAND]
    for each in problem.operations:
        for at, where in enumerate(moments):
            if (each.name, where) not in names:
                continue
            for other in each.reads:
                by_then = [KEPT, *moments[: at + 1]]
                row = {names[other, when]: 1.0 for when in by_then if when in _sources(problem, known[other])}
                row[names[each.name, where]] = row.get(names[each.name, where], 0.0) - 1.0
                yield row, 0.0, float("inf")


def _fitting(problem: Recomputation, names: Mapping[tuple[str, str], str]) -> Iterator[Row]:
    for window in problem.windows:
        mine = {names[key]: each.seconds for each in problem.operations if (key := (each.name, window.name)) in names}
        yield mine, 0.0, window.seconds * problem.overlap
    whole = max(1.0, problem.budget_bytes)
    for layer in _layers(problem):
        row = {}
        for each in problem.operations:
            for where in _sources(problem, each):
                row[names[each.name, where]] = _at(problem, layer, each, _held(problem, each, where)) / whole
        yield row, 0.0, 1.0
