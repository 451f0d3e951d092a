"""Runs ordered pairs of policies on a small job: how many run, and why the others decline, the most frequent reason first.

Exits with 1 where a pair ends otherwise, or a reason speaks of tasks and operations by their names.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from itertools import product
from pathlib import Path

from ringwright.executors.shared import shared
from ringwright.fabrics import fabric
from ringwright.jobs import model_job
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.study import DECLINES, Job, answer
from ringwright.model.registry import schedulers
from ringwright_lab.testing import campaigns


def _job(spec: WorkloadSpec, machine: str) -> Job:
    return model_job.made(model_job.GeneratedJobSpec(spec), fabric(machine))


def ends(spec: WorkloadSpec, machine: str, pair: str) -> tuple[str, bool]:
    """Return how a pair ends, and whether that is as it should be: a task."""
    job = shared(_job, spec, machine)
    classes = "|".join(re.escape(each.name) for each in job.workload.classes)
    named = re.compile(rf"\b(?:{classes})\.\w")
    try:
        answer(job, pair)
    except DECLINES as error:
        return error.what, not named.search(error.what)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        return repr(error), False
    return "runs", True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--parallel")
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--seq", type=int, default=None)
    parser.add_argument("--layers", type=int, default=2, help="0: all of the model")
    parser.add_argument("--mode", default="training")
    parser.add_argument("--fabric")
    parser.add_argument("--pairs", type=int, help="so many, drawn; all without")
    parser.add_argument("--seed", type=int, default=0)
    campaigns.add_executor(parser)
    given = parser.parse_args()
    pairs = [f"{outer.slug}+{inner.slug}" for outer, inner in product(schedulers(), repeat=2)]
    if given.pairs:
        pairs = random.Random(given.seed).sample(pairs, given.pairs)  # noqa: S311 - a seed makes the same pairs again
    spec = WorkloadSpec(
        given.model,
        given.gpus,
        given.parallel,
        given.micro_batches,
        2,
        given.seq,
        mode=given.mode,
        dims={"layers": given.layers} if given.layers else {},
    )
    machine = given.fabric or f"switch:{given.gpus},rate=100Gb/s"
    came = campaigns.scripted(given.executor, Path(__file__), ends, [(spec, machine, pair) for pair in pairs])
    ended = dict(zip(pairs, came, strict=True))
    for why, count in Counter(said for said, _ in ended.values()).most_common():
        first = next(pair for pair, (said, _) in ended.items() if said == why)
        print(f"{count:4} {why}  ({first})")
    wrong = [pair for pair, (_, is_good) in ended.items() if not is_good]
    print(f"{len(pairs)} pairs, {len(wrong)} end otherwise: {', '.join(wrong) or 'none'}")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
