"""Simulate one collective by several algorithms over a range of sizes, each result beside the bounds of physics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ringwright.calls import arguments, job_ends
from ringwright.calls.answers import FAR_APART, Answered, Answers
from ringwright.calls.floors import Floors
from ringwright.calls.lossy_times import LEFT_OUT
from ringwright.calls.simulated_document import (
    SCHEMA,
    CallBounds,
    DeclinedCall,
    Disagreement,
    EngineRun,
    FastestCall,
    LikelyTime,
    PacketCounts,
    SimulatedCalls,
    SimulatedRow,
    SwitchLease,
    TimeGround,
    UnlikeSize,
    UsualTransport,
    WorstStart,
)
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.calls.sums import sums
from ringwright.calls.switch_leases import in_switches
from ringwright.calls.unlike_software import TimedSoftware, notes, software_of, unlike
from ringwright.calls.without_faults import AskedOnce
from ringwright.costs.link_models import NAME_OF
from ringwright.costs.probable_time import LEARNT, Probable
from ringwright.costs.transports import TRANSPORTS, USUAL_TRANSPORT
from ringwright.engines.packets.carriage import carriers
from ringwright.executors.content import name_of
from ringwright.executors.fan_out import Chosen, FanOut, WorkAccount, fan_out
from ringwright.executors.shared import let_go, shared
from ringwright.ground import stepwise
from ringwright.ground.errors import InfeasibleError, JobEndsError, ProgramError, RingwrightError, UsageError
from ringwright.ground.units import format_size
from ringwright.model.collective import CARRYING_NOTHING, Collective, carried

if TYPE_CHECKING:
    from ringwright.calls.without_faults import SaidTime
    from ringwright.engines.packets.run import Packets
    from ringwright.engines.result import Run
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

MOST_SIZES = 200
MOST_STARTS = 8


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
    *,
    sums_too: bool = True,
    executor: Chosen = None,
) -> dict[str, Any]:
    """Return the object of schema ``ringwright.simulate/1`` as JSON values; the rest as ``swept``."""
    return swept(question, spellings, wanted, sums_too=sums_too, executor=executor).document()


def swept(
    question: SimulationSpec,
    spellings: Iterable[str],
    wanted: Sequence[int],
    progress: stepwise.Advance | None = None,
    *,
    sums_too: bool = True,
    executor: Chosen | FanOut = None,
) -> SimulatedCalls:
    """Return a row per algorithm and size, and what was left out.

    ``sums_too``: say as well what sums are worth that switches make in a number format of their own.

    Where a fault ends the job the row says how in ``ends``, and has no times. An algorithm that declines a size beside others
    that answer is a row with its reason in ``declined`` and no times; where none answers its error is raised. ``progress`` is
    told of each row; ``executor`` makes them.
    """
    spellings = list(spellings)
    named = (arguments.algorithm(each).on_links(NAME_OF[question.alpha]) for each in spellings)
    algorithms = {each.spelling: each for each in named}
    carrying = carried(question.op, wanted)
    pairs = [(spelling, size) for spelling in spellings for size in carrying]
    come = question.come()
    sent = question if come is None else replace(question, arrivals=come.seconds)
    calls, asked, account = _calls(sent, tuple(wanted), pairs, progress, executor)
    rows = [row for each in calls if (row := each.row or each.no_time) is not None]
    answered = [row for row in rows if isinstance(row, SimulatedRow)]
    timed, by_size = _by_size(calls, algorithms)
    longest_s = max((row.worst.worst_us or row.time_us for row in answered), default=0.0) / 1e6
    asked = asked.lasting(longest_s)
    top = asked.question.topology
    unlike_sizes = unlike(asked, timed)
    alike = {size: given for size, given in by_size.items() if size not in unlike_sizes}
    nothing = () if question.op not in CARRYING_NOTHING else (f"sizes: a {question.op} carries no data",)
    return SimulatedCalls(
        schema=SCHEMA,
        asked=question.asked(spellings),
        collective=question.op,
        fabric=top.name,
        ranks=question.collective(0).p,
        latency_model=question.alpha,
        link_model=NAME_OF[question.alpha],
        faults=len(top.faults),
        provenance=top.provenance,
        transport=_transport(top),
        bound_ground=_ground(top),
        arrivals=None if come is None else come.said,
        beside=[other.text for other in question.beside],
        last_arrival_us=None if come is None else come.last_s * 1e6,
        rows=rows,
        notes=notes(timed, unlike_sizes),
        unlike=[UnlikeSize(size, most_us) for size, most_us in unlike_sizes.items()],
        sums=sums(question, answered) if sums_too else [],
        fastest=[] if question.asks_engine else _fastest(question, asked.answers, alike),
        disagreements=[] if question.asks_engine else _disagreements(answered),
        left_out=list(dict.fromkeys((*nothing, *(each for call in calls for each in call.left_out)))),
        executor=account.document(),
    )


def _by_size(
    calls: Sequence[SimulatedCall], algorithms: Mapping[str, arguments.Algorithm]
) -> tuple[dict[int, list[TimedSoftware]], dict[int, list[tuple[str, Answered]]]]:
    """Return the times of each size with the software in them, and what models say of them."""
    timed: dict[int, list[TimedSoftware]] = {}
    by_size: dict[int, list[tuple[str, Answered]]] = {}
    for row, said in ((each.row, each.said) for each in calls if each.row is not None and each.said is not None):
        algorithm = algorithms[row.algorithm]
        timed.setdefault(row.size_bytes, []).append(TimedSoftware(algorithm, row.time_us, row.ground.software))
        by_size.setdefault(row.size_bytes, []).append((row.algorithm, Answered(algorithm.knobs, said)))
    return timed, by_size


@dataclass(frozen=True)
class SimulatedCall:
    """What an algorithm answers at a size: a row and what its models say, or why there is no time, and what it leaves out."""

    row: SimulatedRow | None = None
    no_time: DeclinedCall | None = None
    said: Probable | None = None
    left_out: tuple[str, ...] = ()
    is_refused: bool = False


def _calls(
    question: SimulationSpec,
    wanted: tuple[int, ...],
    pairs: Sequence[tuple[str, int]],
    progress: stepwise.Advance | None,
    executor: Chosen | FanOut,
) -> tuple[list[SimulatedCall], AskedOnce, WorkAccount]:
    """Return what each pair of an algorithm and a size answers, and who worked; the first error where all refuse."""
    try:
        key = name_of(_calls, (question, wanted))
    except TypeError:  # routes that are a function of the caller's: no other process can make them
        key, executor = f"{id(question)}", "local:1"
    with fan_out(executor) as fan:
        calls = fan.map(call_of, [(key, question, wanted, *pair) for pair in pairs], title=_named, progress=progress)
    asked = shared(AskedOnce, question, wanted, name=key)
    let_go(AskedOnce)  # programs of large machines take gigabytes
    if calls and all(each.is_refused for each in calls):
        _answer(asked, *pairs[0])
    return calls, asked, fan.account


def call_of(
    key: str, question: SimulationSpec, wanted: tuple[int, ...], spelling: str, size_bytes: int
) -> SimulatedCall:
    """Return what one algorithm answers at one of the ``wanted`` sizes; ``key`` is a name of the question and these."""
    asked, collective = shared(AskedOnce, question, wanted, name=key), question.collective(size_bytes)
    try:
        return _answer(asked, spelling, size_bytes)
    except JobEndsError as error:
        algorithm = arguments.algorithm(spelling).on_links(NAME_OF[question.alpha])
        told = replace(
            _declined(spelling, collective, error),
            ends=job_ends.as_row(error),
            healthy_us=_healthy_us(asked, algorithm, size_bytes),
        )
        return SimulatedCall(no_time=told)
    except (UsageError, InfeasibleError, ProgramError) as error:
        return SimulatedCall(no_time=_declined(spelling, collective, error), is_refused=True)


def _answer(asked: AskedOnce, spelling: str, size_bytes: int) -> SimulatedCall:
    """Return an answer with a time; raise why there is none."""
    question = asked.question
    algorithm = arguments.algorithm(spelling).on_links(NAME_OF[question.alpha])
    asked, program, row, omitted, run = _lasting(asked, algorithm, question.collective(size_bytes))
    told = asked.of(algorithm, program, run, asked.on(program))
    row = _begun_at_worst(_answered(row, told.said, question), asked, algorithm, told)
    row = _beside_healthy(row, asked, algorithm, told)
    row = replace(row, ground=replace(row.ground, software=software_of(program, asked)))
    return SimulatedCall(row, said=told.said, left_out=(*omitted, *_of_packets(question, told)))


def _lasting(
    asked: AskedOnce, algorithm: arguments.Algorithm, collective: Collective
) -> tuple[AskedOnce, Program, SimulatedRow, tuple[str, ...], Run]:
    """Return an engine's row with its program and run; asked again where outages end before the answer does."""
    while True:
        question = asked.question
        program = algorithm(collective, question.topology).made()
        row, omitted, run = _measured(question, program, algorithm.spelling, asked.floors, asked.on(program))
        longer = asked.lasting(max(run.time_s, (row.worst.worst_us or 0.0) / 1e6))
        if longer is asked:
            return asked, program, row, omitted, run
        asked = longer


