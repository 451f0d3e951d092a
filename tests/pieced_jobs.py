"""Random laid-out jobs whose operations are sent in pieces alike, one at a time: what the compiled loop sends as one, and cuts."""

from __future__ import annotations

import dataclasses

import numpy as np

import job_cases as cases
from ringwright.engines.job.flat import FlatJob, Queues

SIZES = (0.5, 1.0, 1.0, 1.0, 2.0)
SHARES = (0.2, 0.5, 0.5, 0.7, 1.0, 1.0, 1.3, 1 / 3)


class Pieced:
    """Tasks release operations; an operation has pieces, the last one shorter, that one or more tasks wait for."""

    def __init__(self, seed: int) -> None:
        r = self.r = np.random.default_rng(seed)
        self.streams, self.channels = int(r.integers(1, 4)), int(r.integers(1, 5))
        self.n_resources = int(r.integers(1, 4))
        self.work: list[int] = []
        self.queue: list[int] = []
        self.key: list[int] = []
        self.latency: list[int] = []
        self.size: list[float] = []
        self.edges: list[tuple[int, int]] = []
        self.loads: list[tuple[int, int, float]] = []
        self.top = int(r.choice([3, 12, 1000]))
        for _ in range(int(r.integers(1, 12))):
            self.add(int(r.integers(0, 4 * self.top)), int(r.integers(self.streams)))
        tasks = len(self.work)
        for _ in range(int(r.integers(1, 10))):
            self.operation(
                int(r.integers(tasks)), self.add(int(r.integers(0, self.top)), int(r.integers(self.streams)))
            )

    def add(self, work: int, queue: int, key: int = -1, latency: int = 0, size: float = 1.0) -> int:
        at = len(self.work)
        self.work.append(work)
        self.queue.append(queue)
        self.key.append(at if key < 0 else key)
        self.latency.append(latency)
        self.size.append(size)
        return at

    def operation(self, made_by: int, read_by: int) -> None:
        r = self.r
        before: list[int] = []
        for _ in range(1 + (r.random() < 0.2)):  # phases
            queue, key = self.streams + int(r.integers(self.channels)), int(r.integers(0, 4))
            work, latency, size = int(r.integers(0, self.top)), int(r.choice([0, 0, 0, 0, 1])), float(r.choice(SIZES))
            pieces = len(before) or int(r.integers(1, 25))
            on = r.permutation(self.n_resources)[: r.integers(0, self.n_resources + 1)]
            shares = r.choice(SHARES, len(on))
            mine = [self.add(work - (at == pieces - 1 and work > 0), queue, key, latency, size) for at in range(pieces)]
            self.loads += [(at, int(each), float(share)) for at in mine for each, share in zip(on, shares, strict=True)]
            self.edges += list(zip(before, mine, strict=True)) if before else [(made_by, at) for at in mine]
            before = mine
        self.edges += [(at, read_by) for at in before]
        if r.random() < 0.3:
            self.edges.append((before[int(r.integers(len(before)))], self.add(1, int(r.integers(self.streams)))))

    def queues(self) -> Queues:
        r, count = self.r, self.streams + self.channels
        usual = cases.communication(self.channels, streams=self.streams)
        odd = r.random(count) < 0.1
        return dataclasses.replace(
            usual,
            window=np.where(odd, 2.0, 1.0),
            blocking=r.random(count) < 0.95,
            issue_ps=np.where(r.random(count) < 0.05, 1, 0).astype(np.int64),
        )


def pieced_job(seed: int) -> FlatJob:
    """Return the job of a seed."""
    made = Pieced(seed)
    claims = made.r.choice([1.0, 1.0, 0.5, 2.0], len(made.loads)).tolist()
    flat = cases.job(
        made.work,
        made.queue,
        made.queues(),
        edges=made.edges,
        loads=made.loads,
        claims=claims if made.r.random() < 0.3 else [1.0] * len(made.loads),
        key=made.key,
        latency_ps=made.latency,
        size=made.size,
        n_traffic=1,
    )
    return dataclasses.replace(flat, n_resources=made.n_resources)
