"""What losses add to a program that is a pool of slots, with every packet followed, and what the packets met."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.packets.carriage import spoken
from ringwright.engines.packets.options import PacketOptions
from ringwright.engines.packets.run import LEFT_OUT, Packets, TooManyPacketsError
from ringwright.engines.pools.loop import PoolRun, simulate_pool
from ringwright.engines.pools.of_program import REMEDY, slot_pool

if TYPE_CHECKING:
    from ringwright.engines.result import Run
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

HOP_COST = 40  # hops of the compiled packet engine in the time of one here
MOST_HOPS = 150_000


@dataclass(frozen=True)
class Followed:
    """The packets of a program: what losses add to it, and the runs behind that."""

    late_ps: int
    met: PoolRun
    name: str
    payload_bytes: int
    topology: Topology

    def on(self, run: Run, options: PacketOptions | None) -> Run:
        """Return an engine's run, which has this delay already, with what its packets met."""
        none = np.zeros(len(run.bytes), np.int64)
        most = max(self.met.queued, default=0)
        total, below, ninety_nine = sum(self.met.queued.values()), 0, 0
        for packets in sorted(self.met.queued):
            below += self.met.queued[packets]
            if below >= 0.99 * total:
                ninety_nine = packets
                break
        met = Packets(
            dataclasses.replace(spoken(self.topology), name=self.name),
            self.met.hops,
            0,
            self.met.lost,
            0,
            0,
            self.met.timeouts,
            self.met.again * self.payload_bytes,
            ninety_nine * self.payload_bytes,
            most * self.payload_bytes,
            (options or PacketOptions()).bin_ps,
            np.zeros((0, 3), np.int64),
            none,
            none,
            none,
            none,
            run.bytes,
            HOP_COST,
        )
        return dataclasses.replace(run, engine="packets", packets=met, left_out=LEFT_OUT)


def follow(
    program: Program, topology: Topology, alpha: str, options: PacketOptions | None, starts_ps: np.ndarray | None = None
) -> Followed:
    """Follow a program's packets, with its losses and without; DeclinedError where it is no pool, or has too many packets.

    ``starts_ps``: when each node of the machine comes, int64 of shape (nodes,).
    """
    pool = slot_pool(program, topology, alpha, starts_ps)
    most = MOST_HOPS if options is None else min(options.most_hops // HOP_COST, MOST_HOPS)
    if pool.hops > most:
        raise TooManyPacketsError(
            f"{pool.hops:,} packets at ports of switches that add are more than {most:,} that are followed one by one",
            remedy=REMEDY,
        )
    met = simulate_pool(pool, 0 if options is None else options.seed)
    calm_ps = simulate_pool(pool.without_losses()).time_ps
    stream = program.streams[0]
    name = f"{pool.slots} slots, {stream.loss}"
    payload = stream.payload_bytes or topology.aggregators[stream.node].payload_bytes
    return Followed(max(0, met.time_ps - calm_ps), met, name, payload, topology)
