"""The machine as engines see it: numbered resources that serve one message at a time, and the route of each pair over them.

A resource is a directed link, a capacity that links share, a rank's reduction unit, or the software that sends messages
where that is work and not delay: of a rank, or of the NIC that they leave by, where it was measured (``Topology.occupying``),
of ranks that send or receive where a library says so (``Software.post_s``, ``receive_s``). Times are integer picoseconds; a
resource's speed is picoseconds per byte. ``whole`` resources take a message only when its last byte has come (store and
forward).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.costs.corruption import FULL_PACKET, lost_share
from ringwright.ground.errors import UsageError
from ringwright.ground.units import PS
from ringwright.model.software import NO_SOFTWARE, Software
from ringwright.model.topology import NIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ringwright.engines.wire_width import WireShares
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

MOST_LATENCY_S = 1e5  # of a link or switch: beyond it, and for what is no number, picoseconds overflow
ALPHAS = ("pipelined", "busy")
FOREVER = 1 << 62


@dataclass(frozen=True)
class Pacers:
    """Resources that moves between two topology nodes on a channel pass besides their links: in front of them, and behind them.

    Each int64 of shape (pairs,); -1 is none.
    """

    src: np.ndarray
    dst: np.ndarray
    channel: np.ndarray
    front: np.ndarray
    behind: np.ndarray


@dataclass(frozen=True)
class Machine:
    """Resources: links, then shared capacities, reduction units where adding takes time, then senders and receivers.

    The slots of streams follow (see ``switch_slots``), by their ``names``; ``pacers`` says which moves of a program they are for.

    ``ps_per_byte`` and ``latency`` (ps) are of length n. ``changes`` holds what faults do: (resource, ps, new ps per byte),
    sorted; ``delays`` likewise (resource, ps, new latency). Resources that ``holds`` are busy for latency + bytes instead of
    bytes alone. A rank and a NIC have a sender per class of links: its latency is the software time of a message; its ps per
    byte is 0 at a rank, whose threads go on, and that of the link at a NIC, which works on one message at a time. Receivers are
    alike, and take no time for bytes.
    """

    topology: Topology
    ps_per_byte: np.ndarray
    latency: np.ndarray
    whole: np.ndarray
    reducer: np.ndarray  # resource that adds at each node, or -1
    holds: np.ndarray  # per resource: busy during its latency
    sends: np.ndarray  # per resource: a sender or receiver
    sender: np.ndarray  # (node, class) -> resource, or -1
    receiver: np.ndarray  # likewise
    changes: tuple[tuple[int, int, float], ...] = ()
    delays: tuple[tuple[int, int, int], ...] = ()
    software: Software = NO_SOFTWARE
    names: tuple[str, ...] = ()
    pacers: Pacers | None = None
    coded: WireShares = field(
        default_factory=dict
    )  # by which number formats widen what goes to nodes that add, and back

    def with_resources(
        self, byte_ps: Sequence[Sequence[tuple[int, float]]], names: Sequence[str], pacers: Pacers
    ) -> Machine:
        """Return the machine with a further resource for each name; ``byte_ps``: from which ps on it takes so many per byte."""
        import numpy as np

        none = np.zeros(len(names), bool)
        changes = [(self.n + at, time, ps) for at, each in enumerate(byte_ps) for time, ps in each if time > 0]
        return dataclasses.replace(
            self,
            ps_per_byte=np.concatenate((self.ps_per_byte, [each[0][1] for each in byte_ps])),
            latency=np.concatenate((self.latency, np.zeros(len(names), np.int64))),
            whole=np.concatenate((self.whole, none)),
            holds=np.concatenate((self.holds, none)),
            sends=np.concatenate((self.sends, none)),
            changes=tuple(sorted((*self.changes, *changes), key=_moment)),
            names=(*self.names, *names),
            pacers=pacers,
        )

    def carrying(self, program: Program) -> Machine:
        """Return the machine as this program uses it: what was measured on it comes before a library's own tables."""
        import numpy as np

        used, measured = program.software, self.topology.message_s
        used = dataclasses.replace(
            used,
            message_s={**used.message_s, **used.post_s, **measured},
            beyond_s={name: cost for name, cost in used.beyond_s.items() if name in measured},
        )
        made = dataclasses.replace(self, software=used)
        if used.most_rate:
            made = made._slowed()
        if not self.sends.any() or (used.sharing == 1.0 and not used.piece_bytes):
            return made
        latency = np.where(self.sends, np.rint(self.latency * used.sharing).astype(np.int64), self.latency)
        # The first piece is waited for; the others are posted while bytes flow, until posting takes longer than they do.
        pieces = np.where(self.sends, latency / used.piece_bytes, 0.0) if used.piece_bytes else np.zeros(self.n)
        return dataclasses.replace(made, latency=latency, ps_per_byte=np.maximum(made.ps_per_byte, pieces))

    def _slowed(self) -> Machine:
        """Return the machine with links no faster than the software that fills them, healthy or not."""
        import numpy as np

        most, top = self.software.most_rate, self.topology
        of_class = np.array([PS / most[name] if name in most else 0.0 for name in top.classes])
        least = np.zeros(self.n)
        least[: top.n_links] = of_class[top.link_class]
        changes = tuple((resource, time, max(ps, float(least[resource]))) for resource, time, ps in self.changes)
        return dataclasses.replace(self, ps_per_byte=np.maximum(self.ps_per_byte, least), changes=changes)

    @property
    def n(self) -> int:
        """Resources."""
        return len(self.ps_per_byte)

    def label(self, resource: int) -> str:
        """Return a name a network engineer recognises."""
        import numpy as np

        top = self.topology
        if resource < top.n_links:
            return f"{top.label(int(top.src[resource]))} > {top.label(int(top.dst[resource]))}"
        if resource < top.n_links + len(top.groups):
            return top.groups[resource - top.n_links].name
        if resource >= self.n - len(self.names):
            return self.names[resource - self.n]
        if self.sends[resource]:
            at, end = (self.sender, "sender") if (self.sender == resource).any() else (self.receiver, "receiver")
            node, number = np.argwhere(at == resource)[0].tolist()
            return f"{top.classes[number]} {end} of {top.label(node)}"
        return f"adder of {top.label(int((self.reducer == resource).argmax()))}"


