"""Recordings of drawn jobs with one fault or bad setting put in, and of jobs in which nothing gains.

Each planted cause costs a twentieth of the step or more: seeds whose cause costs less are passed over. What names the cause
is as recordings have it: the transports that NCCL's log tells, sends of pairs, when ranks came to their calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from ringwright.fabrics import fabric
from ringwright.model.registry import scheduler
from ringwright.model.topology import Topology
from ringwright.model.trace import Trace
from ringwright_lab.testing.drawn_jobs import DrawnJob, Random, Slower, drawn, recorded
from ringwright_lab.testing.drawn_pairs import SLOW, buckets, on_machine

if TYPE_CHECKING:
    from ringwright.ground.trace_tables import Row
    from ringwright.model.workload import Workload

LEAST = 0.05  # of a step, that a cause costs
NOTHING = 0.005  # of a step, that no setting may gain in a job in which nothing gains
USUAL = 0.25  # of all gradients, a bucket of a job that has another cause
SMALL = (0.004, 0.02)  # of all gradients, a bucket that is too small
SOCKETS = (0.12, 0.4)  # of the rate that RDMA reaches
SOCKET_S = 50e-6  # more, an operation over sockets
SLOWER = (2.0, 6.0)  # times as long, what a slow NIC sends
PROBES, PROBED_BYTES = 3, 4 << 20  # sends of each pair before the job, and what they carry
PROBE_SIGMA = 0.04
GRID = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)  # of all gradients: the buckets that are tried in a job in which nothing gains
ORDERS = ("p3", "bytescheduler")


@dataclass(frozen=True)
class PlantedRecording:
    """A recording, what was put in ("": nothing gains), the ranks concerned, and what the step loses by it."""

    cause: str
    seed: int
    trace: Trace = field(repr=False)
    ranks: tuple[int, ...] = ()
    loss: float = 0.0
    machine: Topology | None = field(default=None, repr=False)


def planted(cause: str, seed: int) -> PlantedRecording:
    """Return a recording with a cause put in, one of ``CAUSES``; "" for a job in which nothing gains."""
    maker = CAUSES[cause] if cause else _nothing
    tries = (maker(seed + 1_000_000 * turn, np.random.default_rng((seed, turn, *cause.encode()))) for turn in count())
    return next(each for each in tries if each is not None)


def _loss(job: DrawnJob, plan: Workload, without: DrawnJob, better: Workload) -> float:
    return 1 - without.step_s(better) / job.step_s(plan)


def _usual(job: DrawnJob, share: float = USUAL) -> Workload:
    return job.planned(scheduler(buckets(job, share))[1])


def _small_buckets(seed: int, rng: Random) -> PlantedRecording | None:
    """Buckets so small that each operation's latency shows."""
    job = drawn(seed, share=(0.3, 1.2), latency=(0.02, 0.06))
    plan = _usual(job, float(np.exp(rng.uniform(*np.log(SMALL)))))
    loss = _loss(job, plan, job, _usual(job))
    return PlantedRecording("small-buckets", seed, recorded(job, plan, 0), (), loss) if loss >= LEAST else None


def _sockets(seed: int, rng: Random) -> PlantedRecording | None:
    """TCP where the machine has RDMA: NCCL's log tells sockets between hosts, and half of the time the variable."""
    job, machine = on_machine(seed, rng)
    machine = fabric(f"{machine.name},transport=roce")
    plan, ranks = _usual(job), tuple(range(job.workload.mesh.size))
    share = float(np.exp(rng.uniform(*np.log(SOCKETS))))
    slow = replace(
        job,
        costs=replace(job.costs, model=Slower(job.costs.model, 1 / share, SOCKET_S * len(ranks))),
        extra={"topology": [*_hosts(job, 1), *_rings(job)], "claims": _told_variable() if rng.random() < 0.5 else []},
    )
    loss = _loss(slow, plan, job, plan)
    return PlantedRecording("sockets", seed, recorded(slow, plan, 0), ranks, loss, machine) if loss >= LEAST else None


def _slow_nic(seed: int, rng: Random) -> PlantedRecording | None:
    """One rank's NIC slower than those of its peers; pairs were tried before the job."""
    job, machine = on_machine(seed, rng)
    ranks = tuple(range(job.workload.mesh.size))
    if len(ranks) < 4:  # with three, four of six pairs are slow: nothing tells which the usual ones are
        return None
    plan, slow_rank, times = _usual(job), int(rng.integers(len(ranks))), float(np.exp(rng.uniform(*np.log(SLOWER))))
    slow = replace(
        job,
        costs=replace(job.costs, model=Slower(job.costs.model, times, 0.0)),
        extra={"topology": _hosts(job, 1), "events": _probes(job, machine, slow_rank, times, rng)},
    )
    loss = _loss(slow, plan, job, plan)
    return (
        PlantedRecording("slow-nic", seed, recorded(slow, plan, 0), (slow_rank,), loss, machine)
        if loss >= LEAST
        else None
    )


