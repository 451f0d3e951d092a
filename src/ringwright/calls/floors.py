"""Bounds that no simulated time may go below, for one question size by size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.engines.wire_width import narrowest

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program

AT_RANKS, IN_NETWORK = "at the ranks", "in the network"
REFERENCE_BYTES = 1 << 20  # per rank, for bounds that grow with the size


class Floors:
    """Bounds of one question, size by size: the search over all cuts is done once, for bandwidth grows with the size."""

    def __init__(self, question: SimulationSpec) -> None:
        self._question, self.come = question, question.come()
        self._rates: dict[bool, float] = {}
        self._known: dict[int, tuple[Collective, tuple[float, float | None]]] = {}

    def of(self, collective: Collective) -> tuple[float, float | None]:
        """Return seconds without in-network reduction, and with it where the fabric can reduce."""
        asked, told = self._known.get(collective.size_bytes, (None, (0.0, None)))
        if asked != collective:
            within = self._floor(collective, in_network=True) if self._question.topology.aggregators else None
            told = self._floor(collective, in_network=False), within
            self._known[collective.size_bytes] = collective, told
        return told

    def under(self, program: Program) -> tuple[float, str]:
        """Return the seconds that a program cannot go below, and which bound that is: a program may add in the network or not."""
        without, within = self.of(program.collective)
        if within is None or not program.aggregators:
            return without, AT_RANKS
        return within * narrowest(program), IN_NETWORK

    def _floor(self, collective: Collective, *, in_network: bool) -> float:
        plain = self._together(collective, in_network=in_network)
        if self.come is None:
            return plain
        from ringwright.bounds.late_bounds import late_bound, nothing_before

        seconds, alpha = self.come.seconds, self._question.alpha
        late = late_bound(collective, self._question.topology, seconds, in_network=in_network, alpha=alpha, exact=False)
        return max(late.time_s, plain + nothing_before(seconds, in_network=in_network))

    def _together(self, collective: Collective, *, in_network: bool) -> float:
        from ringwright.bounds.lower_bounds import bound

        topology, alpha = self._question.topology, self._question.alpha
        time_s = bound(collective, topology, in_network=in_network, alpha=alpha, exact=False).time_s
        if collective.size_bytes % (collective.p * collective.unit_bytes):
            return time_s  # uneven blocks: what crosses a cut is not in proportion
        if in_network not in self._rates:
            even = self._question.collective(REFERENCE_BYTES * collective.p)
            best = bound(even, topology, in_network=in_network, alpha=alpha)
            self._rates[in_network] = 0.0 if best.kind in ("distance", "rounds") else best.time_s / even.size_bytes
        return max(time_s, self._rates[in_network] * collective.size_bytes)
