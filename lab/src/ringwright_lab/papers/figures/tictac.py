"""TicTac's figures: TIC and TAC against every order there is, on small random graphs, and ResNet-50 over servers."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations

from ringwright.engines.job.run import simulate
from ringwright.model.stages import ServerCosts, Stage
from ringwright.model.workload import Edge, Task, Workload
from ringwright.schedulers.priority._tictac import TransferGraph, tac, tic
from ringwright.schedulers.priority.tictac import tictac
from ringwright.workloads.layers import layerwise
from ringwright.workloads.models import model

TRANSFERS, TASKS, LONGEST = 6, 8, 10  # integer times from 1 to 10
GRAPHS = 300


@dataclass(frozen=True)
class Instance:
    """A graph, for which each task also says the place of the tasks before it."""

    graph: TransferGraph
    transfers: tuple[str, ...]
    tasks: tuple[str, ...]


def instance(seed: int, *, chain: bool) -> Instance:
    """Return a random graph: a chain, each task with the transfers of its own, or up to two transfers and tasks before each."""
    draw = random.Random(seed)  # noqa: S311 - a seed gives the same graph everywhere
    transfers, tasks = [f"r{at}" for at in range(TRANSFERS)], [f"c{at}" for at in range(TASKS)]
    needs: dict[str, set[str]] = {task: set() for task in tasks}
    before: dict[str, set[str]] = {task: set() for task in tasks}
    for at, task in enumerate(tasks):
        if at:
            several = 1 if chain else min(at, draw.randint(1, 2))
            before[task] = {tasks[at - 1]} if chain else set(draw.sample(tasks[:at], several))
        if not chain:
            needs[task] = set(draw.sample(transfers, draw.randint(0, 2)))
    if chain:
        for transfer in transfers:
            needs[draw.choice(tasks)].add(transfer)
    times = [{name: float(draw.randint(1, LONGEST)) for name in names} for names in (transfers, tasks)]
    return Instance(TransferGraph(times[0], times[1], needs, before), tuple(transfers), tuple(tasks))


def makespans(made: Instance, orders: Sequence[Sequence[str]]) -> list[float]:
    """Return for each order when the last task ends: transfers go one by one, and of the tasks the one that could start first."""
    import numpy as np

    graph = made.graph
    column = {name: at for at, name in enumerate(made.transfers)}
    sequence = np.array([[column[name] for name in order] for order in orders])
    times = np.array([graph.transfers[name] for name in made.transfers])
    arrived = np.empty(sequence.shape)
    np.put_along_axis(arrived, sequence, np.cumsum(times[sequence], axis=1), axis=1)
    position = {name: at for at, name in enumerate(made.tasks)}
    needed = [[column[each] for each in graph.needs[name]] for name in made.tasks]
    earlier = [[position[each] for each in graph.before[name]] for name in made.tasks]
    lasts = np.array([graph.tasks[name] for name in made.tasks])
    could = np.stack([arrived[:, at].max(axis=1, initial=0.0) for at in needed], axis=1)
    ended, free = np.full(could.shape, np.inf), np.zeros(len(sequence))
    rows = np.arange(len(sequence))
    for _ in made.tasks:
        after = np.stack([ended[:, at].max(axis=1, initial=0.0) for at in earlier], axis=1)
        begins = np.where(np.isfinite(ended), np.inf, np.maximum(could, after))
        chosen = begins.argmin(axis=1)
        free = np.maximum(free, begins[rows, chosen]) + lasts[chosen]
        ended[rows, chosen] = free
    ends: list[float] = np.maximum(free, arrived.max(axis=1)).tolist()
    return ends


@cache
def against_best(chain: bool, mode: str) -> tuple[float, ...]:
    """Return, for 300 graphs, the makespan of ``mode`` (tac, tic or drawn) against that of the best of all 720 orders."""
    ratios = []
    for seed in range(GRAPHS):
        made = instance(seed, chain=chain)
        if mode == "drawn":
            order = list(made.transfers)
            random.Random(seed).shuffle(order)  # noqa: S311
        else:
            keys = (tac if mode == "tac" else tic)(made.graph)
            order = sorted(made.transfers, key=lambda each: keys[each])
        ratios.append(makespans(made, [order])[0] / _best(seed, chain))
    return tuple(ratios)


@cache
def _best(seed: int, chain: bool) -> float:
    made = instance(seed, chain=chain)
    return min(makespans(made, list(permutations(made.transfers))))


def optimal(chain: bool, mode: str) -> int:
    """Return in how many of 300 graphs the order is the best there is."""
    return sum(ratio <= 1 + 1e-9 for ratio in against_best(chain, mode))


def mean(chain: bool, mode: str) -> float:
    """Return the mean ratio to the best."""
    return statistics.fmean(against_best(chain, mode))


# ------------------------------------------------------------------------------------------------------------- ResNet-50
STEP_S = {"training": 0.3, "inference": 0.1}  # compute of a step: assumed, only its ratio to the transfers matters
RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0)  # seconds of transfers for each second of compute
WORKERS, MANY, STEPS = 8, 16, 4
NOISE = 0.01  # standard deviation of the workers' slowdowns


@dataclass(frozen=True)
class ReadCosts:
    """Reading parameters from servers: one link of ``rate`` bytes/s into the worker."""

    rate: float

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return one phase."""
        return (Stage(size_bytes / self.rate, phase="pull", loads=(("link.rx", 1.0),)),)


