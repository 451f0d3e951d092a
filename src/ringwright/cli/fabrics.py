"""What every verb about a machine does first: build or read the fabric, put faults on it, name the group."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.topology import Topology


def machine(
    fabric: str | None,
    file: Path | None,
    *,
    faults: Sequence[str] = (),
    seed: int = 0,
    calibration: str | None = None,
) -> Topology:
    """Return the fabric of that name or file, calibrated and with its faults."""
    if (fabric is None) == (file is None):
        raise UsageError("name one fabric or one file", remedy="--fabric dgx-h100:16, or --topology FILE")
    if file is not None:
        from ringwright.sources.topology import read_topology

        topology = read_topology(file)
    else:
        from ringwright.fabrics import fabric as build

        topology = build(str(fabric))
    if calibration is not None:
        from ringwright.costs.calibration import calibrated, load

        topology = calibrated(topology, load(calibration))
    if faults:
        from ringwright.fabrics.faults import apply

        topology = apply(topology, list(faults), seed=seed)
    return topology


def group(text: str | None, topology: Topology) -> Sequence[int] | None:
    """Return the ranks of ``8`` (the first eight), ``0-7,16`` or None (all)."""
    if text is None:
        return None
    if text.isdigit():
        if not 0 < int(text) <= topology.n_ranks:
            raise UsageError(f"{text} ranks, {topology.name} has {topology.n_ranks}")
        return range(int(text))
    ranks: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(f"'{part}' is no rank", remedy="--ranks 8, or --ranks 0-7,16")
        ranks += range(int(first), int(last or first) + 1)
    return ranks
