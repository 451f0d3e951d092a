"""Direct exchange.

Idea: every rank sends each other rank its part at once: reduce-scatter in one step, all-gather in another. Right where all pairs
    have a way of their own: NVLink through a switch, or the few hosts of a rack.
Cost: all-reduce 2 alpha + 2(p-1)/p n beta + (p-1)/p n gamma; half of it for reduce-scatter and all-gather.
Knobs: none.
Holds: bytes per rank are those of a ring; in every round of messages each rank sends to another one.
Figure: none; a building block.
Source: the sharded aggregation of parameter servers; NCCL and ACCL inside a node with NVSwitch.
Declines: all but all-reduce, reduce-scatter and all-gather.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringwright.errors import UsageError
from ringwright.program import Block, Cost, Op, Program, Step, Term, cut, nothing, turn

if TYPE_CHECKING:
    from ringwright.collective import Collective
    from ringwright.topology import Topology

OPS = ("all-reduce", "reduce-scatter", "all-gather")


def direct(collective: Collective, topology: Topology | None = None) -> Program:
    """Return the program of one exchange per phase, all pairs at once."""
    del topology
    if collective.op not in OPS:
        raise UsageError(f"direct does no {collective.op}", remedy=f"one of: {', '.join(OPS)}")
    p = collective.p
    if p == 1:
        return nothing("direct", collective)
    layout = cut(collective, p if collective.op == "all-reduce" else 1)
    phases = 2 if collective.op == "all-reduce" else 1
    path = float(layout.chunk_bytes.max(initial=0)) * (p - 1)
    return Program(
        "direct", collective, layout, lambda: _steps(collective), phases,
        Cost((Term(phases, phases * path),), float(collective.size_bytes) * (p - 1) * phases,
             path if collective.reduces else 0.0),
    )  # fmt: skip


def _steps(collective: Collective) -> Iterator[Step]:
    p = collective.p
    if collective.op != "all-gather":
        to_owner = (Block(Op.REDUCE, (p,), turn(p), turn(p, away), turn(p, away)) for away in range(1, p))
        yield Step(tuple(to_owner), "reduce-scatter")
    if collective.op != "reduce-scatter":
        from_owner = (Block(Op.SEND, (p,), turn(p), turn(p, away), turn(p)) for away in range(1, p))
        yield Step(tuple(from_owner), "all-gather")
