"""What a recording tells of its network: parts that are slower than their peers, and TCP where there is RDMA."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ringwright.advise.unmeasured_operations import LikenedCosts, MendedLinks
from ringwright.analysis.exposed.variables_seen import CLAIM
from ringwright.analysis.slow.fail_slow import pair_slowdown, slow_parts
from ringwright.costs.transports import RDMA, TRANSPORTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringwright.analysis.slow.slow_cells import Slow
    from ringwright.model.topology import Topology
    from ringwright.model.trace import Trace

SOCKETS = "NET/Socket"  # begins NCCL's word for a connection over TCP
LEAST_TIMES = 1.2  # as long as its peers, from which on a part of the network is mended
AS_QUICK, TIMES = "links of ", " x"  # a spelling: links of 2,3 x4.5
# Variables that keep NCCL from RDMA: name -> whether a value does, and what to do with it.
FORBIDDING = {"NCCL_IB_DISABLE": ("1",), "NCCL_NET": ("socket",), "NCCL_NET_PLUGIN": ("none",)}


@dataclass(frozen=True)
class SlowLink:
    """A part of the network: ``name`` in words, the ranks behind it, how many times as long it takes as its peers."""

    name: str
    ranks: tuple[int, ...]
    times: float
    evidence: str

    @property
    def spelling(self) -> str:
        """How advice spells that it is mended."""
        return f"{AS_QUICK}{','.join(map(str, self.ranks))}{TIMES}{self.times:.4g}"


def hosts_of(trace: Trace) -> dict[int, str]:
    """Return rank -> host, of those that the recording tells."""
    table = trace.table("topology").select("rank", "host").drop_nulls()
    return dict(table.rows())


def mended_links(measured: LikenedCosts, spelling: str, host_of: Mapping[int, str]) -> MendedLinks:
    """Return measured times with a part of the network as quick as its peers."""
    ranks, _, times = spelling.removeprefix(AS_QUICK).rpartition(TIMES)
    return MendedLinks(measured, tuple(int(rank) for rank in ranks.split(",")), float(times), host_of)


def slow_link(trace: Trace) -> SlowLink | None:
    """Return the part of the network between hosts, or inside one, that explains most slow pairs; None where none does."""
    between, inside = slow_parts(trace)
    whole = [each for each in (*between, *inside) if each.kind != "path" and each.factor >= LEAST_TIMES]
    if not whole:
        return None
    slow = whole[0]
    times = slow.factor / _usual(slow, trace)
    evidence = f"{slow.says}; {slow.cells} of {slow.known} pairs are slow, by {times:.2f}x in the median"
    return SlowLink(_named(slow, trace), slow.ranks, times, evidence)


def _usual(slow: Slow, trace: Trace) -> float:
    """Return the slowdown of the pairs that do not use a slow part: what is slow may be half of all pairs."""
    others = [
        factor
        for pair, factor in pair_slowdown(trace)[0].items()
        if not set(pair).intersection(slow.ranks) and 0 < factor < math.inf
    ]
    return median(others) if others else 1.0


def _named(slow: Slow, trace: Trace) -> str:
    """Return the NIC where the recording tells it, else the host, else the rank."""
    table = trace.table("topology").select("rank", "host", "nic").unique().to_dicts()
    mine = [each for each in table if each["rank"] in slow.ranks and each["host"]]
    nics = dict.fromkeys(f"NIC {each['nic']} of {each['host']}" for each in mine if each["nic"])
    said = ", ".join(f"rank {rank}" for rank in slow.ranks)
    if slow.kind.startswith("host") or not nics:
        return f"host {slow.name} ({said})" if slow.kind.startswith("host") else f"the link of {said}"
    return f"{' and '.join(nics)} ({said})"


@dataclass(frozen=True)
class SocketsSeen:
    """Connections between hosts over TCP, and the variables, as they were set, that keep NCCL from RDMA."""

    connections: int
    variables: tuple[str, ...]

    @property
    def where(self) -> str:
        """What to set."""
        if self.variables:
            return f"environment: without {', '.join(self.variables)}"
        return (
            "environment: NCCL_NET=IB, or the network plug-in of the provider (libnccl-net.so), which NCCL did not load"
        )


def sockets_seen(trace: Trace) -> SocketsSeen | None:
    """Return what a recording tells of TCP between hosts; None where it tells of none."""
    import polars as pl

    wires = trace.table("topology").filter(pl.col("kind") == "connection")
    connections = wires.filter(pl.col("transport").fill_null("").str.starts_with(SOCKETS)).height
    claims = trace.table("claims").filter(pl.col("field").fill_null("").str.starts_with(CLAIM))
    told = {name.removeprefix(CLAIM): str(value) for name, value in claims.select("field", "value").rows()}
    forbids = [
        f"{name}={told[name]}"
        for name, values in FORBIDDING.items()
        if name in told and told[name].strip().lower() in values
    ]
    return SocketsSeen(connections, tuple(forbids)) if connections else None


def has_rdma(topology: Topology | None) -> bool:
    """Whether a machine says of itself that its hosts are joined by RDMA."""
    return topology is not None and topology.transport in TRANSPORTS and TRANSPORTS[topology.transport].medium == RDMA
