"""Figures of in-network computing for training: what it can gain over hosts alone, and where its two kinds of trees meet."""

from __future__ import annotations

from ringwright.algorithms.innetwork.ethernet.inc_meets_distributed_ml import inc_meets_distributed_ml, programs
from ringwright.algorithms.innetwork.shared_pool import PoolJobs, shared
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.calls.winners import winners
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.model.collective import Collective
from ringwright_lab.papers.figures.collectives import taken_us


def gain(ranks: int, size_bytes: int, baseline: str) -> float:
    """Return how many times shorter a streaming tree takes than another architecture on ranks below one switch."""
    machine = fabric(f"switch:{ranks},sharp=true")
    able = programs(Collective("all-reduce", range(ranks), size_bytes), machine)
    return simulate(able[baseline], machine).time_s / simulate(able["sat"], machine).time_s


def most_gain(ranks: int) -> float:
    """Return what an all-reduce in the network can gain over a ring."""
    return 2 * (ranks - 1) / ranks


def crossover_bytes(ranks: int, lowest: int, highest: int) -> float:
    """Return the least size, of powers of two, at which low latency trees no longer win."""
    machine = fabric(f"switch:{ranks},sharp=true")
    size = lowest
    while size <= highest:
        made = inc_meets_distributed_ml(Collective("all-reduce", range(ranks), size), machine)
        if made.knobs["algorithm"] != "llt":
            return float(size)
        size *= 2
    return float("nan")


def gain_of(op: str, size_bytes: int, spec: str = "dgx-h100:1") -> float:
    """Return how many times shorter an operation takes through a switch that adds and copies than by a ring, on one domain."""
    return taken_us(op, fabric(spec), size_bytes, "ring") / taken_us(op, fabric(spec), size_bytes, "nvls:segments=256")


def sharded_over_plain(size_bytes: int, spec: str = "dgx-h100:1") -> float:
    """Return what sharded data parallel gains in the network over what plain gains, of the exchange of one step's gradients.

    Plain does an all-reduce; sharded a reduce-scatter of gradients and an all-gather of weights, as many bytes each.
    """
    both = ("reduce-scatter", "all-gather")
    ring, switched = (
        sum(taken_us(op, fabric(spec), size_bytes, by) for op in both) for by in ("ring", "nvls:segments=256")
    )
    return ring / switched / gain_of("all-reduce", size_bytes, spec)


def parted_over_alone(jobs: int, compute_ticks: int) -> float:
    """Return the step of jobs that have an equal part each of a pool for one, over that of one job."""
    many, one = (shared(PoolJobs(each, compute_ticks=compute_ticks), "parted") for each in (jobs, 1))
    return float(many.step_ticks.mean() / one.step_ticks.mean())


def hashed_over_parted(jobs: int, compute_ticks: int) -> float:
    """Return the step of jobs whose packets take slots by hash, servers behind them, over that with a part of the pool each."""
    asked = PoolJobs(jobs, compute_ticks=compute_ticks)
    return float(shared(asked, "hashed").step_ticks.mean() / shared(asked, "parted").step_ticks.mean())


def jobs_for_hash(compute_ticks: int, most: int) -> float:
    """Return the least jobs of a pool for one that do better by hash than with a part each; nan where none of so many do."""
    able = (jobs for jobs in range(1, most + 1) if hashed_over_parted(jobs, compute_ticks) < 1)
    return float(next(able, float("nan")))


def map_gain(machine: str, size_bytes: int) -> float:
    """Return how many times faster than hosts alone all ranks of a machine are by what the map of winners names."""
    told = winners(SimulationSpec("all-reduce", fabric(machine)), None, [size_bytes])
    point = told.points[-1]
    return point.gain_in_network or 1.0 if point.in_network else 1.0


def map_share(machine: str, lowest: int, highest: int, factor: int) -> float:
    """Return which share of a machine's map the network's adders win: of all groups of ranks and all sizes."""
    sizes = [lowest]
    while sizes[-1] * factor <= highest:
        sizes.append(sizes[-1] * factor)
    points = winners(SimulationSpec("all-reduce", fabric(machine)), None, sizes).points
    return len([point for point in points if point.in_network]) / len(points)
