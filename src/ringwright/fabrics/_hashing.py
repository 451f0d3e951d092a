"""The unluckiest hash: every flow between leaves takes the same of all equal routes, as a bad draw of ECMP can have it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.fabrics._network import UNLUCKY, Clos
from ringwright.fabrics.fat_tree import FatTreePaths
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

ECMP = "ecmp"
LINE = f"{ECMP} unlucky"
_SAID = "ecmp unlucky: all flows between leaves hash to one route of several equal ones"


def unlucky(topology: Topology, text: str) -> Topology:
    """Return the machine on which every hash picks the first route; UsageError where no flow has several, or for other words."""
    where = f"fault '{text}'"
    if text.split() != LINE.split():
        raise UsageError("'unlucky' is all that befalls ecmp, for good", where=where, remedy=f"--fault '{LINE}'")
    paths = topology.paths
    if isinstance(paths, FatTreePaths):
        changed: object = replace(paths, routing=UNLUCKY)
    else:
        network = getattr(paths, "network", None)
        if not isinstance(network, Clos) or network.spines < 2:
            raise UsageError(
                f"no flow of {topology.name} has several routes to hash to",
                where=where,
                remedy="a fabric of leaves and spines: leaf-spine:64, fat-tree:128, dgx-h100:64",
            )
        changed = replace(paths, network=replace(network, routing=UNLUCKY))  # type: ignore[type-var]
    told = "; ".join(filter(None, (topology.provenance, _SAID)))
    return replace(topology, paths=changed, is_symmetric=False, provenance=told)  # type: ignore[arg-type]
