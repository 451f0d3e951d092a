"""Bursts of a simulated job: each operation is a transfer of the ranks that take part, as its algorithm's edges have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ringwright.analysis import pairs
from ringwright.analysis.traffic.burst_document import ToldBursts
from ringwright.analysis.traffic.call_edges import MOST_RECEIVERS
from ringwright.analysis.traffic.transfers import Transfers, told
from ringwright.calls.rank_placement import hosts_of
from ringwright.costs.traffic import sent_total
from ringwright.ground.units import PS
from ringwright.jobs.pricing.event_owners import EventPart, Whose
from ringwright.jobs.pricing.senders import POINT_TO_POINT, Senders

if TYPE_CHECKING:
    from ringwright.engines.job.step import Instances
    from ringwright.jobs.study import Job, PolicyResult

MOST_TRANSFERS = 1_000_000
GROUND = (
    "each operation from when its bytes begin to move to its end; bytes as a ring or a direct exchange sends them (most "
    "algorithms send as many in all, but not each rank)"
)
ALIKE = "; ranks that are alike count as one"
NO_INCAST = "incast is not known: operations are simulated as a whole, not message by message"


class PolicyBursts(ToldBursts):
    """The bursts of one policy."""

    policy: str


def bursts(job: Job, result: PolicyResult, gap_s: float | None = None) -> tuple[PolicyBursts | None, str]:
    """Return the bursts of all simulated steps of a policy, or None with the reason; ``gap_s``: the longest pause in one, s."""
    transfers = transfers_of(job, result)
    if isinstance(transfers, str):
        return None, transfers
    return {**told(transfers, gap_s), "policy": result.policy}, ""


def burst_keys(job: Job, result: PolicyResult, gap_s: float | None = None) -> dict[str, PolicyBursts | str | None]:
    """Return the keys ``bursts`` and ``bursts_unknown`` of a job's answer."""
    told_bursts, unknown = bursts(job, result, gap_s)
    return {"bursts": told_bursts, "bursts_unknown": unknown}


def _columns(
    senders: Senders, rows: list[tuple[Instances, list[EventPart]]], hosts: Sequence[object] | None
) -> tuple[_Columns, int]:
    """Return the transfers between ``hosts``, or all where they are None, and how many within one are left out."""
    columns, within, steps = _Columns(), 0, senders.steps()
    for row, parts in rows:
        op = senders.operations[row.name].op
        for part in parts:
            if hosts is not None and len({hosts[rank] for rank in _members(part)}) == 1:
                within += row.count * len(steps)
                continue
            sender = part.rank_class if part.rank is None else part.rank
            for receiver, unit in _edges(op, part):
                for step in steps:
                    columns.add(senders, row, step, sender, receiver, unit)
    return columns, within


def transfers_of(job: Job, result: PolicyResult) -> Transfers | str:
    """Return what ranks send in groups of several hosts, or to all where no host is known; or why that is not told."""
    senders = Senders(job, result.workload, result.undisturbed)
    whose, steps = Whose(senders), senders.steps()
    rows = [(row, whose.parts(row)) for row in result.undisturbed.laid.rows if row.what == "operation"]
    count = len(steps) * sum(row.count * len(parts) for row, parts in rows)
    if not count:
        return "the step sends nothing"
    if count > MOST_TRANSFERS:
        return f"{count:,} transfers are too many to look at; --trace saves them, and summary reads them"
    hosts = None if senders.topology is None else hosts_of(range(senders.scheduled.mesh.size), senders.topology)
    several = hosts is not None and len(set(hosts)) > 1
    columns, within = _columns(senders, rows, hosts if several else None)
    scope = (
        "all that a rank sends in groups of several hosts" if several else "all that a rank sends, to its own host too"
    )
    knows_receivers = None not in columns.receivers
    limits = [f"{within:,} transfers of groups within one host are left out: they use no NIC"] if within else []
    return Transfers(
        columns.senders,
        columns.starts_s,
        columns.sizes_bytes,
        columns.ends_s,
        columns.receivers if knows_receivers else None,
        columns.phases,
        columns.steps,
        ground=f"{scope}: {GROUND}{'' if whose.is_apart else ALIKE}",
        limits=(*limits, *(() if knows_receivers else (NO_INCAST,))),
        window_s=_window(senders),
    )


@dataclass
class _Columns:
    """The transfers so far, a value of each column for each."""

    senders: list[str | int] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    sizes_bytes: list[float | None] = field(default_factory=list)
    ends_s: list[float] = field(default_factory=list)
    receivers: list[int | None] = field(default_factory=list)
    phases: list[str | None] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def add(
        self, senders: Senders, row: Instances, step: int, sender: str | int, receiver: int | None, unit: float | None
    ) -> None:
        """Add the instances of a row in one step; what carries no byte is no transfer."""
        sizes = np.full(row.count, row.size_bytes)
        sizes[-1] = row.last_bytes
        moving = np.flatnonzero(sizes > 0)
        where, times, count = senders.run.span(row, step), senders.run.times, len(moving)
        self.starts_s += (times.moved[where][moving] / PS).tolist()
        self.ends_s += (times.end[where][moving] / PS).tolist()
        self.sizes_bytes += [None] * count if unit is None else (sizes[moving] * unit).tolist()
        self.senders += [sender] * count
        self.receivers += [receiver] * count
        self.phases += [senders.phase(row)] * count
        self.steps += [step] * count


def _members(part: EventPart) -> tuple[int, ...]:
    return part.group[1] if part.group else ()


def _edges(op: str, part: EventPart) -> list[tuple[int | None, float | None]]:
    """Return to whom a part sends in a row and how many bytes of each byte of it; None: to nobody known, or not known."""
    members = _members(part)
    if op in POINT_TO_POINT:
        return [(None if part.peer is None else members[part.peer], 1.0)]
    if op not in pairs.RING_OPS | pairs.DIRECT_OPS or len(members) < 2:
        return [(None, None if len(members) > 1 else 0.0)]
    if part.rank is None or part.rank not in members or len(members) > MOST_RECEIVERS:
        return [(None, sent_total(op, 1.0, len(members)) / len(members))]
    mine = members.index(part.rank)
    return [(members[dst], unit) for (src, dst), unit in _ring(op, len(members)).items() if src == mine]


@lru_cache(256)
def _ring(op: str, size: int) -> dict[tuple[int, int], float]:
    """Return the bytes on each edge, by places in the group, of each byte of an operation."""
    return pairs.edges_of(pairs.Paths(size, list(range(size))), op, 0, "", 1.0)[0]


def _window(senders: Senders) -> tuple[float, float]:
    """Return from when to when the steps that are told lasted, with all that was computed and sent in them."""
    run, steps = senders.run, senders.steps()
    shown = [row for row in run.laid.rows if row.kind != "CTRL"]
    spans = [run.span(row, step) for step in steps for row in shown]
    ends = [int(run.times.end[span].max()) for span in spans]
    begins = [int(run.times.moved[span].min()) for span in spans]
    first = run.finished(steps[0] - 1) if steps[0] else 0
    return min(first, *begins) / PS, max(run.finished(steps[-1]), *ends) / PS
