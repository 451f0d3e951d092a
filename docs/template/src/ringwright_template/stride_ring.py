"""A ring that steps over ranks.

Idea: every rank sends to the rank ``stride`` places further, so that messages leave the node at every step or at none.
Cost: all-gather (p-1) alpha + (p-1)/p n beta.
Knobs: ``stride`` (1): how far away the next rank is; it and the number of ranks have no common divisor.
Holds: after p-1 steps every rank has had every block once.
Figure: none; an example.
Source: none.
Declines: all but all-gather; strides that do not reach every rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from ringwright.algorithms.offers import is_even, require_op
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Range
from ringwright.model.program import Block, Cost, Op, Program, Step, Term, cut, nothing, turn

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("all-gather",)  # without it no check has a case


def stride_ring(
    collective: Collective, topology: Topology | None = None, *, stride: Annotated[int, Range(1, 64)] = 1
) -> Program:
    """Return the program; UsageError, which is an open refusal, where the stride reaches only some ranks."""
    require_op("stride-ring", collective, OPS)
    p = collective.p
    if p == 1:
        return nothing("stride-ring", collective, stride=stride)
    if math.gcd(stride, p) != 1:
        raise UsageError(f"steps of {stride} among {p} ranks do not reach every rank", remedy="stride-ring:stride=1")

    def steps() -> Iterator[Step]:
        for k in range(p - 1):  # rank r hands on the block that it got k steps ago: that of rank r - k * stride
            yield Step((Block(Op.SEND, (p,), src=turn(p), dst=turn(p, stride), chunk=turn(p, -k * stride)),))

    path_bytes = (p - 1) / p * collective.size_bytes
    cost = Cost((Term(p - 1, path_bytes),), sent_bytes=p * path_bytes, is_even=is_even(collective, 1))
    return Program("stride-ring", collective, cut(collective), steps, p - 1, cost, knobs={"stride": stride})
