"""A cell whose library does not run here: what its ranks must issue, from closed formulas, timed by the library's model.

Nothing of it is measured, and every row says so (``ground`` is "simulated"). Computation is left out: rows are of collectives,
and one of an iteration's communication, as if nothing hid it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright_lab.sweep.environment import knobs, library_of
from ringwright_lab.sweep.point import ROLES, GridPoint
from ringwright_lab.sweep.program import must_issue
from ringwright_lab.sweep.work import issued

if TYPE_CHECKING:
    from ringwright.calls.simulation_spec import SimulationSpec
    from ringwright.model.topology import Topology
    from ringwright.workloads.expected.row import ExpectedRow

USUAL = {"nccl": "dgx-h100:{nodes}", "mpi": "switch:{ranks},rate=100Gb/s,latency_s=1.5us"}  # where no fabric is named
PAIR = 2  # ranks of a message


def machine(point: GridPoint) -> tuple[Topology, tuple[int, ...]]:
    """Return the machine that a cell is simulated on and where its ranks are; UsageError where they do not lie evenly on it."""
    from ringwright.calls.arguments import machine as named

    if point.ranks % point.nodes:
        raise UsageError(
            f"{point.ranks} ranks do not lie evenly on {point.nodes} nodes", remedy="nodes that divide them"
        )
    topology = named(point.fabric or USUAL[point.backend].format(nodes=point.nodes, ranks=point.ranks))
    each = point.ranks // point.nodes
    if point.backend == "mpi" and topology.n_ranks == point.ranks:
        return dataclasses.replace(topology, hosts=np.arange(point.ranks) // each), tuple(range(point.ranks))
    room, left = divmod(topology.n_ranks, point.nodes)
    if left or room < each:
        raise UsageError(
            f"{topology.name} has no {each} ranks on each of {point.nodes} nodes",
            remedy=f"nodes = {-(-point.ranks // max(1, min(room, topology.n_ranks)))}, or another fabric",
        )
    return topology, tuple(node * room + place for node in range(point.nodes) for place in range(each))


class TimedCalls(TypedDict):
    """Equal calls of one rank in an iteration (prompt, token), or all of them together (``what`` is "communication")."""

    turn: str
    what: str
    phase: str | None
    role: str | None
    op: str | None
    size_bytes: int | None
    calls: int
    calls_per_iteration: float
    bytes_per_iteration: float
    algorithm: str
    engine: str
    time_us_p05: float | None
    time_us_p50: float
    time_us_p95: float | None


def rows(point: GridPoint) -> list[dict[str, Any]]:
    """Return a row for each phase, role, operation and size, and one for the communication of an iteration, prompt or token."""
    topology, ranks = machine(point)
    turns = {"prompt": 0, "token": 1} if point.mode == "inference" else {"iteration": 2}
    made: list[TimedCalls] = []
    for turn, number in turns.items():
        calls = [row for row in issued(must_issue(point), point.mode, number) if row.op != "recv"]
        timed = [_timed(point, turn, row, topology, ranks) for row in calls]
        made += [*timed, _together(turn, timed)]
    said = {"machine": topology.name, "simulated_by": library_of(point)}
    return [{**point.row(), **said, **each} for each in made]


def _together(turn: str, timed: list[TimedCalls]) -> TimedCalls:
    """Return all calls of a turn as one row, one after the other."""
    return {
        "turn": turn,
        "what": "communication",
        "phase": None,
        "role": None,
        "op": None,
        "size_bytes": None,
        "calls": sum(each["calls"] for each in timed),
        "calls_per_iteration": sum(each["calls_per_iteration"] for each in timed),
        "bytes_per_iteration": sum(each["bytes_per_iteration"] for each in timed),
        "algorithm": "",
        "engine": "",
        "time_us_p05": None,
        "time_us_p50": sum(each["calls"] * each["time_us_p50"] for each in timed),
        "time_us_p95": None,
    }


def group(point: GridPoint, role: str, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ranks of the first group of a role: tensor parallel ranks are neighbours, the others lie around them."""
    if role == "pp":
        return ranks[:PAIR]
    inner = int(point.spread.get("tp", 1)) if role == "dp" else 1
    number = int(point.spread.get(role, 1)) if role in ROLES else len(ranks)
    return ranks[: inner * number : inner]


def _timed(point: GridPoint, turn: str, row: ExpectedRow, topology: Topology, ranks: tuple[int, ...]) -> TimedCalls:
    from ringwright.calls.simulate import sweep
    from ringwright.calls.simulation_spec import SimulationSpec

    op = "send-recv" if row.op == "send" else row.op
    question = SimulationSpec(op, topology, group=group(point, row.role, ranks), dtype=point.dtype)
    answer = sweep(question, [_spelling(point, question, row.size_bytes)], [row.size_bytes])["rows"][0]
    if answer["ends"]:
        raise InfeasibleError(answer["declined"], where=answer["ends"]["between"])
    return {
        "turn": turn,
        "what": "collective",
        "phase": row.phase,
        "role": row.role,
        "op": row.op,
        "size_bytes": row.size_bytes,
        "calls": row.count,
        "calls_per_iteration": float(row.count),
        "bytes_per_iteration": float(row.count * row.size_bytes),
        "algorithm": answer["choice"],
        "engine": answer["engine"],
        "time_us_p05": answer["time_us_p05"],
        "time_us_p50": answer["time_us_p50"],
        "time_us_p95": answer["time_us_p95"],
    }


def _spelling(point: GridPoint, question: SimulationSpec, size_bytes: int) -> str:
    """Return the library with the knobs that its settings mean for this call."""
    from ringwright.calls.arguments import algorithm

    slug = library_of(point)
    if slug.startswith("nccl") and "NCHANNELS" in point.env:
        program = algorithm(slug)(question.collective(size_bytes), question.topology)
        channels = program.knobs.get("channels")
        made = knobs(point, question.op, channels if isinstance(channels, int) else None)
    else:
        made = knobs(point, question.op)
    return ":".join([slug, *(f"{name}={value}" for name, value in made.items())])
