"""Pairs of recordings of real gloo ranks on this machine that differ by a policy, and the halves of each: needs PyTorch.

Layers sleep in place of computing and the link is emulated, so that ranks on few processors do not slow each other; what is sent
is real, and so is all that wanders from step to step. Of each job the first recording is the one that advice is asked about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright_lab.live.bench import LiveJob
from ringwright_lab.live.on_ranks import named

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

MODELS = ("vgg", "transformer")
RANKS = 2
STEP_S = (0.08, 0.2)
ELEMENTS = (150_000, 600_000)
LINK = (0.3, 1.3)  # seconds of sending for one of computing
TURNS, STEPS = 3, 10  # of each run, so that a busy minute of the machine meets no change alone; steps of a turn
CHANGES = 3  # a job
FLOAT_BYTES, MIB = 4, 1 << 20
CAPS = (0.05, 1.0)  # of all gradients, a bucket
SLICES = (1 / 24, 1 / 6)  # of all gradients, of the policies that cut them
SLOW = (1.15, 1.6)


@dataclass(frozen=True)
class LivePairs:
    """A job and changes of it: spellings as advice has them. ``before`` is what it runs by first; ``slow``: rank -> factor."""

    seed: int
    before: str
    changes: tuple[str, ...]
    job: LiveJob = field(repr=False)
    cause: str = ""
    ranks: tuple[int, ...] = ()


def planned(seed: int) -> LivePairs:
    """Return the pairs of a seed."""
    rng = np.random.default_rng((seed, *b"live"))
    job = _drawn(rng)
    spellings = [_buckets(job, rng) for _ in range(CHANGES)] + [_sliced(job, rng)]
    return LivePairs(seed, spellings[0], tuple(spellings[1:]), job)


def planted(cause: str, seed: int) -> LivePairs:
    """Return a job with a cause put in, wrong-order or straggler, and as its change the same without: what the cause costs."""
    rng = np.random.default_rng((seed, *b"live", *cause.encode()))
    job = _drawn(rng)
    mib = job.elements * FLOAT_BYTES / MIB
    usual = f"pytorch-ddp:bucket_cap_mb={mib / 4:.4g}:first_bucket_mb={mib / 8:.4g}"
    if cause == "straggler":
        rank = int(rng.integers(RANKS))
        slow = replace(job, slowdowns={str(rank): float(np.exp(rng.uniform(*np.log(SLOW))))})
        return LivePairs(seed, usual, (usual,), slow, cause, (rank,))
    order = f"p3:slice_elements={job.elements // 16}"
    return LivePairs(seed, order, (order,), replace(job, reverse=True), cause)


def _drawn(rng: np.random.Generator) -> LiveJob:
    step_s, elements = float(rng.uniform(*STEP_S)), int(np.exp(rng.uniform(*np.log(ELEMENTS))))
    rate = elements * FLOAT_BYTES / (step_s * float(rng.uniform(*LINK)))
    return LiveJob(str(rng.choice(MODELS)), "", RANKS, rate, 0, step_s, elements, STEPS)


def _buckets(job: LiveJob, rng: np.random.Generator) -> str:
    cap = job.elements * FLOAT_BYTES / MIB * float(np.exp(rng.uniform(*np.log(CAPS))))
    return f"pytorch-ddp:bucket_cap_mb={cap:.4g}:first_bucket_mb={cap:.4g}"


def _sliced(job: LiveJob, rng: np.random.Generator) -> str:
    share = float(np.exp(rng.uniform(*np.log(SLICES))))
    if rng.random() < 0.5:
        return f"p3:slice_elements={int(job.elements * share)}"
    mib = job.elements * FLOAT_BYTES / MIB * share
    return f"bytescheduler:partition_mb={mib:.4g}:credit_mb={2 * mib:.4g}"


def runs(plan: LivePairs) -> list[LiveJob]:
    """Return the jobs that are run for a plan: as it is first, then with each change, and no cause put in."""
    after = replace(plan.job, reverse=False, slowdowns={})
    return [_by(plan.job, plan.before), *(_by(after, each) for each in plan.changes)]


def _by(job: LiveJob, spelling: str) -> LiveJob:
    function, knobs = named(spelling)
    return replace(job, scheduler=function, knobs=knobs)


def record(plans: Sequence[LivePairs]) -> list[list[Trace]]:
    """Return the recordings of each plan, in the order of ``runs``; MissingExtraError without PyTorch."""
    from ringwright_lab.live.recordings import in_turns, recorded

    jobs = [job for plan in plans for _ in range(TURNS) for job in runs(plan)]
    made = iter(recorded(jobs))
    turns = [[[next(made) for _ in runs(plan)] for _ in range(TURNS)] for plan in plans]
    return [[in_turns(each) for each in zip(*by_turn, strict=True)] for by_turn in turns]
