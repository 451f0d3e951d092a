"""The same program several times in a row: its connections keep what they have learnt of the network, as those of a job do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.concurrent_programs import merged, started
from ringwright.engines.flat import flatten
from ringwright.engines.packets.carriage import wire_rates, without_losses
from ringwright.engines.packets.options import PacketOptions
from ringwright.engines.packets.run import require_few, run
from ringwright.engines.repetitions import repeated
from ringwright.engines.switch_slots import machines
from ringwright.ground.errors import DeclinedError
from ringwright.ground.units import PS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.model.program import Program
    from ringwright.model.topology import Topology


def round_times_s(
    program: Program,
    topology: Topology,
    options: PacketOptions,
    rounds: int,
    beside: Sequence[Program] = (),
    *,
    lead_s: float = 0.0,
) -> np.ndarray:
    """Return how long each of ``rounds`` runs in a row takes, all ranks waiting for each other between them.

    ``beside``: programs that begin ``lead_s`` before the first round, once each. Seconds, float64 of shape (rounds,). Raises what
    one run by packets raises, and DeclinedError where one beside ends before the last round does.
    """
    top = wire_rates(topology)
    made, *others = machines([program, *beside], without_losses(top))
    flat = flatten(program, made)
    graphs = [
        started(repeated(flat, rounds), lead_s),
        *(flatten(each, on) for each, on in zip(beside, others, strict=True)),
    ]
    whole = merged(graphs) if beside else graphs[0]
    require_few(whole, top, options)
    jobs = np.repeat(np.arange(len(graphs)), [each.n_messages for each in graphs]) if beside else None
    told = run(whole, made.carrying(program), options, top, jobs=jobs)
    mine = rounds * flat.n_messages
    ends = told.end_ps[:mine].reshape(rounds, flat.n_messages).max(axis=1)
    at = mine
    for each in graphs[1:]:
        if told.end_ps[at : at + each.n_messages].max() < ends[-1]:
            raise DeclinedError("what runs beside the rounds ends before them", remedy="more bytes beside them")
        at += each.n_messages
    times: np.ndarray = np.diff(ends, prepend=round(lead_s * PS)) / PS
    return times
