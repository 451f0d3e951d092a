"""A step as arrays, repeated as often as is simulated."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ringwright.engines.job.contended import contended
from ringwright.engines.job.flat import FlatJob, Interference, Queues
from ringwright.engines.job.step import EDGES, REAL, WHOLE, Band, Loads, StepBuilder
from ringwright.engines.job.tasks import TURN, Tasks
from ringwright.ground.units import PS
from ringwright.model.rewrites.random_order import drawn
from ringwright.model.workload import Queue, Workload

LARGE = 1 << 12  # edges of a run that is laid out by itself


def flatten(
    workload: Workload,
    step: StepBuilder,
    steps: int,
    tasks: Tasks,
    interference: Interference,
    watched: Collection[int] = (),
) -> FlatJob:
    """Return the arrays of ``steps`` steps, each the same, its edges leading further on by their distance.

    ``watched``: resources that stay though no operation holds up another there.
    """
    policy = workload.policy.queue or Queue()
    bands = _Bands(step)
    strict = np.array([name[0] == "stream" for name in step.queues], bool)
    after_start, after, after_many, waits = _edges_of(step, steps)
    load_start, load, share, claim = _rows(_contended(step, bands, watched), 2, bands, "loads", steps)
    domain_start, domain = _rows([[(each,) for each in domain] for domain in step.domains], 0, bands, "domain", steps)
    token_start, token, amount = _rows(list(step.tokens), 1, bands, "tokens", steps)
    capacity = {resource.name: resource.capacity for resource in workload.resources}
    return FlatJob(
        work_ps=np.tile(bands.values("work", "last_work"), steps),
        latency_ps=np.tile(bands.values("latency", "last_latency"), steps),
        queue=np.tile(bands.values("queue").astype(np.int32), steps),
        key=_keys(step, bands, steps, strict, tasks.span, policy.random),
        size=np.tile(bands.values("size", "last_size"), steps),
        waits=waits,
        tag=np.tile(bands.values("tag").astype(np.int32), steps),
        tiles=np.tile(bands.values("tiles").astype(np.int32), steps),
        sms=np.tile(bands.values("sms"), steps),
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
        queues=_queues(step, policy, strict),
        capacity=np.array(
            [1.0 if name.startswith(TURN) else capacity.get(name, 0.0) for _, name in step.pools], np.float64
        ),
        gates=_gates(policy, tasks.tags),
        n_domains=len(tasks.groups.rank_classes),
        n_resources=len(step.resources),
        n_traffic=_n_traffic(policy),
        n_tags=len(tasks.tags),
        interference=interference,
    )


def timed_flat(flat: FlatJob, step: StepBuilder, steps: int, watched: Collection[int] = ()) -> FlatJob:
    """Return the arrays of a step of which only what bands take and load is not as it was."""
    bands = _Bands(step)
    load_start, load, share, claim = _rows(_contended(step, bands, watched), 2, bands, "loads", steps)
    return replace(
        flat,
        work_ps=np.tile(bands.values("work", "last_work"), steps),
        latency_ps=np.tile(bands.values("latency", "last_latency"), steps),
        sms=np.tile(bands.values("sms"), steps),
        load_start=load_start,
        load=load,
        share=share,
        claim=claim,
        n_resources=len(step.resources),
    )


class _Bands:
    """The bands of a step as columns, and which of them each instance is of."""

    def __init__(self, step: StepBuilder) -> None:
        whole = np.frombuffer(step.whole, np.int64).reshape(-1, len(WHOLE))
        real = np.frombuffer(step.real, np.float64).reshape(-1, len(REAL))
        self.columns = dict(zip(WHOLE, whole.T, strict=True)) | dict(zip(REAL, real.T, strict=True))
        width, rows = self.columns["width"], self.columns["rows"]
        self.of = np.repeat(np.arange(len(width)), width * rows)
        self.last_of = np.repeat(np.arange(len(width)), np.where(width > 0, rows, 0))
        self.last = np.cumsum(width[self.last_of]) - 1  # the last instance of each row

    def values(self, name: str, last: str = "") -> np.ndarray:
        """Return a column by instance, ``last`` for the last instance of each row; of shape (instances,)."""
        values: np.ndarray = self.columns[name][self.of]
        if last:
            values[self.last] = self.columns[last][self.last_of]
        return values


def _keys(
    step: StepBuilder, bands: _Bands, steps: int, strict: np.ndarray, span: int, random: int | None
) -> np.ndarray:
    """Return places in strict queues, those of updates a step later, and urgencies in the others. int64 of shape (instances,)."""
    key, queue = bands.values("key"), bands.values("queue")
    for first, places in step.keyed:
        key[first : first + len(places)] = places
    on_stream = (queue >= 0) & strict[np.maximum(queue, 0)] if len(strict) else np.zeros(step.n, bool)
    turn = np.arange(steps)[:, None] + np.zeros(step.n, np.int64)
    turn[:, step.updates] += 1
    keys = np.where(on_stream, key + turn * span, key)
    if random is not None:
        keys = np.where(on_stream, keys, _drawn(step.bands, step.n, steps, random))
    return keys.ravel()


def _drawn(bands: Sequence[Band], n: int, steps: int, seed: int) -> np.ndarray:
    """Return the urgency of every instance of ``steps`` steps in a drawn order; int64 of shape (steps, n)."""
    key = np.zeros((steps, n), np.int64)
    sent = [band for band in bands if band.what == "operation"]
    turn_of = {name: at for at, name in enumerate(dict.fromkeys(band.name for band in sent))}
    for row in (row for band in sent for row in band.each()):
        for number in range(steps):
            mine = drawn(seed, number, turn_of[row.name], range(row.count), micro_batch=row.micro_batch)
            key[number, row.first : row.first + row.count] = mine
    return key


def _queues(step: StepBuilder, policy: Queue, strict: np.ndarray) -> Queues:
    roles = [name[1] if name[0] == "operations" else "" for name in step.queues]
    return Queues(
        strict,
        np.array([policy.windows.get(role, (1, ""))[0] for role in roles], np.float64),
        np.array([policy.blocking] * len(roles), bool),
        np.array([round(policy.issue_s * PS) if role else 0 for role in roles], np.int64),
        np.array([_traffic(policy, name) for name in step.queues], np.int32),
        ["/".join(str(part) for part in name) for name in step.queues],
    )


def _traffic(policy: Queue, name: tuple[Any, ...]) -> int:
    """Return the class of a queue's traffic, by its network where that has one, else by its role; -1 of a stream of tasks."""
    if name[0] != "operations":
        return -1
    _, role, network, *_ = name
    return policy.traffic.get(network, policy.traffic.get(role, 0)) if network else policy.traffic.get(role, 0)


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


