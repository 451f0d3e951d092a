"""What every verb about a machine does first: build or read the fabric, put faults on it, name the group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ringwright.cli import options
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.costs.calibration import Calibration
    from ringwright.model.topology import Topology


@Parameter(name="*", group=options.MACHINE)
@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """The machine that a verb is about."""

    fabric: Annotated[
        str | None,
        Parameter(help="Family and size: switch:8, torus:8x8, dgx-h100:16,sharp=true (16 nodes; list fabrics)."),
    ] = None
    topology: Annotated[
        Path | None, Parameter(help="A file instead: NCCL XML, our JSON, TACCL, ASTRA-sim, topo -m.")
    ] = None
    fault: Annotated[
        tuple[str, ...],
        Parameter(group=options.FAULTS, help="What goes wrong: 'link node3/nic2 flap 100ms every 2s' (list faults)."),
    ] = ()
    seed: Annotated[int, Parameter(group=options.FAULTS, help="For faults that are drawn.")] = 0
    calibration: Annotated[str | None, Parameter(help="Name or file of fitted links (list calibrations).")] = None
    ranks: Annotated[str | None, Parameter(help="The group: a count, or ranks and ranges such as 0-7,16.")] = None

    @property
    def is_named(self) -> bool:
        """Whether a machine is asked for."""
        return self.fabric is not None or self.topology is not None

    def build(self) -> Topology:
        """Return the fabric of that name or file, calibrated and with its faults."""
        if (self.fabric is None) == (self.topology is None):
            raise UsageError("name one fabric or one file", remedy="--fabric dgx-h100:16, or --topology FILE")
        machine = _read(self.topology) if self.topology is not None else _build(str(self.fabric))
        if (calibration := self.calibrated()) is not None:
            from ringwright.costs.calibration import calibrated

            machine = calibrated(machine, calibration)
        if self.fault:
            from ringwright.fabrics.faults import apply

            machine = apply(machine, self.fault, seed=self.seed)
        return machine

    def healthy(self) -> MachineOptions:
        """Return the machine without its faults."""
        return replace(self, fault=())

    def congested(self, beside: Sequence[str]) -> tuple[MachineOptions, tuple[str, ...]]:
        """Return the machine without its lines of congestion, and these with what is to run ``beside``."""
        from ringwright.fabrics._congestion import split

        other, rest = split(self.fault)
        return replace(self, fault=tuple(rest)), (*other, *beside)

    def calibrated(self) -> Calibration | None:
        """Return the calibration that is named, None without one."""
        from ringwright.costs.calibration import load

        return None if self.calibration is None else load(self.calibration)

    def words(self) -> list[str]:
        """Return the options as they are typed, those that were left out left out."""
        given = {"fabric": self.fabric, "topology": self.topology, "calibration": self.calibration, "ranks": self.ranks}
        words = [word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))]
        words += [word for fault in self.fault for word in ("--fault", fault)]
        return [*words, "--seed", str(self.seed)] if self.seed else words


def _read(file: Path) -> Topology:
    from ringwright.formats.sources.topology import read_topology

    return read_topology(file)


def _build(spelling: str) -> Topology:
    from ringwright.fabrics import fabric

    return fabric(spelling)


def group(text: str | None, topology: Topology) -> Sequence[int] | None:
    """Return the ranks of ``8`` (the first eight), ``0-7,16`` or None (all)."""
    if text is None:
        return None
    if text.isdigit():
        if not 0 < int(text) <= topology.n_ranks:
            raise UsageError(
                f"{text} ranks, {topology.name} has {topology.n_ranks}", remedy=f"--ranks 1 to {topology.n_ranks}"
            )
        return range(int(text))
    ranks: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(f"'{part}' is no rank", remedy="--ranks 8, or --ranks 0-7,16")
        ranks += range(int(first), int(last or first) + 1)
    return ranks
