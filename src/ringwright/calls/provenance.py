"""What was asked, beside every answer: machine, faults, seed, transports, calibration, releases, and which version answered.

An answer that was kept can then be told from another, and asked again. Jobs, collectives, libraries, comparisons with measured
times, searches and advice all say it here, in ``asked`` of their JSON and of the ``meta.json`` of a run that is saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict

from ringwright.costs.transports import USUAL_TRANSPORT
from ringwright.ground.errors import RingwrightError
from ringwright.ground.version import VERSION
from ringwright.model import registry

if TYPE_CHECKING:
    from ringwright.model.topology import Topology


class AskedOf(TypedDict):
    """What an answer is of. ``transports`` by network, ``release`` by algorithm as it was spelled (of those that have one).

    Of measured tables, ``transports`` by system, and ``calibration`` is what was learnt from besides.
    """

    version: str
    fabric: str | None
    faults: list[str]
    seed: int
    transports: dict[str, str]
    calibration: str | None
    algorithms: list[str]
    release: dict[str, str]
    policies: list[str]
    beside: list[str]


def asked_of(
    topology: Topology | None,
    algorithms: Iterable[str] = (),
    *,
    policies: Iterable[str] = (),
    beside: Iterable[str] = (),
    networks: Mapping[str, Topology] | None = None,
    seed: int | None = None,
) -> AskedOf:
    """Return what was asked of a machine (None: of the network that a recording ran on).

    Parameters
    ----------
    topology
        The machine with its faults, which keeps the lines that they were asked by.
    algorithms, policies
        As they were spelled.
    beside
        What other jobs repeat meanwhile.
    networks
        Further networks of the same ranks, by name.
    seed
        Of what is drawn; None: that of the faults.
    """
    spelled = list(dict.fromkeys(algorithms))
    machines = ({} if topology is None else {topology.name: topology}) | dict(networks or {})
    return AskedOf(
        version=VERSION,
        fabric=None if topology is None else topology.name,
        faults=[] if topology is None else _fault_lines(topology),
        seed=seed if seed is not None else topology.fault_seed if topology is not None else 0,
        transports={name: machine.transport or USUAL_TRANSPORT for name, machine in machines.items()},
        calibration=topology.calibration.name if topology is not None and topology.calibration is not None else None,
        algorithms=spelled,
        release={spelling: release for spelling in spelled if (release := release_of(spelling)) is not None},
        policies=list(policies),
        beside=list(beside),
    )


def _fault_lines(topology: Topology) -> list[str]:
    """Return the faults as they were asked; of a machine whose file lists changes without lines, how many there are."""
    if topology.fault_lines or not topology.faults:
        return list(topology.fault_lines)
    return [f"{len(topology.faults):,} changes that the machine's own file lists"]


def release_of(spelling: str) -> str | None:
    """Return the release of a library that an algorithm is spelled with, or its usual one; None of what has none."""
    try:
        system, knobs = registry.typed(spelling, registry.systems)
    except RingwrightError:
        return None
    usual = system.knobs().get("release")
    return None if usual is None else str(knobs.get("release", usual.default))
