"""NetAgg: using middleboxes for application-specific on-path aggregation in data centres.

Idea: servers called agg boxes hang on switches by links of high rate and run the application's own function on the partial
    results that pass; workers send to the first box on their way to the master, each box to the next one, and only what is
    reduced goes on. Several trees share the load, as the boxes of a switch are taken in turn.
Cost: n/min(B, B_box/f) for boxes with f inputs, and (2 + h) alpha over h boxes in a row; a master without boxes takes
    (p-1) n/B. An all-reduce brings results back down the tree, one copy for each receiver over the box's link: twice that.
Knobs: trees, each with a share of the data; segments of a share that follow one another (none: of 64 KiB at the least, 128 at the
    most); failed, the number of a box that died: what its children have goes to the next box, or to the master.
Holds: each input is used once, whatever boxes there are; the master adds its own part itself.
Figure: substantial gains in throughput (abstract); 9.3x and 5.2x are from memory, see `reproduce netagg`.
Source: Mai, Rupprecht, Alim, Costa, Migliavacca, Pietzuch, Wolf: NetAgg, CoNEXT 2014, doi 10.1145/2674005.2674996.
Declines: networks without boxes beside switches; records that shrink by less than a sum does (`innetwork.keyed` counts those).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ringwright.algorithms.innetwork.middlebox_trees import (
    MiddleboxTree,
    centre,
    middlebox_tree,
    require_middleboxes,
    switches_with_middleboxes,
)
from ringwright.algorithms.innetwork.tree_turns import TreeTurns
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Channels, Range, Segments
from ringwright.model.program import Program, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("reduce", "all-reduce")
FABRICS = (
    "middleboxes:3",
    "middleboxes:2x2,at=core",
    "middleboxes:4x2",
    "middleboxes:2x2x2,per_switch=2",
    "middleboxes:2x3x2,at=pod",
)
NEEDS = ("topology.aggregators.network", "transport.sockets")
MOST_SEGMENTS = 128
SEGMENT_BYTES = 64 << 10


def netagg(
    collective: Collective,
    topology: Topology | None = None,
    *,
    trees: Channels = 1,
    segments: Segments | None = None,
    failed: Annotated[int, Range(0, 65535)] | None = None,
) -> Program:
    """Return the program whose partial results are added by servers beside the switches on their way."""
    require_op("netagg", collective, OPS)
    require_commutative("netagg", collective)
    if collective.p == 1:
        return nothing("netagg", collective)
    if topology is None:
        raise UsageError("netagg: boxes are those of a machine", remedy="--fabric middleboxes:8x4x2")
    beside = switches_with_middleboxes(topology, _gone(topology, failed))
    require_middleboxes("netagg", beside)
    grown = [_tree(collective, topology, beside, turn) for turn in range(trees)]
    share = collective.size_bytes / trees
    wanted = segments or max(1, min(MOST_SEGMENTS, int(share // SEGMENT_BYTES)))
    return TreeTurns(collective, tuple(grown), wanted).program("netagg")


def _gone(topology: Topology, failed: int | None) -> list[int]:
    if failed is None:
        return []
    every = sorted(topology.aggregators)
    if failed >= len(every):
        raise UsageError(f"netagg: failed={failed} of {len(every)} boxes", remedy=f"failed=0 to {len(every) - 1}")
    return [every[failed]]


def _tree(collective: Collective, topology: Topology, beside: dict[int, list[int]], turn: int) -> MiddleboxTree:
    """Return a tree to the master, which sends nothing itself; of an all-reduce to the box in the middle, from all."""
    members = list(collective.group)
    if collective.op == "all-reduce":
        return middlebox_tree(topology, beside, members, centre(topology, beside, members, turn), turn)
    master = members.pop(collective.root)
    return middlebox_tree(topology, beside, members, master, turn)
