"""How long does this program take on this machine? Choose an engine, fold where possible.

``auto`` folds and runs the event engine; what cannot fold and is too large to lay out goes through the recurrence. Every
answer names its engine, what that engine leaves out, and why nothing was folded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.engines import closed_form, events, flows, recurrence
from ringwright.engines.arrivals import UNFOLDED, arrivals_ps, gated
from ringwright.engines.flat import flatten
from ringwright.engines.folding.fold import evened, fold
from ringwright.engines.folding.quotient import Folded
from ringwright.engines.folding.slots import UNEVEN
from ringwright.engines.machine import Machine
from ringwright.engines.pools.of_program import mends_losses
from ringwright.engines.result import Run, loads
from ringwright.engines.switch_slots import machines, not_mended
from ringwright.ground.errors import DeclinedError, InfeasibleError, UsageError
from ringwright.ground.units import PS
from ringwright.model.validity.stream_rules import require_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from ringwright.engines.packets.options import PacketOptions
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

ENGINES = ("auto", "closed-form", "recurrence", "events", "flows", "packets")
MOST_LAID_OUT = 4_000_000  # pieces; above, auto tries the recurrence first
MOST_STEPS = 1 << 17  # of a program that does not fold: some 15 s, whatever is in them


def simulate(
    program: Program,
    topology: Topology,
    engine: str = "auto",
    *,
    alpha: str = "pipelined",
    fold_symmetry: bool = True,
    native: bool = True,
    arrivals: Sequence[float] | np.ndarray | None = None,
    packets: PacketOptions | None = None,
) -> Run:
    """Return the simulated run of a program; ``arrivals``: when each rank of its group comes, in seconds (None: all at 0).

    ``packets``: what is asked of the packet engine, where it is the one.

    Raises ProgramError where its streams break a rule on this machine, and InfeasibleError where a message never arrives or no
    engine can hold it.
    """
    import numpy as np

    if engine not in ENGINES:
        raise UsageError(f"'{engine}' is no engine", remedy=f"one of: {', '.join(ENGINES)}")
    title = f"{program.name}, {program.collective.label} on {topology.name}"
    come = arrivals_ps(program, topology, arrivals)
    there = come[np.asarray(program.collective.group, np.int64)]
    first, last = (int(each) for each in (there.min(), there.max()))
    if engine == "closed-form":
        require_streams(program, topology)
        if last > first:
            raise DeclinedError(UNFOLDED, remedy="--engine events")
        run = closed_form.run(program, topology.starting_at(first / PS) if first else topology)
        return _arrived(replace(run, time_ps=run.time_ps + first), title, come, last)
    base = round(program.software.base_s * PS)
    late = np.maximum(come - first, 0) if last > first else None
    if engine == "packets" and mends_losses(program):
        return _by_slots(program, topology, alpha, packets, come, title, native=native)
    if engine == "packets":
        from ringwright.engines.packets.run import simulate as by_packets

        run = by_packets(program, topology, alpha, packets, by_ps=base + first, late=late, native=native)
        return _arrived(_delayed(run, base, first), title, come, last)
    (made,) = machines([program], topology, alpha)
    run = _simulate(program, _later(made, base + first), engine, wanted=fold_symmetry, native=native, late=late)
    run = _arrived(_delayed(run, base, first), title, come, last)
    return replace(run, left_out=(*run.left_out, *not_mended(topology)))


def _by_slots(
    program: Program,
    topology: Topology,
    alpha: str,
    packets: PacketOptions | None,
    come: np.ndarray,
    title: str,
    *,
    native: bool,
) -> Run:
    """Return the events of a program with what its packets lose in pools of slots, whose streams mend it themselves."""
    from ringwright.engines.pools.run import follow

    machines([program], topology, alpha)  # refuses what would send against itself
    told = follow(program, topology, alpha, packets, come if come.any() else None)
    (made,) = machines([program], topology, alpha, {0: told.late_ps})
    there = come[list(program.collective.group)]
    first, last = int(there.min()), int(there.max())
    base = round(program.software.base_s * PS)
    late = (come - first).clip(min=0) if last > first else None
    run = _simulate(program, _later(made, base + first), "auto", wanted=True, native=native, late=late)
    return told.on(_arrived(_delayed(run, base, first), title, come, last), packets)


def _arrived(run: Run, title: str, come_ps: np.ndarray, last_ps: int) -> Run:
    """Return the run with its title and who came when; it lasts at least until the last rank is there."""
    run = replace(run, title=title)
    return replace(run, come_ps=come_ps, last_ps=last_ps, time_ps=max(run.time_ps, last_ps)) if last_ps else run


def _later(made: Machine, by_ps: int) -> Machine:
    """Return the machine with its faults on the clock of the first message."""
    changes = tuple((resource, time - by_ps, ps_per_byte) for resource, time, ps_per_byte in made.changes)
    delays = tuple((resource, time - by_ps, latency) for resource, time, latency in made.delays)
    return replace(made, changes=changes, delays=delays) if by_ps else made


def _delayed(run: Run, base_ps: int, first_ps: int) -> Run:
    """Put the software before the first message back in front, and the time until the first rank came."""
    by = base_ps + first_ps
    if not by or not run.events:
        return run
    return replace(run, start_ps=run.start_ps + by, end_ps=run.end_ps + by, time_ps=run.time_ps + by, base_ps=base_ps)


def _simulate(
    program: Program, made: Machine, engine: str, *, wanted: bool, native: bool, late: np.ndarray | None
) -> Run:
    """``late``: by how many ps each node of the machine comes after the first rank; None where all come together."""
    if engine == "recurrence":
        return recurrence.run(program, made, late)
    folded, reason = _folded(program, made, engine, wanted=wanted) if late is None else (None, UNFOLDED)
    if folded is not None:
        return _run_folded(folded, made, engine, native=native)
    _require_few_steps(program)
    if sum(move.count * move.span for step in program.steps() for move in step.blocks) <= MOST_LAID_OUT:
        return replace(_run_whole(program, made, engine, native=native, late=late), unfolded_because=reason)
    rounded, _ = _folded(program, made, engine, wanted=wanted and reason == UNEVEN, even=True)
    if rounded is not None:
        run = _run_folded(rounded, made, engine, native=native)
        return replace(run, left_out=(*run.left_out, "that some chunks are one element shorter"))
    if engine == "auto":
        large = _large(program, made, native=native, late=late)
    else:
        large = _run_whole(program, made, engine, native=native, late=late)
    return replace(large, unfolded_because=reason)


def _require_few_steps(program: Program) -> None:
    """Raise InfeasibleError before a program of too many steps is laid out, each of which costs time of its own."""
    if program.n_steps > MOST_STEPS:
        raise InfeasibleError(
            f"{program.name} on {program.p:,} ranks is {program.n_steps:,} steps: it is more than {MOST_STEPS:,}",
            remedy="larger segments, or --engine closed-form, which follows no single message",
        )


def _folded(
    program: Program, made: Machine, engine: str, *, wanted: bool, even: bool = False
) -> tuple[Folded | None, str]:
    if not wanted:
        return None, "not asked for"
    try:
        return fold(evened(program) if even else program, made, fluid=engine == "flows"), ""
    except DeclinedError as error:
        return None, error.what


def _run_folded(folded: Folded, made: Machine, engine: str, *, native: bool) -> Run:
    import numpy as np

    flat = flows.delayed(folded.flat, folded.machine) if engine == "flows" else folded.flat
    result = _loop(engine)(flat, folded.machine, native=native)
    small = loads(flat, folded.machine.n)
    carried = np.where(folded.classes >= 0, small[folded.classes], 0) if len(small) else np.zeros(made.n, np.int64)
    shown = replace(flat, hops=folded.first[flat.hops])  # under the names of the whole machine
    return replace(result, parts=folded.parts, flat=shown).with_loads(made, carried)


def _loop(engine: str) -> Callable[..., Run]:
    return flows.run if engine == "flows" else events.run


def _run_whole(program: Program, made: Machine, engine: str, *, native: bool, late: np.ndarray | None) -> Run:
    flat, carrying = flatten(program, made), made.carrying(program)
    if engine == "flows":
        flat = flows.delayed(flat, carrying)
    result = _loop(engine)(flat if late is None else gated(flat, late), carrying, native=native)
    mine = slice(0, flat.n_messages)
    result = replace(result, start_ps=result.start_ps[mine], end_ps=result.end_ps[mine], flat=flat)
    return result.with_loads(made, loads(flat, made.n))


def _large(program: Program, made: Machine, *, native: bool, late: np.ndarray | None) -> Run:
    try:
        return recurrence.run(program, made, late)
    except DeclinedError as declined:
        try:
            return _run_whole(program, made, "events", native=native, late=late)
        except InfeasibleError as error:
            raise InfeasibleError(error.what, where=f"recurrence: {declined.what}", remedy=error.remedy) from error
