"""The closed form: the critical path that a program declares, priced at the rates and latencies of a machine.

A term of ``messages`` and ``size_bytes`` over one level costs messages * (latency + software cost) + bytes / rate, with the
latency and the rate of the route between neighbours on that level: ranks next to each other along the axis that the level
names (``level1``, or the axis's own name), routes whose slowest link is of the class that it names, and for a level without
a name the worst route between neighbours in rank order. Additions on the path cost bytes / adding rate.

Numbers of streams are as wide on the way through switches as their format is in its wider direction: both run beside each other.

A library's program has a closed form of its own (``Software.closed_form``), which takes its place: the declared path of a
program with segments, channels and shares says too little of it. It asks for the numbers of links inside and outside a node.

It assumes that messages of the path follow each other without waiting, that every route carries one message at a time, that
faults are those present at the start, and that chunks are cut evenly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.costs.calibration import link_numbers
from ringwright.costs.transports import TRANSPORTS
from ringwright.engines.flat import delays, handshakes, routes
from ringwright.engines.machine import machine
from ringwright.engines.result import Run
from ringwright.engines.wire_width import wire_shares
from ringwright.ground.errors import DeclinedError, UsageError
from ringwright.ground.units import PS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from ringwright.engines.machine import Machine
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

WITHIN_HOST = "nvlink"  # a level on which no number is in the format of a switch
LEFT_OUT = (
    "contention between messages",
    "slots of streams and what timers mend",
    "faults that come or go",
    "uneven chunks",
    "everything the declared critical path does not name",
)


@dataclass(frozen=True)
class Level:
    """What one message costs on a level: seconds before its first byte, bytes/s after it, a channel's own s per byte.

    One that is too large to go eagerly waits ``handshake_s`` more.
    """

    alpha_s: float
    rate: float
    byte_s: float = 0.0
    handshake_s: float = 0.0


def run(program: Program, topology: Topology) -> Run:
    """Return the closed form as a run without messages."""
    import numpy as np

    time_s = float(times_s(program, topology, [program.collective.size_bytes])[0])
    none = np.zeros(0, np.int64)
    return Run(none, none, round(time_s * PS), 0, "closed-form", LEFT_OUT, unfolded_because="nothing is simulated")


def times_s(program: Program, topology: Topology, sizes_bytes: object) -> np.ndarray:
    """Return the time at each size, in seconds: the program's terms grow with the size of its collective.

    float64 of the shape of ``sizes_bytes``.
    """
    import numpy as np

    sizes = np.asarray(sizes_bytes, float)
    whole = program.collective.size_bytes
    if program.software.closed_form is not None and whole:
        numbers = _of_library(topology.at(0.0), program.software.post_s)
        library = program.software.closed_form
        return np.array([library.time_s(int(size), numbers) for size in sizes.ravel()]).reshape(sizes.shape)
    if whole == 0 and (sizes > 0).any():
        raise UsageError("a program of 0 B says nothing of other sizes", remedy="make the program at a size above 0")
    scale = sizes / whole if whole else np.zeros_like(sizes)
    made = machine(topology.at(0.0), software=program.software).carrying(program)
    cost = program.cost
    total = np.zeros_like(sizes)
    wider = max((share for shares in wire_shares(program).values() for share in shares), default=1.0)
    for term in cost.terms:
        level = price(program, made, term.level)
        carried = term.size_bytes * scale * made.software.wire_factor * (1.0 if term.level == WITHIN_HOST else wider)
        total += term.messages * level.alpha_s + carried / level.rate + term.size_bytes * scale * level.byte_s
        if level.handshake_s:
            asks = carried > term.messages * TRANSPORTS[topology.transport].eager_bytes
            total += np.where(asks, term.messages * level.handshake_s, 0.0)
    if math.isfinite(topology.reduce_rate):
        total += cost.reduced_bytes * scale * made.software.wire_factor / topology.reduce_rate
    return total + program.software.base_s if cost.terms else total


def _of_library(topology: Topology, post_s: Mapping[str, float]) -> list[float]:
    """Return the numbers of a machine that a library's own closed form asks for; DeclinedError where a class of links is dead.

    What was measured of a message comes before what the library's post takes.
    """
    numbers: list[float] = []
    for link, posted_s in zip(link_numbers(topology), (0.0, max(post_s.values(), default=0.0)), strict=True):
        if link is not None and link.rate_bytes_per_s <= 0:
            raise DeclinedError(
                "a link is dead: the closed form of a library takes each class of links as its slowest one"
            )
        if link is None:
            numbers += [0.0, 0.0, 0.0]
        else:
            numbers += [link.latency_s, link.message_s or posted_s, 1 / link.rate_bytes_per_s]
    return numbers


def price(program: Program, made: Machine, level: str) -> Level:
    """Return what a message costs on a level; raise DeclinedError where its rate is 0."""
    import numpy as np

    top = made.topology
    group = np.asarray(program.collective.group, np.int64)
    src, dst = _neighbours(program, top, level)
    starts, hops = routes(made, group[src], group[dst], np.zeros(len(src), bool))
    full = np.flatnonzero(np.diff(starts))
    if not len(full):
        return Level(0.0, math.inf)
    ps_per_byte = np.maximum.reduceat(made.ps_per_byte[hops], starts[:-1][full])
    delay, byte_ps = (each[full] for each in delays(made, starts, hops))
    latency = np.add.reduceat(made.latency[hops], starts[:-1][full]) + delay
    waits = handshakes(made, group[src][full], group[dst][full], np.full(len(full), np.inf))
    if level in top.classes:
        slowest = np.array([_slowest_class(made, hops[starts[route] : starts[route + 1]]) for route in full.tolist()])
        mine = slowest == top.classes.index(level)
        if mine.any():
            ps_per_byte, latency, byte_ps, waits = ps_per_byte[mine], latency[mine], byte_ps[mine], waits[mine]
    worst = float(ps_per_byte.max())
    if math.isinf(worst):
        raise DeclinedError(f"a route of level '{level or 'any'}' is dead")
    return Level(
        float(latency.max()) / PS, PS / worst if worst else math.inf, float(byte_ps.max()) / PS, int(waits.max()) / PS
    )


def _slowest_class(made: Machine, hops: np.ndarray) -> int:
    links = hops[hops < made.topology.n_links]
    return int(made.topology.link_class[links[made.ps_per_byte[links].argmax()]])


def _neighbours(program: Program, top: Topology, level: str) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of ranks that are next to each other on a level (a class may need any distance)."""
    import numpy as np

    p = program.p
    rank = np.arange(p)
    distances = [1 % p]
    if level in top.classes:
        distances = [1 << bit for bit in range(max(p - 1, 1).bit_length()) if 1 << bit < p] or [0]
        rank = rank[:: max(p // 256, 1)]
    factors, names = _axes(program, top)
    number = names.index(level) if level in names else -1
    if number < 0 and level.startswith("level") and level[5:].isdigit() and int(level[5:]) < len(factors):
        number = int(level[5:])
    if number < 0:
        src = np.tile(rank, len(distances))
        return src, (src + np.repeat(distances, len(rank))) % p
    weight, size = math.prod(factors[:number]), factors[number]
    digit = rank // weight % size
    return rank, rank + weight * ((digit + 1) % size - digit)


def _axes(program: Program, top: Topology) -> tuple[list[int], list[str]]:
    """Return the mesh that levels refer to: the program's own factors, else the machine's axes."""
    sizes, names = [size for _, size in top.axes], [name for name, _ in top.axes]
    factors = program.knobs.get("factors")
    if isinstance(factors, tuple | list) and math.prod(factors) == program.p:
        return list(factors), names if list(factors) == sizes else []
    return (sizes, names) if math.prod(sizes) == program.p else ([], [])