def resnet(mode: str) -> Workload:
    """Return one worker's step: a training step over servers, or a forward pass that reads all parameters anew."""
    if mode == "training":
        return layerwise(model("resnet50"), STEP_S[mode], 1, op="push-pull", each="tensor")
    whole = layerwise(model("resnet50"), STEP_S[mode], 1, op="pull", each="tensor", forward_share=1 - 1e-9)
    tasks = tuple(task for task in whole.tasks if task.kind == "F")
    kept = {task.name for task in tasks}
    edges = [edge for edge in whole.edges if edge.src in kept and edge.dst in kept]
    edges += [Edge(tasks[-1].name, "start", 1), Edge("start", tasks[0].name)]
    payloads = tuple(
        replace(each, producers=("start",), consumers=((each.producers[0].replace("B.", "F.", 1), 0),))
        for each in whole.payloads
    )
    start = Task("start", "all", "CTRL", slot=("F", 0))
    return replace(whole, tasks=(start, *tasks), edges=tuple(edges), payloads=payloads)


@cache
def worker_step(mode: str, order: str, ratio: float, worker: int, slowdown: float = 1.0) -> float:
    """Return the mean seconds of a worker's step with transfers in TAC or TIC order, or in one drawn each time."""
    made = resnet(mode)
    volume = sum(payload.size_bytes for payload in made.payloads)
    rate = volume / (STEP_S[mode] * ratio)
    costs = ReadCosts(rate) if mode == "inference" else ServerCosts(2 * rate)
    ordered = tictac(made, costs, random=worker) if order == "drawn" else tictac(made, costs, mode=order)
    run = simulate(ordered, costs, steps=STEPS, slowdowns={0: slowdown})
    return (run.finished(STEPS - 1) - run.finished(0)) / (STEPS - 1) / 1e12


def throughput_gain(mode: str, order: str, ratio: float) -> float:
    """Return steps per second in ``order`` against orders drawn anew by each of 8 workers, where all wait for the slowest."""
    slowest = max(worker_step(mode, "drawn", ratio, worker) for worker in range(WORKERS))
    return slowest / worker_step(mode, order, ratio, 0) - 1


def best_ratio(mode: str) -> float:
    """Return the ratio of transfers to compute at which TAC gains most."""
    return max(RATIOS, key=lambda ratio: throughput_gain(mode, "tac", ratio))


def spread(mode: str, order: str) -> float:
    """Return the coefficient of variation of 16 workers' steps at ratio 1, over that of their slowdowns (1 %)."""
    draw = random.Random(0)  # noqa: S311
    slowdowns = [draw.gauss(1.0, NOISE) for _ in range(MANY)]
    steps = [worker_step(mode, order, 1.0, worker, slowdown) for worker, slowdown in enumerate(slowdowns)]
    return (statistics.stdev(steps) / statistics.fmean(steps)) / (
        statistics.stdev(slowdowns) / statistics.fmean(slowdowns)
    )


def largest_gain(mode: str) -> float:
    """Return the largest gain in throughput over the ratios of transfers to compute."""
    return max(throughput_gain(mode, "tac", ratio) for ratio in RATIOS)


def largest_calming() -> float:
    """Return how many times less workers' steps spread with TAC than with orders drawn, in training or inference."""
    return max(spread(mode, "drawn") / (spread(mode, "tac") or math.inf) for mode in ("training", "inference"))
