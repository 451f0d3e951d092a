"""What any paper's file may measure: one collective on a fabric, simulated."""

from __future__ import annotations

from functools import cache

from ringwright.fabrics import fabric as made_fabric
from ringwright.studies.registry import algorithm as found
from ringwright.studies.simulate import Floors, Question, measure
from ringwright.units import parse_size


@cache
def time_us(collective: str, fabric: str, size: str, algorithm: str) -> float:
    """Return the microseconds of ``collective`` over all ranks of a fabric; ``size`` as typed at the command line."""
    question = Question(collective, made_fabric(fabric))
    _, make, knobs = found(algorithm)
    program = make(question.collective(parse_size(size)), question.topology, **knobs)
    return measure(question, program, algorithm, Floors(question))[0].time_us


def time_ratio(collective: str, fabric: str, size: str, algorithm: str, baseline: str) -> float:
    """Return how many times shorter ``algorithm`` takes than ``baseline``."""
    return time_us(collective, fabric, size, baseline) / time_us(collective, fabric, size, algorithm)
