"""SwitchAgg: a further step towards in-network computation.

Idea: a switch that reads pairs of keys and values out of packets and adds where keys are equal, in small tables on the chip with
    large ones in memory behind them. What a table has no room for is evicted and goes on as an ordinary pair, so the result
    is right whatever the tables hold; how much is saved depends on how many keys they can.
Cost: P pairs of K keys in room for M: K pairs go on where K <= M, else P (1 - M/K) + M. Here, with each key at each of p ranks:
    a share m = min(1, M/K) of the data is added on the way, n in all to the root, and (1 - m) of it comes from each, (p-1) n.
Knobs: tables, bytes of the tables of a switch (none: its memory); segments of each share that follow one another (none: of 64 KiB
    at the least, 128 at the most).
Holds: sums are those of the pairs, whatever is evicted (`innetwork.pair_tables`, exact for keys and values of any length).
Figure: line rate, and up to 50 % shorter jobs (abstract).
Source: Yang, Wang, Ma, Yuan, An: SwitchAgg, FPGA 2019, arXiv 1904.04024. Internals are from memory.
Declines: networks whose switches add nothing; more tables than a switch has memory. A program carries dense chunks:
    ``size_bytes`` counts pairs with their keys, each rank has all keys, and those without room pass every switch; how the
    keys of a stream meet by chance is in `innetwork.pair_tables`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ringwright.algorithms.innetwork.middlebox_trees import DIRECT, MiddleboxTree, centre, middlebox_tree
from ringwright.algorithms.innetwork.tree_turns import TreeTurns
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.switch_trees import network_switches
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Range, Segments
from ringwright.model.program import Program, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("reduce", "all-reduce")
FABRICS = ("switch:4,sharp=true", "leaf-spine:6,per_leaf=2,sharp=true", "fat-tree:16,sharp=true")
NEEDS = ("topology.aggregators.network", "memory.switch-tables")
MOST_SEGMENTS = 128
SEGMENT_BYTES = 64 << 10


def switchagg(
    collective: Collective,
    topology: Topology | None = None,
    *,
    tables: Annotated[int, Range(0, 1 << 50, "B")] | None = None,
    segments: Segments | None = None,
) -> Program:
    """Return the program whose switches add the pairs that they have room for."""
    require_op("switchagg", collective, OPS)
    require_commutative("switchagg", collective)
    if collective.p == 1:
        return nothing("switchagg", collective)
    able = network_switches(topology)
    if topology is None or not able:
        raise UsageError("switchagg: no switch of this network adds", remedy="--fabric switch:8,sharp=true")
    tree = _tree(collective, topology, able)
    memory = min(topology.aggregators[node].memory_bytes for node in tree.nodes)
    room = memory if tables is None else tables
    if room > memory:
        raise UsageError(f"switchagg: tables of {room:,} B in a switch of {memory:,} B", remedy=f"tables={memory}")
    unit = collective.unit_bytes
    held = min(collective.size_bytes, room // unit * unit)
    wanted = segments or max(1, min(MOST_SEGMENTS, collective.size_bytes // SEGMENT_BYTES))
    past = MiddleboxTree((), (), (DIRECT,) * len(tree.first_of))
    both = [(tree, held), (past, collective.size_bytes - held)]
    trees, shares = zip(*[each for each in both if each[1]] or both[:1], strict=True)
    turns = TreeTurns(collective, trees, wanted, shares if len(shares) > 1 else None, multicast=True)
    return turns.program("switchagg", held=f"{held / max(collective.size_bytes, 1):.0%}")


def _tree(collective: Collective, topology: Topology, able: frozenset[int]) -> MiddleboxTree:
    """Return the tree of switches on the ways to the root, which sends nothing; of an all-reduce to the one in the middle."""
    beside, members = {node: [node] for node in sorted(able)}, list(collective.group)
    target = centre(topology, beside, members) if collective.op == "all-reduce" else members.pop(collective.root)
    tree = middlebox_tree(topology, beside, members, target)
    if not tree.nodes or (collective.op == "all-reduce" and DIRECT in tree.first_of):
        raise UsageError(
            "switchagg: no switch that adds on the way of the ranks", where=topology.name, remedy="--algorithm ring"
        )
    return tree