def _of_packets(question: SimulationSpec, told: SaidTime) -> tuple[str, ...]:
    """Return what is left out of an answer to which packets add what they lose."""
    return (LEFT_OUT,) if told.run.packets is not None and question.shows(told.said) else ()


def _begun_at_worst(
    row: SimulatedRow, asked: AskedOnce, algorithm: arguments.Algorithm, told: SaidTime
) -> SimulatedRow:
    """Return a row whose time at the worst moment is that of the same models, begun then."""
    if not row.worst.worst_start_s or row.worst.worst_us is None or not asked.question.shows(told.said):
        return row
    later = replace(asked.question, topology=asked.question.topology.starting_at(row.worst.worst_start_s))
    begun = AskedOnce(later, asked.sizes_bytes)
    machine = begun.on(told.program)
    worst = begun.of(algorithm, told.program, later.run(told.program, machine), machine)
    return replace(row, worst=replace(row.worst, worst_us=max(row.time_us, worst.time_us)))


def _beside_healthy(
    row: SimulatedRow, asked: AskedOnce, algorithm: arguments.Algorithm, told: SaidTime
) -> SimulatedRow:
    """Return a row with the time without faults, which none of them shortens, and with what cost nothing."""
    beside = asked.without_faults.beside(algorithm, told)
    row = replace(row, healthy_us=beside.healthy_us, unaffected=beside.unaffected, healthy=beside.healthy)
    least_us = beside.least_us
    if row.time_us >= least_us:
        return row
    algbw, busbw = _rates(told.program.collective, least_us)
    likely, worst = row.likely.at_least(least_us), row.worst.at_least(least_us)
    return replace(row, time_us=least_us, algbw_gbs=algbw, busbw_gbs=busbw, likely=likely, worst=worst)