def machine(topology: Topology, alpha: str = "pipelined", software: Software = NO_SOFTWARE) -> Machine:
    """Return the resources of a topology; ``alpha``: a link is busy during its latency (busy) or not (pipelined).

    ``software``: of a library, whose messages may take time of processors at their ends.
    """
    import numpy as np

    if alpha not in ALPHAS:
        raise UsageError(f"'{alpha}' is no latency model", remedy=f"one of: {', '.join(ALPHAS)}")
    _require_latencies(topology)
    lossless = 1.0 if topology.loss is None else 1.0 - topology.loss
    reducers = _reducers(topology)
    plain = topology.n_links + len(topology.groups)
    sender, receiver, worked, rates = _processors(topology, plain + len(reducers), software)
    sends = np.arange(plain + len(reducers) + len(worked)) >= plain + len(reducers)
    with np.errstate(divide="ignore"):
        shared = [group.rate for group in topology.groups]
        added = [rate for rate, _ in reducers.values()]
        ps_per_byte = PS / np.concatenate((topology.rate * lossless, shared, added, rates))
    latency = np.zeros(len(ps_per_byte), np.int64)
    latency[: topology.n_links] = np.rint(topology.latency_s * PS)
    latency[plain:] = [round(latency_s * PS) for _, latency_s in reducers.values()] + worked
    whole = np.zeros(len(ps_per_byte), bool)
    whole[plain : plain + len(reducers)] = [
        node < topology.n_ranks for node in reducers
    ]  # networks add packet by packet
    reducer = np.full(topology.n_nodes, -1, np.int64)
    reducer[list(reducers)] = plain + np.arange(len(reducers))
    changes, delays = _changes(topology, reducer)
    holds = sends if alpha == "pipelined" else np.ones(len(ps_per_byte), bool)
    return Machine(topology, ps_per_byte, latency, whole, reducer, holds, sends, sender, receiver, changes, delays)


