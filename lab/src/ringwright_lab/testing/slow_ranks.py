"""A simulated training job with ranks that are slow in one of many manners, as a Trace with the truth beside it.

Each rank computes for a time of its own (resampled from real jobs, ``testing.noise``), calls collectives that end together,
and so on; severity 1.5 makes a step take one and a half times as long. Steps, calls per step, ranks, meshes, overlap, the
begin, clocks of hosts and their drift are drawn from the seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace
from ringwright_lab.testing.noise import HealthyNoise

if TYPE_CHECKING:
    import polars as pl

Floats = npt.NDArray[np.float64]
Random = np.random.Generator
WORLDS = (4, 6, 8, 12, 16, 24, 32, 48, 64)
SEVERITY = (1.15, 3.0)
BEGIN = (0.10, 0.85)
_PER_HOST = 8
_PLACES = ("world", "world", "mesh")


@dataclass(frozen=True)
class Injected:
    """What was put in: the ``ranks`` concerned (none: nobody in particular), from which step on, in which share of all steps."""

    mechanism: str
    ranks: tuple[int, ...] = ()
    begin: int | None = None
    share: float = 0.0
    severity: float = 1.0

    @property
    def is_healthy(self) -> bool:
        """Whether nothing was put in."""
        return self.mechanism == "none"


@dataclass(frozen=True)
class _Job:
    """The size of a job: ``p`` ranks, ``steps``, ``calls`` a step; seconds of a step, the share of it that is transfer."""

    p: int
    steps: int
    calls: int
    step_s: float
    moving: float
    scope: str
    overlaps: bool


def job(mechanism: str, seed: int, noise: HealthyNoise) -> tuple[Trace, Injected]:
    """Return a job with ``mechanism`` (none: healthy) put in; one of ``MECHANISMS``."""
    rng = np.random.default_rng((seed, *mechanism.encode()))
    sizes = _drawn(rng)
    extra, truth = _put_in(mechanism, sizes, rng)
    return _trace(sizes, _ran(sizes, extra, noise, rng), rng), truth


def _drawn(rng: Random) -> _Job:
    p, steps = int(rng.choice(WORLDS)), int(math.exp(rng.uniform(math.log(24), math.log(160))))
    scope = str(rng.choice(_PLACES)) if p >= 8 else "world"
    calls = int(rng.integers(1, 6)) if scope == "world" else int(rng.integers(2, 5))
    return _Job(
        p, steps, calls, float(rng.uniform(0.02, 0.5)), float(rng.uniform(0.05, 0.4)), scope, rng.random() < 0.4
    )


# What is put in: seconds (in shares of a step) of extra time, ranks x steps x places within a step ------------------------------
def _put_in(mechanism: str, sizes: _Job, rng: Random) -> tuple[Floats, Injected]:
    extra = np.zeros((sizes.p, sizes.steps, sizes.calls))
    if mechanism == "none":
        return extra, Injected("none")
    severity = float(math.exp(rng.uniform(math.log(SEVERITY[0]), math.log(SEVERITY[1]))))
    first = 0.5 if mechanism == "straggler-late" else BEGIN[0]
    begin = max(1, round(rng.uniform(first, BEGIN[1]) * sizes.steps))
    ranks = MECHANISMS[mechanism](extra, severity - 1.0, begin, rng)
    held = (extra.sum(axis=2) > 0).any(axis=0)
    share = float(held.mean())
    return extra, Injected(mechanism, tuple(sorted(ranks)), int(held.argmax()), share, severity)


def _spread(extra: Floats, rank: int, step: int, more: float, rng: Random) -> None:
    """Slow a rank down over a whole step, as a slow processor does."""
    shares = rng.dirichlet(np.ones(extra.shape[2]) * 8)
    extra[rank, step] += more * shares


def _straggler(extra: Floats, more: float, begin: int, rng: Random) -> set[int]:
    """One rank is slower from a step on."""
    rank = int(rng.integers(len(extra)))
    for step in range(begin, extra.shape[1]):
        _spread(extra, rank, step, more, rng)
    return {rank}


def _ends(extra: Floats, more: float, begin: int, rng: Random) -> set[int]:
    """One rank is slower for a while: a tenth of the job at least."""
    rank, steps = int(rng.integers(len(extra))), extra.shape[1]
    least = max(4, round(0.1 * steps))
    begin = min(begin, steps - least - 1)
    for step in range(begin, int(rng.integers(begin + least, steps))):
        _spread(extra, rank, step, more, rng)
    return {rank}


def _loader(extra: Floats, more: float, begin: int, rng: Random) -> set[int]:
    """One rank's data come late: before the first call of every n-th step, or of bursts of steps."""
    rank, steps = int(rng.integers(len(extra))), extra.shape[1]
    every, bursts = int(rng.integers(1, 5)), rng.random() < 0.4
    begin = min(begin, steps - max(6, 5 * every))
    for step in range(begin, steps):
        hits = (step // 6) % 2 == (begin // 6) % 2 if bursts else (step - begin) % every == 0
        if hits:
            extra[rank, step, 0] += more * rng.uniform(0.85, 1.15)
    return {rank}


def _pauses(extra: Floats, more: float, begin: int, rng: Random) -> set[int]:
    """One rank stops now and then, at any place of a step, as for the collection of garbage."""
    rank = int(rng.integers(len(extra)))
    begin = min(begin, extra.shape[1] // 2)
    _pause(extra, rank, more, begin, rng.uniform(0.12, 0.4), rng)
    return {rank}


def _all_pause(extra: Floats, more: float, begin: int, rng: Random) -> set[int]:
    """Every rank stops now and then, each at its own times: nobody in particular."""
    p, steps = extra.shape[:2]
    held = rng.uniform(0.15, 0.6)
    begin = min(begin, steps // 2)
    for rank in range(p):
        _pause(extra, rank, more, begin, 1 - (1 - held) ** (1 / p), rng, least=1)
    return set()


def _pause(extra: Floats, rank: int, more: float, begin: int, often: float, rng: Random, least: int = 5) -> None:
    steps = extra.shape[1]
    hits = [step for step in range(begin, steps) if rng.random() < often]
    if len(hits) < least:
        hits = sorted(rng.choice(np.arange(begin, steps), least, replace=False).tolist())
    for step in hits:
        extra[rank, step, rng.integers(extra.shape[2])] += more * rng.uniform(0.85, 1.15)


def _moving(extra: Floats, more: float, begin: int, rng: Random) -> set[int]:
    """The slow rank is another one after a while, two to four in all, each for eight steps and more."""
    p, steps = extra.shape[:2]
    begin = min(begin, steps - 17)
    count = int(rng.integers(2, min(4, p // 2, (steps - begin) // 8) + 1))
    chosen = rng.choice(p, count, replace=False)
    bounds = np.linspace(begin, steps, count + 1).astype(int)
    for rank, first, last in zip(chosen, bounds, bounds[1:], strict=False):
        for step in range(first, last):
            _spread(extra, int(rank), step, more, rng)
    return {int(rank) for rank in chosen}


def _wandering(extra: Floats, more: float, begin: int, rng: Random) -> set[int]:
    """Some rank is slow in each step, another one almost every time: nobody in particular."""
    steps = extra.shape[1]
    for step in range(min(begin, steps // 2), steps):
        _spread(extra, int(rng.integers(len(extra))), step, more, rng)
    return set()


MECHANISMS: dict[str, Callable[[Floats, float, int, Random], set[int]]] = {
    "straggler": _straggler,
    "straggler-late": _straggler,
    "straggler-ends": _ends,
    "loader": _loader,
    "pauses-of-one": _pauses,
    "pauses-of-all": _all_pause,
    "moving": _moving,
    "wandering": _wandering,
}
BEGINS = ("straggler", "straggler-late", "straggler-ends")  # the step of their begin is asked for
ROUND = (
    "moving",
    "wandering",
    "pauses-of-all",
    "pauses-of-one",
    "loader",
)  # "cannot tell" with the share of steps is an answer


# The job runs ------------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Ran:
    """Seconds: when each call began and ended (ranks x steps x calls), when each step did."""

    begins: Floats
    ends: Floats
    step_begins: Floats
    step_ends: Floats


def _ran(sizes: _Job, extra: Floats, noise: HealthyNoise, rng: Random) -> _Ran:
    p, steps, calls = sizes.p, sizes.steps, sizes.calls
    late = noise.ranks(p, steps, rng) + rng.normal(0, 0.004, (p, 1))
    late[:, 0] += np.abs(rng.normal(0, 1.0, p))  # a first step makes connections, and loads what it needs
    shared = noise.together(steps, rng)
    own = (1 - sizes.moving) * rng.dirichlet(np.ones(calls) * 6)
    moved = sizes.moving * rng.dirichlet(np.ones(calls) * 6)
    groups = [_groups(sizes, call) for call in range(calls)]
    begins, ends = np.zeros((p, steps, calls)), np.zeros((p, steps, calls))
    step_begins, step_ends = np.zeros((p, steps)), np.zeros((p, steps))
    clock = np.zeros(p)
    for step in range(steps):
        step_begins[:, step] = clock
        free = clock.copy()  # of what transfers
        for call in range(calls):
            mine = own[call] * (1 + late[:, step] / max(own.sum(), 0.1) + shared[step]) + extra[:, step, call]
            clock = clock + sizes.step_s * np.maximum(mine, 0.02 * own[call])
            begins[:, step, call] = clock
            lasts = moved[call] * sizes.step_s * math.exp(rng.normal(0, 0.04))
            for ranks in groups[call]:
                free[ranks] = max(clock[ranks].max(), free[ranks].max()) + lasts
            ends[:, step, call] = free + np.abs(rng.normal(0, 3e-6, p))
            if not sizes.overlaps:
                clock = ends[:, step, call].copy()
        clock = np.maximum(clock, ends[:, step].max(axis=1))
        step_ends[:, step] = clock
    return _Ran(begins, ends, step_begins, step_ends)


def _groups(sizes: _Job, call: int) -> list[list[int]]:
    """In a mesh all calls but a step's last are among neighbours of four, the last among those of equal place."""
    if sizes.scope == "world":
        return [list(range(sizes.p))]
    if call + 1 < sizes.calls:
        return [list(range(first, min(first + 4, sizes.p))) for first in range(0, sizes.p, 4)]
    return [list(range(first, sizes.p, 4)) for first in range(4)]


# As a Trace --------------------------------------------------------------------------------------------------------------------
def _trace(sizes: _Job, ran: _Ran, rng: Random) -> Trace:
    p = sizes.p
    offsets = rng.uniform(-0.05, 0.05, -(-p // _PER_HOST))[np.arange(p) // _PER_HOST]
    drift = 1 + rng.uniform(-2e-5, 2e-5, -(-p // _PER_HOST))[np.arange(p) // _PER_HOST]
    begins, ends, *steps = (
        (each.T * drift + offsets).T for each in (ran.begins, ran.ends, ran.step_begins, ran.step_ends)
    )
    seen = _Ran(begins, ends, *steps)
    members = sorted({tuple(ranks) for call in range(sizes.calls) for ranks in _groups(sizes, call)})
    comms = [
        {
            "communicator": number,
            "comm_id": f"group {number}",
            "size": len(ranks),
            "members": [*ranks],
            "ground": "read",
        }
        for number, ranks in enumerate(members)
    ]
    devices = [
        {"kind": "device", "rank": rank, "host": f"host{rank // _PER_HOST}", "ground": "read"} for rank in range(p)
    ]
    frames = {
        "events": _events(sizes, seen, members, with_steps=rng.random() < 0.7),
        "communicators": rows("communicators", comms),
        "topology": rows("topology", devices),
    }
    return Trace.of(frames, {"source": "simulator", "world": p, "inputs": ["job"]})


def _events(sizes: _Job, ran: _Ran, members: list[tuple[int, ...]], *, with_steps: bool) -> pl.DataFrame:
    import polars as pl

    p, steps, calls = ran.begins.shape
    rank, step, call = (grid.ravel() for grid in np.meshgrid(range(p), range(steps), range(calls), indexing="ij"))
    of = np.zeros((p, calls), int)
    for at in range(calls):
        for ranks in _groups(sizes, at):
            of[ranks, at] = members.index(tuple(ranks))
    number = of[rank, call]
    before = np.array([[sum(of[r, k] == of[r, at] for k in range(at)) for at in range(calls)] for r in range(p)])
    per_step = np.array([[int((of[r] == of[r, at]).sum()) for at in range(calls)] for r in range(p)])
    ops = np.array(["all-reduce", "reduce-scatter", "all-gather"])
    frame = pl.DataFrame(
        {
            "kind": "collective",
            "op": ops[call % 3] if sizes.scope == "world" else "all-reduce",
            "rank": rank,
            "communicator": number,
            "sequence": step * per_step[rank, call] + before[rank, call],
            "size_bytes": (call + 1) << 20,
            "start_s": ran.begins.ravel(),
            "duration_s": (ran.ends - ran.begins).ravel(),
            "iteration": step,
            "line": np.arange(len(rank)),
        }
    ).with_columns(
        pl.format("rank{}.jsonl", "rank").alias("file"),
        pl.format("host:{}", pl.col("rank") // _PER_HOST).alias("clock"),
        pl.lit(1).alias("multiplicity"),
        pl.lit(1).alias("records"),
    )
    if not with_steps:
        return frame
    each, turns = (grid.ravel() for grid in np.meshgrid(range(p), range(steps), indexing="ij"))
    clock = pl.format("host:{}", pl.col("rank") // _PER_HOST).alias("clock")
    told = pl.DataFrame(
        {
            "kind": "step",
            "rank": each,
            "iteration": turns,
            "start_s": ran.step_begins.ravel(),
            "duration_s": (ran.step_ends - ran.step_begins).ravel(),
        }
    ).with_columns(clock, pl.lit(1).alias("multiplicity"))
    return pl.concat([frame, told], how="diagonal_relaxed")
