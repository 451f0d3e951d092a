"""Links that are down or slower for a while, whoever uses them: what comes and goes by the clock and not by the job.

An outage is laid out as work of its own queue, which begins at its time and takes its share of its links before all others
(an infinite claim): what is on them stands still, or goes at what is left, and then goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from ringwright.engines.job.flat import FlatJob, Queues


@dataclass(frozen=True)
class Outage:
    """From ``begin_ps`` until ``end_ps`` links, as a ``Machine`` numbers them, have ``factor`` (0 to 1) of their rate."""

    links: tuple[int, ...]
    begin_ps: int
    end_ps: int
    factor: float = 0.0


def held_up(flat: FlatJob, outages: Sequence[Outage], resource_of: dict[int, int]) -> FlatJob:
    """Return the job with these outages behind its own instances; those of one set of links do not overlap.

    ``resource_of``: link -> resource; a link that nobody loads has none.
    """
    by_links: dict[tuple[int, ...], list[Outage]] = {}
    for each in sorted(outages, key=lambda one: one.begin_ps):
        resources = tuple(sorted({resource_of[link] for link in each.links if link in resource_of}))
        if resources and each.factor < 1.0 and each.end_ps > each.begin_ps:
            by_links.setdefault(resources, []).append(each)
    work: list[int] = []
    queue: list[int] = []
    loads: list[tuple[tuple[int, ...], float]] = []
    for number, (resources, mine) in enumerate(by_links.items()):
        now = 0
        for each in mine:
            work += [each.begin_ps - now, each.end_ps - each.begin_ps]
            loads += [((), 0.0), (resources, 1.0 - each.factor)]
            now = each.end_ps
        queue += [len(flat.queues.window) + number] * (len(work) - len(queue))
    return _longer(flat, work, queue, loads, len(by_links)) if work else flat


def _longer(
    flat: FlatJob, work: list[int], queue: list[int], loads: list[tuple[tuple[int, ...], float]], queues: int
) -> FlatJob:
    """Return the arrays with more instances, which wait for nothing and that nothing waits for."""
    n = len(work)
    lengths = np.array([len(resources) for resources, _ in loads], np.int64)
    share = np.repeat(np.array([each for _, each in loads]), lengths)

    def more(before: np.ndarray, values: object) -> np.ndarray:
        return np.concatenate([before, np.broadcast_to(np.asarray(values, before.dtype), (n,))])

    def none(starts: np.ndarray) -> np.ndarray:
        return np.concatenate([starts, np.full(n, starts[-1], starts.dtype)])

    return replace(
        flat,
        work_ps=more(flat.work_ps, work),
        latency_ps=more(flat.latency_ps, 0),
        queue=more(flat.queue, queue),
        key=more(flat.key, np.arange(n)),
        size=more(flat.size, 1.0),
        waits=more(flat.waits, 0),
        tag=more(flat.tag, -1),
        tiles=more(flat.tiles, 0),
        sms=more(flat.sms, 0.0),
        after_start=none(flat.after_start),
        domain_start=none(flat.domain_start),
        token_start=none(flat.token_start),
        load_start=np.concatenate([flat.load_start, flat.load_start[-1] + np.cumsum(lengths)]),
        load=np.concatenate([flat.load, [at for resources, _ in loads for at in resources]]).astype(flat.load.dtype),
        share=np.concatenate([flat.share, share]),
        claim=np.concatenate([flat.claim, np.full(len(share), inf)]),
        queues=_queues(flat.queues, queues),
    )


def _queues(own: Queues, count: int) -> Queues:
    def more(before: np.ndarray, value: float) -> np.ndarray:
        return np.concatenate([before, np.full(count, value, before.dtype)])

    return Queues(
        more(own.strict, 0),
        more(own.window, 1),
        more(own.blocking, 1),
        more(own.issue_ps, 0),
        more(own.traffic, 0),
        [*own.names, *(f"outages/{number}" for number in range(count))],
    )
