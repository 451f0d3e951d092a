"""The bounds of one collective as an answer: with and without reduction in the network, and the certificate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ringwright.collective import Collective
from ringwright.costs.bounds import bound

if TYPE_CHECKING:
    from ringwright.topology import Topology


def bounds(
    op: str, topology: Topology, size_bytes: int, group: Sequence[int] | None = None, root: int = 0
) -> dict[str, Any]:
    """Return the object of schema ``ringwright.bound/1``; the headline is the bound without in-network reduction."""
    collective = Collective(op, range(topology.n_ranks) if group is None else group, size_bytes, root=root)
    found = {"at the ranks": bound(collective, topology)}
    if topology.aggregators:
        found["in the network"] = bound(collective, topology, in_network=True)
    plain = found["at the ranks"]
    return {
        "schema": "ringwright.bound/1",
        "collective": op,
        "fabric": topology.name,
        "ranks": collective.p,
        "size_bytes": size_bytes,
        "algbw_gbs": plain.algbw / 1e9,
        "time_us": plain.time_s * 1e6,
        "kind": plain.kind,
        "certificate": list(plain.certificate),
        "bounds": [
            {"reduction": where, "kind": each.kind, "time_us": each.time_s * 1e6, "algbw_gbs": each.algbw / 1e9}
            for where, each in found.items()
        ],
    }
