"""Open MPI's algorithms by id, each as one of our building blocks with the knobs that the library gives it.

Where an algorithm cannot do a case, the library quietly takes another; ``instead`` says which.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ringwright.algorithms.blocks.allgather_reduce import allgather_reduce
from ringwright.algorithms.blocks.binary_tree import binary_tree
from ringwright.algorithms.blocks.binomial import binomial
from ringwright.algorithms.blocks.bruck import bruck
from ringwright.algorithms.blocks.butterfly import butterfly
from ringwright.algorithms.blocks.chain import chain
from ringwright.algorithms.blocks.direct import direct
from ringwright.algorithms.blocks.double_ring import double_ring
from ringwright.algorithms.blocks.in_order_binary import in_order_binary
from ringwright.algorithms.blocks.knomial import knomial
from ringwright.algorithms.blocks.linear import linear
from ringwright.algorithms.blocks.neighbor_exchange import neighbor_exchange
from ringwright.algorithms.blocks.nonoverlapping import nonoverlapping
from ringwright.algorithms.blocks.pairwise import pairwise
from ringwright.algorithms.blocks.pipeline import pipeline
from ringwright.algorithms.blocks.rabenseifner import rabenseifner
from ringwright.algorithms.blocks.recursive_doubling import recursive_doubling
from ringwright.algorithms.blocks.recursive_halving import recursive_halving
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.blocks.scatter_allgather import scatter_allgather
from ringwright.algorithms.blocks.segmented_ring import segmented_ring
from ringwright.algorithms.blocks.sparbit import sparbit
from ringwright.algorithms.blocks.split_binary_tree import split_binary_tree
from ringwright.algorithms.compose import Algorithm
from ringwright.algorithms.powers import RankDigits
from ringwright.costs.open_mpi import DEFAULT_FANOUT, Decision

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

Maker = Callable[[Decision, Algorithm], Algorithm]  # of a decision, and of the library whose menu this is


def _plain(algorithm: Algorithm) -> Maker:
    return lambda decision, own: algorithm


def _segmented(algorithm: Algorithm) -> Maker:
    return lambda decision, own: partial(algorithm, segment_bytes=decision.segment_bytes)


def _fanned(algorithm: Algorithm, knob: str, usual: int = DEFAULT_FANOUT) -> Maker:
    """Return the maker of an algorithm whose fan-out or radix is ``knob``."""
    return lambda decision, own: partial(
        algorithm, segment_bytes=decision.segment_bytes, **{knob: decision.fanout or usual}
    )


def _windowed(decision: Decision, own: Algorithm) -> Algorithm:
    return partial(direct, window=decision.max_requests)


def _k_bruck(decision: Decision, own: Algorithm) -> Algorithm:
    return partial(bruck, radix=max(decision.fanout, 2))


def _segmented_ring(decision: Decision, own: Algorithm) -> Algorithm:
    # Without a segment size the library's segmented ring is its ring.
    return partial(segmented_ring, segment_bytes=decision.segment_bytes) if decision.segment_bytes else ring


def _own_two(decision: Decision, own: Algorithm) -> Algorithm:
    """Reduce and broadcast as the library itself would choose them."""
    return partial(nonoverlapping, inner=own, outer=own)


def _own_reduce(decision: Decision, own: Algorithm) -> Algorithm:
    """Reduce as the library would choose it, whole, since a scatter follows."""

    def whole(collective: Collective, topology: Topology | None = None) -> Program:
        program = own(collective, topology)
        return program if program.layout.n_chunks == 1 else binomial(collective, topology)

    return partial(nonoverlapping, inner=whole, outer=linear)


_EXCHANGE, _LINEAR, _BRUCK = _plain(recursive_doubling), _plain(linear), _plain(bruck)
_RING, _NEIGHBOR, _SPARBIT = _plain(ring), _plain(neighbor_exchange), _plain(sparbit)

# By id from 1 on; the names are those of ``rules.names``.
MENU: dict[str, tuple[Maker, ...]] = {
    "all-gather": (_LINEAR, _k_bruck, _EXCHANGE, _RING, _NEIGHBOR, _EXCHANGE, _SPARBIT, _plain(direct)),
    "all-gather-v": (_LINEAR, _BRUCK, _RING, _NEIGHBOR, _EXCHANGE, _SPARBIT),
    "all-reduce": (
        _LINEAR,
        _own_two,
        _EXCHANGE,
        _RING,
        _segmented_ring,
        _plain(rabenseifner),
        _plain(allgather_reduce),
    ),
    "all-to-all": (_plain(direct), _plain(pairwise), _BRUCK, _windowed, _plain(pairwise)),
    "all-to-all-v": (_plain(direct), _plain(pairwise)),
    "barrier": (_LINEAR, _plain(double_ring), _EXCHANGE, _BRUCK, _EXCHANGE, _plain(binomial)),
    "broadcast": (
        _LINEAR,
        _fanned(chain, "fanout"),
        _segmented(pipeline),
        _segmented(split_binary_tree),
        _segmented(binary_tree),
        _segmented(binomial),
        _fanned(knomial, "radix"),
        _plain(scatter_allgather),
        _plain(partial(scatter_allgather, gather="ring")),
    ),
    "gather": (_LINEAR, _plain(binomial), _LINEAR),
    "reduce": (
        _LINEAR,
        _fanned(chain, "fanout"),
        _segmented(pipeline),
        _segmented(binary_tree),
        _segmented(binomial),
        _segmented(in_order_binary),
        _plain(rabenseifner),
        _fanned(knomial, "radix"),
    ),
    "reduce-scatter": (_own_reduce, _plain(recursive_halving), _RING, _plain(butterfly)),
    "reduce-scatter-block": (_LINEAR, _EXCHANGE, _plain(recursive_halving), _plain(butterfly)),
    "scan": (_LINEAR, _EXCHANGE),
    "exscan": (_LINEAR, _EXCHANGE),
    "scatter": (_LINEAR, _plain(binomial), _LINEAR),
}


def instead(op: str, name: str, collective: Collective) -> str:
    """Return the algorithm that the library runs for a choice: the same, or what it takes where that one cannot."""
    p, elements = collective.p, collective.size_bytes // collective.unit_bytes
    if op in ("all-gather", "all-gather-v"):
        if name == "recursive_doubling" and p & (p - 1):
            return "bruck-k-fanout"
        return "ring" if name == "neighbor" and p % 2 else name
    if op == "all-reduce" and name in ("ring", "segmented_ring") and elements < p:
        return "recursive_doubling"
    if name == "rabenseifner" and (not collective.commutative or elements < RankDigits(p).size):
        return "basic_linear" if op == "all-reduce" else "linear"
    if name.startswith("scatter_allgather") and elements < p:
        return "binomial"
    return name
