"""A fabric that is asked about: the product it is made of, what was done to it, what its links usually cost a message."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.libraries.nccl_2_4.system import node_type
from ringwright.costs.calibration import Calibration, LinkClassCosts, calibrated
from ringwright.costs.learnt.call import usual
from ringwright.costs.probable_time import PRIOR
from ringwright.costs.transports import USUAL_TRANSPORT
from ringwright.ground.errors import RingwrightError

if TYPE_CHECKING:
    from ringwright.costs.nccl.node_types import NodeType
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

ENDLESS = 1e18  # bytes/s
MILD = {"rate_factor": max, "compute_factor": max, "latency_s": min, "loss": min, "ber": min, "buffer_bytes": max}


@dataclass(frozen=True)
class AskedFabric:
    """A fabric that is asked about, as it comes (``standard``) and with what was done to it; ``late``: ranks come one by one."""

    topology: Topology
    healthy: Topology
    calibration: Calibration | None = None
    late: bool = False
    _usual: dict[NodeType, Topology] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def standard(self) -> Topology:
        """The product that the fabric is made of, without its knobs and faults but with its NICs; itself where it is none."""
        from ringwright.fabrics import fabric

        try:
            product, *knobs = self.healthy.name.split(",")
            plain = fabric(",".join([product, *(each for each in knobs if each.startswith("nics="))]))
        except RingwrightError:
            return dataclasses.replace(self.healthy, faults=())
        if plain.n_ranks != self.healthy.n_ranks:
            return dataclasses.replace(self.healthy, faults=())
        plain = dataclasses.replace(plain, transport=self.healthy.transport)
        return plain if self.calibration is None else calibrated(plain, self.calibration)

    @cached_property
    def is_standard(self) -> bool:
        """Whether it is as it comes, healthy, and all ranks come together."""
        return not self.late and not self.topology.faults and _alike(self.topology, self.standard)

    def priced_on(self, program: Program) -> Topology:
        """Return the fabric of which a program's time is corrected: with usual costs where it has no library's software."""
        return self.topology if program.software.is_library else self.usual(program.collective)

    def usual(self, collective: Collective) -> Topology:
        """Return the fabric with the usual message costs and shares of its transport; a calibrated one has its own.

        One whose ranks are no GPUs stays as it is. What was changed on it (knobs, faults) stays: a class of links is slowed by
        as much as that of the standard fabric would be.
        """
        kind = node_type(collective, self.topology)
        if kind is None or self.calibration is not None or self.topology.message_s:
            return self.topology
        if kind not in self._usual:
            self._usual[kind] = self._with_usual_costs(kind)
        return self._usual[kind]

    def _with_usual_costs(self, kind: NodeType) -> Topology:
        numbers = usual(kind, self.topology.transport or USUAL_TRANSPORT)
        all_nics = self.standard.nics_per_domain / kind.nics  # those of GPUs that take no part too
        inside, outside = (
            LinkClassCosts(hop_s, message_s, share / byte_s)
            for (hop_s, message_s, byte_s), share in ((numbers[:3], 1.0), (numbers[3:], all_nics))
        )
        calibration = Calibration(PRIOR, "", "", inside, outside, "", "")
        return _slowed(self.topology, self.standard, calibrated(self.standard, calibration))


def _slowed(topology: Topology, before: Topology, after: Topology) -> Topology:
    """Return a fabric whose classes of links became as much slower as those of another did; none becomes faster."""
    rate, latency_s = topology.rate.copy(), topology.latency_s.copy()
    for number, name in enumerate(topology.classes):
        if name not in before.classes:
            continue
        there = before.link_class == before.classes.index(name)
        here = topology.link_class == number
        rate[here] *= min(1.0, float((after.rate[there] / before.rate[there]).mean()))
        latency_s[here] += max(0.0, float((after.latency_s[there] - before.latency_s[there]).mean()))
    return dataclasses.replace(
        topology, rate=rate, latency_s=latency_s, message_s=after.message_s, occupying=after.occupying
    )


def lasting(topology: Topology) -> Topology:
    """Return a fabric with what lasts of its faults: the mildest value of each from the start to the end."""
    series: dict[tuple[str, int, str], list[float]] = {}
    for each in topology.faults:
        series.setdefault((each.kind, each.target, each.field), []).append(each.value)
    kept = (each for each in topology.faults if each.time_s <= 0)
    mild = (
        dataclasses.replace(each, value=MILD[each.field](series[each.kind, each.target, each.field])) for each in kept
    )
    return dataclasses.replace(topology, faults=tuple(mild))


def without_rates(topology: Topology) -> Topology:
    """Return a fabric of the same latencies, healthy, whose links take no time for bytes."""
    return dataclasses.replace(
        topology, rate=np.full(topology.n_links, ENDLESS), groups=(), faults=(), reduce_rate=math.inf
    )


def _alike(one: Topology, other: Topology) -> bool:
    """Return whether two fabrics have the same links, of the same rates and latencies, and price a message alike."""
    columns = ("src", "dst", "rate", "latency_s")
    same = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)
    same = same and all(
        getattr(one, name) == getattr(other, name) for name in ("message_s", "aggregators", "reduce_rate")
    )
    return same and one.loss is None and other.loss is None