def _processors(topology: Topology, first: int, used: Software) -> tuple[np.ndarray, np.ndarray, list[int], np.ndarray]:
    """Return senders and receivers by node and class of links, and of each in turn the ps of a message and the bytes/s.

    What was measured is work of a rank or a NIC; where a library works at both ends it is the receiver's too. What a library
    posts is work of the rank's own thread, which waits until the bytes of a message are on the NIC.
    """
    import numpy as np

    occupying = {name: topology.message_s.get(name, 0.0) for name in topology.occupying}
    posted, received = (
        {name: cost for name, cost in costs.items() if name not in topology.message_s}
        for costs in (used.post_s, used.receive_s)
    )
    ranks, nics = np.arange(topology.n_ranks), np.flatnonzero(topology.kinds == NIC)
    everywhere = np.concatenate((ranks, nics))
    rates = np.full(topology.n_nodes, np.inf)
    np.minimum.at(rates, topology.src, topology.rate)
    rates[ranks] = np.inf
    waiting = np.full(topology.n_nodes, rates[nics].max() if len(nics) else np.inf)
    endless = np.full(topology.n_nodes, np.inf)
    sender = np.full((topology.n_nodes, len(topology.classes)), -1, np.int64)
    receiver = sender.copy()
    worked: list[int] = []
    of_each = [np.zeros(0)]
    for table, costs, nodes, rate in (
        (sender, occupying, everywhere, rates),
        (sender, posted, ranks, waiting),
        (receiver, occupying if used.receive_s else {}, everywhere, endless),
        (receiver, received, ranks, endless),
    ):
        cost = np.array([round(costs.get(name, 0.0) * PS) for name in topology.classes], np.int64)
        busy = np.flatnonzero(cost)
        numbers = first + len(worked) + np.arange(len(nodes) * len(busy))
        table[np.ix_(nodes, busy)] = numbers.reshape(len(nodes), len(busy))
        worked += cost[busy].tolist() * len(nodes)
        of_each.append(np.repeat(rate[nodes], len(busy)))
    return sender, receiver, worked, np.concatenate(of_each)


def _reducers(topology: Topology) -> dict[int, tuple[float, float]]:
    """Return rate and latency of the nodes where adding takes time: ranks, then aggregating nodes."""
    rates = {}
    if math.isfinite(topology.reduce_rate):
        rates = dict.fromkeys(range(topology.n_ranks), (topology.reduce_rate, 0.0))
    for node, able in sorted(topology.aggregators.items()):
        if math.isfinite(able.reduce_rate) or able.latency_s:
            rates[node] = (able.reduce_rate, able.latency_s)
    return rates


def _changes(
    topology: Topology, reducer: np.ndarray
) -> tuple[tuple[tuple[int, int, float], ...], tuple[tuple[int, int, int], ...]]:
    """Return how rates and latencies change over time; a factor of 0 is a dead link."""
    changed: list[tuple[int, int, float]] = []
    delays: list[tuple[int, int, int]] = []
    state: dict[tuple[str, int], dict[str, float]] = {}
    for fault in sorted(topology.faults, key=lambda each: each.time_s):
        time_ps = round(fault.time_s * PS)
        now = state.setdefault((fault.kind, fault.target), {})
        now[fault.field] = fault.value
        if fault.kind == "rank":
            resource = int(reducer[fault.target])
            if resource >= 0 and fault.field == "compute_factor":
                changed.append((resource, time_ps, _ps_per_byte(topology.reduce_rate * fault.value)))
        elif fault.field == "buffer_bytes":
            continue  # of queues, which packets alone have
        elif fault.field == "latency_s":
            delays.append((fault.target, time_ps, round(fault.value * PS)))
        else:
            healthy = 0.0 if topology.loss is None else float(topology.loss[fault.target])
            arrives = (1 - now.get("loss", healthy)) * (1 - lost_share(now.get("ber", 0.0), FULL_PACKET))
            through = now.get("rate_factor", 1.0) * arrives
            changed.append((fault.target, time_ps, _ps_per_byte(float(topology.rate[fault.target]) * through)))
    return tuple(sorted(changed, key=_moment)), tuple(sorted(delays, key=_moment))


def _require_latencies(topology: Topology) -> None:
    """Raise UsageError for a latency that is no time, of a link, a fault or a switch."""
    import numpy as np

    told = [*(fault.value for fault in topology.faults if fault.field == "latency_s")]
    told += [able.latency_s for able in topology.aggregators.values()]
    every = np.concatenate((np.asarray(topology.latency_s, float), np.asarray(told, float)))
    wrong = every[~((every >= 0) & (every <= MOST_LATENCY_S))]
    if len(wrong):
        raise UsageError(
            f"a latency of {wrong[0]:g} s is no time that a message takes",
            where=topology.name,
            remedy=f"give 0 to {MOST_LATENCY_S:g} s",
        )


def _moment(change: tuple[int, int, float]) -> tuple[int, int]:
    return change[:2]  # of two at one moment the later line of the table holds


def _ps_per_byte(rate: float) -> float:
    return PS / rate if rate > 0 else math.inf
