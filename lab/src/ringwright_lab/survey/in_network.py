"""The systems that add in the network beside each other: where, in which format, in how much room, and who mends a loss.

Nothing is written down here: each row is read from the program that the system makes on a fabric that it declares, and from what
that fabric's adding nodes are declared to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ringwright.fabrics import fabric
from ringwright.ground.errors import RingwrightError
from ringwright.model import registry
from ringwright.model.collective import Collective
from ringwright.model.program import Op
from ringwright.model.streams import LOSS_RULES, Stream, granted, payload_bytes
from ringwright.model.topology import AGGREGATOR

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

FAMILY = "in-network-aggregation"
SIZE_BYTES = 1 << 20


def compared(systems: Iterable[registry.System]) -> list[dict[str, Any]]:
    """Return a row for each of the systems that adds in the network; those that no fabric of their own serves have none.

    A row has slug, collectives, adds_in, format, packet_bytes, slots, versions, mends_losses, order, results and most_nodes.
    """
    mine = (system for system in systems if system.family == FAMILY and not system.problem)
    return [row for system in mine if (row := _row(system)) is not None]


def _row(system: registry.System) -> dict[str, Any] | None:
    """Return what a system declares, from its program on the first fabric that serves it, and the most nodes on any."""
    made = [
        (program, machine) for spec in system.fabrics if ":" in spec for program, machine in _programs(system, spec)
    ]
    if not made:
        return None
    most = max(len(program.aggregators) for program, _ in made)
    return {"slug": system.slug, "collectives": list(system.ops), **_leased(*made[0]), "most_nodes": most}


def _programs(system: registry.System, spec: str) -> Iterator[tuple[Program, Topology]]:
    """Yield the program of a system on a fabric, with that; none where it declines it."""
    machine = fabric(spec)
    with suppress(RingwrightError):
        yield system.load()(Collective(system.ops[0], range(machine.n_ranks), SIZE_BYTES), machine), machine


def _leased(program: Program, machine: Topology) -> dict[str, Any]:
    """Return what a program has of its first adding node; of ranks that add themselves nothing is leased."""
    if not program.aggregators:
        nothing = dict.fromkeys(("format", "packet_bytes", "slots", "versions", "mends_losses", "order"))
        return {"adds_in": "ranks", **nothing, "results": "rank to rank"}
    node = program.aggregators[0]
    able = machine.aggregators[node]
    streams = [each for each in program.streams if each.node == node]
    return {
        "adds_in": "servers beside switches" if machine.kinds[node] == AGGREGATOR else "switches",
        "format": streams[0].codec,
        "packet_bytes": payload_bytes(streams[0], able),
        "slots": granted(streams, able)[0],
        "versions": streams[0].versions,
        "mends_losses": _mender(streams[0]),
        "order": able.order,
        "results": "one stream" if _is_copied(program) else "a stream each",
    }


def _mender(stream: Stream) -> str:
    """Return who mends a loss, in words."""
    rule = LOSS_RULES[stream.loss]
    return "hosts' timer" if rule.owner == "hosts" else rule.owner


def _is_copied(program: Program) -> bool:
    """Say whether nodes copy a result to many."""
    blocks = (block for step in program.steps() for block in step.blocks)
    return any(block.op is Op.EMIT and block.multicast for block in blocks)
