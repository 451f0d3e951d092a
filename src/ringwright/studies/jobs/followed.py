"""What a job's operations lose by their packets: how many were followed, at which size, and what stayed a thinner link."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from ringwright.units import format_size, format_us

if TYPE_CHECKING:
    from ringwright.engines.packets.added import Added

Key = TypeVar("Key", bound=Hashable)


@dataclass
class FollowedPackets(Generic[Key]):
    """What packets add, by operation and size: followed at that size, or at a smaller one of the same program."""

    added: dict[Key, Added] = field(default_factory=dict)
    declined: dict[str, str] = field(default_factory=dict)  # operation -> why its lossy links are thinner ones

    def told(self) -> list[str]:
        """Return sentences about it, none where nothing was followed."""
        carried = [each for each in self.added.values() if each.size_bytes < each.asked_bytes]
        said = []
        if self.added:
            said.append(
                f"losses and queues add what packets do: {len(self.added) - len(carried)} sizes of operations were followed,"
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
