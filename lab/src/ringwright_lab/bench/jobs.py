"""Which contenders share processes: each library gets its own start of ranks, and our programs take turns with it there."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ringwright.execute import launch
from ringwright.execute.executors import Executor
from ringwright.execute.job import AskedCollective, Contender, Contest, RankJob
from ringwright.execute.plan import plans
from ringwright.execute.rank_host import here
from ringwright.execute.switched.terms import is_switched
from ringwright.ground.errors import DeclinedError, RanksFailedError, UsageError
from ringwright.model.registry import find
from ringwright_lab.bench import probe, switched
from ringwright_lab.bench.question import OURS, BenchSpec, Candidate

if TYPE_CHECKING:
    from ringwright.execute.job import NodeResult
    from ringwright.execute.plan import NodePlan
    from ringwright.execute.rank_host import Place
    from ringwright.execute.switched.terms import WorkerPort
    from ringwright.model.program import Program

ROUND_S = 0.02  # what one round should take, so that a barrier before it does not count
PROBE_ROUNDS = 9
OWN = {  # what a library does where nothing forces it
    ("gloo", "all-reduce"): "ring",
    ("gloo", "all-gather"): "ring",
    ("gloo", "reduce-scatter"): "all-reduce",
    ("gloo", "broadcast"): "binomial",
    ("gloo", "reduce"): "ring",
    ("gloo", "all-to-all"): "direct",
    ("gloo", "gather"): "linear",
    ("gloo", "scatter"): "linear",
    ("gloo", "barrier"): "bruck",
}


@dataclass
class LaunchGroup:
    """One start of ranks: who starts them, with which settings, and who competes there."""

    starter: Executor
    settings: dict[str, str] = field(default_factory=dict)
    call: str = ""
    entries: list[tuple[Candidate, str]] = field(default_factory=list)  # candidate, algorithm


@dataclass(frozen=True)
class BenchSample:
    """One contender at one size: what each node found."""

    candidate: str
    algorithm: str
    size_bytes: int
    inner: int
    results: list[NodeResult]
    beside: str
    wire: str

    @property
    def rounds_s(self) -> list[tuple[float, float]]:
        """Each round that all nodes have finished: when its last rank started, when its last one ended."""
        rounds = zip(*(each.times_s for each in self.results), strict=False)
        return [(max(start for start, _ in each), max(end for _, end in each)) for each in rounds]

    @property
    def times_s(self) -> list[float]:
        """Each round's time, a run's share of it."""
        return [(end - start) / self.inner for start, end in self.rounds_s]


def groups(question: BenchSpec, candidates: Sequence[Candidate], notes: list[str]) -> list[LaunchGroup]:
    """Return the starts of ranks that a benchmark needs; ``notes`` gets what a library cannot do."""
    ours = [each for each in candidates if not each.native]
    launches: list[LaunchGroup] = []
    for candidate in candidates:
        if candidate.native:
            launches += _native(question, candidate, notes)
    for group in launches:
        group.entries += [
            (each, name)
            for each in ours
            for name in question.algorithms
            if _carries(each, name)
            if _is_at_home(each.executor, group.starter) and (not group.settings or _fits(group, name))
        ]
    launches.sort(key=lambda group: "mpich" in group.starter.name)  # whose waiting ranks disturb all others: last
    placed = {(each.name, name) for group in launches for each, name in group.entries}
    for each in ours:
        names = [name for name in question.algorithms if _carries(each, name)]
        left = [(each, name) for name in names if (each.name, name) not in placed]
        if left:
            launches.append(LaunchGroup(each.executor, entries=left))
    return launches


def _carries(candidate: Candidate, name: str) -> bool:
    """Return whether a backend has this algorithm: what a switch carries out goes over no other messages."""
    return candidate.name == OURS or not is_switched(name)


def _native(question: BenchSpec, candidate: Candidate, notes: list[str]) -> list[LaunchGroup]:
    if not candidate.executor.library:
        return [LaunchGroup(candidate.executor, entries=[(candidate, OWN.get((candidate.name, question.op), "own"))])]
    from ringwright.execute.mpi_forced import forced

    launches = []
    for name in question.algorithms:
        if is_switched(name):
            continue
        try:
            made = forced(candidate.executor.library, question.op, find(name.partition(":")[0]).slug, p=question.ranks)
        except DeclinedError as error:
            notes.append(f"{error.what} ({error.remedy})" if error.remedy else error.what)
            continue
        launches.append(LaunchGroup(candidate.executor, made.settings, made.call, [(candidate, name)]))
    return launches


def _is_at_home(mine: Executor, starter: Executor) -> bool:
    """Return whether ranks started by one can run the other: all have memory and sockets."""
    return mine.backend == "processes" or (mine.backend, mine.library) == (starter.backend, starter.library)


def _fits(group: LaunchGroup, algorithm: str) -> bool:
    """Return whether this start is about that algorithm."""
    return any(name == algorithm for candidate, name in group.entries if candidate.native)


def measure(
    question: BenchSpec,
    group: LaunchGroup,
    made: dict[tuple[str, int], Program],
    places: Sequence[Place] | None,
    slowest_rate: float,
    begin: Callable[[], object] | None = None,
    kept: list[BenchSample] | None = None,
    ports: Sequence[WorkerPort] = (),
) -> tuple[list[BenchSample], dict[str, dict[tuple[str, int], float]]]:
    """Run a group once; return its samples, and per wire the times of the probe.

    RanksFailedError where the ranks did not come to their end; ``kept`` then gets the samples that they had.
    """
    nodes = max([question.ranks, *(program.n_nodes for program in made.values())])
    cut: list[list[NodePlan]] = []
    rounds, meanings = _probes(question, group, cut, slowest_rate, nodes)
    rounds += _contests(question, group, made, cut, slowest_rate, nodes)
    seats = list(places or here(nodes))
    if len(seats) < nodes:
        raise UsageError(f"{nodes} nodes (ranks and aggregators) on {len(seats)} places", remedy="a larger fabric")
    # Ranks of another start are other workers: the switch lets them in once the last ones have left.
    session = secrets.randbits(63)
    job = RankJob(
        nodes,
        [seat.address for seat in seats],
        rounds,
        group.starter.backend,
        question.timeout_s,
        interfaces=[seat.counted for seat in seats] if places else [],
        begins=len(meanings),
        switched=[msgspec.structs.replace(port, session=session) for port in ports],
        call=group.call,
    )
    with launch.job_folder(elsewhere=places is not None) as folder:
        launch.lay_out(folder, job, cut)
        starts = group.starter.starts(folder, nodes, places, group.settings)
        limit_s = _limit_s(question, rounds, slowest_rate)
        try:
            answers = launch.run(folder, job, starts, limit_s=limit_s, begin=begin)
        except RanksFailedError as error:
            if kept is not None:
                whole = min(map(len, error.answers), default=0)
                kept += _sorted(group, rounds, meanings, [each[:whole] for each in error.answers])[0]
            raise
    return _sorted(group, rounds, meanings, answers)


def _padded(plans: list[NodePlan], nodes: int) -> list[NodePlan]:
    """Give nodes beyond a program's nothing to do."""
    missing = [
        msgspec.structs.replace(
            plans[0], node=node, arena_bytes=0, order=[], sends=[], receives=[], local=[], given=[], wanted=[]
        )
        for node in range(len(plans), nodes)
    ]
    sizes = plans[0].arenas + [0] * len(missing)
    return [msgspec.structs.replace(each, nodes=nodes, arenas=sizes) for each in (*plans, *missing)]


