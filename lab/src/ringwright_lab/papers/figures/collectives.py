"""What any paper's file may measure: one collective on a fabric, simulated."""

from __future__ import annotations

import math
from functools import cache

from ringwright.calls.floors import Floors
from ringwright.calls.simulate import measure
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.fabrics import fabric as made_fabric
from ringwright.ground.units import parse_size
from ringwright.model.registry import algorithm as found
from ringwright.model.topology import Topology


def taken_us(collective: str, topology: Topology, size_bytes: int, algorithm: str) -> float:
    """Return the microseconds of ``collective`` over all ranks of a machine, ``algorithm`` as typed at the command line."""
    question = SimulationSpec(collective, topology)
    _, make, knobs = found(algorithm)
    program = make(question.collective(size_bytes), topology, **knobs)
    return measure(question, program, algorithm, Floors(question))[0].time_us


@cache
def time_us(collective: str, fabric: str, size: str, algorithm: str) -> float:
    """Return the same for a fabric and a size as typed at the command line."""
    return taken_us(collective, made_fabric(fabric), parse_size(size), algorithm)


def time_ratio(collective: str, fabric: str, size: str, algorithm: str, baseline: str) -> float:
    """Return how many times shorter ``algorithm`` takes than ``baseline``."""
    return time_us(collective, fabric, size, baseline) / time_us(collective, fabric, size, algorithm)


def switch_bytes(collective: str, fabric: str, short: str, long: str, lowest: int, highest: int) -> float:
    """Return the least size, of powers of two, from which ``long`` takes no longer than ``short``; nan where it never does."""
    topology, best = made_fabric(fabric), math.nan
    size = highest
    while size >= lowest:
        if taken_us(collective, topology, size, long) > taken_us(collective, topology, size, short):
            break
        best = size
        size //= 2
    return best