def _named(_key: str, _question: SimulationSpec, _wanted: tuple[int, ...], spelling: str, size_bytes: int) -> str:
    return f"{spelling}, {format_size(size_bytes)}"


def _ground(topology: Topology) -> str:
    """Return what the lowest bound rests on, where the fabric makes it lower than that of adding at the ranks."""
    if not topology.aggregators:
        return ""
    return "switches may add and copy here; what adds at the ranks alone cannot go below the bound at the ranks"


def _transport(topology: Topology) -> UsualTransport:
    carrier = TRANSPORTS[topology.transport or USUAL_TRANSPORT]
    return UsualTransport(
        carrier.name, carrier.hop_s * 1e6, carrier.message_s * 1e6, carrier.efficiency, carrier.source
    )


def _declined(name: str, collective: Collective, error: RingwrightError) -> DeclinedCall:
    """Return the row of an algorithm that has no answer at this size."""
    return DeclinedCall(name, collective.p, collective.size_bytes, None, None, error.what)


def _healthy_us(asked: AskedOnce, algorithm: arguments.Algorithm, size_bytes: int) -> float | None:
    """Return the time without the faults of a call that ends with them; None where there are none, or it has no time either."""
    if asked.question.faults is None:
        return None
    with suppress(RingwrightError):
        return asked.without_faults.healthy(algorithm, size_bytes).time_us
    return None


