"""Random laid-out jobs for the tests of the job engine: every feature of ``FlatJob``, small numbers so that times collide."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ringwright.engines.job.flat import NO_QUEUE, FlatJob, Interference, Queues

MODELS = ("none", "factor", "share", "waves", "measured")
# Rows of what was measured, for models that have them: tiles of random jobs name a row.
FACTORS = tuple(tuple(1 + row / 500 + held / 50 for held in range(1 + row % 40)) for row in range(400))


def rows(n: int, pairs: list[tuple[int, int, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (instance, index, value) entries as a compressed list of n rows."""
    order = sorted(range(len(pairs)), key=lambda at: pairs[at][0])
    starts = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount([pair[0] for pair in pairs], minlength=n) if pairs else np.zeros(n, int), out=starts[1:])
    index = np.array([pairs[at][1] for at in order], np.int32)
    return starts, index, np.array([pairs[at][2] for at in order], np.float64)


def in_runs(edges: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return edges as (before, first after, how many after one another), as long as they can be."""
    runs: list[tuple[int, int, int]] = []
    for src, dst in edges:
        if runs and runs[-1][0] == src and runs[-1][1] + runs[-1][2] == dst:
            runs[-1] = (src, runs[-1][1], runs[-1][2] + 1)
        else:
            runs.append((src, dst, 1))
    return runs


def job(work_ps: list[int], queue: list[int], queues: Queues, **more: Any) -> FlatJob:
    """Return a job of one domain; ``edges`` are (before, after), ``loads`` and ``tokens`` (instance, index, value).

    ``claims``: of each load, in their order; 1 otherwise.
    """
    n = len(work_ps)
    edges = sorted(more.pop("edges", []), key=lambda edge: edge[0])
    runs = in_runs(edges)
    after_start, _, _ = rows(n, [(src, dst, many) for src, dst, many in runs])
    after, after_many = (np.array([run[at] for run in runs], np.int64) for at in (1, 2))
    domains = more.pop("domains", [(instance, 0, 0.0) for instance in range(n)])
    loads = more.pop("loads", [])
    load_start, load, share = rows(n, loads)
    claims = more.pop("claims", [1.0] * len(loads))
    _, _, claim = rows(n, [(at, on, each) for (at, on, _), each in zip(loads, claims, strict=True)])
    domain_start, domain, _ = rows(n, domains)
    token_start, token, amount = rows(n, more.pop("tokens", []))
    kinds = {"latency_ps": np.int64, "key": np.int64, "size": float, "tag": np.int32, "tiles": np.int32, "sms": float}
    empty = {"latency_ps": 0, "key": 0, "size": 1, "tag": -1, "tiles": 0, "sms": 0}
    columns = {name: np.array(more.pop(name, [empty[name]] * n), kind) for name, kind in kinds.items()}
    gates = np.array(more.pop("gates", []), np.int32).reshape(-1, 4)
    return FlatJob(
        work_ps=np.array(work_ps, np.int64),
        queue=np.array(queue, np.int32),
        **columns,
        waits=np.bincount(np.array([dst for _, dst in edges], np.int64), minlength=n).astype(np.int64),
        after_start=after_start,
        after=after,
        after_many=after_many,
        load_start=load_start,
        load=load,
        share=share,
        claim=claim,
        domain_start=domain_start,
        domain=domain,
        token_start=token_start,
        token=token,
        amount=amount,
        queues=queues,
        capacity=np.array(more.pop("capacity", []), float),
        gates=gates,
        n_domains=1 + int(domain.max(initial=0)),
        n_resources=1 + int(load.max(initial=0)),
        n_traffic=more.pop("n_traffic", 3),
        n_tags=more.pop("n_tags", 3),
        **more,
    )


def communication(count: int = 1, window: float = 1, *, streams: int = 0, **more: Any) -> Queues:
    """Return ``streams`` strict queues and then ``count`` communication queues, all alike."""
    all_of = streams + count
    values = {"blocking": True, "issue_ps": 0, "traffic": 0} | more
    return Queues(
        np.arange(all_of) < streams,
        np.full(all_of, window, float),
        np.full(all_of, values["blocking"]),
        np.full(all_of, values["issue_ps"], np.int64),
        np.full(all_of, values["traffic"], np.int32),
        [f"q{at}" for at in range(all_of)],
    )


class _Draw:
    """The choices of one random job."""

    def __init__(self, seed: int, most: int) -> None:
        self.r = np.random.default_rng(seed)
        r = self.r
        self.n, self.n_domains = int(r.integers(1, most)), int(r.integers(1, 4))
        self.streams, self.channels = int(r.integers(1, 4)), int(r.integers(0, 5))
        self.n_resources, self.pools = int(r.integers(1, 5)), int(r.integers(0, 3))
        self.top = int(r.choice([4, 1000, 10**9]))  # of work, in ps
        self.queue = r.integers(NO_QUEUE if r.random() < 0.7 else 0, self.streams + self.channels, self.n)
        self.members = [r.permutation(self.n_domains)[: r.integers(1, self.n_domains + 1)] for _ in range(9)]

    def queues(self) -> Queues:
        r, count = self.r, self.streams + self.channels
        strict = np.arange(count) < self.streams
        if r.random() < 0.3:
            strict = r.permutation(strict)
        return Queues(
            strict,
            r.choice([0.5, 1, 2, 3, 7, np.inf], count),
            r.random(count) < r.choice([0, 0.5, 1]),
            r.choice([0, 0, 1, 3], count).astype(np.int64),
            np.where(strict, -1, r.integers(0, 3, count)).astype(np.int32),
            [f"q{at}" for at in range(count)],
        )

    def edges(self) -> list[tuple[int, int]]:
        density = self.r.choice([0, 0.5, 1, 3]) / self.n
        found = np.argwhere(np.triu(self.r.random((self.n, self.n)) < density, 1))
        return [(int(src), int(dst)) for src, dst in found]

    def loads(self) -> list[tuple[int, int, float]]:
        r, shares = self.r, [0.1, 0.3, 0.5, 1.0, 1 / 3]
        each = [r.permutation(self.n_resources)[: r.integers(0, self.n_resources + 1)] for _ in range(self.n)]
        return [(at, int(resource), float(r.choice(shares))) for at, row in enumerate(each) for resource in row]

    def tokens(self) -> list[tuple[int, int, float]]:
        r, found = self.r, []
        if self.pools and r.random() < 0.6:
            for at in r.permutation(self.n)[: self.n // 3]:
                pool, amount = int(r.integers(self.pools)), float(r.choice([0.1, 1, 2]))
                back = int(r.integers(at, self.n))
                found += [(int(at), pool, amount)] * bool(self.queue[at] >= 0) + [(back, pool, -amount)]
        return found

    def gates(self) -> list[tuple[int, int, int, int]]:
        r, found = self.r, []
        for _ in range(int(r.choice([0, 0, 1, 3]))):
            closed, by = r.integers(3, size=2)
            tag = int(r.integers(0, 3)) if r.random() < 0.4 else -1
            found.append((int(closed), -1 if tag >= 0 else int(by), tag, int(r.random() < 0.5)))
        return found


def random_job(seed: int, most: int = 60) -> FlatJob:
    """Return the job of a seed: some never end, for an order that contradicts an edge or for tokens that never return."""
    draw = _Draw(seed, most)
    r, n = draw.r, draw.n
    domains = [(at, int(domain), 0.0) for at in range(n) for domain in draw.members[r.integers(9)]]
    loads = draw.loads()
    noise = r.integers(-2, 3, n) if r.random() < 0.2 else 0
    made = job(
        r.integers(0, draw.top, n).tolist(),
        draw.queue.tolist(),
        draw.queues(),
        edges=draw.edges(),
        domains=domains,
        loads=loads,
        claims=r.choice([1.0, 1.0, 0.5, 1 / 3, 2.0], len(loads)).tolist(),
        tokens=draw.tokens(),
        gates=draw.gates(),
        key=np.arange(n) // r.integers(1, 4) + noise if r.random() < 0.7 else np.zeros(n, int),
        latency_ps=r.choice([0, 0, 1, draw.top], n),
        size=r.choice([0, 0.1, 1, 1, 2, 4], n),
        tag=np.where(r.random(n) < 0.3, r.integers(0, 3, n), -1),
        tiles=r.integers(0, 400, n),
        sms=r.choice([0, 0.1, 0.15, 0.6], n),
        capacity=r.choice([0.3, 1, 2, 4], draw.pools).tolist(),
        interference=Interference(
            str(r.choice(MODELS)), float(r.choice([0.189, 0.4])), int(r.choice([1, 132])), factors=FACTORS
        ),
    )
    return dataclasses.replace(made, n_domains=draw.n_domains, n_resources=draw.n_resources)
