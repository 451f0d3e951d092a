"""AllReduce-Switch: one device forwards, adds and sends again in a single pipeline at the rate of its ports.

Idea: packets of a reduction leave the forwarding path for an adder of floats as wide as all ports together. A slot memory with
    two ports is read, added to and written in a fixed number of cycles, and holds a bitmap of the workers, the sum, and a copy of
    the last result for who lost it. The result goes out of all ports in one stage. Devices in a cascade are a tree.
Cost: n/h beta on the link of each of a host's h streaming ranks, each way, while the adder takes what all ports bring; beyond it
    all ports share the adder's rate. (2 + 2 l) alpha over l levels of devices, and 2 (g-1)/g n beta inside a host of g.
Knobs: slots (the power of two that a round trip of the network and 40 us of host fill, 32 at the least, or what fits into the
    device); payload, elements in a packet; timeout_s, the hosts' timer; heads, ranks of a host that stream (all); segments,
    parts that a head's data is followed in (of 128 KiB at the least, 16 KiB where every rank is alone on its host; 128 at the
    most).
Holds: floats are added as they are, in the order of arrival; each worker once in a slot; a result stays until its slot is next
    but one, so that a lost one is sent again.
Figure: 1.75 times the bandwidth of a ring with 8 workers at 10 Gb/s, image training up to 1.67 times faster (abstract).
Source: Liu et al., IEEE TCAS-I 68(10), 2021, doi 10.1109/TCSI.2021.3098841. The block structure is inferred from the abstract.
Declines: all but all-reduce; networks without switches that add; more workers below a device than it has ports (8); types that it
    does not add; pools that do not fit into its memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ringwright.algorithms.innetwork.slot_pool import SlotLease
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.ground.knobs import Channels, Range, Segments, Slots

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

OPS = ("all-reduce",)
NEEDS = ("topology.aggregators.network", "transport.datagrams", "memory.switch-slots")
FABRICS = ("switch:8,switches=fpga", "leaf-spine:12,per_leaf=4,switches=fpga")


def allreduce_switch(
    collective: Collective,
    topology: Topology | None = None,
    *,
    slots: Slots | None = None,
    payload: Annotated[int, Range(1, 1024)] = 256,
    timeout_s: Annotated[float, Range(1e-4, 10.0, "s")] = 10e-3,
    heads: Channels | None = None,
    segments: Segments | None = None,
) -> Program:
    """Return the program of an all-reduce through slots of devices that add the type as it is."""
    require_op("allreduce-switch", collective, OPS)
    require_commutative("allreduce-switch", collective)
    pool = SlotLease("allreduce-switch", "native", "host-timer", 2, payload, slots, timeout_s, heads, segments)
    return pool.program(collective, topology)
