"""What may be asked of packets on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ringwright.cli import options
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.engines.packets.options import PacketOptions
    from ringwright.model.topology import Topology

SWITCHED = ("on", "off")


@Parameter(name="*", group=options.ENGINE)
@dataclass(frozen=True, kw_only=True)
class PacketFlags:
    """How the packet engine runs."""

    start: Annotated[
        str | None,
        Parameter(help="Of packets: a step begins when its data is delivered, or acknowledged to its sender."),
    ] = None
    trains: Annotated[
        str | None,
        Parameter(help="Of packets: on or off; those that leave back to back are one event, with the same answer."),
    ] = None

    def options(self, engine: str | None, topology: Topology, seed: int) -> PacketOptions | None:
        """Return what to ask of the packet engine; UsageError where no packets are followed."""
        from ringwright.engines.packets.carriage import acts_on_packets
        from ringwright.engines.packets.options import STARTS, PacketOptions

        if engine != "packets" and not (engine is None and acts_on_packets(topology)):
            if self.start is not None or self.trains is not None:
                given = "--start" if self.start is not None else "--trains"
                raise UsageError(f"{given} is about packets, and none are followed here", remedy="--engine packets")
            return None
        if self.start not in (None, *STARTS):
            raise UsageError(f"'{self.start}' is no start of a step", remedy=f"one of: {', '.join(STARTS)}")
        if self.trains not in (None, *SWITCHED):
            raise UsageError(f"--trains '{self.trains}' is neither on nor off", remedy="--trains off")
        return PacketOptions(self.start or STARTS[0], trains=self.trains != "off", seed=seed)
