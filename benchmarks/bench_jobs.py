"""How fast the job engine is: instances a second of the compiled loop beside its Python twin, and the memory of either.

    python benchmarks/bench_jobs.py [--instances 3000000] [--twin 60000] [--ready 60000]
    python benchmarks/bench_jobs.py --candidates 5 [--model llama3-70b --gpus 512 --parallel tp8,pp4]

Both loops run the same jobs of ``--twin`` instances, must agree, and give the ratio; the compiled one then runs
``--instances``. Every run is a process of its own, so that its peak memory is its own. With ``--candidates`` the
policies of a job are tried instead, each so often: candidates a second, and the share of layout, engine and account.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import candidates
import numpy as np
from bench_engines import peak_mb

from ringwright.engines.job.flat import FlatJob, Interference, Queues

RESET = Path("/proc/self/clear_refs")
CASES = {
    "pieces": "one blocking queue by urgency, window of 4 operations",
    "patient": "the same, what fits goes first, window in bytes, a gate before every second step",
    "shared": "64 rank classes, four queues each over shared links, compute slowed beside them",
}


def laid_out(case: str, n: int, ready: int) -> FlatJob:
    """Return a job of about n instances in which tasks release up to ``ready`` operations at a time."""
    rank_classes, roles = (64, 4) if case == "shared" else (1, 1)
    pieces = max(min(ready, n // 4) // (rank_classes * roles), 1)
    steps = max(n // (rank_classes * (roles * pieces + 1)), 1)
    a_step = rank_classes * (roles * pieces + 1)  # a task of each rank class, then the pieces that it releases
    r = np.random.default_rng(0)
    at = np.arange(steps * a_step)
    step, place = at // a_step, at % a_step
    task = place < rank_classes
    rank_class = np.where(task, place, (place - rank_classes) // (roles * pieces))
    role = np.where(task, 0, (place - rank_classes) // pieces % roles)
    width = np.where(task, roles * pieces, 0)
    pieces_of = rank_classes + rank_class * roles * pieces + step * a_step
    loads = np.where(task, 0, 2 if case == "shared" else 1)
    load_start = np.concatenate([[0], np.cumsum(loads)])
    on = np.repeat(rank_class, loads)
    on = np.where(np.arange(len(on)) % 2 == 0, on, (on + 1) % rank_classes) if case == "shared" else on
    queues = rank_classes * (1 + roles)
    strict = np.arange(queues) < rank_classes
    size = np.where(r.random(len(at)) < 0.1, 300.0, 4096.0) if case == "patient" else np.ones(len(at))
    none = np.zeros(len(at) + 1, np.int64)
    return FlatJob(
        work_ps=np.where(task, 2 * roles * pieces * 10**6, r.integers(10**5, 2 * 10**6, len(at))),
        latency_ps=np.where(task, 0, 5 * 10**6),
        queue=np.where(task, rank_class, rank_classes + rank_class * roles + role).astype(np.int32),
        key=np.where(task, step, r.integers(0, 1000, len(at))),
        size=size,
        waits=np.where(task, 0, 1),
        tag=np.where(task & (step % 2 == 1), 0, -1).astype(np.int32),
        tiles=np.full(len(at), 300, np.int32),
        sms=np.where(task, 0, 0.05),
        after_start=np.concatenate([[0], np.cumsum(task)]),
        after=pieces_of[task],
        after_many=width[task],
        load_start=load_start,
        load=on.astype(np.int32),
        share=np.full(len(on), 0.6),
        claim=np.ones(len(on)),
        domain_start=np.arange(len(at) + 1),
        domain=rank_class.astype(np.int32),
        token_start=none,
        token=np.zeros(0, np.int32),
        amount=np.zeros(0),
        queues=Queues(
            strict,
            np.where(strict, 1.0, 16384.0 if case == "patient" else 4.0),
            np.full(queues, case != "patient"),
            np.where(strict, 0, 1000),
            np.where(strict, -1, 0).astype(np.int32),
            [str(q) for q in range(queues)],
        ),
        capacity=np.zeros(0),
        gates=np.array([[0, -1, 0, 1]] if case == "patient" else [], np.int32).reshape(-1, 4),
        n_domains=rank_classes,
        n_resources=rank_classes,
        n_traffic=1,
        n_tags=1,
        interference=Interference("share" if case == "shared" else "none"),
    )


def measure(case: str, loop: str, n: int, ready: int) -> None:
    """Run one loop on one job and print what it took; called in a process of its own."""
    flat = laid_out(case, n, ready)
    if RESET.exists():
        RESET.write_text("5")  # the peak counts from here, not from laying out
    held_mb, begin = peak_mb(), time.process_time()
    if loop == "python":
        from ringwright.engines.job.loop import Loop

        found = Loop(flat).run()
        end, events = found.end, found.events
    else:
        from ringwright.native import engine

        *_, end, events = engine.job(flat)
    took_s = time.process_time() - begin
    answer = [int(end.max()), int(end.sum()), int(events)]
    never = int((end < 0).sum())
    print(json.dumps({"n": flat.n, "cpu_s": took_s, "mb": peak_mb() - held_mb, "answer": answer, "never": never}))


def run(case: str, loop: str, n: int, ready: int) -> dict[str, float]:
    """Return what ``measure`` prints."""
    command = [sys.executable, __file__, "--case", case, "--loop", loop, "--instances", str(n), "--ready", str(ready)]
    # What laying out has freed goes back to the system at once, or the loop would seem to need nothing.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{case}, {loop}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, float] = json.loads(done.stdout)
    if found["never"]:
        raise SystemExit(f"{case}, {loop}: {found['never']:,} instances never end")
    return found


def table(n: int, twin: int, ready: int) -> None:
    """Print a line for each case."""
    print(
        f"{'case':9}{'instances':>12}{'python /s':>11}{'native /s':>11}{'ratio':>7}{'python B':>10}{'native B':>10}",
        end="",
    )
    print(f"{'instances':>12}{'native /s':>11}{'CPU s':>7}{'MB':>7}{'B each':>8}")
    for case in CASES:
        slow, fast = (run(case, loop, twin, ready) for loop in ("python", "native"))
        if slow["answer"] != fast["answer"]:
            raise SystemExit(f"{case}: the loops disagree: {slow['answer']} and {fast['answer']}")
        large = run(case, "native", n, ready)
        rates = [each["n"] / each["cpu_s"] for each in (slow, fast, large)]
        each_b = [each["mb"] * 2**20 / each["n"] for each in (slow, fast, large)]
        print(
            f"{case:9}{slow['n']:>12,}{rates[0]:>11,.0f}{rates[1]:>11,.0f}{rates[1] / rates[0]:>7.0f}"
            f"{each_b[0]:>10,.0f}{each_b[1]:>10,.0f}"
            f"{large['n']:>12,}{rates[2]:>11,.0f}{large['cpu_s']:>7.2f}{large['mb']:>7.0f}{each_b[2]:>8.0f}"
        )
    print("B: bytes of memory an instance beside the laid-out job")
    for case, what in CASES.items():
        print(f"{case}: {what}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=3_000_000)
    parser.add_argument("--twin", type=int, default=60_000)
    parser.add_argument("--ready", type=int, default=60_000)
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--loop", choices=("python", "native"), help=argparse.SUPPRESS)
    parser.add_argument("--candidates", type=int, default=0, metavar="TIMES")
    parser.add_argument("--model", default="llama3-70b")
    parser.add_argument("--gpus", type=int, default=512)
    parser.add_argument("--parallel", default="tp8,pp4")
    asked = parser.parse_args()
    if asked.candidates:
        candidates.table(asked.model, asked.gpus, asked.parallel, asked.candidates)
        return
    if asked.case:
        measure(asked.case, asked.loop, asked.instances, asked.ready)
        return
    from ringwright.native import engine

    if not hasattr(engine, "job"):
        print("There is no compiled job loop here: only its Python twin could be measured, and its speed is no goal.")
        return
    table(asked.instances, asked.twin, asked.ready)


if __name__ == "__main__":
    main()
