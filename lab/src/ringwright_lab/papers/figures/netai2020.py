"""What-if factors from measured backward times: how well would data parallelism scale on a network used in full?"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import as_file, files

from ringwright.engines.job.run import simulate
from ringwright.formats.sources.backward_log import BackwardLog, backward_log, table
from ringwright.ground.units import PS
from ringwright.model.stages import Stage
from ringwright.model.workload import Queue, Rewrite
from ringwright.workloads.layers import measured

FOLDER = "samples/netai2020"
BATCH_S = {"resnet50": 0.12809, "resnet101": 0.19201, "vgg16": 0.19452}  # of one V100, batch 32
FUSED_S, FUSED_BYTES = 5e-3, 64 << 20  # a message leaves when this has passed, or has been gathered


@cache
def log(name: str) -> BackwardLog:
    """Return one of the measured backward passes that ship with the package."""
    with as_file(files("ringwright") / FOLDER / f"{name}.bk.log") as path:
        return backward_log(path)


@cache
def _additions() -> tuple[list[float], list[float]]:
    with as_file(files("ringwright") / FOLDER / "cuda_vec_add.log") as path:
        rows = table(path)
    return [size for size, _ in rows], [time for _, time in rows]


def addition_s(size_bytes: float) -> float:
    """Return the seconds of adding two vectors of ``size_bytes`` on the GPU, between measured sizes in a straight line."""
    sizes, times = _additions()
    at = min(max(bisect_left(sizes, size_bytes), 1), len(sizes) - 1)
    share = max(size_bytes - sizes[at - 1], 0.0) / (sizes[at] - sizes[at - 1])
    return times[at - 1] + share * (times[at] - times[at - 1])


@dataclass(frozen=True)
class WhatIf:
    """A ring on a line of ``rate`` bytes/s, used in full, with the additions after each of its steps."""

    rate: float

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return one phase."""
        p = len(ranks)
        return (Stage(2 * size_bytes * (p - 1) / p / self.rate + (p - 1) * addition_s(size_bytes / p)),)


def messages(name: str) -> list[tuple[str, ...]]:
    """Return the tensors of each message: what has come since the last one, after 5 ms or with 64 MiB."""
    read = log(name)
    fused: list[tuple[str, ...]] = []
    waiting: list[str] = []
    now = sent = 0.0
    gathered = 0
    for at, (gap, size) in enumerate(zip(read.gaps_s, read.sizes_bytes, strict=True)):
        now, gathered = now + gap, gathered + size
        waiting.append(f"tensor{len(read.gaps_s) - 1 - at}")
        if gathered >= FUSED_BYTES or now - sent >= FUSED_S:
            fused.append(tuple(waiting))
            waiting, gathered, sent = [], 0, now
    return [*fused, tuple(waiting)] if waiting else fused


def fused(name: str) -> int:
    """Return how many messages a step sends."""
    return len(messages(name))


def scaling(name: str, workers: int, rate_gbps: float) -> float:
    """Return batch / (batch + time from the end of backward to the end of the last all-reduce)."""
    read = log(name)
    made = measured(name, read.gaps_s, read.sizes_bytes, BATCH_S[name] - read.backward_s, workers)
    groups = Rewrite("groups", ("dp",), {"names": messages(name)})
    policy = replace(made.policy, rewrites=(groups,), queue=Queue(), boundary="barrier")
    run = simulate(replace(made, policy=policy), WhatIf(rate_gbps * 1e9 / 8), steps=1)
    last = max(int(run.ends(row, 0).max()) for row in run.laid.rows if row.what == "operation")
    return BATCH_S[name] / (BATCH_S[name] + max(0.0, (last - run.finished(0)) / PS))
