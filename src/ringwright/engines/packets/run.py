"""Run a program by packets: what it took, and what its packets met on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.arrivals import gated
from ringwright.engines.events import report_stuck
from ringwright.engines.flat import flatten
from ringwright.engines.machine import FOREVER
from ringwright.engines.packets.carriage import spoken, wire_rates, without_losses
from ringwright.engines.packets.layout import lay_out
from ringwright.engines.packets.options import STARTS, PacketOptions
from ringwright.engines.packets.ports import least_of
from ringwright.engines.result import Run
from ringwright.engines.switch_slots import machines
from ringwright.ground.errors import DeclinedError, JobEndsError, UsageError
from ringwright.ground.units import PS, format_size

if TYPE_CHECKING:
    from ringwright.costs.protocols import Protocol
    from ringwright.engines.machine import Machine
    from ringwright.engines.messages import MessageGraph
    from ringwright.engines.packets.loop import PacketRun
    from ringwright.engines.packets.network import PacketNetwork
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

UNFOLDED = "packets follow each connection by itself"
LEFT_OUT = ("memory copies within a rank", "losses, queues and flow control inside a host (NVLink, PCIe)")


class TooManyPacketsError(DeclinedError):
    """More packets would leave ports than are to be followed."""


@dataclass(frozen=True)
class Packets:
    """What packets met. Counts are sums over ports; ``queue_bytes_p99``: 99 of 100 packets found no more in front of them.

    ``queues``: int64 rows (bin, port, most bytes queued in that bin) of ``bin_ps`` each, shape (rows, 3). ``port_drops``,
    ``port_lost``, ``port_pauses``, ``port_most``: int64 by resource. ``hops``: packets that left a port, acknowledgements too.
    """

    protocol: Protocol
    hops: int
    drops: int
    lost: int
    pauses: int
    marked: int
    timeouts: int
    retransmitted_bytes: int
    queue_bytes_p99: int
    queue_bytes_most: int
    bin_ps: int
    queues: np.ndarray = field(repr=False)
    port_drops: np.ndarray = field(repr=False)
    port_lost: np.ndarray = field(repr=False)
    port_pauses: np.ndarray = field(repr=False)
    port_most: np.ndarray = field(repr=False)
    port_bytes: np.ndarray = field(repr=False)
    hop_cost: int = 1

    def sentence(self) -> str:
        """Return what packets met, in words."""
        told = [f"{self.protocol.name}: the longest queue {format_size(self.queue_bytes_most)}"]
        for count, what in (
            (self.drops, "dropped by full queues"),
            (self.lost, "lost on links"),
            (self.marked, "marked"),
            (self.pauses, "pauses"),
            (self.timeouts, "time-outs"),
        ):
            told += [f"{count:,} {what}"] if count else []
        told += [f"{format_size(self.retransmitted_bytes)} sent again"] if self.retransmitted_bytes else []
        return ", ".join(told)


def simulate(
    program: Program,
    topology: Topology,
    alpha: str,
    options: PacketOptions | None,
    *,
    by_ps: int,
    late: np.ndarray | None,
    native: bool,
) -> Run:
    """Return the run of a program by packets, its clock that of the first message (``by_ps`` behind that of the faults).

    ``late``: by how many ps each node comes after the first rank. Raises DeclinedError for multicast in the network, and for more
    packets than can be followed.
    """
    options = options or PacketOptions()
    if options.start not in STARTS:
        raise UsageError(f"'{options.start}' is no start of a step", remedy=f"one of: {', '.join(STARTS)}")
    top = wire_rates(topology.starting_at(by_ps / PS) if by_ps else topology)
    (made,) = machines([program], without_losses(top), alpha)
    flat, carrying = flatten(program, made), made.carrying(program)
    require_few(flat, top, options)
    result = run(flat if late is None else gated(flat, late), carrying, options, top, native=native)
    mine = slice(0, flat.n_messages)
    result = replace(
        result, start_ps=result.start_ps[mine], end_ps=result.end_ps[mine], flat=flat, unfolded_because=UNFOLDED
    )
    return result.with_loads(made, result.packets.port_bytes if result.packets else np.zeros(made.n, np.int64))


def packet_hops(flat: MessageGraph, used: Protocol) -> int:
    """Return about how many packets leave a port: those of data, and their acknowledgements."""
    packets = np.maximum(1, -(-flat.size_bytes // used.payload_bytes))
    return int((packets * np.diff(flat.hop_starts)).sum() * (1 + 1 / used.acks_every))


def require_few(flat: MessageGraph, top: Topology, options: PacketOptions) -> None:
    """Raise DeclinedError where more packets would leave ports than are to be followed."""
    hops = packet_hops(flat, spoken(top))
    if hops > options.most_hops:
        raise TooManyPacketsError(
            f"{hops:,} packets at ports are more than {options.most_hops:,} that are followed one by one",
            remedy="a smaller size, or --engine events",
        )


def run(
    flat: MessageGraph,
    machine: Machine,
    options: PacketOptions,
    top: Topology,
    *,
    native: bool = True,
    jobs: np.ndarray | None = None,
) -> Run:
    """Run messages on a machine whose links lose nothing by themselves (``layout.without_losses`` of ``top``).

    ``jobs``: whose each message is, None where all are of one job. Raises JobEndsError where a connection is given up, in the
    words of the library, NeverArrivesError where a message waits for ever.
    """
    from ringwright.engines.packets import loops

    used = spoken(top)
    net = lay_out(flat, machine, used, top, options, jobs)
    simulate = loops.packets if native else loops.twin
    told = simulate(net, acknowledged=options.start == "acknowledged", trains=options.trains, bin_ps=options.bin_ps)
    start, end = (np.asarray(each, np.int64) for each in (told.start, told.end))
    if told.gave_up[0] >= 0:
        raise _given_up(net, machine, told)
    n = flat.n_messages
    if (end[:n] >= FOREVER).any():
        report_stuck(flat, machine, start, end)
    met = _met(told, used, options)
    return Run(start[:n], end[:n], int(end[:n].max(initial=0)), met.hops, "packets", LEFT_OUT, packets=met)


def _met(told: PacketRun, used: Protocol, options: PacketOptions) -> Packets:
    drops, lost, pauses, marked, most = (
        np.asarray(each, np.int64) for each in (told.drops, told.lost, told.pauses, told.marked, told.most)
    )
    rows = np.asarray(told.samples, np.int64).reshape(-1, 3)
    return Packets(
        used,
        told.hops,
        int(drops.sum()),
        int(lost.sum()),
        int(pauses.sum()),
        int(marked.sum()),
        told.timeouts,
        told.retransmitted_bytes,
        quantile(np.asarray(told.bars, np.int64), 0.99),
        int(most.max(initial=0)),
        options.bin_ps,
        rows,
        drops,
        lost,
        pauses,
        most,
        np.asarray(told.bytes, np.int64),
    )


def quantile(bars: np.ndarray, share: float) -> int:
    """Return the queue, in bytes, that ``share`` of packets did not find longer: the least of its bar; 0 where none came."""
    total = int(bars.sum())
    if not total:
        return 0
    return least_of(int(np.searchsorted(np.cumsum(bars), math.ceil(share * total))))


def _given_up(net: PacketNetwork, machine: Machine, told: PacketRun) -> JobEndsError:
    number, time_ps = told.gave_up
    top, used = machine.topology, net.protocol
    first = int(net.connections.path_ports[net.connections.path_starts[net.connections.first_path[number]]])
    last = int(net.connections.path_ports[net.connections.path_starts[net.connections.first_path[number] + 1] - 1])
    ends = f"{top.label(int(top.src[first]))} to {top.label(int(top.dst[last]))}"
    return JobEndsError(
        "given-up",
        f"{used.name} gives up after {used.retries} retries",
        between=ends,
        at_s=time_ps / PS,
        prints=used.ends,
    )
