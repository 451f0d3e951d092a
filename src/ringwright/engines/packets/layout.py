"""From messages on a machine to what packets see: ports with queues, and a connection between each two ends.

A message between hosts is cut into packets of its transport, which pass every port of their path one by one; one inside a host
passes as a whole, without loss. What serves a message before its first port (its sender's software) or behind its last (the
receiver's, an adder) does so once, as in the event engine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.costs.corruption import lost_share
from ringwright.costs.protocols import DROP, ONE
from ringwright.engines.packets.carriage import inside
from ringwright.engines.packets.deadlock import queues_needed
from ringwright.engines.packets.detours import detours
from ringwright.engines.packets.network import ENDLESS, GATES, Connections, PacketNetwork, Ports
from ringwright.engines.packets.options import PacketOptions
from ringwright.ground.errors import DeclinedError
from ringwright.ground.units import PS
from ringwright.model.topology import RANK, SWITCH

if TYPE_CHECKING:
    import numpy as np

    from ringwright.costs.protocols import Protocol
    from ringwright.engines.machine import Machine
    from ringwright.engines.messages import MessageGraph
    from ringwright.model.topology import Topology

AS_USUAL = PacketOptions()
LEAST_WINDOW = 16  # packets that may be under way on the shortest path


def lay_out(
    flat: MessageGraph,
    machine: Machine,
    used: Protocol,
    top: Topology,
    options: PacketOptions = AS_USUAL,
    jobs: np.ndarray | None = None,
) -> PacketNetwork:
    """Return a program's messages on ports and connections.

    ``machine`` is that of ``without_losses(top)``, for packets are lost one by one here; ``jobs``: whose each message is (None:
    all of one job), for two jobs share no connection. Raises DeclinedError for messages that fork in the network.
    """
    import numpy as np

    if flat.branches is not None:
        raise DeclinedError("packets do not follow multicast in the network", remedy="--engine events")
    fronts, paths, behinds = _cut(flat, machine)
    pair = flat.src.astype(np.int64) * top.n_nodes + flat.dst
    if jobs is not None:
        pair += jobs * top.n_nodes**2
    with_path = np.diff(paths[0]) > 0
    pairs, first, which = np.unique(pair[with_path], return_index=True, return_inverse=True)
    connection = np.full(flat.n_messages, -1, np.int32)
    connection[with_path] = which
    first = np.flatnonzero(with_path)[first]
    of_job, between = np.divmod(pairs, top.n_nodes**2)
    src, dst = np.divmod(between, top.n_nodes)
    ports = _ports(machine, used, top)
    burst = options.burst_bytes if used.gate == DROP else 0
    made = _connections(machine, used, ports, src, dst, _rows(paths, first), at_once=burst > 0)
    ports = replace(ports, virtual_queues=queues_needed(made, ports.gate))
    return PacketNetwork(
        used,
        ports,
        made,
        connection,
        flat.size_bytes,
        flat.delay,
        flat.next_starts,
        flat.nexts,
        flat.waits,
        *fronts,
        *behinds,
        machine.whole,
        _partners(of_job, src, dst, made, top.n_nodes, wanted=options.duplex and used.transport == "tcp"),
        options.seed,
        burst,
    )


def _partners(
    of_job: np.ndarray, src: np.ndarray, dst: np.ndarray, made: Connections, n_nodes: int, *, wanted: bool
) -> np.ndarray:
    """Return for each connection that of the other direction, -1 where there is none. int32 of shape (connections,)."""
    import numpy as np

    partner = np.full(len(src), -1, np.int32)
    if wanted and len(src):
        first = of_job * n_nodes**2
        pairs, back = first + src * n_nodes + dst, first + dst * n_nodes + src
        at = np.minimum(np.searchsorted(pairs, back), len(pairs) - 1)
        both = (pairs[at] == back) & made.reliable & made.reliable[at]
        partner[both] = at[both]
    return partner


def _cut(flat: MessageGraph, machine: Machine) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (starts, resources) in front of the ports of each message, of its ports, and behind them."""
    import numpy as np

    top = machine.topology
    plain = top.n_links + len(top.groups)
    is_port = flat.hops < plain
    owner = np.repeat(np.arange(flat.n_messages), np.diff(flat.hop_starts))
    index = np.arange(len(flat.hops))
    begin, end = np.full(flat.n_messages, len(flat.hops)), np.full(flat.n_messages, -1)
    np.minimum.at(begin, owner[is_port], index[is_port])
    np.maximum.at(end, owner[is_port], index[is_port])
    at_port = (index >= begin[owner]) & (index <= end[owner])
    before = index < begin[owner]
    before &= end[owner] >= 0
    parts = []
    for chosen in (before, at_port, ~at_port & ~before):
        starts = np.concatenate(([0], np.cumsum(np.bincount(owner[chosen], minlength=flat.n_messages))))
        parts.append((starts.astype(np.int64), flat.hops[chosen].astype(np.int32)))
    return parts