def measure(
    question: SimulationSpec, program: Program, name: str, floors: Floors
) -> tuple[SimulatedRow, tuple[str, ...]]:
    """Return the row of one program by an engine, and the effects that the engine leaves out."""
    return _measured(question, program, name, floors, question.topology)[:2]


def _measured(
    question: SimulationSpec, program: Program, name: str, floors: Floors, machine: Topology
) -> tuple[SimulatedRow, tuple[str, ...], Run]:
    """Return an engine's row of one program on ``machine``, what the engine leaves out, and its run."""
    run = question.run(program, machine)
    collective, time_s = program.collective, run.time_s
    without, within = floors.of(collective)
    floor, kind = floors.under(program)
    if time_s < floor * (1 - 1e-9):
        raise InfeasibleError(
            f"{name}: {time_s * 1e6:.3f} us is below the bound of {floor * 1e6:.3f} us; this result is withheld",
            where=f"{run.engine} on {question.topology.name}, {collective.size_bytes} B",
            remedy="report this: a simulator must not beat physics",
        )
    algbw, busbw = _rates(collective, time_s * 1e6)
    row = SimulatedRow(
        name,
        run.engine,
        collective.p,
        collective.size_bytes,
        time_s * 1e6,
        algbw,
        busbw,
        CallBounds(floor * 1e6, kind, without * 1e6, None if within is None else within * 1e6),
        EngineRun(
            run.events,
            program.cost.messages,
            _choice(program),
            run.bottleneck,
            run.utilisation,
            run.waited,
            run.folded,
            run.path(),
        ),
        WorstStart(*_worst(question, program, machine, time_s)),
        lowest_bound_us=(without if within is None else within) * 1e6,
        after_last_us=None if floors.come is None else run.after_last_s * 1e6,
        alone_us=_alone_us(question, program, machine),
        met=_met(carriers(machine), run.packets),
        leased=SwitchLease(*in_switches(program, machine)),
    )
    return row, run.left_out, run


def _alone_us(question: SimulationSpec, program: Program, machine: Topology) -> float | None:
    """Return what the same engine says without other jobs on the fabric; None where there are none."""
    if not question.beside:
        return None
    return question.without_others(program, machine).time_s * 1e6


def _met(transport: Mapping[str, str], met: Packets | None) -> PacketCounts:
    """Return what packets met; nothing but how they are sent where none were followed."""
    if met is None:
        return PacketCounts(transport)
    return PacketCounts(transport, met.retransmitted_bytes, met.drops, met.lost, met.pauses, met.queue_bytes_p99)


def _rates(collective: Collective, time_us: float) -> tuple[float, float]:
    """Return algbw and busbw in GB/s."""
    algbw = collective.size_bytes / time_us / 1e3 if time_us else 0.0
    return algbw, algbw * collective.bus_factor


