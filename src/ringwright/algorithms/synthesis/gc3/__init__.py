"""GC3: a program that moves chunks between named buffers is compiled into fused instructions of thread blocks.

Idea: an algorithm is written by moving chunks between named buffers of ranks. The compiler traces it, fuses what is received and
    sent on, gives each connection a thread block and each flow a channel, and lays instances of it side by side; the result
    is a declared program that a runtime interprets in one kernel.
Cost: that of the program: alpha and bytes of every message of a thread block in turn. A ring all-reduce 2(p-1) alpha +
    2(p-1)/p n beta, all pairs 2 alpha + 2(p-1)/p n beta on a full switch. r instances send r smaller messages side by side.
Knobs: program=auto, or one of those below (auto: on several nodes hierarchical, two-step or all-to-next; on one all-pairs up to
    1 MiB and else ring; broadcast binomial-tree up to 1 MiB and else ring); node, ranks of a node (the first axis of the
    machine; without one, all); instances=1, side by side; channels=1, over which a program deals its chunks;
    protocol=Simple, LL or LL128: how many messages a connection holds; fusion=true.
    Programs: ring, all-pairs, hierarchical, recursive-doubling, halving-doubling, binomial-tree, two-step, three-step,
    all-to-next.
Holds: the order is declared; it covers every hazard and cannot lock up with the FIFO of its protocol; fusion changes no result.
Figure: all-reduce up to 1.9x and all-to-all up to 1.3x faster than hand-optimised ones (abstract).
Source: Cowan, Maleki, Musuvathi, Saarikivi, Xiong: MSCCLang, ASPLOS 2023, arXiv 2201.11840.
Declines: reduce, gather, scatter (none of its programs does these; write one in ``ringwright.language``); unequal counts;
    more than a million operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

from ringwright.algorithms.language import ChunkScript, compile_script
from ringwright.algorithms.levels import factorise
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.synthesis.gc3 import exchanges, programs
from ringwright.algorithms.synthesis.gc3.programs import Plan
from ringwright.ground.errors import DeclinedError, OperationError, UsageError
from ringwright.ground.knobs import Channels, Range, Ranks
from ringwright.model.collective import Collective
from ringwright.model.program import Program, nothing

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

OPS = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "all-to-all", "send-recv")
FABRICS = ("switch", "ring", "dgx-a100:2")
NEEDS = ("memory.scratch", "transport.channels")
Named = Literal[
    "auto",
    "ring",
    "all-pairs",
    "hierarchical",
    "recursive-doubling",
    "halving-doubling",
    "binomial-tree",
    "two-step",
    "three-step",
    "all-to-next",
]
Instances = Annotated[int, Range(1, 32)]
SMALL = 1 << 20
MOST_OPERATIONS = 1_000_000
_VECTORS = ("all-reduce", "all-gather", "reduce-scatter")
_DOES: dict[str, dict[str, programs.Write]] = {
    "ring": dict.fromkeys((*_VECTORS, "broadcast", "send-recv"), programs.ring),
    "all-pairs": {
        **dict.fromkeys((*_VECTORS, "broadcast"), programs.all_pairs),
        "all-to-all": exchanges.direct_exchange,
    },
    "hierarchical": dict.fromkeys(_VECTORS, programs.hierarchical),
    "recursive-doubling": dict.fromkeys(("all-reduce", "all-gather"), programs.recursive_doubling),
    "halving-doubling": dict.fromkeys(("all-reduce", "reduce-scatter"), programs.halving_doubling),
    "binomial-tree": dict.fromkeys(("all-reduce", "broadcast"), programs.binomial_tree),
    "two-step": {"all-to-all": exchanges.two_step},
    "three-step": {"all-to-all": exchanges.three_step},
    "all-to-next": {"send-recv": exchanges.all_to_next},
}
_OF_PAIRS = ("recursive-doubling", "halving-doubling")


def gc3(
    collective: Collective,
    topology: Topology | None = None,
    *,
    program: Named = "auto",
    node: Ranks | None = None,
    instances: Instances = 1,
    channels: Channels = 1,
    protocol: Literal["Simple", "LL", "LL128"] = "Simple",
    fusion: bool = True,
) -> Program:
    """Return one of the programs written in the language, compiled."""
    require_op("gc3", collective, OPS)
    require_commutative("gc3", collective)
    if collective.p == 1:
        return nothing("gc3", collective, instances=instances, channels=channels)
    plan = Plan(_node(collective.p, topology, node), channels)
    name = _chosen(collective, plan) if program == "auto" else program
    script = ChunkScript(collective, chunks=_chunks(name, collective, plan))
    _writer(name, collective, plan)(script, plan)
    if len(script) * instances > MOST_OPERATIONS:
        told = f"{name} over {collective.p:,} ranks is {len(script) * instances:,} operations"
        raise DeclinedError(f"gc3: {told}; at most {MOST_OPERATIONS:,} are compiled", remedy="fewer instances or ranks")
    knobs = {"algorithm": name, "channels": channels, "fusion": fusion}
    return compile_script(
        script, name="gc3", instances=instances, protocol=protocol, fuse=fusion, checked=False, knobs=knobs
    )


def _node(p: int, topology: Topology | None, node: int | None) -> int:
    """Return the ranks of a node: as given, else those of the machine's fastest axis, else all."""
    if node is not None:
        if p % node:
            raise UsageError(f"gc3: {p} ranks are no whole nodes of {node}", remedy=f"node={p}")
        return node
    return factorise(p, topology, None)[0]


def _chosen(collective: Collective, plan: Plan) -> str:
    """Return the program that is taken where none is named."""
    is_small = collective.size_bytes <= SMALL
    if collective.op == "broadcast":
        return "binomial-tree" if is_small else "ring"
    if 1 < plan.node < collective.p:
        return {"all-to-all": "two-step", "send-recv": "all-to-next"}.get(collective.op, "hierarchical")
    if collective.op in ("all-to-all", "send-recv"):
        return "all-pairs" if collective.op == "all-to-all" else "ring"
    return "all-pairs" if is_small else "ring"


def _chunks(name: str, collective: Collective, plan: Plan) -> int:
    """Return into how many chunks the longer buffer is cut."""
    p, op = collective.p, collective.op
    if op == "send-recv":
        return plan.node * plan.channels if name == "all-to-next" else 1
    if name == "all-pairs" and op in _VECTORS:
        # Each block in so many chunks that several thread blocks share the sums, and every channel has as many.
        pieces = max(min(p, 64 // p), 1) if op != "all-gather" else 1
        return p * plan.channels * -(-pieces // plan.channels)
    if name == "binomial-tree" or (name == "recursive-doubling" and op == "all-reduce"):
        return plan.channels
    return max(p, plan.channels) if op == "broadcast" else p


def _writer(name: str, collective: Collective, plan: Plan) -> Callable[[ChunkScript, Plan], None]:
    """Return the function that writes the program; UsageError where it does not do this."""
    offers = _DOES[name]
    if collective.op not in offers:
        other = ", ".join(each for each, does in _DOES.items() if collective.op in does)
        raise OperationError(f"gc3: {name} does no {collective.op}", remedy=f"program={other}")
    if name in _OF_PAIRS and collective.p & (collective.p - 1):
        raise UsageError(f"gc3: {name} needs a power of two of ranks, not {collective.p}", remedy="program=ring")
    return offers[collective.op]
