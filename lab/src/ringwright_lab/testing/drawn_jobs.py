"""Training jobs drawn from a seed, with what their operations really cost, and recordings of them: what advice is tried on.

An adviser sees a recording only. What it does not see is drawn here: how times grow with sizes, that each size has a manner of
its own, what compute loses beside communication, by how much the engines are wrong about a change. Steps differ as those of real
ranks do (``testing.noise``), and times of operations from step to step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright.engines.job.flat import Interference
from ringwright.engines.job.run import JobRun, simulate
from ringwright.ground.trace_tables import rows
from ringwright.ground.units import MIB, PS
from ringwright.model.rewrites.operations import operations
from ringwright.model.run_tables import TraceWriter, communicator, communicators
from ringwright.model.stages import Costs, LinkCosts, Stage
from ringwright.model.trace import Trace
from ringwright.model.workload import PHASES
from ringwright.workloads.chain import ChainLayer, chain
from ringwright_lab.testing.noise import HealthyNoise, ours

if TYPE_CHECKING:
    from ringwright.ground.trace_tables import Row
    from ringwright.model.workload import Workload

Random = np.random.Generator
WORLDS = (2, 2, 3, 4)
LAYERS = (8, 24)
UNEVEN = (0.2, 1.4)  # gradients of layers: standard deviation of the logarithm of their bytes
STEPS = (24, 40)  # recorded ones, of which the first and the last are not looked at
COMPUTE_S = (0.01, 0.5)  # of a step
SHARE = (0.1, 1.2)  # communication beside compute, where nothing overlaps
TOTAL_MIB = (4.0, 400.0)  # gradients
LATENCY = (0.001, 0.03)  # of all communication, an operation
GROWTH = 0.08  # larger operations reach higher rates: standard deviation of the exponent
OWN_SIGMA = 0.06  # of a size's time beside the curve
CHANGE_SIGMA = 0.15  # of what the engines say that a change does
MOST_LOST = 0.15  # of compute, beside communication
STEP_SIGMA = (0.02, 0.08)  # of an operation's time from step to step
QUICKEST = 0.7  # of a rank's compute, in the quickest of its steps
WRITER = TraceWriter("simulator", "simulated")


@dataclass(frozen=True)
class TrueCosts:
    """What operations really take: those of a model, times what nobody knows of them; ``changed``: by which change."""

    model: Costs
    seed: int
    mean_bytes: float
    growth: float
    changed: str = ""
    factor: float = 1.0

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return the phases as they really are."""
        own = np.random.default_rng((self.seed, *op.encode(), size_bytes.bit_length())).normal(0, OWN_SIGMA)
        off = own - self.growth * math.log(max(size_bytes, 1) / self.mean_bytes)
        if self.changed:
            off += np.random.default_rng((self.seed, *f"{op} {self.changed}".encode())).normal(0, CHANGE_SIGMA)
        times = math.exp(off) * self.factor
        return tuple(
            replace(each, wire_s=each.wire_s * times, latency_s=each.latency_s * times)
            for each in self.model.stages(op, size_bytes, ranks, role)
        )