def _answered(row: SimulatedRow, said: Probable, question: SimulationSpec) -> SimulatedRow:
    """Return an engine's row with the most probable time beside it, or instead where no engine was asked for."""
    row = replace(
        row,
        likely=LikelyTime(said.p05_us, said.p50_us, said.p95_us, said.mean_us),
        ground=TimeGround(said.calibration, "", said.own_software, said.outside, said.witnesses),
    )
    if not question.shows(said):
        return row
    more_us = said.p50_us - row.time_us
    longer = said.p50_us / row.time_us if row.time_us else 1.0
    algbw, busbw = _rates(question.collective(row.size_bytes), said.p50_us)
    return replace(
        row,
        engine=said.model,
        time_us=said.p50_us,
        algbw_gbs=algbw,
        busbw_gbs=busbw,
        alone_us=None if row.alone_us is None else row.alone_us * longer,
        worst=row.worst.moved(more_us),
        after_last_us=None if row.after_last_us is None else row.after_last_us + more_us,
    )


def _fastest(
    question: SimulationSpec, answers: Answers, by_size: Mapping[int, Sequence[tuple[str, Answered]]]
) -> list[FastestCall]:
    """Return for each size which algorithm is the fastest, which the next, and the chance that they come in this order."""
    told: list[FastestCall] = []
    for size, given in by_size.items():
        if len(given) < 2:
            continue
        (name, best), (following, second) = sorted(given, key=lambda each: each[1].said.p50_us)[:2]
        sure = answers.faster(question.collective(size), best, second)
        told.append(FastestCall(size, name, following, sure))
    return told


def _apart(times_us: Collection[float]) -> float:
    return max(times_us) / min(times_us)


def _disagreements(rows: Sequence[SimulatedRow]) -> list[Disagreement]:
    """Say where models of one call are far from each other: for each algorithm the size at which they are most so."""
    told: list[Disagreement] = []
    known = [row for row in rows if LEARNT in row.ground.witnesses and min(row.ground.witnesses.values()) > 0]
    for name in dict.fromkeys(row.algorithm for row in known):
        mine = [(_apart(row.ground.witnesses.values()), row) for row in known if row.algorithm == name]
        ratio, row = max(mine, key=lambda each: each[0])
        if ratio > FAR_APART:
            many = sum(each > FAR_APART for each, _ in mine)
            told.append(Disagreement(name, many, len(mine), ratio, row.size_bytes, row.ground.witnesses))
    return told


def _choice(program: Program) -> str:
    """Return what a library chose, for the table: ``tree/ll128 x16``."""
    chosen = program.knobs.get("algorithm")
    if chosen is None:
        return ""
    protocol = f"/{program.protocol}" if program.protocol else ""
    return f"{chosen}{protocol}" + (f" x{program.channels}" if program.channels > 1 else "")


def _worst(
    question: SimulationSpec, program: Program, machine: Topology, time_s: float
) -> tuple[float | None, float | None, str]:
    """Return the longest time in us over starts at the faults' own moments, and that start; None without faults.

    Where a start ends the job there is no time: that start, and how the job ends.
    """
    faults = machine.faults
    if not faults:
        return None, None, ""
    worst, when = time_s, 0.0
    moments = sorted({fault.time_s for fault in faults})
    if (
        question.faults is not None and question.faults.flap
    ):  # outages are laid out for as long as a run from the others would last
        moments = [each for each in moments if each <= question.faults.horizon_s / 2] or moments[:1]
    for moment in moments[:: -(-len(moments) // MOST_STARTS)]:
        try:
            taken = question.run(program, machine.starting_at(moment)).time_s
        except InfeasibleError as error:
            return None, moment, f"{error.what} ({error.where})" if error.where else error.what
        if taken > worst:
            worst, when = taken, moment
    return worst * 1e6, when, ""


def laid_out(question: SimulationSpec, told: SimulatedCalls) -> SimulationSpec:
    """Return the question with outages for as long as the longest of its answers."""
    return question.lasting(max((row.worst.worst_us or row.time_us for row in told.answered), default=0.0) / 1e6)
