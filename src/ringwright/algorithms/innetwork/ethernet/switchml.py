"""SwitchML: a switch sums one packet of every worker in each slot of a small pool; the result is the acknowledgement.

Idea: the tensor is streamed through s slots of the switch, one packet a slot. When all workers below have given theirs, the sum
    goes back to all in one multicast, and each worker sends its next packet for that slot. Leaves of a larger network give
    their sums to a root in the same way; a switch is one worker of its parent. Ranks of a host first add among themselves,
    each a part of the data.
Cost: max(n/h beta, n/(h s b) RTT) on the link of each of a host's h streaming ranks, each way, whatever the number of workers: b
    bytes in a packet; (2 + 2 l) alpha over l levels of switches, and 2 (g-1)/g n beta inside a host of g. Losses cost the slots
    that they fall on a timer each, and the whole as far as the unluckiest slot lags behind. Floats take one more round of s
    packets, with exponents alone, which is left out.
Knobs: slots (the power of two that a round trip of the network and 40 us of host fill, 32 at the least, or what fits into the
    switch); payload, elements in a packet; codec (block-exponent for float32 where the switches have it, else native: numbers as
    they are); timeout_s, the hosts' timer, and timer (fixed, or adaptive: by the round trip from timeout_s on, twice as long for
    each further copy); heads, ranks of a host that stream (all); segments, parts that a head's data is
    followed in (of 128 KiB at the least, 16 KiB where every rank is alone on its host; 128 at the most); jobs, of the same kind,
    that share the slots of a switch, and sharing: parted, an equal part each, or hashed, any slot of one switch, with a server
    for each job that adds what finds its slot taken (ATP).
Holds: two versions of each slot: a worker is at the most one packet ahead in a slot, so a lost result can be sent again; no slot
    is named twice in one version before its result has left.
Figure: up to 5.55 times the training speed with NCCL over TCP at 100 Gb/s (the authors' page).
Source: Sapio et al.: Scaling Distributed Machine Learning with In-Network Aggregation, NSDI 2021; p4lang/p4app-switchML.
Declines: all but all-reduce; networks without switches that add; more workers below a switch than its bitmap has bits (32 in the
    public program); pools that do not fit into its memory; types that it does not add.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from ringwright.algorithms.innetwork.slot_pool import BLOCK, SlotLease, offered
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Channels, Choices, Range, Segments, Slots
from ringwright.model.codecs.formats import added_by

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

OPS = ("all-reduce",)
NEEDS = ("topology.aggregators.network", "transport.datagrams", "transport.multicast", "memory.switch-slots")
FABRICS = ("switch:4,switches=tofino", "leaf-spine:12,per_leaf=4,switches=tofino", "dgx-a100:2,sharp=true")
ROUNDS = True  # float32 travels as integers with a common exponent


def switchml(
    collective: Collective,
    topology: Topology | None = None,
    *,
    slots: Slots | None = None,
    payload: Annotated[int, Range(1, 1024)] = 256,
    codec: Annotated[str, Choices(_formats())] | None = None,
    timeout_s: Annotated[float, Range(1e-4, 10.0, "s")] = 10e-3,
    timer: Literal["fixed", "adaptive"] = "fixed",
    heads: Channels | None = None,
    segments: Segments | None = None,
    jobs: Annotated[int, Range(1, 1024)] = 1,
    sharing: Literal["parted", "hashed"] = "parted",
) -> Program:
    """Return the program of an all-reduce through pools of slots in the network's switches."""
    require_op("switchml", collective, OPS)
    require_commutative("switchml", collective)
    chosen = codec or _usual(collective, topology)
    if chosen == BLOCK and not all(BLOCK in able.codecs for able in offered(topology).values()):
        raise UsageError(
            f"switchml: the switches of {topology.name if topology else 'this network'} add no numbers with a common exponent",
            remedy="a fabric with switches=tofino, or switchml:codec=native",
        )
    loss, versions = ("adaptive-timer" if timer == "adaptive" else "host-timer"), 2
    if sharing == "hashed":
        loss, versions = "resend-to-server", 1
    is_hashed = sharing == "hashed"
    pool = SlotLease(
        "switchml", chosen, loss, versions, payload, slots, timeout_s, heads, segments, jobs=jobs, is_hashed=is_hashed
    )
    return pool.program(collective, topology)


def _formats() -> tuple[str, ...]:
    """Return the number formats that switches with this program can add: each of them says so itself."""
    return tuple(sorted(added_by("tofino")))


def _usual(collective: Collective, topology: Topology | None) -> str:
    """Return the number format where none is asked for: integers need none, nor do switches that add the type itself."""
    able = offered(topology).values()
    return BLOCK if collective.dtype == "float32" and able and all(BLOCK in each.codecs for each in able) else "native"