def _rows(cut: tuple[np.ndarray, np.ndarray], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return some rows of columns that starts cut."""
    import numpy as np

    starts, values = cut
    lengths = np.diff(starts)[rows]
    ends = np.concatenate(([0], np.cumsum(lengths)))
    inner = np.arange(ends[-1]) - np.repeat(ends[:-1], lengths)
    return ends, values[np.repeat(starts[rows], lengths) + inner]


def _ports(machine: Machine, used: Protocol, top: Topology) -> Ports:
    """Return the ports of a machine: a queue at each link that leaves a switch between hosts, none elsewhere."""
    import numpy as np

    between = np.zeros(machine.n, bool)
    between[: top.n_links] = ~inside(top)
    queued = np.zeros(machine.n, bool)
    queued[: top.n_links] = between[: top.n_links] & (top.kinds[top.src] == SWITCH)
    forwarding = between[: top.n_links] & (top.kinds[top.src] == RANK) & _forwards(top)
    queued[: top.n_links] |= forwarding
    buffer = np.full(machine.n, ENDLESS, np.int64)
    buffer[queued] = used.buffer_bytes
    gate = np.zeros(machine.n, np.uint8)
    gate[between] = GATES.index(used.gate)
    losses, buffers = _faults(top, used, queued)
    return Ports(
        machine.ps_per_byte,
        machine.latency,
        machine.holds,
        between,
        gate,
        buffer,
        np.ones(machine.n, np.int32),
        machine.changes,
        machine.delays,
        losses,
        buffers,
    )


def _forwards(top: Topology) -> bool:
    """Return whether ranks pass on what is not for them: networks without switches."""
    return bool((top.kinds == RANK).all())


def _faults(
    top: Topology, used: Protocol, queued: np.ndarray
) -> tuple[tuple[tuple[int, int, float, float], ...], tuple[tuple[int, int, int], ...]]:
    """Return when which link loses how many data packets and acknowledgements, and when which queue has which size."""
    import numpy as np

    sizes = used.payload_bytes + used.header_bytes, used.ack_bytes
    within = inside(top)
    base = np.zeros(top.n_links) if top.loss is None else np.where(within, 0.0, top.loss)
    losses = {(link, 0): (float(base[link]), 0.0) for link in np.flatnonzero(base).tolist()}
    now: dict[int, list[float]] = {}
    buffers = []
    for fault in sorted(top.faults, key=lambda each: each.time_s):
        time_ps = round(fault.time_s * PS)
        if fault.kind != "link" or within[fault.target]:
            continue
        if fault.field == "buffer_bytes" and queued[fault.target]:
            buffers.append((fault.target, time_ps, int(fault.value) or used.buffer_bytes))
        elif fault.field in ("loss", "ber"):
            state = now.setdefault(fault.target, [float(base[fault.target]), 0.0])
            state[fault.field == "ber"] = fault.value
            losses[fault.target, time_ps] = (state[0], state[1])
    rows = []
    for (link, time_ps), (share, ber) in sorted(losses.items()):
        data, ack = (1.0 - (1.0 - share) * (1.0 - lost_share(ber, size)) for size in sizes)
        rows.append((link, time_ps, data, ack))
    return tuple(rows), tuple(sorted(buffers))


def _connections(
    machine: Machine,
    used: Protocol,
    ports: Ports,
    src: np.ndarray,
    dst: np.ndarray,
    own: tuple[np.ndarray, np.ndarray],
    *,
    at_once: bool,
) -> Connections:
    import numpy as np

    top = machine.topology
    ports = replace(ports, latency=_from_the_start(ports))
    owner = np.repeat(np.arange(len(src)), np.diff(own[0]))
    reliable = np.bincount(owner, weights=ports.between[own[1]], minlength=len(src)) > 0
    back_starts, back = _backwards(machine, src, dst, reliable)
    trip = _trip_ps(ports, used, own, owner, len(src)) + _trip_ps(
        ports, used, (back_starts, back), np.repeat(np.arange(len(src)), np.diff(back_starts)), len(src), ack=True
    )
    if at_once:  # what comes after a silence passes a token bucket without any time
        trip = _trip_ps(replace(ports, byte_ps=np.zeros_like(ports.byte_ps)), used, own, owner, len(src)) * 2
    finite = np.where(np.isfinite(ports.byte_ps[own[1]]), ports.byte_ps[own[1]], 0.0)
    line = np.zeros(len(src))
    np.maximum.at(line, owner, finite)
    wire = used.payload_bytes + used.header_bytes
    with np.errstate(divide="ignore"):
        in_flight = np.where(line > 0, trip * used.window_rtts / np.maximum(line * wire, 1e-9), 1 << 20)
    least = max(LEAST_WINDOW, used.window_bytes // used.payload_bytes)
    window = np.clip(np.ceil(in_flight), least, 1 << 20).astype(np.int32)
    starts, links, first = own[0], own[1], np.arange(len(src) + 1)
    if used.routing != ONE:
        starts, links, first = detours(top, own, reliable)
    return Connections(
        starts.astype(np.int64),
        links.astype(np.int32),
        first.astype(np.int64),
        back_starts.astype(np.int64),
        back.astype(np.int32),
        reliable,
        window,
        trip.astype(np.int64),
        line,
    )


def _from_the_start(ports: Ports) -> np.ndarray:
    """Return the latencies that hold from the start, which a transport knows, by faults too. int64 of shape (resources,)."""
    latency = ports.latency.copy()
    for port, time_ps, latency_ps in ports.delays:
        if time_ps <= 0:
            latency[port] = latency_ps
    return latency


def _trip_ps(
    ports: Ports, used: Protocol, path: tuple[np.ndarray, np.ndarray], owner: np.ndarray, n: int, *, ack: bool = False
) -> np.ndarray:
    """Return what one full packet, or one acknowledgement, takes over idle ports. float64 of shape (connections,)."""
    import numpy as np

    wire = used.ack_bytes if ack else used.payload_bytes + used.header_bytes
    byte_ps = np.where(np.isfinite(ports.byte_ps[path[1]]), ports.byte_ps[path[1]], 0.0)
    taken: np.ndarray = np.bincount(owner, weights=ports.latency[path[1]] + wire * byte_ps, minlength=n)
    return taken


def _backwards(
    machine: Machine, src: np.ndarray, dst: np.ndarray, reliable: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the links from each target back to its source, none for what is not acknowledged."""
    import numpy as np

    starts, links = machine.topology.routes(dst[reliable], src[reliable])
    lengths = np.zeros(len(src), np.int64)
    lengths[reliable] = np.diff(starts)
    return np.concatenate(([0], np.cumsum(lengths))), links
