"""MPICH2 (MPICH).

Idea: least latency for short vectors, most bandwidth for long ones: per collective a few algorithms whose cost models cross,
    and byte thresholds where they do, written as ordered tests that a file can replace.
Cost: that of the algorithm chosen (see its building block).
Knobs: algorithm=None (a name forces one); paper=False (the published 2048 B of all-reduce instead of the shipped 8 B);
    rules=None (a tree from ``sources.mpich_json``); builtin=True (the reduction is one of MPI's own); radix=2 and fanout=2 (the
    k of the k- variants and trees); segment_bytes=0.
Holds: the choice is that of release 5.1.0a1, flat or on hosts; all-to-all sends 32 messages at once (its throttle).
Figure: no single number; the thresholds were derived on Myrinet and IBM SP (from memory, unconfirmed).
Source: Gropp, Lusk, Thakur, EuroPVM/MPI 2005, doi 10.1007/11557265_6; Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005.
Declines: circ_graph, ccl (hands over to another library); collectives between two groups.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from ringwright.algorithms import placement, prefixes
from ringwright.algorithms.blocks.binary_tree import binary_tree
from ringwright.algorithms.blocks.binomial import binomial
from ringwright.algorithms.blocks.bruck import bruck
from ringwright.algorithms.blocks.butterfly import butterfly
from ringwright.algorithms.blocks.direct import direct
from ringwright.algorithms.blocks.linear import linear
from ringwright.algorithms.blocks.pairwise import pairwise
from ringwright.algorithms.blocks.rabenseifner import rabenseifner
from ringwright.algorithms.blocks.recursive_doubling import recursive_doubling
from ringwright.algorithms.blocks.recursive_halving import recursive_halving
from ringwright.algorithms.blocks.recursive_multiplying import recursive_multiplying
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.blocks.scatter_allgather import scatter_allgather
from ringwright.algorithms.blocks.two_level import two_level
from ringwright.algorithms.compose import Algorithm
from ringwright.algorithms.libraries.mpich2 import rules as by_rule
from ringwright.algorithms.offers import require_op
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Choices, Radix, SegmentBytes

if TYPE_CHECKING:
    from ringwright.costs.selection import Choice, Tree
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
THROTTLE = 32  # messages that an all-to-all has on their way at once

Maker = Callable[["_Sizes", "Collective"], Algorithm]


@dataclasses.dataclass(frozen=True, slots=True)
class _Sizes:
    """The k of variants with one, the children of trees, and their segments."""

    radix: int
    fanout: int
    segment_bytes: int


def _is(algorithm: Algorithm) -> Maker:
    return lambda sizes, collective: algorithm


def _k_bruck(sizes: _Sizes, collective: Collective) -> Algorithm:
    return partial(bruck, radix=sizes.radix)


def _tree(sizes: _Sizes, collective: Collective) -> Algorithm:
    return partial(binary_tree, fanout=sizes.fanout, segment_bytes=sizes.segment_bytes)


def _multiplying(sizes: _Sizes, collective: Collective) -> Algorithm:
    return partial(recursive_multiplying, radix=sizes.radix)


def _k_rabenseifner(sizes: _Sizes, collective: Collective) -> Algorithm:
    return partial(rabenseifner, radix=sizes.radix)


def _pairwise(sizes: _Sizes, collective: Collective) -> Algorithm:
    """Partners exchange where the number of ranks allows it; a reduce-scatter always goes round."""
    return partial(pairwise, xor=collective.op == "all-to-all" and collective.p & (collective.p - 1) == 0)


def _scan_by_hosts(collective: Collective, topology: Topology | None = None) -> Program:
    return prefixes.by_hosts("scan", collective, placement.by_host(collective, topology))


# By MPI's collective and the short name of the algorithm.
MENU: dict[tuple[str, str], Maker] = {
    ("broadcast", "binomial"): _is(binomial),
    ("broadcast", "smp"): _is(two_level),
    ("broadcast", "scatter_recursive_doubling_allgather"): _is(scatter_allgather),
    ("broadcast", "scatter_ring_allgather"): _is(partial(scatter_allgather, gather="ring")),
    ("broadcast", "tree"): _tree,
    ("broadcast", "pipelined_tree"): _tree,
    ("all-reduce", "smp"): _is(two_level),
    ("all-reduce", "recursive_doubling"): _is(recursive_doubling),
    ("all-reduce", "recursive_multiplying"): _multiplying,
    ("all-reduce", "recexch"): _multiplying,
    ("all-reduce", "reduce_scatter_allgather"): _is(rabenseifner),
    ("all-reduce", "k_reduce_scatter_allgather"): _k_rabenseifner,
    ("all-reduce", "ring"): _is(ring),
    ("all-reduce", "tree"): _tree,
    ("all-gather", "recursive_doubling"): _is(recursive_doubling),
    ("all-gather", "brucks"): _is(bruck),
    ("all-gather", "k_brucks"): _k_bruck,
    ("all-gather", "ring"): _is(ring),
    ("all-gather-v", "recursive_doubling"): _is(recursive_doubling),
    ("all-gather-v", "brucks"): _is(bruck),
    ("all-gather-v", "ring"): _is(ring),
    ("reduce", "binomial"): _is(binomial),
    ("reduce", "reduce_scatter_gather"): _is(rabenseifner),
    ("reduce", "smp"): _is(two_level),
    ("reduce-scatter", "recursive_halving"): _is(recursive_halving),
    ("reduce-scatter", "pairwise"): _pairwise,
    ("reduce-scatter", "recursive_doubling"): _is(recursive_doubling),
    ("reduce-scatter", "noncommutative"): _is(butterfly),
    ("scan", "smp"): _is(_scan_by_hosts),
    ("scan", "recursive_doubling"): _is(recursive_doubling),
    ("exscan", "recursive_doubling"): _is(recursive_doubling),
    ("gather", "binomial"): _is(binomial),
    ("scatter", "binomial"): _is(binomial),
    ("gather-v", "linear"): _is(linear),
    ("scatter-v", "linear"): _is(linear),
    ("barrier", "smp"): _is(two_level),
    ("barrier", "k_dissemination"): _k_bruck,
    ("all-to-all", "brucks"): _is(bruck),
    ("all-to-all", "k_brucks"): _k_bruck,
    ("all-to-all", "scattered"): _is(partial(direct, window=THROTTLE)),
    ("all-to-all", "pairwise"): _pairwise,
    ("all-to-all", "pairwise_sendrecv_replace"): _is(pairwise),
    ("all-to-all-v", "scattered"): _is(partial(direct, window=THROTTLE)),
    ("all-to-all-v", "pairwise_sendrecv_replace"): _is(pairwise),
}

NAMES = tuple(dict.fromkeys(name for _, name in MENU))


def mpich2(
    collective: Collective,
    topology: Topology | None = None,
    *,
    algorithm: Annotated[str, Choices(NAMES)] | None = None,
    paper: bool = False,
    rules: Tree | None = None,
    builtin: bool = True,
    radix: Radix = 2,
    fanout: Radix = 2,
    segment_bytes: SegmentBytes = 0,
) -> Program:
    """Return the program that MPICH would run, and in its knobs which one and who decided."""
    op = mpi_op(collective)
    choice = _choice(op, collective, topology, algorithm=algorithm, paper=paper, rules=rules, builtin=builtin)
    short = by_rule.short_name(choice.name)
    radix = int(dict(choice.knobs).get("k", radix))
    maker = MENU.get((op.removesuffix("-block"), short))
    if maker is None:
        remedy = f"one of: {', '.join(name for known, name in MENU if known == op)}"
        raise UsageError(f"mpich2: {short} of {op} is not among the building blocks", remedy=remedy)
    program = maker(_Sizes(radix, fanout, segment_bytes), collective)(collective, topology)
    ground = "forced" if algorithm else "the paper's rule" if paper else "selection tests"
    knobs = {**program.knobs, "algorithm": short, "ground": ground}
    return dataclasses.replace(program, name="mpich2", knobs=knobs)


def mpi_op(collective: Collective) -> str:
    """Return which of MPI's collectives this is: with counts it is a v-form, and reduce-scatter without is the block form."""
    require_op("mpich2", collective, OPS)
    if collective.op == "reduce-scatter":
        return "reduce-scatter" if collective.counts is not None else "reduce-scatter-block"
    if collective.counts is not None:
        return f"{collective.op}-v"
    return collective.op


def _choice(op: str, collective: Collective, topology: Topology | None, *, builtin: bool, **how: Any) -> Choice:
    nodes = placement.members(collective, topology)
    counts = collective.counts
    return by_rule.choose(
        op,
        collective.p,
        collective.size_bytes,
        collective.size_bytes // collective.unit_bytes,
        collective.commutative,
        builtin,
        regular=counts is None or len(set(counts)) == 1,
        in_place=collective.in_place,
        hierarchical=placement.is_hierarchical(nodes),
        consecutive=nodes is not None and placement.is_consecutive(nodes),
        node_ranks=collective.p if nodes is not None and len(nodes) == 1 else 0,
        **how,
    )
