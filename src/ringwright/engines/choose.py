"""How long does this program take on this machine? Choose an engine, fold where possible.

``auto`` folds and runs the event engine; what cannot fold and is too large to lay out goes through the recurrence. Every
answer names its engine, what that engine leaves out, and why nothing was folded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.engines import closed_form, events, flows, recurrence
from ringwright.engines.flat import flatten
from ringwright.engines.folding.fold import evened, fold
from ringwright.engines.folding.quotient import Folded
from ringwright.engines.folding.slots import UNEVEN
from ringwright.engines.machine import PS, Machine
from ringwright.engines.result import Run, loads
from ringwright.engines.slots import machines, not_mended
from ringwright.errors import DeclinedError, InfeasibleError, UsageError
from ringwright.validity.stream_rules import require_streams

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringwright.program import Program
    from ringwright.topology import Topology

ENGINES = ("auto", "closed-form", "recurrence", "events", "flows")
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
) -> Run:
    """Return the simulated run of a program.

    Raises ProgramError where its streams break a rule on this machine, and InfeasibleError where a message never arrives or no
    engine can hold it.
    """
    if engine not in ENGINES:
        raise UsageError(f"'{engine}' is no engine", remedy=f"one of: {', '.join(ENGINES)}")
    title = f"{program.name}, {program.collective.label} on {topology.name}"
    if engine == "closed-form":
        require_streams(program, topology)
        return replace(closed_form.run(program, topology), title=title)
    (made,) = machines([program], topology, alpha)
    run = _delayed(_simulate(program, _later(made, program), engine, wanted=fold_symmetry, native=native), program)
    return replace(run, title=title, left_out=(*run.left_out, *not_mended(topology)))


def _later(made: Machine, program: Program) -> Machine:
    """Return the machine with its faults on the clock of the first message."""
    base = round(program.software.base_s * PS)
    changes = tuple((resource, time - base, ps_per_byte) for resource, time, ps_per_byte in made.changes)
    delays = tuple((resource, time - base, latency) for resource, time, latency in made.delays)
    return replace(made, changes=changes, delays=delays) if base else made


def _delayed(run: Run, program: Program) -> Run:
    """Put the software before the first message back in front."""
    base = round(program.software.base_s * PS)
    if not base or not run.events:
        return run
    return replace(
        run, start_ps=run.start_ps + base, end_ps=run.end_ps + base, time_ps=run.time_ps + base, base_ps=base
    )


def _simulate(program: Program, made: Machine, engine: str, *, wanted: bool, native: bool) -> Run:
    if engine == "recurrence":
        return recurrence.run(program, made)
    folded, reason = _folded(program, made, engine, wanted=wanted)
    if folded is not None:
        return _run_folded(folded, made, engine, native=native)
    _require_few_steps(program)
    if sum(move.count * move.span for step in program.steps() for move in step.blocks) <= MOST_LAID_OUT:
        return replace(_run_whole(program, made, engine, native=native), unfolded_because=reason)
    rounded, _ = _folded(program, made, engine, wanted=wanted and reason == UNEVEN, even=True)
    if rounded is not None:
        run = _run_folded(rounded, made, engine, native=native)
        return replace(run, left_out=(*run.left_out, "that some chunks are one element shorter"))
    large = (
        _large(program, made, native=native) if engine == "auto" else _run_whole(program, made, engine, native=native)
    )
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


def _run_whole(program: Program, made: Machine, engine: str, *, native: bool) -> Run:
    flat, carrying = flatten(program, made), made.carrying(program)
    if engine == "flows":
        flat = flows.delayed(flat, carrying)
    result = _loop(engine)(flat, carrying, native=native)
    return replace(result, flat=flat).with_loads(made, loads(flat, made.n))


def _large(program: Program, made: Machine, *, native: bool) -> Run:
    try:
        return recurrence.run(program, made)
    except DeclinedError as declined:
        try:
            return _run_whole(program, made, "events", native=native)
        except InfeasibleError as error:
            raise InfeasibleError(error.what, where=f"recurrence: {declined.what}", remedy=error.remedy) from error
