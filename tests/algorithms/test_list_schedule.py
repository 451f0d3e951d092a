"""List scheduling: compiled loop and Python twin to the bit, urgency and merging, back and forth; forests put in such an order."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ringwright import Collective
from ringwright.algorithms.declared_order import covers
from ringwright.algorithms.list_schedule import PieceMoves, back_and_forth, listed, listed_slowly
from ringwright.algorithms.networks import ArcNetwork
from ringwright.algorithms.synthesis.forest import forest
from ringwright.bounds.lower_bounds import bound
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.model import interpreter, validity
from ringwright.native import expand as native

if TYPE_CHECKING:
    from ringwright.algorithms.arcs_in_use import TimedMessages

GIB = 1 << 30


def line(latency: int = 0, *, holds: bool = False) -> ArcNetwork:
    """Return two arcs in a row, a byte in 10 ps."""
    return ArcNetwork(
        3,
        np.array([0, 1], np.int32),
        np.array([1, 2], np.int32),
        np.array([0, 1, 2]),
        np.array([0, 1], np.int32),
        np.zeros(2, np.int64),
        np.full(2, 10.0),
        np.full(2, latency),
        np.full(2, holds, np.uint8),
    )


def moves(arc: list[int], after: list[tuple[int, int]]) -> PieceMoves:
    """Return moves on arcs; pairs (before, after) say what waits."""
    rows = sorted(after)
    starts = np.searchsorted([a for a, _ in rows], np.arange(len(arc) + 1)).astype(np.int64)
    waits = np.bincount([b for _, b in rows], minlength=len(arc)).astype(np.int32)
    return PieceMoves(np.array(arc, np.int32), starts, np.array([b for _, b in rows], np.int32), waits)


def drawn(seed: int) -> tuple[ArcNetwork, PieceMoves, np.ndarray, np.ndarray, int]:
    """Return arcs that share resources, moves of which some wait, and the bytes and urgency of several pieces."""
    draw = random.Random(seed)
    p, n, pieces = draw.randint(2, 5), draw.randint(1, 9), draw.randint(1, 4)
    arcs, resources = draw.randint(1, 7), draw.randint(1, 6)
    lengths = [draw.randint(1, 3) for _ in range(arcs)]
    net = ArcNetwork(
        p,
        np.array([draw.randrange(p) for _ in range(arcs)], np.int32),
        np.array([draw.randrange(p) for _ in range(arcs)], np.int32),
        np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        np.array([draw.randrange(resources) for _ in range(sum(lengths))], np.int32),
        np.array([draw.choice((0, 0, 700)) for _ in range(arcs)], np.int64),
        np.array([draw.choice((0.0, 20.0, 33.3)) for _ in range(resources)]),
        np.array([draw.choice((0, 500_000, 7)) for _ in range(resources)], np.int64),
        np.array([draw.choice((0, 1)) for _ in range(resources)], np.uint8),
    )
    after = {(a, b) for b in range(n) for a in range(b) if draw.random() < 0.3}
    order = moves([draw.randrange(arcs) for _ in range(n)], sorted(after))
    sizes = np.array([draw.choice((0, 4, 1021, 1 << 20)) for _ in range(n * pieces)], np.int64)
    urgency = np.array([draw.randrange(-3, 4) for _ in range(n * pieces)], np.int64)
    return net, order, sizes, urgency, draw.choice((0, 1030, 1 << 21))


@pytest.mark.skipif(native is None, reason="no compiled loop")
@pytest.mark.parametrize("seed", range(150))
def test_twins_are_equal(seed: int) -> None:
    given = drawn(seed)
    run, slowly = listed(*given), listed_slowly(*given)
    for mine, twin in zip(vars(run).values(), vars(slowly).values(), strict=True):
        assert mine.dtype == twin.dtype
        assert mine.tolist() == twin.tolist()


@pytest.mark.parametrize("seed", range(40))
def test_every_move_is_made_once_after_what_it_waits_for(seed: int) -> None:
    net, order, sizes, urgency, merge = drawn(seed)
    run = listed(net, order, sizes, urgency, merge)
    assert sorted(run.pieces.tolist()) == list(range(len(sizes)))
    message = np.empty(len(sizes), np.int64)
    message[run.pieces] = np.repeat(np.arange(len(run.arc)), np.diff(run.starts))
    assert np.array_equal(run.arc[message], np.resize(order.arc, len(sizes)))
    n = len(order.arc)
    before = np.repeat(np.arange(n), np.diff(order.next_starts))
    for piece in range(0, len(sizes), n):
        first, then = message[before + piece], message[order.nexts + piece]
        assert (run.end[first] <= run.start[then]).all()
        assert (run.step[first] < run.step[then]).all()


def times(run: TimedMessages) -> list[tuple[int, int, list[int]]]:
    carried = np.split(run.pieces, run.starts[1:-1])
    return [(int(a), int(b), each.tolist()) for a, b, each in zip(run.start, run.end, carried, strict=True)]


def test_the_most_urgent_goes_first() -> None:
    run = listed(line(), moves([0, 0, 0], []), np.full(3, 5), np.array([2, 0, 1]), 0)
    assert times(run) == [(0, 50, [1]), (50, 100, [2]), (100, 150, [0])]


def test_what_is_ready_goes_as_one_message_up_to_a_size() -> None:
    run = listed(line(7, holds=True), moves([0, 0, 0], []), np.array([5, 5, 1]), np.arange(3), 10)
    assert times(run) == [(0, 107, [0, 1]), (107, 124, [2])]


def test_going_back_says_what_others_wait_for() -> None:
    """Move 2 is last by its urgency, but a long one waits for it."""
    order = moves([0, 0, 0, 1], [(2, 3)])
    sizes, urgency = np.array([10, 10, 10, 50]), np.arange(4)
    assert listed(line(), order, sizes, urgency, 0).makespan == 800
    assert back_and_forth(line(), order, sizes, urgency, 0, 2).makespan == 600


@pytest.mark.skipif(native is None, reason="no compiled loop")
@pytest.mark.parametrize(
    "wrong",
    [
        {"arc": np.array([2], np.int32)},
        {"nexts": np.array([5], np.int32), "next_starts": np.array([0, 1])},
        {"waits": np.array([1], np.int32)},
        {"size_bytes": np.array([-1])},
        {"size_bytes": np.array([1 << 60])},
        {"urgency": np.zeros(2, np.int64)},
        {"merge_bytes": -1},
        {"p": 0},
        {"hops": np.array([0, 9], np.int32)},
    ],
)
def test_hostile_arrays_are_refused(wrong: dict[str, object]) -> None:
    order = moves([0], [])
    good = {
        **vars(line()),
        **vars(order),
        "size_bytes": np.array([4]),
        "urgency": np.zeros(1, np.int64),
        "merge_bytes": 0,
    }
    assert native.listed(**good)[3].tolist() == [40]
    with pytest.raises(ValueError, match=r"."):
        native.listed(**{**good, **wrong})


# ------------------------------------------------------------------------------------------------- forests in such an order
@pytest.mark.sampled(1, "name", "op", "link_model", "most")
@pytest.mark.once
@pytest.mark.parametrize(
    ("name", "op", "link_model", "most"),
    [
        ("mesh:4x4", "all-reduce", "pipelined", 0.01),  # trees that share links: 0.0176 with windows
        ("mesh:4x4", "all-reduce", "blocking", 0.03),
        ("dgx-a100:2", "reduce-scatter", "blocking", 0.01),
    ],
)
def test_an_order_brings_forests_near_their_bound(name: str, op: str, link_model: str, most: float) -> None:
    topology = fabric(name)
    collective = Collective(op, range(topology.n_ranks), GIB)
    program = forest(collective, topology, link_model=link_model)  # type: ignore[arg-type]
    alpha = {"blocking": "busy"}.get(link_model, link_model)
    assert not validity.check(program, topology=topology)
    assert covers(program)
    assert (
        simulate(program, topology, alpha=alpha).time_s < (1 + most) * bound(collective, topology, alpha=alpha).time_s
    )


@pytest.mark.once
def test_an_ordered_forest_adds_everything_once() -> None:
    """Overlapping messages bring their data into scratch; the result stays right."""
    topology = fabric("mesh:3x3,rate=1e9")
    collective = Collective("all-reduce", range(9), 3 << 20)
    program = forest(collective, topology, link_model="blocking")
    assert program.schedule is not None
    assert program.layout.slots > program.layout.n_chunks
    given = interpreter.inputs(collective, seed=1)
    for have, want in zip(interpreter.run(program, given), interpreter.expected(collective, given), strict=True):
        assert all(np.array_equal(have[block], want[block]) for block in want)