def _probes(
    question: BenchSpec, group: LaunchGroup, cut: list[list[NodePlan]], slowest_rate: float, nodes: int
) -> tuple[list[Contest], list[tuple[str, str, int]]]:
    """Return the probe's cases and what each is: (wire, kind, bytes). A library is probed through its own messages."""
    wires = dict.fromkeys(candidate.executor.wire for candidate, _ in group.entries)
    chunks = sorted({max(size // question.ranks, probe.SMALL_BYTES) for size in question.sizes if size})
    sizes = [] if question.lab else _spread(chunks)
    cases, meanings = [], []
    for kind, size, program in probe.programs(question.ranks, sizes) if question.ranks > 1 else ():
        cut.append(_padded(plans(program), nodes))
        for wire in wires:
            contender = Contender(f"probe {kind}", wire, len(cut) - 1)
            inner = _inner(size, slowest_rate)
            cases.append(
                Contest(AskedCollective.of(program.collective), [contender], PROBE_ROUNDS, inner, 1, look=False)
            )
            meanings.append((wire, kind, size))
    return cases, meanings


def _spread(chunks: Sequence[int]) -> list[int]:
    """Return sizes from the smallest to the largest, each at most 8 times the one before."""
    if not chunks:
        return []
    chosen = [chunks[0]]
    for chunk in chunks[1:]:
        if chunk >= 8 * chosen[-1]:
            chosen.append(chunk)
    return chosen if chosen[-1] == chunks[-1] else [*chosen, chunks[-1]]


def _inner(size: int, slowest_rate: float) -> int:
    expected_s = 60e-6 + 2 * size / slowest_rate
    return max(1, min(20, int(ROUND_S / expected_s)))


def _limit_s(question: BenchSpec, rounds: Sequence[Contest], slowest_rate: float) -> float:
    """Return a generous limit for the whole start."""
    runs = sum(
        (case.rounds * case.inner + case.warmup + 2)
        * len(case.contenders)
        * (0.2 + 40 * case.asked.size_bytes / slowest_rate)
        for case in rounds
    )
    return question.timeout_s + 60 + runs


def _sorted(
    group: LaunchGroup,
    rounds: Sequence[Contest],
    meanings: Sequence[tuple[str, str, int]],
    answers: list[list[NodeResult]],
) -> tuple[list[BenchSample], dict[str, dict[tuple[str, int], float]]]:
    probes: dict[str, dict[tuple[str, int], float]] = {}
    samples: list[BenchSample] = []
    natives = [candidate.name for candidate, _ in group.entries if candidate.native]
    wires = {
        f"{candidate.name}|{name}": switched.WIRE
        if is_switched(name) and not candidate.native
        else candidate.executor.wire
        for candidate, name in group.entries
    }
    for results in zip(*answers, strict=True):
        case = rounds[results[0].case]
        name, _, algorithm = results[0].label.partition("|")
        beside = "" if name in natives or not natives else natives[0]
        is_probe = results[0].case < len(meanings)
        wire = meanings[results[0].case][0] if is_probe else wires[results[0].label]
        sample = BenchSample(name, algorithm, case.asked.size_bytes, case.inner, list(results), beside, wire)
        if is_probe and sample.times_s:
            _, kind, size = meanings[results[0].case]
            probes.setdefault(wire, {})[kind, size] = float(np.median(sample.times_s)) / probe.STEPS
        elif not is_probe:
            samples.append(sample)
    return samples, probes


def _contests(
    question: BenchSpec,
    group: LaunchGroup,
    made: dict[tuple[str, int], Program],
    cut: list[list[NodePlan]],
    slowest_rate: float,
    nodes: int,
) -> Iterator[Contest]:
    """Yield a round for each size; ``cut`` takes in the plans of its programs."""
    for size in question.sizes:
        contenders = []
        for candidate, name in group.entries:
            if candidate.native:
                contenders.append(Contender(f"{candidate.name}|{name}"))
            elif is_switched(name):
                contenders.append(
                    Contender(f"{candidate.name}|{name}", switched.WIRE, terms=question.through_switch[name])
                )
            elif (name, size) in made:
                cut.append(_padded(plans(made[name, size]), nodes))
                contenders.append(Contender(f"{candidate.name}|{name}", candidate.executor.wire, len(cut) - 1))
        yield Contest(
            AskedCollective.of(question.collective(size)),
            contenders,
            question.rounds,
            _inner(size, slowest_rate),
            question.warmup,
            question.seed,
            record=question.record,
        )
