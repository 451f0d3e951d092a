"""FPISA: floats are added in an integer pipeline, exponent and mantissa in registers of their own.

Idea: SwitchML's slots, versions and timers, but a slot holds an exponent and a signed mantissa for each element. An addend is
    shifted to the larger exponent and added without normalising; the sum becomes a float again as it leaves the switch. So no
    host converts, and no exponents go first.
Cost: that of SwitchML with as many elements in a packet; one element a packet on a Tofino as it is, where an alignment takes an
    instruction for each distance. What hosts save by not converting is left out: hosts convert nothing in SwitchML's times here.
Knobs: slots (the power of two that a round trip of the network and 40 us of host fill, 32 at the least, or what fits into the
    switch); payload, elements in a packet (as many as the switches take, 256 at the most); timeout_s, the hosts' timer; heads,
    ranks of a host that stream (all); segments, parts that a head's data is followed in (of 128 KiB at the least, 16 KiB where
    every rank is alone on its host; 128 at the most); variant (full: what a switch holds is aligned with a larger newcomer;
    approximate: FPISA-A, for pipelines that can align the newcomer alone); shift, the most bits by which a newcomer is moved up
    (7, the headroom; approximate alone), beyond which it overwrites what was held; overflow, what a full register does (wrap, or
    saturate). The last three change no time: they are what the sums are worth, which ``simulate`` says.
Holds: 24 bits and a sign leave 7 of 32 bits, so a slot adds 128 numbers of equal exponent without overflow: more than a bitmap
    of 32 workers lets in.
Figure: up to 85.9 % more training speed than SwitchML where hosts' processors are what is short (abstract).
Source: Yuan et al.: Unlocking the Power of Inline Floating-Point Operations on Programmable Switches, NSDI 2022 (2112.06095).
Declines: all but sums of float32 and float16 by all-reduce; networks whose switches do not split floats; what SwitchML's pools
    decline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from ringwright.algorithms.innetwork.slot_pool import SlotLease, offered
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Channels, Range, Segments, Slots

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

OPS = ("all-reduce",)
NEEDS = ("topology.aggregators.network", "transport.datagrams", "transport.multicast", "memory.switch-slots")
FABRICS = ("switch:4,switches=fpisa", "leaf-spine:12,per_leaf=4,switches=fpisa", "switch:4,switches=tofino-fpisa")
ROUNDS = True  # mantissas are cut as they are shifted
SPLIT = "split-float"
MOST_ELEMENTS = 256


def fpisa(
    collective: Collective,
    topology: Topology | None = None,
    *,
    slots: Slots | None = None,
    payload: Annotated[int, Range(1, 1024)] | None = None,
    timeout_s: Annotated[float, Range(1e-4, 10.0, "s")] = 10e-3,
    heads: Channels | None = None,
    segments: Segments | None = None,
    variant: Literal["full", "approximate"] = "full",
    shift: Annotated[int, Range(0, 31)] | None = None,
    overflow: Literal["wrap", "saturate"] = "wrap",
) -> Program:
    """Return the program of an all-reduce through pools of split floats in the network's switches."""
    require_op("fpisa", collective, OPS)
    if shift is not None and variant == "full":
        raise UsageError(
            "fpisa: shift is how far a newcomer is shifted up, and the full form shifts what it holds",
            remedy="fpisa:variant=approximate:shift=4",
        )
    require_commutative("fpisa", collective)
    able = offered(topology)
    if not all(SPLIT in each.codecs for each in able.values()):
        raise UsageError(
            f"fpisa: the switches of {topology.name if topology else 'this network'} do not split floats",
            remedy="a fabric with switches=fpisa or switches=tofino-fpisa",
        )
    room = min((each.payload_bytes // collective.unit_bytes for each in able.values()), default=MOST_ELEMENTS)
    elements = payload or max(1, min(room, MOST_ELEMENTS))
    pool = SlotLease("fpisa", SPLIT, "host-timer", 2, elements, slots, timeout_s, heads, segments)
    arithmetic = {"variant": variant, "overflow": overflow}
    return pool.program(collective, topology, **arithmetic, **({} if shift is None else {"shift": shift}))
