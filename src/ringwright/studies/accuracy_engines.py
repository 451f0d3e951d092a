"""The same measured times against an engine that runs NCCL's program message by message on the calibrated fabric.

An engine takes a calibration's message cost between nodes as time in which its sender is busy. But a program's step is one
message a channel, not two slices; a protocol's own hop latencies give way to the calibrated one; and where one GPU sends for
all channels of a node (Polaris), the program's channels leave by one GPU each. The engine is therefore too fast, and the
closed form of ``costs.nccl.timing`` is the better answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ringwright.algorithms.libraries.nccl_2_4 import nccl_2_4
from ringwright.collective import Collective
from ringwright.costs.calibration import calibrated, fit, ratio_error
from ringwright.costs.nccl import placed
from ringwright.engines.choose import simulate
from ringwright.errors import RingwrightError
from ringwright.fabrics import fabric
from ringwright.studies.accuracy import Case

MOST_RANKS = 32


@dataclass(frozen=True)
class Against:
    """One case: an engine's error and the closed form's, on the same sizes with the same calibration."""

    case: str
    engine: str
    sizes: int
    error: float
    closed_form: float


def by_engine(found: Iterable[Case], engine: str = "events") -> list[Against]:
    """Return a line per case of up to 32 ranks whose whole box is a fabric; fitted on every second size, as in (a)."""
    lines = []
    for case in found:
        line = _against(case, engine)
        if line is not None:
            lines.append(line)
    return lines


def _against(case: Case, engine: str) -> Against | None:
    measured = case.measured
    if placed(measured.fabric)[1].ranks > MOST_RANKS or measured.forced is not None:
        return None
    places = case.places(large=True, every=slice(1, None, 2))
    calibration = fit([measured.at(range(0, len(measured.sizes_bytes), 2))], name=case.name)
    closed = case.judge(calibration, places)
    try:
        top = calibrated(fabric(measured.fabric), calibration)
        times = []
        for place in places:
            collective = Collective(measured.op, range(top.n_ranks), measured.sizes_bytes[place])
            program = nccl_2_4(collective, top, release=measured.release)
            times.append(simulate(program, top, engine).time_s)
    except RingwrightError:
        return None  # part of a box, or a network that this fabric does not draw
    if closed is None:
        return None
    return Against(case.name, engine, len(places), ratio_error(times, [case.raw_s[place] for place in places]), closed)
