"""Open MPI.

Idea: a wide menu of classic algorithms per collective, and measured thresholds of ranks and bytes that pick one; a rules file
    or a forced number overrides them. This is ``coll/tuned``, the reference of pre-defined algorithms.
Cost: that of the algorithm chosen (see its building block).
Knobs: algorithm=None (an id or name forces one); rules=None (a table from ``sources.ompi_rules``); disjoint=None (one rank per
    host: as the topology says); segment_bytes=0, fanout=0, max_requests=0 (0: as the rule or the library says).
Holds: the choice is that of release 6.1.0a1 at every threshold; what an algorithm cannot do falls back as the library does.
Figure: none claimed; the thresholds are averages over its developers' clusters.
Source: Gabriel et al., EuroPVM/MPI 2004, doi 10.1007/978-3-540-30218-6_19; open-mpi/ompi ``ompi/mca/coll/tuned``.
Declines: the choice among components (han, ucc, xhc, ...); the zero-byte handshakes of linear_sync.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from ringwright.algorithms import placement
from ringwright.algorithms.blocks.linear import linear
from ringwright.algorithms.libraries.open_mpi.menu import MENU, instead
from ringwright.algorithms.offers import require_op
from ringwright.costs.open_mpi import Decision, collectives, names, number_of, select
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Choices, Range, SegmentBytes

if TYPE_CHECKING:
    from ringwright.costs.selection import RuleTable
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

OPS = (
    "all-reduce",
    "reduce-scatter",
    "all-gather",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all-to-all",
    "barrier",
    "scan",
    "exscan",
)

_ONLY_LINEAR = {"algorithm": "linear", "ground": "the component leaves gather and scatter with counts to a linear one"}

NAMES = tuple(dict.fromkeys(name for op in collectives() for name in names(op)[1:]))


def open_mpi(
    collective: Collective,
    topology: Topology | None = None,
    *,
    algorithm: Annotated[int, Range(0, 9)] | Annotated[str, Choices(NAMES)] | None = None,
    rules: RuleTable | None = None,
    disjoint: bool | None = None,
    segment_bytes: SegmentBytes = 0,
    fanout: Annotated[int, Range(0, 64)] = 0,
    max_requests: Annotated[int, Range(0, 65536)] = 0,
) -> Program:
    """Return the program that Open MPI's tuned component would run, and in its knobs which one and who decided."""
    op = mpi_op(collective)
    if op in ("gather-v", "scatter-v"):
        return dataclasses.replace(linear(collective, topology), name="open-mpi", knobs=_ONLY_LINEAR)
    nodes = placement.members(collective, topology)
    spread = placement.distribution(nodes)
    decision = select(
        op,
        collective.p,
        collective.size_bytes,
        commutative=collective.commutative,
        disjoint=spread == "one-per-node" if disjoint is None else disjoint,
        algorithm=algorithm,
        rules=rules,
        distribution=spread,
    )
    decision = _taken(op, collective, decision)
    decision = dataclasses.replace(
        decision,
        fanout=fanout or decision.fanout,
        segment_bytes=segment_bytes or decision.segment_bytes,
        max_requests=max_requests or decision.max_requests,
    )
    program = MENU[op][decision.number - 1](decision, open_mpi)(collective, topology)
    chosen = {"algorithm": decision.name, "number": decision.number, "ground": decision.ground}
    return dataclasses.replace(program, name="open-mpi", knobs={**program.knobs, **chosen})


def mpi_op(collective: Collective) -> str:
    """Return which of MPI's collectives this is: with counts it is a v-form, and reduce-scatter without is the block form."""
    require_op("open-mpi", collective, OPS)
    if collective.op == "reduce-scatter":
        return "reduce-scatter" if collective.counts is not None else "reduce-scatter-block"
    return collective.op if collective.counts is None else f"{collective.op}-v"


def _taken(op: str, collective: Collective, decision: Decision) -> Decision:
    """Return the decision after the library's own fall-backs."""
    if decision.name == "two_proc" and collective.p != 2:
        raise UsageError(f"two_proc is for 2 ranks, not {collective.p}", remedy="take another algorithm, or two ranks")
    name = instead(op, decision.name, collective)
    if name == decision.name:
        return decision
    if op == "all-gather-v" and name == "bruck-k-fanout":
        name = "bruck"
    ground = f"{decision.ground}: {decision.name}, which cannot do this case"
    return dataclasses.replace(decision, number=number_of(op, name), name=name, ground=ground)
