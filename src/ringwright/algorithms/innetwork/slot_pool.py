"""A pool of slots in every switch of a tree, through which a tensor is streamed packet by packet: what slot protocols share.

Ranks of one host first add among themselves, each for its part of the data (a *head*), which is then streamed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms import placement
from ringwright.algorithms.blocks.collnet_direct import ALONE_BYTES, heads_of, through_heads
from ringwright.algorithms.switch_trees import SwitchTree, network_switches, switch_trees
from ringwright.ground.errors import UsageError
from ringwright.model.codecs.formats import codec_of, number_bytes
from ringwright.model.program import nothing
from ringwright.model.streams import Stream, leased_bytes

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Capability, Topology

MOST_SEGMENTS = 128
FEWEST_SLOTS = 32  # fewer let one loss hold up too large a part of the pool
# Seconds of a packet in the host, from a result to what it sends next: 512 packets of 1 KiB at 100 Gb/s are 42 us under way
# (the simulator of SwitchML's authors).
HOST_S = 40e-6
BLOCK = "block-exponent"


@dataclass(frozen=True)
class SlotLease:
    """What a slot protocol asks of each switch.

    Parameters
    ----------
    name
        The system, for errors and as the program's name.
    codec, loss
        Number format and loss rule, names of ``ringwright.model.streams``.
    versions
        Copies of a slot.
    payload
        Elements in a packet.
    slots
        Packets under way; None: what a round trip takes, a power of two, or as many as fit.
    timeout_s
        Seconds of the hosts' timer; 0 where they have none.
    heads
        Ranks of a host that stream; None: all.
    segments
        Parts that a head's data is followed in; None: 128 KiB each, 16 KiB where ranks are alone on
        their hosts, 128 at the most.
    jobs, is_hashed
        Jobs that share the slots of each switch, and whether packets of all hash into all of them; else
        each job has an equal part.
    """

    name: str
    codec: str
    loss: str
    versions: int
    payload: int
    slots: int | None = None
    timeout_s: float = 0.0
    heads: int | None = None
    segments: int | None = None
    jobs: int = 1
    is_hashed: bool = False

    def program(self, collective: Collective, topology: Topology | None, **knobs: object) -> Program:
        """Return the all-reduce through the pools of a tree's switches; UsageError where they cannot serve it."""
        if collective.p == 1:
            return nothing(self.name, collective, **knobs)
        self._require_whole(collective, topology)
        lease = self._lease(collective)
        trees, leading = self._trees(collective, topology)
        assert topology is not None  # noqa: S101 - trees are of one
        asked = _round_trip_slots(lease, trees, leading, topology)
        if self.is_hashed:
            lease = self._of_all(lease, trees, asked)
        else:
            parts = self.jobs
            slots = max(1, self.slots // parts) if self.slots else _fitting(lease, trees, topology, asked, parts)
            lease = replace(lease, slots=slots)
        made = through_heads(
            self.name, collective, topology, self.heads, self.segments, lease, MOST_SEGMENTS, ALONE_BYTES
        )
        return replace(
            made, knobs={**made.knobs, "slots": lease.slots, "payload": self.payload, "codec": self.codec, **knobs}
        )

    def _of_all(self, lease: Stream, trees: list[SwitchTree], asked: int) -> Stream:
        """Return the stream of a job that shares all slots with others; UsageError for what has no model."""
        if len(trees) != 1 or len(trees[0].switches) != 1:
            raise UsageError(
                f"{self.name}: slots by a hash are those of one switch for one rank of a host, here are {len(trees)} trees"
                f" of {len(trees[0].switches)} switches",
                remedy="sharing=parted",
            )
        return replace(
            lease, slots=self.slots or asked, window=min(asked, self.slots or asked), fallback=0, jobs=self.jobs
        )

    def _lease(self, collective: Collective) -> Stream:
        size = math.ceil(self.payload * number_bytes(self.codec, collective.unit_bytes)[0])
        return Stream(
            -1,
            self.slots or 0,
            versions=self.versions,
            payload_bytes=size,
            codec=self.codec,
            loss=self.loss,
            timeout_s=self.timeout_s,
        )

    def _trees(self, collective: Collective, topology: Topology | None) -> tuple[list[SwitchTree], list[list[int]]]:
        nodes = placement.members(collective, topology) or [[index] for index in range(collective.p)]
        leading = heads_of(nodes, self.heads)
        return switch_trees(self.name, collective, topology, leading, self.codec), leading

    def _require_whole(self, collective: Collective, topology: Topology | None) -> None:
        """Raise UsageError for a type that the number format does not carry, or a packet that no switch takes."""
        carries = ("float32",) if self.codec == BLOCK else codec_of(self.codec).carries
        if carries and collective.dtype not in carries:
            raise UsageError(
                f"{self.name}: {self.codec} carries {' and '.join(carries)}, not {collective.dtype}",
                remedy=f"--dtype {carries[-1]}, or switches that add the type itself: sharp=true with switchml:codec=native",
            )
        for node in sorted(network_switches(topology)):
            assert topology is not None  # noqa: S101 - a switch is of one
            able, size = topology.aggregators[node], self._lease(collective).payload_bytes
            if size > able.payload_bytes:
                most = able.payload_bytes * self.payload // size
                raise UsageError(
                    f"{self.name}: {self.payload:,} elements are {size:,} B, {topology.label(node)} takes"
                    f" {able.payload_bytes:,} B a packet",
                    remedy=f"payload={most}",
                )


def offered(topology: Topology | None) -> Mapping[int, Capability]:
    """Return what each switch between hosts adds, by topology node."""
    return {} if topology is None else {node: topology.aggregators[node] for node in sorted(network_switches(topology))}


def _round_trip_slots(lease: Stream, trees: list[SwitchTree], leading: list[list[int]], topology: Topology) -> int:
    """Return the least power of two of slots that keeps every head's first link busy for a round trip."""
    most = float(FEWEST_SLOTS)
    for tree, head in zip(trees, leading, strict=True):
        most = max(most, _outstanding(tree, head, topology, lease.payload_bytes) / lease.payload_bytes)
    return 1 << int(np.ceil(np.log2(most)))


def _outstanding(tree: SwitchTree, head: list[int], topology: Topology, packet_bytes: int) -> float:
    """Return the most bytes that a rank may send until its packet's result is back and answered."""
    trip_s, rate = np.full(len(head), HOST_S), np.full(len(head), np.inf)
    here, at = np.array(head), np.array(tree.leaf_of)
    switches, parents = np.array(tree.switches), np.array(tree.parents)
    climbs = np.ones(len(head), bool)  # ranks whose packet has further to go
    while climbs.any():
        there = np.where(climbs, switches[at], here)
        for src, dst in ((here[climbs], there[climbs]), (there[climbs], here[climbs])):
            starts, links = topology.routes(src, dst)
            of = np.repeat(np.flatnonzero(climbs), np.diff(starts))
            np.add.at(trip_s, of, topology.latency_s[links] + packet_bytes / topology.rate[links])
            np.minimum.at(rate, of, topology.rate[links])
        here, climbs = there, climbs & (parents[at] >= 0)
        at = np.where(climbs, parents[at], at)
    return float((trip_s * rate).max())


def _fitting(lease: Stream, trees: list[SwitchTree], topology: Topology, slots: int, jobs: int) -> int:
    """Return ``slots``, halved until those of all trees fit into a job's part of each switch; UsageError where not one does."""
    least, wanted = slots, slots
    for node in {node for tree in trees for node in tree.switches}:
        sharing = jobs * sum(node in tree.switches for tree in trees)
        able = topology.aggregators[node]
        while least and leased_bytes(replace(lease, slots=least), able) * sharing > able.memory_bytes:
            least //= 2
        if not least:
            one = leased_bytes(replace(lease, slots=1), able) * sharing
            raise UsageError(
                f"memory: one slot for each of {sharing} trees takes {one:,} B of {topology.label(node)}, which has"
                f" {able.memory_bytes:,} B",
                remedy="a smaller payload, fewer heads, or --algorithm ring",
            )
    return min(least, wanted)
