"""Simulate one collective by several algorithms over a range of sizes, each result beside the bounds of physics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ringwright import steps
from ringwright.collective import CARRYING_NOTHING, Collective, carried
from ringwright.errors import InfeasibleError, ProgramError, RingwrightError, UsageError
from ringwright.registry import algorithm
from ringwright.studies.arrivals import Arrivals, Asked, arriving
from ringwright.units import format_size

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.result import Run
    from ringwright.program import Program
    from ringwright.topology import Topology

SCHEMA = "ringwright.simulate/1"
MOST_SIZES = 200
MOST_STARTS = 8
REFERENCE_BYTES = 1 << 20  # per rank, for bounds that grow with the size


@dataclass(frozen=True)
class SimulatedRow:
    """One simulated time; bandwidths as nccl-tests defines them, in decimal GB/s."""

    algorithm: str
    engine: str
    ranks: int
    size_bytes: int
    time_us: float
    algbw_gbs: float
    busbw_gbs: float
    bound_us: float
    bound_in_network_us: float | None
    events: int
    messages: float
    choice: str
    bottleneck: str
    utilisation: float
    waited: float
    folded: bool
    why: str  # what the critical path spent its time on
    worst_us: float | None = None  # started at the worst of the moments at which a fault changes something
    worst_start_s: float | None = None
    lowest_bound_us: float | None = None  # of any program: where switches can add, they may
    after_last_us: float | None = None  # from the arrival of the last rank to the end, where arrivals are given
    declined: str | None = None  # in a row without times: why this algorithm has none here


@dataclass(frozen=True)
class SimulationSpec:
    """What is asked of the simulator, all but the algorithms and sizes."""

    op: str
    topology: Topology
    engine: str = "auto"
    alpha: str = "pipelined"
    group: Sequence[int] | None = None
    dtype: str = "float32"
    reduce_op: str = "sum"
    root: int = 0
    arrivals: Asked | None = None  # when the ranks come; None: together

    def come(self) -> Arrivals | None:
        """Return when the ranks of the group come, None where they come together; UsageError for what says not when."""
        return None if self.arrivals is None else arriving(self.arrivals, self.collective(0).p)

    def collective(self, size_bytes: int) -> Collective:
        """Return the collective at one size."""
        group = range(self.topology.n_ranks) if self.group is None else self.group
        beyond = [rank for rank in (group if self.group is not None else ()) if rank >= self.topology.n_ranks]
        if beyond:
            raise UsageError(
                f"rank {beyond[0]} is not on {self.topology.name}", remedy=f"0 to {self.topology.n_ranks - 1}"
            )
        return Collective(self.op, group, carried(self.op, [size_bytes])[0], self.dtype, self.reduce_op, self.root)


def sizes(begin: int, end: int, factor: float = 2, step: int = 0) -> list[int]:
    """Return the sizes of a sweep as nccl-tests makes them: times ``factor``, or plus ``step`` where that is given."""
    if begin < 0 or end < begin:
        raise UsageError(f"sizes from {begin} to {end} B are no range", remedy="-b 1K -e 1G")
    if step <= 0 and factor <= 1:
        raise UsageError(f"sizes cannot grow by a factor of {factor:g}", remedy="-f 2")
    steps = [begin]
    while len(steps) < MOST_SIZES:
        following = steps[-1] + step if step > 0 else max(round(steps[-1] * factor), steps[-1] + 1)
        if following > end:
            break
        steps.append(following)
    return steps


def sweep(
    question: SimulationSpec,
    spellings: Iterable[str],
    wanted: Sequence[int],
    progress: steps.Advance | None = None,
) -> dict[str, Any]:
    """Return the object of schema ``ringwright.simulate/1``: a row per algorithm and size, and what was left out.

    An algorithm that declines a size beside others that answer is a row with its reason in ``declined`` and no times; where
    none answers its error is raised. ``progress`` is told of each row.
    """
    left_out: dict[str, None] = {}
    rows: list[dict[str, Any]] = []
    software: dict[str, bool] = {}
    floors = Floors(question)
    refused: list[RingwrightError] = []
    wanted = carried(question.op, wanted)
    left_out |= {} if question.op not in CARRYING_NOTHING else {f"sizes: a {question.op} carries no data": None}
    asked = [(spelling, *algorithm(spelling)[1:], size) for spelling in spellings for size in wanted]
    for spelling, make, knobs, size in steps.told(asked, progress, _named):
        collective = question.collective(size)
        try:
            program = make(collective, question.topology, **knobs)
            row, omitted = measure(question, program, spelling, floors)
        except (UsageError, InfeasibleError, ProgramError) as error:
            refused.append(error)
            rows.append(_declined(spelling, collective, error))
            continue
        timed = bool(program.software.message_s or program.software.base_s)
        software[spelling] = software.get(spelling, False) or timed
        rows.append(asdict(row))
        left_out |= dict.fromkeys(omitted)
    if refused and len(refused) == len(rows):
        raise refused[0]
    top, come = question.topology, question.come()
    return {
        "schema": SCHEMA,
        "collective": question.op,
        "fabric": top.name,
        "ranks": question.collective(0).p,
        "latency_model": question.alpha,
        "faults": len(top.faults),
        "provenance": top.provenance,
        "bound_ground": _ground(top),
        "arrivals": None if come is None else come.said,
        "last_arrival_us": None if come is None else come.last_s * 1e6,
        "rows": rows,
        "notes": _unlike(software, question.topology),
        "left_out": list(left_out),
    }


def _named(asked: tuple[Any, ...]) -> str:
    return f"{asked[0]}, {format_size(asked[-1])}"


def _ground(topology: Topology) -> str:
    """Return what the lowest bound rests on, where the fabric makes it lower than that of adding at the ranks."""
    if not topology.aggregators:
        return ""
    return "switches may add and copy here; what adds at the ranks alone cannot go below the bound at the ranks"


def _declined(name: str, collective: Collective, error: RingwrightError) -> dict[str, Any]:
    """Return the row of an algorithm that has no answer at this size: its reason, and null for all that was measured."""
    known = {"algorithm": name, "ranks": collective.p, "size_bytes": collective.size_bytes, "declined": error.what}
    return {field.name: known.get(field.name) for field in fields(SimulatedRow)}


def _unlike(software: dict[str, bool], topology: Topology) -> list[str]:
    """Say where times are not alike: some with the software of a library in them, others with the wire alone."""
    with_it = [name for name, has in software.items() if has]
    without = [name for name, has in software.items() if not has]
    if not with_it or not without or topology.message_s:
        return []
    alike, whose = "at small sizes they are not alike", "copies and starts of messages"
    if all("nccl" in name for name in with_it):
        alike, whose = f"{alike}. To compare the wire alone add :tuning=false", "NCCL's own software per hop"
    note = f"{', '.join(with_it)} counts {whose}, {', '.join(without)} only the wire: {alike}"
    return [f"{note}; to have software in all, calibrate the fabric"]


def measure(
    question: SimulationSpec, program: Program, name: str, floors: Floors
) -> tuple[SimulatedRow, tuple[str, ...]]:
    """Return the row of one program, and the effects that its engine leaves out."""
    from ringwright.engines.choose import simulate

    come = floors.come
    seconds = None if come is None else come.seconds
    run = simulate(program, question.topology, engine=question.engine, alpha=question.alpha, arrivals=seconds)
    collective, time_s = program.collective, run.time_s
    without, within = floors.of(collective)
    floor = within if program.aggregators and within is not None else without
    if time_s < floor * (1 - 1e-9):
        raise InfeasibleError(
            f"{name}: {time_s * 1e6:.3f} us is below the bound of {floor * 1e6:.3f} us; this result is withheld",
            where=f"{run.engine} on {question.topology.name}, {collective.size_bytes} B",
            remedy="report this: a simulator must not beat physics",
        )
    algbw = collective.size_bytes / time_s / 1e9 if time_s else 0.0
    row = SimulatedRow(
        name,
        run.engine,
        collective.p,
        collective.size_bytes,
        time_s * 1e6,
        algbw,
        algbw * collective.bus_factor,
        without * 1e6,
        None if within is None else within * 1e6,
        run.events,
        program.cost.messages,
        _choice(program),
        run.bottleneck,
        run.utilisation,
        run.waited,
        run.folded,
        run.path(),
        *_worst(question, program, time_s, seconds),
        lowest_bound_us=(without if within is None else within) * 1e6,
        after_last_us=None if come is None else run.after_last_s * 1e6,
    )
    return row, run.left_out


class Floors:
    """Bounds of one question, size by size: the search over all cuts is done once, for bandwidth grows with the size."""

    def __init__(self, question: SimulationSpec) -> None:
        self._question, self.come = question, question.come()
        self._rates: dict[bool, float] = {}

    def of(self, collective: Collective) -> tuple[float, float | None]:
        """Return seconds without in-network reduction, and with it where the fabric can reduce."""
        within = self._floor(collective, in_network=True) if self._question.topology.aggregators else None
        return self._floor(collective, in_network=False), within

    def _floor(self, collective: Collective, *, in_network: bool) -> float:
        plain = self._together(collective, in_network=in_network)
        if self.come is None:
            return plain
        from ringwright.costs.late_bounds import late_bound, nothing_before

        seconds, alpha = self.come.seconds, self._question.alpha
        late = late_bound(collective, self._question.topology, seconds, in_network=in_network, alpha=alpha, exact=False)
        return max(late.time_s, plain + nothing_before(seconds, in_network=in_network))

    def _together(self, collective: Collective, *, in_network: bool) -> float:
        from ringwright.costs.lower_bounds import bound

        topology, alpha = self._question.topology, self._question.alpha
        time_s = bound(collective, topology, in_network=in_network, alpha=alpha, exact=False).time_s
        if collective.size_bytes % (collective.p * collective.unit_bytes):
            return time_s  # uneven blocks: what crosses a cut is not in proportion
        if in_network not in self._rates:
            even = self._question.collective(REFERENCE_BYTES * collective.p)
            best = bound(even, topology, in_network=in_network, alpha=alpha)
            self._rates[in_network] = 0.0 if best.kind in ("distance", "rounds") else best.time_s / even.size_bytes
        return max(time_s, self._rates[in_network] * collective.size_bytes)


@dataclass(frozen=True)
class Detail:
    """One run in full, for pictures: its program, the load of links (name, share of the time busy, bytes), the critical path."""

    name: str
    program: Program
    load: list[tuple[str, float, float]]
    path: str
    run: Run


def detail(question: SimulationSpec, spelling: str, size_bytes: int) -> Detail:
    """Return the run of one algorithm at one size."""
    from ringwright.engines.choose import simulate

    _, make, knobs = algorithm(spelling)
    program = make(question.collective(size_bytes), question.topology, **knobs)
    come = question.come()
    seconds = None if come is None else come.seconds
    run = simulate(program, question.topology, engine=question.engine, alpha=question.alpha, arrivals=seconds)
    return Detail(spelling, program, run.load(), run.path(), run)


def _choice(program: Program) -> str:
    """Return what a library chose, for the table: ``tree/ll128 x16``."""
    chosen = program.knobs.get("algorithm")
    if chosen is None:
        return ""
    protocol = f"/{program.protocol}" if program.protocol else ""
    return f"{chosen}{protocol}" + (f" x{program.channels}" if program.channels > 1 else "")


def _worst(
    question: SimulationSpec, program: Program, time_s: float, seconds: np.ndarray | None
) -> tuple[float | None, float | None]:
    """Return the longest time in us over starts at the faults' own moments, and that start; None without faults."""
    from ringwright.engines.choose import simulate

    faults = question.topology.faults
    if not faults:
        return None, None
    worst, when = time_s, 0.0
    moments = sorted({fault.time_s for fault in faults})
    for moment in moments[:: -(-len(moments) // MOST_STARTS)]:
        later = question.topology.starting_at(moment)
        taken = simulate(program, later, engine=question.engine, alpha=question.alpha, arrivals=seconds).time_s
        if taken > worst:
            worst, when = taken, moment
    return worst * 1e6, when
