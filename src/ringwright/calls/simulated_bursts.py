"""Bursts of a simulated collective: each message is a transfer, as the engine has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.analysis.traffic.burst_document import ToldBursts
from ringwright.analysis.traffic.transfers import Transfers, told
from ringwright.calls.detail import detail
from ringwright.calls.placed import hosts_of
from ringwright.engines.machine import PS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.calls.simulated_document import SimulatedRow
    from ringwright.calls.simulation_spec import SimulationSpec
    from ringwright.engines.result import Run
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

FOLDED = "so many messages are simulated folded, one for several equal ones, and nobody says whose they are"
UNFOLD = "ask for fewer ranks or a smaller size"


class SimulatedBursts(ToldBursts):
    """The bursts of one algorithm at one size."""

    algorithm: str
    size_bytes: int


def bursts(
    question: SimulationSpec, spelling: str, size_bytes: int, gap_s: float | None = None
) -> tuple[SimulatedBursts | None, str]:
    """Return the bursts of one algorithm at one size, or None with the reason; ``gap_s``: the longest pause within one, s."""
    shown = detail(question, spelling, size_bytes, whole=True)
    transfers = transfers_of(shown.program, question.topology, shown.run)
    if isinstance(transfers, str):
        return None, transfers
    return {**told(transfers, gap_s), "algorithm": spelling, "size_bytes": size_bytes}, ""


@dataclass(frozen=True, slots=True)
class BurstAnswer:
    """The bursts of one algorithm at one size, or why none are known: two keys of the object of schema ``simulate/1``."""

    bursts: SimulatedBursts | None = None
    bursts_unknown: str = ""


def burst_answer(question: SimulationSpec, rows: Sequence[SimulatedRow], gap_s: float | None = None) -> BurstAnswer:
    """Return the bursts of the first algorithm that answers, at the largest size."""
    name = rows[0].algorithm
    return BurstAnswer(*bursts(question, name, max(row.size_bytes for row in rows if row.algorithm == name), gap_s))


def transfers_of(program: Program, topology: Topology, run: Run) -> Transfers | str:
    """Return the messages that leave a host, all where the group has one; or why none are known."""
    flat = run.flat
    if flat is None or not flat.n_messages:
        return f"the {run.engine} engine follows no single message; try --engine events"
    if run.folded:
        return f"{FOLDED}; {UNFOLD}"
    n, group = flat.n_messages, np.asarray(program.collective.group, np.int64)
    hosts = np.full(topology.n_nodes, -1, np.int64)  # of ranks; nobody's of switches
    hosts[group] = np.unique(hosts_of(group.tolist(), topology), return_inverse=True)[1]
    src, dst, sizes = flat.src[:n], flat.dst[:n], flat.size_bytes[:n]
    several = len(np.unique(hosts[group])) > 1
    kept = (hosts[src] >= 0) & (sizes > 0) & ((hosts[src] != hosts[dst]) | (not several))
    is_rank = hosts[dst[kept]] >= 0
    scope = "what a rank sends to other hosts" if several else "all that a rank sends"
    return Transfers(
        src[kept].tolist(),
        run.start_ps[:n][kept] / PS,
        sizes[kept].tolist(),
        run.end_ps[:n][kept] / PS,
        [rank if mine else None for rank, mine in zip(dst[kept].tolist(), is_rank.tolist(), strict=True)],
        ground=f"{scope}: each message from its beginning to its end, as the {run.engine} engine has it",
        window_s=(0.0, run.time_s),
    )
