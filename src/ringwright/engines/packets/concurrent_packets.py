"""Several programs at the same time on one machine, by packets: they share ports, queues and connections of equal ends."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.concurrent_programs import merged, started
from ringwright.engines.flat import flatten
from ringwright.engines.packets.carriage import wire_rates, without_losses
from ringwright.engines.packets.options import PacketOptions
from ringwright.engines.packets.run import Packets, require_few, run
from ringwright.engines.switch_slots import machines
from ringwright.ground.errors import DeclinedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.engines.machine import Machine
    from ringwright.engines.messages import MessageGraph
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology


@dataclass(frozen=True)
class PacketsTogether:
    """Programs that ran at the same time: when the last message of each arrived, int64 ps by program, and what was met."""

    ends_ps: np.ndarray
    met: Packets


@dataclass(frozen=True)
class ProgramsTogether:
    """Programs laid out on a machine, to be run with several seeds; ``bounds`` cuts their messages."""

    graph: MessageGraph
    machine: Machine
    topology: Topology
    bounds: tuple[int, ...]

    def run(self, options: PacketOptions) -> PacketsTogether:
        """Return one run; raises InfeasibleError where a connection is given up."""
        told = run(self.graph, self.machine, options, self.topology)
        ends = [int(told.end_ps[begin:end].max(initial=0)) for begin, end in pairwise(self.bounds)]
        if told.packets is None:
            raise DeclinedError("no packets were followed", remedy="--engine events")
        return PacketsTogether(np.array(ends, np.int64), told.packets)


def laid_out(programs: Sequence[Program], topology: Topology, options: PacketOptions) -> ProgramsTogether:
    """Return programs that begin together; DeclinedError for more packets than ``options`` allows, and for multicast."""
    top = wire_rates(topology)
    each = machines(programs, without_losses(top))
    graphs = [
        started(flatten(program, made), program.software.base_s) for program, made in zip(programs, each, strict=True)
    ]
    whole = merged(graphs)
    require_few(whole, top, options)
    bounds = np.cumsum([0, *(graph.n_messages for graph in graphs)]).tolist()
    return ProgramsTogether(whole, each[-1].carrying(programs[0]), top, tuple(bounds))
