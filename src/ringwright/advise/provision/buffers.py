"""The least buffer of a switch's ports with which a step is kept.

A job with finite buffers is what ``simulate --fault 'switch * buffer 64KiB'`` simulates: what packets of each operation lose is
added. That takes seconds for each buffer, so the search begins elsewhere: of each role a few operations that keep the wire busy
longest go through the packet engine together with their siblings, at their own size or, where that is too many packets, at a
smaller one; the time that finite queues add, as a share, is put on every operation of that role. From the buffer that is learnt
so, sizes are doubled or halved until the job itself keeps its step, and with half of the buffer does not. Operations of different
roles do not meet in a queue here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.job.groups import OperationGroups
from ringwright.engines.packets.carriage import inside
from ringwright.engines.packets.concurrent_packets import PacketsTogether, laid_out
from ringwright.engines.packets.options import PacketOptions
from ringwright.engines.packets.run import TooManyPacketsError
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import DeclinedError, InfeasibleError
from ringwright.model.stages import Costs, Stage
from ringwright.model.topology import SWITCH

if TYPE_CHECKING:
    from ringwright.engines.packets.run import Packets
    from ringwright.jobs.pricing.costs import FabricCosts
    from ringwright.jobs.study import PolicyResult
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

SMALLEST, LARGEST = 13, 26  # powers of two of bytes: 8 KiB, below which a packet or two are all, to 64 MiB
ENDLESS = 1 << 34  # bytes, more than any operation sends here
MOST_HOPS = 400_000  # packets at ports of one run
MOST_OF_ROLE = 3  # operations of one role
LEAST_SIZE = 1 << 12  # bytes of an operation that is made smaller


@dataclass(frozen=True, eq=False)
class RoleBurst:
    """The operation of a role that is sent through queues, its size there (``sent_bytes``), and how often a step has it."""

    role: str
    op: str
    size_bytes: int
    sent_bytes: int
    groups: int
    programs: tuple[Program, ...] = field(repr=False)

    @property
    def is_whole(self) -> bool:
        """Whether it is sent at its own size."""
        return self.sent_bytes == self.size_bytes


@dataclass(frozen=True)
class QueuedTime:
    """What queues of ``buffer_bytes`` do: the factor on operations of each role, what packets met; ``why`` where a job ends."""

    buffer_bytes: int
    factors: Mapping[str, float]
    drops: int = 0
    pauses: int = 0
    retransmitted_bytes: int = 0
    why: str = ""


@dataclass(frozen=True)
class LeastBuffer:
    """The least power of two that keeps the step, and the step with it and with half of it, us, each with all its operations.

    ``smaller_us`` None: the job ends then (``smaller_why``), or no less is planned with. ``buffer_bytes`` None: none up to 64 MiB
    keeps the step, or nothing was sent through queues (``why``). ``at`` and ``below`` say what packets of ``bursts`` met.
    """

    buffer_bytes: int | None
    step_us: float | None
    smaller_us: float | None
    bursts: tuple[RoleBurst, ...]
    at: QueuedTime | None = None
    below: QueuedTime | None = None
    why: str = ""
    smaller_why: str = ""


@dataclass(frozen=True, eq=False)
class Queued:
    """Costs whose operations of some roles take a factor longer."""

    own: Costs
    factors: Mapping[str, float]

    @property
    def places(self) -> np.ndarray | None:
        """As of the costs within: int64 of shape (ranks,), or None."""
        return getattr(self.own, "places", None)

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return the phases, longer."""
        factor = self.factors.get(role, 1.0)
        stages = self.own.stages(op, size_bytes, ranks, role)
        if factor == 1.0:
            return stages
        return tuple(replace(each, wire_s=each.wire_s * factor) for each in stages)


def least_buffer(
    result: PolicyResult,
    carrier: FabricCosts,
    most_s: float,
    queued_s: Callable[[Mapping[str, float]], float],
    job_s: Callable[[Topology], float],
) -> LeastBuffer:
    """Return the least buffer with which a step stays within ``most_s`` seconds.

    ``queued_s`` gives the step whose operations take a factor longer by role, ``job_s`` that of the job on a fabric with buffers.
    """
    bursts, top = role_bursts(result, carrier), carrier.topology
    if not bursts:
        return LeastBuffer(None, None, None, (), why="no operation that packets can follow leaves a host")
    free = _times(bursts, top, ENDLESS)
    known: dict[int, tuple[float, str]] = {}

    def step(power: int) -> tuple[float, str]:
        if power not in known:
            try:
                known[power] = job_s(apply(top, [f"{buffered_links(top)} * buffer {1 << power}"])), ""
            except InfeasibleError as error:
                known[power] = math.inf, error.what
        return known[power]

    power = _begun(bursts, top, free, most_s, queued_s)
    while power < LARGEST and step(power)[0] > most_s:
        power += 1
    while power > SMALLEST and step(power - 1)[0] <= most_s:
        power -= 1
    taken, why = step(power)
    if taken > most_s:
        why = why or f"even {1 << (LARGEST - 20)} MiB a port make the step longer than that"
        return LeastBuffer(None, _us(taken), None, bursts, _queued(bursts, top, 1 << power, free), why=why)
    at = _queued(bursts, top, 1 << power, free)
    if power == SMALLEST:
        return LeastBuffer(1 << power, _us(taken), None, bursts, at)
    smaller, ends = step(power - 1)
    below = _queued(bursts, top, 1 << (power - 1), free)
    return LeastBuffer(1 << power, _us(taken), _us(smaller), bursts, at, below, smaller_why=ends)


