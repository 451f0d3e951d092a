"""ByteScheduler's partition tuned on real ranks, against the best of a grid. See scripts/live-tune."""

from __future__ import annotations

import argparse
import sys

from ringwright.jobs.tune import tune
from ringwright_lab.live.bench import LiveJob, measure
from ringwright_lab.live.on_ranks import named

LEAST_MB, MOST_MB = 0.03, 16.0
GRID_MB = (0.03, 0.1, 0.3, 1.0, 4.0, 16.0)
LIMIT = 0.05


def main() -> int:
    """Print each sample, then the grid; the exit code says whether the samples came within 5 % of its best."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="transformer")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()

    def step_s(partition_mb: float) -> float:
        function, knobs = named(f"bytescheduler:partition_mb={partition_mb}:credit_mb={partition_mb}")
        job = LiveJob(given.model, function, given.ranks, step_s=0.6, elements=2_000_000, steps=5, knobs=knobs)
        found = measure(job).step_s
        print(f"partition {partition_mb:8.3f} MiB   step {found:.4f} s", flush=True)
        return found

    space = {"partition_mb": (LEAST_MB, MOST_MB)}
    best = tune(lambda knobs: step_s(knobs["partition_mb"]), space, given.samples, seed=given.seed).best.seconds
    print("grid")
    grid = [step_s(each) for each in GRID_MB]
    off = best / min(grid) - 1
    print(
        f"best of {given.samples} samples {best:.4f} s, of the grid {min(grid):.4f} s: {off:+.1%} (limit {LIMIT:.0%})"
    )
    return 0 if off <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
