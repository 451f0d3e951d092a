"""A Topology as our own JSON: ``n``, ``edges`` of [src, dst, GiB/s, us(, class)], and whatever else the machine has.

``sources.topology`` reads it back. Lost: routes (what is read back takes shortest routes) and with them the claim of symmetry.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from ringwright.costs.calibration import Calibration, document_of
from ringwright.ground.units import GIB
from ringwright.model.topology import KINDS

if TYPE_CHECKING:
    from ringwright.model.topology import Capability, Topology

EXPORTS = {"topology-json": "topology_json"}
READER = "ringwright.formats.sources.topology:read_topology"


def topology_json(topology: Topology) -> bytes:
    """Return the file's bytes, UTF-8, one link a line."""
    top = topology
    document: dict[str, Any] = {"name": top.name, "n": top.n_ranks, "provenance": top.provenance}
    if top.n_nodes > top.n_ranks:
        document["kinds"] = [KINDS[kind] for kind in top.kinds.tolist()]
    if top.names is not None:
        document["names"] = list(top.names)
    if top.classes != ("link",):
        document["classes"] = list(top.classes)
    if top.axes:
        document["axes"] = [list(axis) for axis in top.axes]
    if top.hosts is not None:
        document["hosts"] = top.hosts.tolist()
    document |= _extras(top)
    body = json.dumps(document, ensure_ascii=False, allow_nan=False)[:-1]
    links = ",\n".join(json.dumps(link, allow_nan=False) for link in _links(top))
    return f'{body}, "edges": [\n{links}\n]}}\n'.encode()


def _links(top: Topology) -> list[list[float]]:
    columns: list[list[Any]] = [top.src.tolist(), top.dst.tolist(), (top.rate / GIB).tolist()]
    columns.append([_microseconds(time_s) for time_s in top.latency_s.tolist()])
    if len(top.classes) > 1:
        columns.append(top.link_class.tolist())
    return [list(row) for row in zip(*columns, strict=True)]


def _extras(top: Topology) -> dict[str, Any]:
    given = {name: getattr(top, name) for name in ("transport", "protocol", "packet_bytes", "header_bytes")}
    extras: dict[str, Any] = {name: value for name, value in given.items() if value}
    if top.loss is not None:
        extras["loss"] = top.loss.tolist()
    if top.groups:
        extras["groups"] = [
            {"name": group.name, "gib_s": group.rate / GIB, "links": group.links.tolist()} for group in top.groups
        ]
    if top.message_s:
        extras["message_us"] = {name: _microseconds(time_s) for name, time_s in top.message_s.items()}
    if top.occupying:
        extras["occupying"] = list(top.occupying)
    if math.isfinite(top.reduce_rate):
        extras["reduce_gib_s"] = top.reduce_rate / GIB
    if top.aggregators:
        extras["aggregators"] = {str(node): _capability(what) for node, what in top.aggregators.items()}
    if top.faults:
        extras["faults"] = [dict(vars(fault)) for fault in top.faults]
    if top.fault_lines:
        extras["fault_lines"] = list(top.fault_lines)
    if isinstance(top.calibration, Calibration):
        extras["calibration"] = document_of(top.calibration)
    if top.fault_seed:
        extras["fault_seed"] = top.fault_seed
    return extras


def _capability(what: Capability) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "ops": list(what.ops),
        "dtypes": list(what.dtypes),
        "fanin_max": what.fanin_max,
        "memory_bytes": what.memory_bytes,
        "multicast": what.multicast,
        "latency_us": _microseconds(what.latency_s),
        "payload_bytes": what.payload_bytes,
        "concurrency": what.concurrency,
        "passes": what.passes,
        "codecs": list(what.codecs),
        "order": what.order,
        "provenance": what.provenance,
    }
    return entry | ({"reduce_gib_s": what.reduce_rate / GIB} if math.isfinite(what.reduce_rate) else {})


def _microseconds(time_s: float) -> float:
    """Return the shortest number of microseconds that reads back as the same time."""
    for digits in (6, 9, 12):
        rounded = round(time_s * 1e6, digits)
        if rounded / 1e6 == time_s:
            return rounded
    return time_s * 1e6
