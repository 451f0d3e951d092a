"""A job laid out for the event loop: instances in arrays, what they wait for, where they queue, what they load.

Both loops, the readable one and its native twin, read exactly this, and write three times per instance. All times are
int64 picoseconds, all indices int32 or int64.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

NO_QUEUE = -1
INTERFERENCE = ("none", "factor", "share", "waves", "measured")


@dataclass(frozen=True)
class Interference:
    """What communication does to compute beside it: nothing; ``factor`` (compute is ``slowdown`` longer while any runs);
    ``share`` (compute keeps what the operations' share of compute units leaves); ``waves`` (whole waves of tiles on the
    compute units left); ``measured`` (what a matrix product was measured to take beside a kernel on so many compute units:
    ``factors``, a row for each kind of task, by the units held, the first beside copy engines; a task without a row as by share).
    Sources: arXiv 2507.03114 for the factor (18.9 % on average, up to 40 %); ``costs.contention`` for what was measured.
    """

    model: str = "none"
    slowdown: float = 0.189
    units: int = 132  # compute units of a device, for waves and what was measured
    gpu: str = ""  # the device that was measured
    factors: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Queues:
    """Per queue: in strict order or by key, its window, whether its head keeps others back, its traffic class."""

    strict: np.ndarray  # bool
    window: np.ndarray  # float64: in the unit of ``FlatJob.size``
    blocking: np.ndarray  # bool
    issue_ps: np.ndarray  # int64
    traffic: np.ndarray  # int32, -1 for compute
    names: list[str]


@dataclass(frozen=True)
class FlatJob:
    """The instances of all iterations.

    ``work_ps`` alone on the wire or the stream, after ``latency_ps``; ``key`` is a position in strict queues and an urgency in
    the others; ``size`` counts against the window. Rows of the compressed lists: ``after`` (successors: the first of a run of
    instances, and ``after_many`` of them one after another), ``load`` (resource, share, claim; each resource once), ``domain``
    (rank classes that take part, for gates and interference), ``token`` (token pool, amount).
    """

    work_ps: np.ndarray
    latency_ps: np.ndarray
    queue: np.ndarray
    key: np.ndarray
    size: np.ndarray
    waits: np.ndarray  # how many predecessors
    tag: np.ndarray  # int32, -1: none
    tiles: (
        np.ndarray
    )  # int32, for waves; for what was measured the row of ``Interference.factors``, from 1 on (0: none)
    sms: np.ndarray  # float64
    after_start: np.ndarray
    after: np.ndarray
    after_many: np.ndarray
    load_start: np.ndarray
    load: np.ndarray
    share: np.ndarray
    claim: np.ndarray  # above 0: what a resource that is short has is handed out by claims
    domain_start: np.ndarray
    domain: np.ndarray
    token_start: np.ndarray
    token: np.ndarray
    amount: np.ndarray
    queues: Queues
    capacity: np.ndarray  # of token pools
    gates: np.ndarray  # rows (closed traffic class, by traffic class or -1, by tag or -1, 0 waiting or 1 running)
    n_domains: int
    n_resources: int
    n_traffic: int
    n_tags: int
    interference: Interference = field(default_factory=Interference)

    @property
    def n(self) -> int:
        """Number of instances."""
        return len(self.work_ps)

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Return every edge in order: who is waited for, and who waits. int64 of shape (edges,)."""
        runs = np.repeat(np.arange(self.n), np.diff(self.after_start))
        turn = np.arange(int(self.after_many.sum())) - np.repeat(
            np.cumsum(self.after_many) - self.after_many, self.after_many
        )
        return np.repeat(runs, self.after_many), np.repeat(self.after, self.after_many) + turn

    def domains(self, instance: int) -> list[int]:
        """Return the rank classes that take part in an instance."""
        domains: list[int] = self.domain[self.domain_start[instance] : self.domain_start[instance + 1]].tolist()
        return domains


@dataclass(frozen=True)
class InstanceTimes:
    """Per instance, in ps: when it could start, was started, began to move or work, and ended (-1: never)."""

    ready: np.ndarray
    start: np.ndarray
    moved: np.ndarray
    end: np.ndarray
    events: int

    def until(self, n: int) -> InstanceTimes:
        """Return the times of the first ``n`` instances: behind them are those of outages, which nobody asks for."""
        if n == len(self.end):
            return self
        return InstanceTimes(self.ready[:n], self.start[:n], self.moved[:n], self.end[:n], self.events)


def slowed(interference: Interference, sms: float, running: int, tiles: int) -> float:
    """Return the factor on compute time beside ``running`` operations that hold a share ``sms`` of the compute units."""
    if interference.model == "none" or running == 0:
        return 1.0
    if interference.model == "factor":
        return 1.0 + interference.slowdown
    left = max(1.0 - sms, 0.05)
    if interference.model == "share" or tiles <= 0:
        return 1.0 / left
    units = interference.units
    if interference.model == "measured":
        row = interference.factors[tiles - 1]
        return row[min(int(sms * units + 0.5), len(row) - 1)]
    available = max(int(units * left + 0.5), 1)
    return float(-(-tiles // available)) / float(-(-tiles // units))
