"""The same measured times against an engine that runs NCCL's program message by message on the calibrated fabric.

The program holds what the closed form of ``costs.nccl.timing`` adds up: loops, slices and segments, a protocol's own latencies,
the copying of a channel, the senders of a node. Left out: that LL and LL128 pass a chunk on line by line inside a node (a
message is there when all of it is), and loops beyond ``chunking.MOST_MOVES`` moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ringwright.algorithms.libraries.nccl_2_4 import nccl_2_4
from ringwright.calls.call_answer import laid_out
from ringwright.costs.calibration import MeasuredTimes, calibrated, fit, ratio_error
from ringwright.costs.nccl import placed
from ringwright.engines.choose import simulate
from ringwright.executors.fan_out import Chosen, FanOut, fan_out
from ringwright.ground.errors import RingwrightError
from ringwright.model.collective import Collective
from ringwright_lab.judges.accuracy import AccuracyCase, other_node_counts

MOST_RANKS = 64


@dataclass(frozen=True)
class Against:
    """One case: an engine's error and the closed form's, on the same sizes with the same calibration."""

    case: str
    transport: str
    engine: str
    sizes: int
    error: float
    closed_form: float


def by_sizes(rows: Iterable[AccuracyCase], engine: str = "events", executor: Chosen | FanOut = None) -> list[Against]:
    """Return a line per case of up to 64 ranks, by ``executor``; fitted on every second size, as in (a)."""
    given = []
    for case in (case for case in rows if runs(case)):
        measured = case.measured
        every_second = measured.at(range(0, len(measured.sizes_bytes), 2))
        given.append((case, [every_second], case.places(large=True, every=slice(1, None, 2)), engine))
    return _each(given, executor)


def by_nodes(rows: Sequence[AccuracyCase], engine: str = "events", executor: Chosen | FanOut = None) -> list[Against]:
    """Return a line per case of up to 64 ranks, by ``executor``; fitted on the system's other node counts, as in (b)."""
    given = [
        (case, [other.measured for other in others], case.places(large=True), engine)
        for case in rows
        if runs(case) and (others := other_node_counts(case, rows))
    ]
    return _each(given, executor)


def _each(
    given: Sequence[tuple[AccuracyCase, list[MeasuredTimes], list[int], str]], executor: Chosen | FanOut
) -> list[Against]:
    with fan_out(executor) as fan:
        return [line for line in fan.map(against, given, title=lambda case, *_: case.name) if line is not None]


def runs(case: AccuracyCase) -> bool:
    """Return whether engines are asked for a case."""
    return placed(case.measured.fabric)[1].ranks <= MOST_RANKS and case.measured.forced is None


def against(case: AccuracyCase, known: list[MeasuredTimes], places: list[int], engine: str) -> Against | None:
    """Return a case at some of its sizes, by what is known; None where no fabric is like its network."""
    calibration = fit(known, name=case.name, transport=case.carrier)
    measured, closed = case.measured, case.judge(calibration, places)
    try:
        whole, group = laid_out(measured.fabric)
        top = calibrated(whole, calibration)
        times = []
        for index in places:
            program = nccl_2_4(
                Collective(measured.op, group, measured.sizes_bytes[index]), top, release=measured.release
            )
            times.append(simulate(program, top, engine).time_s)
    except RingwrightError:
        return None  # a network that this fabric does not draw
    if closed is None:
        return None
    error = ratio_error(times, [case.raw_s[index] for index in places])
    return Against(case.name, case.transport, engine, len(places), error, closed)