def _edges_of(step: StepBuilder, steps: int) -> tuple[np.ndarray, ...]:
    """Return runs of successors of all steps, compressed (begins, firsts, how many), and how many predecessors each has."""
    src, dst, many, distance = _edges(step)
    order = np.argsort(src, kind="stable")  # once for all steps: each of them is the same, further on
    src, dst, many, distance = (column[order] for column in (src, dst, many, distance))
    ahead, every, furthest = dst + distance * step.n, np.bincount(src, minlength=step.n), int(distance.max(initial=0))
    sources, targets, lengths = [], [], []
    for at in range(steps):
        whole = at + furthest < steps
        kept = slice(None) if whole else distance + at < steps
        sources.append(every if whole else np.bincount(src[kept], minlength=step.n))
        targets.append(ahead[kept] + at * step.n)
        lengths.append(many[kept])
    n, after, after_many = step.n * steps, np.concatenate(targets), np.concatenate(lengths)
    starts, waits = np.zeros(n + 1, np.int64), np.bincount(after, minlength=n + 1)
    np.cumsum(np.concatenate(sources), out=starts[1:])
    waits -= np.bincount(after + after_many, minlength=n + 1)
    return starts, after, after_many, np.cumsum(waits, out=waits)[:n]


def _edges(step: StepBuilder) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the edges of one step in the order in which they were written down, those of one instance to several in a row as
    one: who is waited for, the first that waits, how many do, distance.
    """
    runs, many = _in_a_row(np.frombuffer(step.runs, np.int64).reshape(-1, EDGES))
    lengths = runs[:, 2] * runs[:, 5] * runs[:, 8]
    begins = np.cumsum(lengths) - lengths
    n = int(lengths.sum())
    src, dst = np.empty(n, np.int64), np.empty(n, np.int64)
    large = lengths > LARGE
    for run, begin, length in zip(runs[large], begins[large], lengths[large], strict=True):
        for made, first, move in ((src, run[0], run[3::3]), (dst, run[1], run[4::3])):
            i, j, k = (np.arange(count) * by for count, by in zip(run[2::3], move, strict=False))
            made[begin : begin + length] = (first + i[:, None, None] + j[:, None] + k).ravel()
    small, each = runs[~large], lengths[~large]
    of = np.repeat(np.arange(len(small)), each)
    at = np.arange(len(of)) - np.repeat(np.cumsum(each) - each, each)
    index = at + np.repeat(begins[~large], each)
    column = small.T
    at, k = np.divmod(at, column[8][of])
    i, j = np.divmod(at, column[5][of])
    src[index] = column[0][of] + i * column[3][of] + j * column[6][of] + k * column[9][of]
    dst[index] = column[1][of] + i * column[4][of] + j * column[7][of] + k * column[10][of]
    joined = [(*each[:2], np.ones(len(each[0]), np.int64), np.full(len(each[0]), each[2])) for each in step.joined]
    columns = zip((src, dst, np.repeat(many, lengths), np.repeat(runs[:, 11], lengths)), *joined, strict=True)
    src, dst, many, distance = (np.concatenate(column) for column in columns)
    return src, dst, many, distance


def _in_a_row(runs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the runs of edges without their innermost loop, where it goes from one that waits to the next; and how many do."""
    runs, many = runs.copy(), np.ones(len(runs), np.int64)
    inner = np.ones(len(runs), bool)  # whether all loops further inside are of one turn
    for loop in (8, 5, 2):
        turns = inner & (runs[:, loop] > 1)
        row = turns & (runs[:, loop + 1] == 0) & (runs[:, loop + 2] == 1)
        many[row] = runs[row, loop]
        runs[row, loop] = 1
        inner &= ~turns
    return runs, many