def _begun(
    bursts: tuple[RoleBurst, ...],
    top: Topology,
    free: Mapping[RoleBurst, tuple[int, Packets]],
    most_s: float,
    queued_s: Callable[[Mapping[str, float]], float],
) -> int:
    """Return the least power of two with which the largest operations alone keep the step, by halving."""
    low, high = SMALLEST - 1, LARGEST
    while high - low > 1:
        middle = (low + high) // 2
        queued = _queued(bursts, top, 1 << middle, free)
        kept = not queued.why and queued_s(queued.factors) <= most_s
        low, high = (low, middle) if kept else (middle, high)
    return high


def _us(time_s: float) -> float | None:
    return None if math.isinf(time_s) else time_s * 1e6


def role_bursts(result: PolicyResult, carrier: FabricCosts) -> tuple[RoleBurst, ...]:
    """Return, of each role that leaves a host, the operations that keep the wire busy longest in the last step, as packets."""
    run = result.undisturbed
    groups = OperationGroups(result.workload, run.laid.rank_classes)
    operations = {each.name: each for each in run.laid.operations}
    busy: dict[tuple[str, str, int, tuple[int, ...]], int] = {}
    for row in run.laid.rows:
        if row.what == "operation":
            operation = operations[row.name]
            group = next(each for each in groups.groups(operation) if each.members == row.rank_classes)
            span = run.span(row, run.laid.steps - 1)
            taken = int((run.times.end[span] - run.times.moved[span]).sum())
            key = (row.role, operation.asked, row.size_bytes, group.ranks)
            busy[key] = busy.get(key, 0) + taken
    told: dict[str, dict[tuple[str, int], RoleBurst]] = {}
    for role, op, size_bytes, ranks in sorted(busy, key=lambda each: (-busy[each], each)):
        mine = told.setdefault(role, {})
        if len(mine) == MOST_OF_ROLE or (op, size_bytes) in mine:
            continue
        if (burst := _burst(role, op, size_bytes, ranks, carrier)) is not None:
            mine[op, size_bytes] = burst
    return tuple(burst for mine in told.values() for burst in mine.values())


def _burst(role: str, op: str, size_bytes: int, ranks: tuple[int, ...], carrier: FabricCosts) -> RoleBurst | None:
    """Return an operation as programs of few enough packets; None where it stays within hosts or cannot be followed."""
    if len(ranks) < 2 or not _leaves(ranks, carrier.topology):
        return None
    sent = size_bytes
    while True:
        programs = carrier.programs(op, sent, ranks)[0]
        try:
            laid_out(programs, carrier.topology, PacketOptions(most_hops=MOST_HOPS))
        except TooManyPacketsError:
            if sent <= LEAST_SIZE:
                return None
            sent = max(LEAST_SIZE, sent // 2)
        except DeclinedError:
            return None
        else:
            return RoleBurst(role, op, size_bytes, sent, len(programs), tuple(programs))


def _leaves(ranks: tuple[int, ...], top: Topology) -> bool:
    """Return whether a message from the first of the ranks to another passes a link between hosts."""
    others = np.array(ranks[1:])
    _, links = top.routes(np.full(len(others), ranks[0]), others)
    return bool((~inside(top))[links].any())


def buffered_links(top: Topology) -> str:
    """Return whose queues are finite, as a fault line begins: of switches, or of every link where there are none."""
    return "switch" if bool((top.kinds == SWITCH).any()) else "link"


def _times(bursts: tuple[RoleBurst, ...], top: Topology, buffer_bytes: int) -> dict[RoleBurst, tuple[int, Packets]]:
    """Return the time of each burst, ps, and what its packets met, with so much room at every port of a switch."""
    machine = apply(top, [f"{buffered_links(top)} * buffer {buffer_bytes}"])
    runs = {each: _followed(each, machine) for each in bursts}
    return {each: (int(run.ends_ps.max()), run.met) for each, run in runs.items()}


def _followed(burst: RoleBurst, top: Topology, seed: int = 0) -> PacketsTogether:
    options = PacketOptions(seed=seed)
    return laid_out(burst.programs, top, options).run(options)


def _queued(
    bursts: tuple[RoleBurst, ...], top: Topology, buffer_bytes: int, free: Mapping[RoleBurst, tuple[int, Packets]]
) -> QueuedTime:
    try:
        times = _times(bursts, top, buffer_bytes)
    except InfeasibleError as error:
        return QueuedTime(buffer_bytes, {}, why=error.what)
    factors: dict[str, float] = {}
    for burst, (taken, _) in times.items():
        alone = free[burst][0]
        factors[burst.role] = max(factors.get(burst.role, 1.0), taken / alone if alone else 1.0)
    met = [packets for _, packets in times.values()]
    return QueuedTime(
        buffer_bytes,
        factors,
        sum(each.drops for each in met),
        sum(each.pauses for each in met),
        sum(each.retransmitted_bytes for each in met),
    )


def queued_time(bursts: tuple[RoleBurst, ...], top: Topology, buffer_bytes: int) -> QueuedTime:
    """Return what queues of ``buffer_bytes`` do to some operations on a fabric."""
    return _queued(bursts, top, buffer_bytes, _times(bursts, top, ENDLESS))


def slowed_time(burst: RoleBurst, healthy: Topology, faulty: Topology, seed: int) -> float:
    """Return the factor on the time of an operation, by packets, on a fabric with faults over that without; 1 or more.

    ``seed`` draws what is lost. InfeasibleError where a connection is given up.
    """
    times = [int(_followed(burst, top, seed).ends_ps.max()) for top in (healthy, faulty)]
    return max(1.0, times[1] / times[0]) if times[0] else 1.0
