"""A step as arrays, repeated as often as is simulated."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ringwright.engines.job.contended import contended
from ringwright.engines.job.flat import FlatJob, Interference, Queues
from ringwright.engines.job.step import PS, StepBuilder
from ringwright.engines.job.tasks import Tasks
from ringwright.rewrites.drawn import drawn
from ringwright.workload import Queue


def flatten(step: StepBuilder, steps: int, tasks: Tasks, interference: Interference) -> FlatJob:
    """Return the arrays of ``steps`` steps, each the same, its edges leading further on by their distance."""
    workload = tasks.workload
    policy = workload.policy.queue or Queue()
    n = step.n
    column = {
        name: np.concatenate(getattr(step, name))
        for name in ("work", "latency", "queue", "key", "size", "sms", "tag", "tiles")
    }
    key = np.tile(column["key"].astype(np.int64), steps)
    strict = np.array([name[0] == "stream" for name in step.queues], bool)
    on_stream = (column["queue"] >= 0) & strict[np.maximum(column["queue"], 0)] if len(strict) else np.zeros(n, bool)
    at = np.repeat(np.arange(steps), n)
    later = np.zeros(n, np.int64)
    later[step.updates] = 1
    key = np.where(np.tile(on_stream, steps), key + (at + np.tile(later, steps)) * tasks.span, key)
    if policy.random is not None:
        key = np.where(np.tile(on_stream, steps), key, _drawn(step, steps, policy.random))
    after_start, after, waits = _edges_of(step, steps)
    load_start, loads = _compressed(contended(step.loads, column["queue"].tolist()), n, steps)
    domain_start, domain = _compressed(
        ((first, count, tuple((c, 0.0) for c in rank_classes)) for first, count, rank_classes in step.domains), n, steps
    )
    token_start, tokens = _compressed(step.tokens, n, steps)
    capacity = {resource.name: resource.capacity for resource in workload.resources}
    return FlatJob(
        work_ps=np.tile(column["work"].astype(np.int64), steps),
        latency_ps=np.tile(column["latency"].astype(np.int64), steps),
        queue=np.tile(column["queue"].astype(np.int32), steps),
        key=key,
        size=np.tile(column["size"].astype(np.float64), steps),
        waits=waits,
        tag=np.tile(column["tag"].astype(np.int32), steps),
        tiles=np.tile(column["tiles"].astype(np.int32), steps),
        sms=np.tile(column["sms"].astype(np.float64), steps),
        after_start=after_start,
        after=after,
        load_start=load_start,
        load=loads[0],
        share=loads[1],
        domain_start=domain_start,
        domain=domain[0],
        token_start=token_start,
        token=tokens[0],
        amount=tokens[1],
        queues=_queues(step, policy, strict),
        capacity=np.array([capacity.get(name, 0.0) for _, name in step.pools], np.float64),
        gates=_gates(policy, tasks.tags),
        n_domains=len(tasks.groups.rank_classes),
        n_resources=len(step.resources),
        n_traffic=_n_traffic(policy),
        n_tags=len(tasks.tags),
        interference=interference,
    )


def _drawn(step: StepBuilder, steps: int, seed: int) -> np.ndarray:
    """Return the urgency of every instance of ``steps`` steps in a drawn order; int64 of shape (steps * step.n,)."""
    key = np.zeros((steps, step.n), np.int64)
    sent = [row for row in step.rows if row.what == "operation"]
    place = {name: at for at, name in enumerate(dict.fromkeys(row.name for row in sent))}
    for row in sent:
        for number in range(steps):
            mine = drawn(seed, number, place[row.name], range(row.count), micro_batch=row.micro_batch)
            key[number, row.first : row.first + row.count] = mine
    return key.ravel()


def _queues(step: StepBuilder, policy: Queue, strict: np.ndarray) -> Queues:
    roles = [name[1] if name[0] == "operations" else "" for name in step.queues]
    return Queues(
        strict,
        np.array([policy.windows.get(role, (1, ""))[0] for role in roles], np.float64),
        np.array([policy.blocking] * len(roles), bool),
        np.array([round(policy.issue_s * PS) if role else 0 for role in roles], np.int64),
        np.array([policy.traffic.get(role, 0) if role else -1 for role in roles], np.int32),
        ["/".join(str(part) for part in name) for name in step.queues],
    )


def _n_traffic(policy: Queue) -> int:
    """Return how many traffic classes there are; a gate may name one that no operation is of."""
    named = [gate.by for gate in policy.gates if not isinstance(gate.by, str)]
    return 1 + max([*policy.traffic.values(), *named, 0])


def _gates(policy: Queue, tags: dict[str, int]) -> np.ndarray:
    rows = []
    for gate in policy.gates:
        if isinstance(gate.by, str):
            if gate.by in tags:
                rows.append((gate.closed, -1, tags[gate.by], 1))
        else:
            rows.append((gate.closed, gate.by, -1, int(gate.state == "running")))
    return np.array(rows, np.int32).reshape(-1, 4)


def _edges_of(step: StepBuilder, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return successors of all steps, compressed, and how many predecessors each instance has."""
    none = np.zeros(0, np.int32)
    src, dst = (np.concatenate(each) if each else none for each in (step.src, step.dst))
    distance = np.concatenate(step.distance) if step.distance else none.astype(np.int16)
    order = np.argsort(src, kind="stable")  # once for all steps: each of them is the same, further on
    src, dst, distance = src[order], dst[order], distance[order]
    sources, targets = [], []
    for at in range(steps):
        kept = slice(None) if at + int(distance.max(initial=0)) < steps else distance + at < steps
        sources.append(np.bincount(src[kept], minlength=step.n))
        targets.append(dst[kept] + (distance[kept].astype(np.int64) + at) * step.n)
    after = np.concatenate(targets)
    starts = np.zeros(step.n * steps + 1, np.int64)
    np.cumsum(np.concatenate(sources), out=starts[1:])
    return starts, after, np.bincount(after, minlength=step.n * steps).astype(np.int64)


def _compressed(
    blocks: Iterable[tuple[int, int, tuple[tuple[int, float], ...]]], n: int, steps: int
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return rows of (index, value) pairs for every instance, all steps alike."""
    lengths = np.zeros(n, np.int64)
    index, value, places = [], [], []
    for first, count, pairs in blocks:
        lengths[first : first + count] = len(pairs)
        index.append(np.tile(np.array([pair[0] for pair in pairs], np.int32), count))
        value.append(np.tile(np.array([pair[1] for pair in pairs], np.float64), count))
        places.append(np.repeat(np.arange(first, first + count), len(pairs)))
    starts = np.zeros(n * steps + 1, np.int64)
    np.cumsum(np.tile(lengths, steps), out=starts[1:])
    if not index:
        return starts, (np.zeros(0, np.int32), np.zeros(0))
    order = np.argsort(np.concatenate(places), kind="stable")
    return starts, (np.tile(np.concatenate(index)[order], steps), np.tile(np.concatenate(value)[order], steps))