def _contended(step: StepBuilder, bands: _Bands, watched: Collection[int]) -> list[Loads]:
    """Return the lists of loads without resources that never slow anything down."""
    lists = list(step.loads)
    distinct = dict.fromkeys(zip(bands.columns["loads"].tolist(), bands.columns["queue"].tolist(), strict=True))
    rows = [(at, 1, lists[number]) for at, (number, _) in enumerate(distinct)]
    left = contended(rows, [queue for _, queue in distinct], watched)
    lighter: list[Loads] = [()] * len(lists)
    for (number, _), (_, _, loads) in zip(distinct, left, strict=True):
        lighter[number] = loads
    return lighter


def _rows(
    lists: Sequence[Iterable[tuple[float, ...]]], values: int, bands: _Bands, which: str, steps: int
) -> tuple[np.ndarray, ...]:
    """Return the lists of (index, value ...) that the instances of all steps have by number, compressed: begins, then columns."""
    entries = [tuple(each) for each in lists]
    lengths = np.array([len(each) for each in entries], np.int64)
    index: np.ndarray = np.array([entry[0] for each in entries for entry in each], np.int32)
    columns = [index, *(np.array([e[at] for each in entries for e in each], np.float64) for at in range(1, values + 1))]
    of = bands.values(which)
    mine = lengths[of]
    starts = np.zeros(len(of) * steps + 1, np.int64)
    if not mine.any():
        return starts, *(column[:0] for column in columns)
    np.cumsum(np.tile(mine, steps), out=starts[1:])
    within = np.arange(int(mine.sum())) - np.repeat(starts[: len(of)], mine)
    entry = np.repeat((np.cumsum(lengths) - lengths)[of], mine) + within
    return starts, *(np.tile(column[entry], steps) for column in columns)
