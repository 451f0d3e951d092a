"""Several programs at the same time on one fabric, packet by packet: they meet in the same queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.engines.flat import flatten
from ringwright.engines.packets.carriage import spoken, wire_rates, without_losses
from ringwright.engines.packets.options import PacketOptions
from ringwright.engines.packets.run import packet_hops, run
from ringwright.engines.slots import machines
from ringwright.engines.together import merged, started
from ringwright.errors import DeclinedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.engines.machine import Machine
    from ringwright.engines.messages import MessageGraph
    from ringwright.engines.result import Run
    from ringwright.program import Program
    from ringwright.topology import Topology


def packets_together(programs: Sequence[Program], topology: Topology, options: PacketOptions | None = None) -> Run:
    """Return the run of programs that begin together; its time is that of the last.

    Raises DeclinedError for more packets than can be followed or multicast in the network, InfeasibleError where a connection is
    given up.
    """
    options = options or PacketOptions()
    top = wire_rates(topology)
    whole, machine = _laid(programs, top)
    hops = packet_hops(whole, spoken(top))
    if hops > options.most_hops:
        raise DeclinedError(
            f"{hops:,} packets at ports are more than {options.most_hops:,} that are followed one by one",
            remedy="smaller sizes, or --engine events",
        )
    return run(whole, machine, options, top)


def hops_together(programs: Sequence[Program], topology: Topology) -> int:
    """Return about how many packets leave a port where these programs run together."""
    top = wire_rates(topology)
    return packet_hops(_laid(programs, top)[0], spoken(top))


def _laid(programs: Sequence[Program], top: Topology) -> tuple[MessageGraph, Machine]:
    each = machines(programs, without_losses(top), "pipelined")
    graphs = [
        started(flatten(program, made), program.software.base_s) for program, made in zip(programs, each, strict=True)
    ]
    return merged(graphs), each[-1].carrying(programs[0])