def _wrong_order(seed: int, rng: Random) -> PlantedRecording | None:
    """Gradients that the next forward pass needs first go last."""
    job = drawn(seed, share=(0.4, 1.2))
    good = job.planned(scheduler(f"p3:slice_elements={job.total_bytes // 64}")[1])
    queue = good.policy.queue
    if queue is None:
        return None
    last = max(queue.keys.values(), default=0)
    bad = good.with_policy(
        "reversed", queue=replace(queue, keys={name: last - key for name, key in queue.keys.items()})
    )
    loss = _loss(job, bad, job, good)
    return PlantedRecording("wrong-order", seed, recorded(job, bad, 0), (), loss) if loss >= LEAST else None


def _straggler(seed: int, rng: Random) -> PlantedRecording | None:
    """One rank computes longer than the others."""
    job = drawn(seed)
    plan = _usual(job)
    rank = int(rng.integers(plan.mesh.size))
    slow = replace(job, slowed={rank: float(np.exp(rng.uniform(*np.log(SLOW))))})
    loss = _loss(slow, plan, job, plan)
    return PlantedRecording("straggler", seed, recorded(slow, plan, 0), (rank,), loss) if loss >= LEAST else None


def _nothing(seed: int, rng: Random) -> PlantedRecording | None:
    """A job that communicates little, or whose buckets are the best: no bucket and no shipped order gains."""
    little = rng.random() < 0.7
    job = drawn(seed, share=(0.002, 0.05)) if little else drawn(seed, share=(0.05, 0.3))
    plans = [_usual(job, share) for share in GRID]
    plans += [job.planned(scheduler(each)[1]) for each in ORDERS]
    steps = [job.step_s(each) for each in plans]
    today = plans[int(np.argmin(steps[: len(GRID)]))]
    loss = 1 - min(steps) / job.step_s(today)
    return PlantedRecording("", seed, recorded(job, today, 0), (), loss) if loss < NOTHING else None


CAUSES: dict[str, Callable[[int, Random], PlantedRecording | None]] = {
    "small-buckets": _small_buckets,
    "sockets": _sockets,
    "slow-nic": _slow_nic,
    "wrong-order": _wrong_order,
    "straggler": _straggler,
}


# What names the cause ----------------------------------------------------------------------------------------------------------
def _hosts(job: DrawnJob, per_host: int) -> list[Row]:
    return [
        {
            "kind": "device",
            "rank": rank,
            "host": f"host{rank // per_host}",
            "nic": f"mlx5_{rank % per_host}",
            "ground": "read",
        }
        for rank in range(job.workload.mesh.size)
    ]


def _rings(job: DrawnJob) -> list[Row]:
    """Return the connections of a ring over sockets, as a log of NCCL tells them."""
    p = job.workload.mesh.size
    return [
        {
            "kind": "connection",
            "communicator": 0,
            "channel": 0,
            "src": rank,
            "dst": (rank + 1) % p,
            "transport": "NET/Socket",
            "nic": "0",
            "value": side,
            "ground": "read",
        }
        for rank in range(p)
        for side in ("send", "receive")
    ]


def _told_variable() -> list[Row]:
    return [{"field": "env NCCL_IB_DISABLE", "value": "1", "source": "simulator", "ground": "read", "confidence": 1.0}]


def _probes(job: DrawnJob, machine: Topology, slow_rank: int, times: float, rng: Random) -> list[Row]:
    """Return sends of all pairs, one after another, before the first step."""
    p, rate = job.workload.mesh.size, float(machine.rate.min())
    told: list[Row] = []
    clock = -1.0
    for _ in range(PROBES):
        for src in range(p):
            for dst in range(p):
                if src == dst:
                    continue
                lasted = PROBED_BYTES / rate * (times if slow_rank in (src, dst) else 1.0)
                lasted *= float(np.exp(rng.normal(0, PROBE_SIGMA)))
                told.append(
                    {
                        "kind": "p2p",
                        "op": "send",
                        "rank": src,
                        "comm_rank": src,
                        "peer": dst,
                        "communicator": 0,
                        "size_bytes": PROBED_BYTES,
                        "start_s": clock,
                        "duration_s": lasted,
                        "nranks": p,
                    }
                )
                clock += 1e-4
    return told
