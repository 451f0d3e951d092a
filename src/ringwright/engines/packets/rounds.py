"""The same program several times in a row: its connections keep what they have learnt of the network, as those of a job do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.flat import flatten
from ringwright.engines.machine import PS
from ringwright.engines.packets.carriage import wire_rates, without_losses
from ringwright.engines.packets.options import PacketOptions
from ringwright.engines.packets.run import require_few, run
from ringwright.engines.repeated import repeated
from ringwright.engines.slots import machines

if TYPE_CHECKING:
    from ringwright.program import Program
    from ringwright.topology import Topology


def round_times_s(program: Program, topology: Topology, options: PacketOptions, rounds: int) -> np.ndarray:
    """Return how long each of ``rounds`` runs in a row takes, all ranks waiting for each other between them.

    Seconds, float64 of shape (rounds,). Raises what one run by packets raises.
    """
    top = wire_rates(topology)
    (made,) = machines([program], without_losses(top))
    flat = flatten(program, made)
    whole = repeated(flat, rounds)
    require_few(whole, top, options)
    told = run(whole, made.carrying(program), options, top)
    ends = told.end_ps.reshape(rounds, flat.n_messages).max(axis=1)
    times: np.ndarray = np.diff(ends, prepend=0) / PS
    return times
