"""The parts of live ranks that need no rank: pieces, the queue against the engine's, who is to blame, the measured link."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace
from socket import socketpair
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringwright.engines.job.run import simulate
from ringwright.ground.errors import UsageError
from ringwright.model.stages import LinkCosts
from ringwright.model.values import Applied
from ringwright.model.workload import Queue, Rewrite, Workload
from ringwright.schedulers.decompose.dear import dear
from ringwright.schedulers.order import by_layer
from ringwright.workloads.chain import ChainLayer, chain
from ringwright_lab.live.choose import Chooser, Fixed
from ringwright_lab.live.control import Control
from ringwright_lab.live.control_channel import BEGIN, BYE, FAIL, GO, SETTLED, ControlConnection, ControlMessage
from ringwright_lab.live.coordinator import Coordinator
from ringwright_lab.live.gathers import GatherGate
from ringwright_lab.live.plan import ALL, BufferSlice, LivePlan, plan
from ringwright_lab.live.profile import LinkTable, costs
from ringwright_lab.live.traffic import SentPiece

LINK = LinkCosts(1000.0)  # B/s: times in whole milliseconds


def net(sizes: list[int], times: list[int]) -> Workload:
    """Return layers of so many numbers, forward and backward of so many ms."""
    return chain(
        "net",
        [
            ChainLayer(t / 1e3, t / 1e3, 4 * s, name=f"l{at}")
            for at, (s, t) in enumerate(zip(sizes, times, strict=True))
        ],
    )


def policy(made: Workload, size_bytes: int, window: tuple[float, str], *, cap: int = 0, **parts: Any) -> Workload:
    rewrites = [Rewrite("fuse", ("dp",), {"caps_bytes": (cap,)})] if cap else []
    rewrites.append(Rewrite("partition", ("dp",), {"size_bytes": size_bytes}))
    blocking = parts.pop("blocking", True)
    queue = Queue(keys=by_layer(made), windows={"dp": window}, blocking=blocking)
    return made.with_policy(
        "x", rewrites=tuple(rewrites), queue=queue, **{"boundary": "layer", "agreement": "leader", **parts}
    )


layers = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 90)), min_size=2, max_size=6)


@given(layers, st.integers(8, 300), st.integers(0, 300))
def test_every_number_lies_in_one_piece(shape: list[tuple[int, int]], size_bytes: int, cap: int) -> None:
    made = plan(policy(net(*map(list, zip(*shape, strict=True))), size_bytes, (1, "operations"), cap=cap), LINK)
    for at, operation in enumerate(made.operations):
        spans = [made.span(at, piece) for piece in range(operation.pieces)]
        assert [begin for begin, _ in spans] == [0, *[end for _, end in spans[:-1]]]
        assert spans[-1][1] == made.elements(at)
        assert all(begin < end for begin, end in spans)
        for payload in operation.payloads:
            place = made.places[payload.name]
            held = sum(
                max(0, min(end, place.first + place.elements) - max(begin, place.first))
                for _, piece in made.carriers(payload.name)
                for begin, end in [made.span(at, piece)]
            )
            assert held == payload.elements
    announced = [(unit.operation, piece) for unit in made.units for piece in made.pieces(unit)]
    assert sorted(announced) == [(at, piece) for at, each in enumerate(made.operations) for piece in range(each.pieces)]


@given(
    layers,
    st.integers(8, 200),
    st.sampled_from([(1.0, "operations"), (2.0, "operations"), (150.0, "bytes")]),
    st.booleans(),
)
def test_the_queue_is_the_engines(
    shape: list[tuple[int, int]], size_bytes: int, window: tuple[float, str], blocking: bool
) -> None:
    """Pieces become ready when the engine says so; the order in which they start is then the engine's."""
    made = policy(net(*map(list, zip(*shape, strict=True))), size_bytes // 4 * 4, window, blocking=blocking)
    run = simulate(made, LINK, steps=1, native=False)
    ours = plan(made, LINK)
    number = {each.name: at for at, each in enumerate(ours.operations)}
    theirs, ready = [], []
    for row in run.laid.rows:
        if row.what == "operation":
            for piece in range(row.count):
                at = run.span(row, 0).start + piece
                theirs.append((int(run.times.start[at]), number[row.name], piece))
                ready.append((int(run.times.ready[at]), number[row.name]))
    assert sorted(replayed(ours, sorted(set(ready)))) == sorted(theirs)  # what starts at one moment has no order


def replayed(ours: LivePlan, ready: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return (start, operation, piece), pieces one after another on the link, times in ps."""
    chooser, started, free = Chooser(ours), [], 0
    events = [(when, 1, operation, 0) for when, operation in ready]
    heapq.heapify(events)
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, arrives, operation, piece = heapq.heappop(events)
            if arrives:
                chooser.ready(0, next(unit for unit in ours.units if unit.operation == operation))
            else:
                chooser.done(operation, piece)
        while (taken := chooser.take()) is not None:
            started.append((now, taken.operation, taken.piece))
            free = max(free, now) + round(ours.piece_bytes(taken.operation, taken.piece) / LINK.rate * 1e12)
            heapq.heappush(events, (free, 0, taken.operation, taken.piece))
    return started


def test_a_random_order_is_alike_on_all_ranks_and_anew_each_step() -> None:
    made = net([5] * 6, [1] * 6).with_policy("x", queue=Queue(random=4), agreement="static")
    ours = plan(made, LINK)
    assert ours.order == ()  # a leader tells it
    orders = []
    for _ in range(2):
        chooser, order = Chooser(ours), []
        for step in range(3):
            for unit in ours.units:
                chooser.ready(step, unit)
            while (taken := chooser.take()) is not None:
                chooser.done(taken.operation, taken.piece)
                order.append((step, taken.operation))
        orders.append(order)
    assert orders[0] == orders[1]
    assert len({tuple(at for step, at in orders[0] if step == each) for each in range(3)}) > 1


def test_a_fixed_order_by_urgency_is_the_simulated_one() -> None:
    made = policy(net([20, 60, 30], [10, 10, 10]), 80, (1, "operations"), agreement="static")
    ours = plan(made, LINK)
    names = [(ours.operations[at].name, piece) for at, piece in ours.order]
    assert len(names) == 1 + 3 + 2
    assert names[0][0] == "l2"  # nothing else is ready
    assert names.index(("l0", 0)) < names.index(("l1", 2))  # it overtakes
    fixed = Fixed(ours)
    fixed.begin(3)
    for unit in reversed(ours.units):
        fixed.ready(3, unit)
    taken = []
    while (each := fixed.take()) is not None:
        taken.append((each.operation, each.piece))
        assert fixed.take() is None  # one at a time
        fixed.done(each.operation, each.piece)
    assert tuple(taken) == ours.order
    assert fixed.head()[0] == 4


# ------------------------------------------------------------------------------------------------------------ halves
def halves(**knobs: Any) -> LivePlan:
    """Return DeAR's plan of four layers."""
    drawn = net([30, 21, 50, 40], [10, 10, 10, 10])
    return plan(dear(drawn, LINK, **knobs), LINK, drawn)


def test_halves_of_a_bucket_share_a_buffer_and_forward_lets_gathers_go() -> None:
    ours = halves(neighbours=1)
    names = [ours.operations[at].name for at, _ in ours.order]
    assert names == [f"l{at}.scatter" for at in (3, 2, 1, 0)] + [f"l{at}.gather" for at in range(4)]
    assert ours.layered
    assert all(len(ours.carriers(name)) == 2 for name in ours.places)
    assert {ours.operations[at].name: each.opened_by for at, each in ours.gathers.items()} == {
        "l0.gather": 0,
        "l1.gather": 0,  # as its own rule has it: nothing is before the first layer to hold it behind
        "l2.gather": 1,
        "l3.gather": 2,
    }
    joined = halves(neighbours=3)
    front = ["l0", "l1", "l2"]
    assert [[each.name for each in op.payloads] for op in joined.operations] == [["l3"], front, front, ["l3"]]
    assert joined.places["l2"] == BufferSlice(1, 51, 50)


def test_a_gather_goes_once_its_scatter_is_done_and_its_layer_is_near() -> None:
    ours, said = halves(neighbours=1), []
    gate = GatherGate(ours, lambda step, unit: said.append(ours.operations[ours.units[unit].operation].name))
    number = {each.name: at for at, each in enumerate(ours.operations)}
    gate.wanted(1, ["l0"])
    assert said == []
    for name in ("l3", "l2", "l0"):
        gate.scattered(1, number[f"{name}.scatter"])
    assert said == ["l0.gather"]
    gate.scattered(1, number["l1.scatter"])
    assert said == ["l0.gather", "l1.gather"]
    gate.wanted(1, ["l1"])
    assert said[2:] == ["l2.gather"]
    gate.told(1, gate.unit[number["l3.gather"]])  # another rank is further
    gate.wanted(1, ["l3"])
    assert said[3:] == ["l3.gather"]
    gate.scattered(2, number["l2.scatter"])
    assert said[4:] == []  # of the next step
    gate.wanted(2, ["l2"])
    assert said[4:] == ["l2.gather"]


def test_halves_that_no_process_of_pytorch_sends() -> None:
    drawn = net([30, 20], [10, 10])
    other = replace(dear(drawn, LINK), applied=(Applied("shard-update", "l0"),))
    with pytest.raises(UsageError, match="'shard-update' at l0: it changes what is computed where"):
        plan(other, LINK, drawn)
    cut = dear(drawn, LINK).with_policy("x", rewrites=(Rewrite("partition", ("dp",), {"size_bytes": 8}),))
    with pytest.raises(UsageError, match="without rewrite 'partition'"):
        plan(cut, LINK, drawn)
    other = replace(dear(drawn, LINK), payloads=dear(drawn, LINK).payloads[:1])
    with pytest.raises(UsageError, match="what is scattered in a step is not what is gathered"):
        plan(other, LINK, drawn)


# ------------------------------------------------------------------------------------------------------------ rank 0
def coordinator(world: int = 3) -> tuple[Coordinator, list[ControlMessage], LivePlan]:
    told: list[ControlMessage] = []
    ours = plan(policy(net([20, 20], [10, 10]), 80, (1, "operations")), LINK)
    found = Coordinator(world, told.append)
    found.adopt(ours, Chooser(ours))
    return found, told, ours


def test_a_piece_goes_when_all_ranks_have_it() -> None:
    found, told, _ = coordinator()
    for rank in range(3):
        assert not told
        found.have(rank, 1, 0)
    assert [(each.kind, each.a, each.b, each.c) for each in told] == [(GO, 1, 0, 0)]
    for rank in range(3):
        found.have(rank, 1, 1)
    assert len(told) == 1  # one at a time
    found.chooser.done(0, 0)  # type: ignore[union-attr]
    found.go(queued=True)
    assert (told[-1].b, told[-1].flag) == (1, 1)


def test_what_anybody_used_is_told_once_all_have_ended() -> None:
    found, told, _ = coordinator()
    for rank, marks in enumerate((b"\1\0", b"\0\0", b"\0\0")):
        found.ended(rank, 4, marks)
    assert [(each.kind, each.a, each.body) for each in told] == [(SETTLED, 4, b"\1\0")]


def test_who_lacks_what() -> None:
    found, told, _ = coordinator()
    found.have(0, 7, 0)
    found.have(2, 7, 0)
    found.asked(2, 7, 0, 5.0, None)
    what, where, _ = told[-1].body.decode().split("\0")
    assert told[-1].kind == FAIL
    assert what == "rank 2 has waited 5 s for operation 'l1' of step 7"
    assert where == "rank 1 lacks operation 'l1': it last announced nothing, 0 of 2 in step 7"
    found.asked(0, 7, 0, 5.0, None)
    assert len(told) == 1  # said once


def test_a_fixed_order_names_what_stands_before() -> None:
    found, told, _ = coordinator()
    for rank in range(3):
        found.have(rank, 7, 1)
    found.have(0, 7, 0)
    found.asked(0, 7, 1, 5.0, (7, 0))
    what, where, _ = told[-1].body.decode().split("\0")
    assert what.endswith("for operation 'l0' of step 7, which comes after operation 'l1' of step 7")
    assert where.startswith("rank 1 lacks operation 'l1'")


def test_orders_and_hashes_are_compared() -> None:
    found, told, _ = coordinator()
    for rank in range(3):
        found.ordered(rank, 2, b"same")
        found.hashed(rank, 64, b"same")
    assert [each.kind for each in told] == [BEGIN]
    for rank in range(3):
        found.hashed(rank, 128, b"other" if rank == 2 else b"same")
    assert "rank 2 differs from rank 0" in told[-1].body.decode()


class Heard:
    """A listener that takes down what failed."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def go(self, step: int, operation: int, piece: int, *, queued: bool) -> None: ...

    def settled(self, step: int, used: bytes) -> None: ...

    def failed(self, what: str, where: str, remedy: str) -> None:
        self.failures.append(what)


def test_rank_0_may_close_once_its_last_piece_is_done_while_the_others_still_tell_of_it() -> None:
    """The last piece ends on rank 0 before another rank has said that it issued it, and that its backward is over."""
    ours, theirs = socketpair()
    heard = Heard()
    control = Control(1, {0: ControlConnection(theirs)}, heard, timeout_s=5, check_every=1)
    control.adopt(plan(policy(net([20, 20], [10, 10]), 80, (1, "operations")), LINK), 0)
    leader = ControlConnection(ours)
    leader.send(ControlMessage(BYE))
    for reader in control._readers:
        reader.join()
    control.issued(0, 0, 0)
    control.ended(0, b"")
    assert heard.failures == []
    control.ask(0, 0)  # but nobody can wait for one that has left
    assert heard.failures == ["rank 0, which leads, has closed its schedule"]
    control.close()
    leader.close()


def test_pieces_smaller_than_a_number_are_refused() -> None:
    with pytest.raises(UsageError, match="hold no number"):
        plan(policy(net([20, 20], [10, 10]), 3, (1, "operations")), LINK)


# ------------------------------------------------------------------------------------------------------------ the link
def test_the_measured_link() -> None:
    drawn = random.Random(1)
    sent = [
        SentPiece(1, "a", 0, size, 0.0, 0.0, max(0.002, size / 1e6) * drawn.uniform(1, 1.001))
        for size in (1000, 4000, 20_000)
        for _ in range(9)
    ]
    table = costs(sent)
    for size, time_s in ((1000, 0.002), (4000, 0.004), (12_000, 0.012), (40_000, 0.04), (0, 0.00133)):
        assert table.stages("all-reduce", size, (0, 1), "dp")[0].wire_s == pytest.approx(time_s, rel=0.01)
    assert LinkTable((10.0,), (2.0,)).stages("all-reduce", 5, (0, 1), "dp")[0].wire_s == 2.0
    assert LinkTable((10.0,), (2.0,)).stages("all-gather", 20, (0, 1), "dp")[0].wire_s == 2.0  # half of it
    assert costs([SentPiece(0, "a", 0, 10, 0.0, 0.0, 1.0, "reduce-scatter")]) == LinkTable((10.0,), (2.0,))
    assert plan(policy(net([20], [10]), 800, (1, "operations")), table).units[0].piece == ALL