@dataclass(frozen=True)
class Slower:
    """A model whose bytes take ``times`` as long, and whose operations ``more_s`` more; what an empty one takes stays."""

    model: Costs
    times: float
    more_s: float

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return the phases, longer."""
        first, *others = self.model.stages(op, size_bytes, ranks, role)
        idle_s = sum(each.wire_s for each in self.model.stages(op, 1, ranks, role))
        longer = [
            replace(each, wire_s=max(each.wire_s, idle_s + (each.wire_s - idle_s) * self.times))
            for each in (first, *others)
        ]
        return (replace(longer[0], wire_s=longer[0].wire_s + self.more_s), *longer[1:])


@dataclass(frozen=True)
class DrawnJob:
    """A job without a policy and its true costs; how many steps are recorded, and how much those differ.

    ``slowed``: rank -> times its compute. ``extra``: rows of other tables that its recordings have.
    """

    seed: int
    workload: Workload = field(repr=False)
    costs: TrueCosts
    interference: Interference
    steps: int
    step_sigma: float
    noise_scale: float
    slowed: Mapping[int, float] = field(default_factory=dict)
    extra: Mapping[str, Sequence[Row]] = field(default_factory=dict, repr=False)

    @property
    def total_bytes(self) -> int:
        """Bytes of all gradients."""
        return sum(each.size_bytes for each in self.workload.payloads)

    def planned(self, schedule: Callable[..., Workload]) -> Workload:
        """Return what a scheduler makes of it, which is told the true costs."""
        return schedule(self.workload, self.costs)

    def step_s(self, plan: Workload) -> float:
        """Return the true step of a plan, s, without noise."""
        return _run(self, plan, self.costs, self.slowed).step_s


def drawn(seed: int, *, share: tuple[float, float] = SHARE, latency: tuple[float, float] = LATENCY) -> DrawnJob:
    """Return the job of a seed; ``share`` and ``latency`` are ranges of communication and of what an operation waits."""
    rng = np.random.default_rng((seed, *b"job"))
    ranks, count = int(rng.choice(WORLDS)), int(rng.integers(LAYERS[0], LAYERS[1] + 1))
    compute_s, total = _between(rng, COMPUTE_S), _between(rng, TOTAL_MIB) * MIB
    work, sizes = rng.dirichlet(np.ones(count) * 3) * compute_s, np.exp(rng.normal(0, rng.uniform(*UNEVEN), count))
    sizes = np.maximum(sizes / sizes.sum() * total, 64 << 10)
    layers = [
        ChainLayer(float(each) / 3, float(each) / 1.5, int(size) // 4 * 4)
        for each, size in zip(work, sizes, strict=True)
    ]
    sent_s = _between(rng, share) * compute_s
    model = LinkCosts(float(sizes.sum()) / sent_s, overhead_s=_between(rng, latency) * sent_s)
    costs = TrueCosts(model, seed, float(sizes.mean()), abs(float(rng.normal(0, GROWTH))))
    lost = float(rng.uniform(0, MOST_LOST)) if rng.random() < 0.5 else 0.0
    interference = Interference("factor", lost) if lost else Interference()
    steps, sigma = int(rng.integers(STEPS[0], STEPS[1] + 1)), _between(rng, STEP_SIGMA)
    return DrawnJob(
        seed,
        chain(f"drawn {seed}", layers, ranks),
        costs,
        interference,
        steps,
        sigma,
        float(rng.choice((0.25, 0.5, 1.0))),
    )


def _between(rng: Random, ends: tuple[float, float]) -> float:
    return math.exp(rng.uniform(math.log(ends[0]), math.log(ends[1])))


def recorded(job: DrawnJob, plan: Workload, turn: int, noise: HealthyNoise | None = None) -> Trace:
    """Return a recording of a job by a plan: each step with noise of its own; ``turn`` tells recordings of one job apart."""
    rng, p = np.random.default_rng((job.seed, turn, *b"run")), plan.mesh.size
    late = job.noise_scale * _late(noise or ours(), p, job, rng)
    events: list[Row] = []
    clock = 0.0
    for step in range(job.steps):
        costs = replace(job.costs, factor=math.exp(rng.normal(0, job.step_sigma)))
        slowed = {rank: max(QUICKEST, 1 + float(late[rank, step])) * job.slowed.get(rank, 1.0) for rank in range(p)}
        run = _run(job, plan, costs, slowed)
        events += _events(run, plan, step, clock)
        clock += run.step_s
    frames = {
        "events": WRITER.events(_columns([*events, *job.extra.get("events", ())])),
        "communicators": communicators([communicator(range(p), comm_id="world", name="world", role="dp")]),
        **{name: rows(name, list(told)) for name, told in job.extra.items() if name != "events"},
    }
    return Trace.of(frames, {"source": "simulator", "world": p, "inputs": [job.workload.name]})


def _late(noise: HealthyNoise, p: int, job: DrawnJob, rng: Random) -> np.ndarray:
    """Return by how much ranks take longer, in shares of a step: float64 of shape (ranks, steps).

    The ranks of a job are the same in all its recordings: those of one real job each, at another time.
    """
    host = np.random.default_rng((job.seed, *b"ranks"))
    shared = noise.shared[int(host.integers(len(noise.shared)))]
    mine = []
    for _ in range(p):
        table = noise.late[int(host.integers(len(noise.late)))]
        row = int(host.integers(len(table)))
        mine.append(HealthyNoise((table[row : row + 1],), (shared,), noise.origin))
    return np.concatenate([each.ranks(1, job.steps, rng) for each in mine]) + mine[0].together(job.steps, rng)


def _run(job: DrawnJob, plan: Workload, costs: Costs, slowed: Mapping[int, float]) -> JobRun:
    return simulate(plan, costs, slowdowns=slowed, folded=False, interference=job.interference)


def _columns(events: Sequence[Row]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for each in events for name in each)
    return {name: [each.get(name) for each in events] for name in names}


def _computed(kind: str, rank: int, step: int, start_s: float, duration_s: float) -> Row:
    return {
        "kind": "compute",
        "op": kind,
        "phase": PHASES.get(kind),
        "stream": "compute",
        "rank": rank,
        "iteration": step,
        "enqueue_s": start_s,
        "start_s": start_s,
        "duration_s": duration_s,
    }


def _events(run: JobRun, plan: Workload, step: int, clock: float) -> list[Row]:
    """Return the last step of a run as one of a recording: each rank's work, and its calls from when it came to them.

    As profilers tell it, ``enqueue_s`` is when the rank handed a call in, between the work before and behind it.
    """
    last = run.laid.steps - 1
    begin = run.finished(last - 1) / PS
    made = {each.name: each for each in operations(plan)}
    ends: dict[tuple[str, int], float] = {}
    told: list[Row] = []
    calls: list[tuple[float, float, str, int, tuple[int, ...]]] = []
    for row in run.laid.rows:
        where = run.span(row, last)
        ranks = tuple(run.laid.rank_classes.ranks[each] for each in dict.fromkeys(row.rank_classes))
        starts, stops = run.times.moved[where] / PS - begin, run.times.end[where] / PS - begin
        if row.what == "task" and row.kind != "CTRL":
            ends |= {(row.name, rank): float(stops[-1]) for rank in ranks}
            lasts = clock + float(starts[0]), float(stops[-1] - starts[0])
            told += [_computed(row.kind, rank, step, *lasts) for rank in ranks]
        elif row.what == "operation":
            sizes = [row.size_bytes] * (row.count - 1) + [row.last_bytes]
            calls += [
                (float(start), float(stop), row.name, size, ranks)
                for start, stop, size in zip(starts, stops, sizes, strict=True)
            ]
    before = dict.fromkeys(range(plan.mesh.size), -math.inf)
    for at, (start, stop, name, size, ranks) in enumerate(sorted(calls)):
        producers = [task for each in made[name].payloads for task in each.producers]
        for rank in ranks:
            ready = max((ends[task, rank] for task in producers if (task, rank) in ends), default=start)
            came = min(start, max(ready, before[rank]))
            before[rank] = stop
            told.append(
                {
                    "kind": "collective",
                    "op": made[name].op,
                    "role": "dp",
                    "stream": "dp",
                    "rank": rank,
                    "iteration": step,
                    "communicator": 0,
                    "nranks": len(ranks),
                    "sequence": step * len(calls) + at,
                    "size_bytes": size,
                    "enqueue_s": clock + min(ready, came),
                    "start_s": clock + came,
                    "duration_s": stop - came,
                }
            )
    told += [
        {"kind": "step", "rank": rank, "iteration": step, "start_s": clock, "duration_s": run.step_s}
        for rank in range(plan.mesh.size)
    ]
    return told
