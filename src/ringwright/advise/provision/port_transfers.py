"""What a simulated step sends by the ports of its ranks: a transfer for each operation and port, with its bytes and times.

An operation keeps a port busy for a share of its own time; that share at the port's rate is what it sends there. It is spread
over the time that the operation takes in the step. Of ranks that do the same, those of one host stand for all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.job.groups import OperationGroups
from ringwright.ground.units import PS
from ringwright.jobs.pricing.costs import FabricCosts

if TYPE_CHECKING:
    from ringwright.advise.provision.network import NetworkTiers
    from ringwright.engines.job.groups import Group
    from ringwright.engines.job.run import JobRun
    from ringwright.jobs.study import PolicyResult
    from ringwright.model.rewrites import Operation
    from ringwright.model.stages import Costs
    from ringwright.model.topology import Topology

LEAST_BYTES = 1.0  # of a transfer


@dataclass(frozen=True)
class SentTransfers:
    """Transfers of one step, each a row: the port (a link), s from the beginning of the step, bytes. Arrays of one length."""

    nic: np.ndarray
    start_s: np.ndarray
    end_s: np.ndarray
    size_bytes: np.ndarray
    step_s: float


def transfers(result: PolicyResult, carrier: Costs, tiers: NetworkTiers) -> SentTransfers:
    """Return what the last step of a run sends by the ports of the hosts of its ranks; of ranks alike those of one host.

    ``carrier`` are the costs on the fabric of ``tiers``: they say which links an operation keeps busy, and for which share.
    """
    run = result.undisturbed
    begin, end = run.window()
    groups = OperationGroups(result.workload, run.laid.rank_classes)
    seen = _seen(tiers, run)
    operations = {each.name: each for each in run.laid.operations}
    known: dict[tuple[str, int], list[dict[tuple[str, int], float]]] = {}
    parts: list[tuple[np.ndarray, ...]] = []
    for row in run.laid.rows:
        if row.what != "operation":
            continue
        operation = operations[row.name]
        listed = groups.groups(operation)
        at = next(number for number, each in enumerate(listed) if each.members == row.rank_classes)
        pieces: list[int] = [row.size_bytes] * (row.count - 1) + [row.last_bytes]
        for size in dict.fromkeys(pieces):
            if (operation.name, size) not in known:
                known[operation.name, size] = _by_port(operation, size, listed, carrier, tiers.topology, seen)
            mine = {port: sent for (phase, port), sent in known[operation.name, size][at].items() if phase == row.phase}
            where = np.flatnonzero(np.array(pieces) == size)
            for step in (run.laid.steps - 2, run.laid.steps - 1):  # what begins before the last step may end in it
                if step >= 0:
                    parts += _rows(run, run.span(row, step), where, mine)
    columns = [np.concatenate([part[at] for part in parts]) if parts else np.zeros(0) for at in range(4)]
    nic, start, stop, sent = columns
    kept = (start >= begin) & (start < end)
    return SentTransfers(
        nic[kept].astype(np.int64),
        (start[kept] - begin) / PS,
        (stop[kept] - begin) / PS,
        sent[kept],
        (end - begin) / PS,
    )


def _rows(run: JobRun, span: slice, where: np.ndarray, ports: dict[int, float]) -> list[tuple[np.ndarray, ...]]:
    start, stop = run.times.moved[span][where], run.times.end[span][where]
    return [
        (np.full(len(where), port), start, stop, np.full(len(where), sent))
        for port, sent in ports.items()
        if sent >= LEAST_BYTES
    ]


def _seen(tiers: NetworkTiers, run: JobRun) -> np.ndarray:
    """Return which links are ports of hosts with a rank that stands for others. bool of shape (links,)."""
    top = tiers.topology
    names = {top.label(rank).partition("/")[0] for rank in run.laid.rank_classes.ranks}
    seen = np.zeros(top.n_links, bool)
    for port in tiers.ports.tolist():
        seen[port] = top.label(int(top.src[port])).partition("/")[0] in names
    return seen


def _by_port(
    operation: Operation, size_bytes: int, groups: list[Group], carrier: Costs, top: Topology, seen: np.ndarray
) -> list[dict[tuple[str, int], float]]:
    """Return for each group the bytes that it sends by each port that is seen, by (phase, port).

    Groups that are timed with each other all name the load of all: each is given its part.
    """
    told: list[dict[tuple[str, int], float]] = []
    users: Counter[tuple[str, int]] = Counter()
    for group in groups:
        mine: dict[tuple[str, int], float] = {}
        rates = top.rate
        if isinstance(carrier, FabricCosts) and len(group.ranks) > 1:
            rates = carrier.link_rates(operation.asked, size_bytes, group.ranks)
        for stage in carrier.stages(operation.asked, size_bytes, group.ranks, operation.role):
            for link, share in stage.links:
                if link < top.n_links and seen[link]:
                    mine[stage.phase, link] = share * (stage.wire_s + stage.latency_s) * float(rates[link])
        users.update(mine.keys())
        told.append(mine)
    return [{key: sent / users[key] for key, sent in mine.items()} for mine in told]
