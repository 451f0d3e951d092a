"""What a job's operations lose by their packets: how many were followed, at which size, and what stayed a thinner link."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ringwright.engines.packets.loss_penalty import LEAST_BYTES, Added, added
from ringwright.ground.errors import DeclinedError
from ringwright.ground.units import format_size, format_us

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

Bound = Literal["seconds", "low_s", "middle_s", "high_s"]
MOST_HOPS = 2_000_000  # packets at ports for one operation: a third of a second


@dataclass
class FollowedPackets:
    """What packets add, by operation, who does it, and size: followed at that size, or at a smaller one of the same program."""

    added: dict[tuple[str, Hashable, int], Added] = field(default_factory=dict)
    declined: dict[str, str] = field(default_factory=dict)  # operation -> why its lossy links are thinner ones

    def at(
        self, op: str, who: Hashable, size_bytes: int, make: Callable[[int], Sequence[Program]], machine: Topology
    ) -> Added | None:
        """Return what packets add to the last program that ``make`` gives for a size; None where they cannot be followed.

        Between the powers of two around the size, on a line. InfeasibleError where a connection is given up.
        """
        low = max(LEAST_BYTES, 1 << (max(size_bytes, 1).bit_length() - 1))
        try:
            less = self._at(op, who, low, make, machine)
            if size_bytes <= low:
                return less
            return less.towards(self._at(op, who, 2 * low, make, machine), size_bytes / low - 1.0)
        except DeclinedError as error:
            self.declined.setdefault(op, error.what)
            return None

    def _at(
        self, op: str, who: Hashable, size_bytes: int, make: Callable[[int], Sequence[Program]], machine: Topology
    ) -> Added:
        key = (op, who, size_bytes)
        if key not in self.added:
            self.added[key] = added(make, size_bytes, machine, most_hops=MOST_HOPS)
        return self.added[key]

    def told(self) -> list[str]:
        """Return sentences about it, none where nothing was followed."""
        followed = [each for each in self.added.values() if each.size_bytes]
        carried = [each for each in followed if each.size_bytes < each.asked_bytes]
        said = []
        if followed:
            said.append(
                f"losses and queues add what packets do: {len(followed) - len(carried)} sizes of operations were followed,"
                f" {len(carried)} carried over from smaller ones"
            )
        if carried:
            worst = max(carried, key=lambda each: each.high_s - each.low_s)
            said.append(
                f"least certain of these: {format_size(worst.asked_bytes)}, followed at {format_size(worst.size_bytes)},"
                f" adds {format_us(worst.low_s)} to {format_us(worst.high_s)}; {format_us(worst.seconds)} are counted"
            )
        said += [f"{op}: a lossy link is a link of as much less rate ({why})" for op, why in self.declined.items()]
        return said
