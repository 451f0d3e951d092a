"""Recordings of real ranks that train models of simulated compute, one job after another in the same processes.

As a program (``python -m ringwright_lab.live.recordings FOLDER RANK``) it is one of these ranks: starting them costs more
than most jobs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.execute.rank_host import here
from ringwright.execute.rank_processes import run_ranks
from ringwright.ground.errors import UsageError
from ringwright.model.trace import Trace
from ringwright_lab.live.bench import LiveJob, scheduler

if TYPE_CHECKING:
    import polars as pl

WARMUP = 2  # steps, before the policy


def recorded(jobs: Sequence[LiveJob], timeout_s: float = 900.0) -> list[Trace]:
    """Return a recording of each job, all of as many ranks; RanksFailedError with their last words where one fails.

    However the ranks end, or do not, they are ended after ``timeout_s`` seconds. UsageError for jobs of several sizes.
    """
    ranks = {each.ranks for each in jobs}
    if len(ranks) != 1:
        raise UsageError(f"jobs of {sorted(ranks)} ranks", remedy="jobs of one number of ranks at a time")
    with tempfile.TemporaryDirectory(prefix="ringwright-live-") as name:
        folder = Path(name)
        (folder / "jobs.json").write_text(json.dumps([asdict(each) for each in jobs]))
        run_ranks(__spec__.name, folder, here(jobs[0].ranks), timeout_s)
        return [
            _joined([Trace.open(folder / f"job{at}-rank{rank}") for rank in range(each.ranks)])
            for at, each in enumerate(jobs)
        ]


def _joined(parts: Sequence[Trace]) -> Trace:
    """Return the recordings of all ranks as one, with a row for each step of a rank."""
    import polars as pl

    frames = {"communicators": parts[0].table("communicators"), "claims": parts[0].table("claims")}
    events = pl.concat([each.table("events") for each in parts])
    return Trace.of({**frames, "events": pl.concat([events, _steps(events)], how="diagonal")}, parts[0].meta)


def in_turns(parts: Sequence[Trace]) -> Trace:
    """Return recordings of one job, made one after another, as one: the steps by its policy, without those before it.

    Of each the last step is left out: nothing tells its end.
    """
    import polars as pl

    frames, steps, clock_s, calls = [], 0, 0.0, 0
    for each in parts:
        events = each.table("events")
        ends = events["start_s"] + events["duration_s"].fill_null(0.0)
        kept = events.filter((pl.col("iteration") > WARMUP) & (pl.col("iteration") < pl.col("iteration").max()))
        frames.append(
            kept.with_columns(
                pl.col("iteration") + steps,
                pl.col("start_s") + clock_s,
                pl.col("enqueue_s") + clock_s,
                pl.col("sequence") + calls,
            )
        )
        steps += max(events["iteration"].drop_nulls().to_list(), default=0)
        clock_s += max(ends.drop_nulls().to_list(), default=0.0)
        calls += max(events["sequence"].drop_nulls().to_list(), default=0) + 1
    others = {name: parts[0].table(name) for name in ("communicators", "claims")}
    return Trace.of({**others, "events": pl.concat(frames)}, parts[0].meta)


def _steps(events: pl.DataFrame) -> pl.DataFrame:
    """Return when each rank's steps lasted: from the first work of one to the first of the next."""
    import polars as pl

    begun = (
        events.filter((pl.col("kind") == "compute") & pl.col("iteration").is_not_null())
        .group_by("rank", "iteration")
        .agg(pl.col("start_s").min(), pl.col("clock").first())
        .sort("rank", "iteration")
        .with_columns((pl.col("start_s").shift(-1) - pl.col("start_s")).over("rank").alias("duration_s"))
    )
    told = begun.filter(pl.col("duration_s").is_not_null()).with_columns(kind=pl.lit("step"))
    return told.select(pl.col(name).cast(events.schema[name]) for name in told.columns)


def _rank(folder: Path, rank: int) -> None:
    """Be one rank: train each model in turn, and write down its steps."""
    import torch
    import torch.distributed as dist

    from ringwright_lab.live import schedule, simulated_compute

    jobs = [LiveJob(**each) for each in json.loads((folder / "jobs.json").read_text())]
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), jobs[0].ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=jobs[0].ranks)
    for at, job in enumerate(jobs):
        torch.manual_seed(job.seed)
        compute_s = job.step_s * job.slowdowns.get(str(rank), 1.0)
        model = simulated_compute.model(simulated_compute.layers(job.model, compute_s, job.elements))
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        rate, limit_s = job.link_rate or None, job.timeout_s / 2
        with schedule(model, optimizer, scheduler(job), link_rate=rate, warmup=WARMUP, timeout_s=limit_s) as live:
            for _ in range(WARMUP + job.steps):
                optimizer.zero_grad()
                model(torch.randn(4, 8)).square().mean().backward()
                optimizer.step()
            live.flush()
            live.profile().save(folder / f"job{at}-rank{rank}")
        dist.barrier()


if __name__ == "__main__":
    _rank(Path(sys.argv[1]), int(sys.argv[2]))
