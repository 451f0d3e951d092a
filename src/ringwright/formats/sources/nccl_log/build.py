"""From what a log said to the seven tables of a Trace."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.launchers import UNNAMED
from ringwright.formats.sources.nccl_log import dialect
from ringwright.formats.sources.nccl_log.collectives import event_rows, time_bins
from ringwright.formats.sources.nccl_log.fold import RecordSink
from ringwright.formats.sources.nccl_log.identity import JobIdentity, identify
from ringwright.formats.sources.nccl_log.state import LogState
from ringwright.formats.sources.nccl_log.wiring import Wiring, wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringwright.ground.trace_tables import Row
    from ringwright.model.trace import Trace

SOURCE = "nccl-log"


def build(
    state: LogState,
    fold: RecordSink,
    ops: list[str],
    names: list[str],
    held: Any = None,
    identity: JobIdentity | None = None,
) -> Trace:
    """Return the Trace; nothing is guessed without a row in ``claims`` that says so.

    ``state`` is used up: processes and facts in it get the names of those that they turn out to be.
    """
    import polars as pl

    from ringwright.ground.trace_tables import rows
    from ringwright.model.trace import Trace

    identity = identity or identify(state, fold.global_rank, names)
    wirings = wire(state, identity)
    events = [event_rows(state, fold, ops, identity, names), rows("events", _other_events(state, identity)).lazy()]
    frames = {
        "communicators": rows("communicators", _communicators(state, identity)),
        "topology": rows("topology", [*_topology(state, identity, wirings), *_adding(state, identity)]),
        "links": rows("links", time_bins(state, fold, ops)),
        "claims": rows("claims", _claims(state, identity, fold)),
        "ledger": rows("ledger", state.ledger.rows()),
    }
    trace = Trace.of(frames, _meta(state, fold, identity, names))
    return replace(trace, tables={**trace.tables, "events": pl.concat(events)}, held=held)


def _meta(state: LogState, fold: RecordSink, identity: JobIdentity, names: list[str]) -> dict[str, Any]:
    return {
        "source": SOURCE,
        "inputs": names,
        "nccl_versions": sorted(state.versions, key=dialect.parse_version),
        "library": "rccl" if state.rccl else "nccl",
        "world": identity.world,
        "folded": fold.rows is None and not fold.parts,
        "records": fold.records,
        "losses": state.losses,
        "errors_dropped": state.errors_dropped,
        "adding_dropped": state.adding.dropped,
    }


def _communicators(state: LogState, identity: JobIdentity) -> list[Row]:
    rows = []
    parents = {
        (state.handles[index].host, state.handles[index].pid, state.handles[index].pointer): number
        for number, group in enumerate(identity.groups)
        for index in group.all_handles()
    }
    for number, group in enumerate(identity.groups):
        handles = [state.handles[index] for index in group.all_handles()]
        members = [_rank_at(group.handles.get(group_rank, []), identity) for group_rank in range(group.size)]
        if not group.handles:
            spare = sorted(rank for rank in (identity.rank_of.get(index) for index in group.spare) if rank is not None)
            members = (spare + [-1] * group.size)[: group.size]
        parent = next((parents.get((h.host, h.pid, h.parent)) for h in handles if h.parent), None)
        seen = {(h.host, h.pid, h.bus_id or h.device) for h in handles}
        hosts = {h.host for h in handles}
        is_whole = len(seen) == group.size and UNNAMED not in hosts
        nnodes = next((h.nnodes for h in handles if h.nnodes), len(hosts) if is_whole else None)
        rows.append(
            {
                "communicator": number,
                "comm_id": group.comm_id,
                "size": group.size,
                "members": members,
                "ranks_seen": min(len(seen), group.size),
                "nnodes": nnodes,
                "parent": parent,
                "color": next((h.color for h in handles if h.color is not None), None),
                "ground": group.ground,
                "confidence": group.confidence,
            }
        )
    return rows


def _rank_at(handles: list[int], identity: JobIdentity) -> int:
    for index in handles:
        rank = identity.rank_of.get(index)
        if rank is not None:
            return rank
    return -1


def _topology(state: LogState, identity: JobIdentity, wirings: list[Wiring]) -> list[Row]:
    rows = _devices(state, identity)
    for number, wiring in enumerate(wirings):
        for channel, ring in wiring.rings.items():
            for position, src in enumerate(ring):
                dst = ring[(position + 1) % len(ring)]
                ground = wiring.ring_ground[channel]
                rows.append(_edge("ring", number, channel, src, dst, ground))
        for channel, edges in wiring.tree_edges.items():
            rows.extend(_edge("tree", number, channel, child, parent, "read") for child, parent in sorted(edges))
        for channel, edges in wiring.part_edges.items():
            rows.extend(_edge("tree-part", number, channel, child, parent, "read") for child, parent in sorted(edges))
        for channel, ring in wiring.part_rings.items():
            rows.extend(_edge("ring-part", number, channel, src, dst, "read") for src, dst in pairwise(ring))
        for (channel, src, dst, side), (transport, nic) in wiring.connections.items():
            edge = _edge("connection", number, channel, src, dst, "read")
            told = {"transport": transport, "nic": None if nic is None else str(nic), "value": side or None}
            rows.append(edge | told)
        for kind, count in wiring.channels.items():
            rows.append({"kind": "channels", "communicator": number, "value": f"{kind}={count}", "ground": "read"})
    for (host, index), name in state.nics.items():
        rows.append({"kind": "nic", "host": _process(host)["host"], "nic": str(index), "value": name, "ground": "read"})
    return rows


def _adding(state: LogState, identity: JobIdentity) -> list[Row]:
    """Return what was said of switches that add: ``transport`` says what, ``src`` is the rank in the communicator."""
    group_of = {handle: number for number, group in enumerate(identity.groups) for handle in group.all_handles()}
    rows: list[Row] = []
    for line, (count, (file, at)) in state.adding.said.items():
        handle = identity.alias.get(line.handle, line.handle)
        rank = state.process_rank.get((line.host, line.pid), identity.rank_of.get(handle))
        inside = line.rank if line.rank >= 0 or handle < 0 else state.handles[handle].rank
        told = {"name": line.name, "number": line.number, "count": count, "at": f"{file}:{at}"}
        rows.append(
            {
                "kind": "adding",
                "communicator": group_of.get(handle),
                **_process(line.host, line.pid),
                "device": line.device if line.device >= 0 else None,
                "rank": rank,
                "src": inside if inside is not None and inside >= 0 else None,
                "transport": line.what,
                "value": _json(told),
                "ground": "read",
            }
        )
    return rows


def _process(host: str, pid: int = 0) -> Row:
    """Return host and pid of a process as far as they are named."""
    is_named = host != UNNAMED
    return {"host": host or None, "pid": pid or None} if is_named else {"host": None, "pid": None}


def _edge(kind: str, communicator: int, channel: int, src: int, dst: int, ground: str) -> Row:
    return {"kind": kind, "communicator": communicator, "channel": channel, "src": src, "dst": dst, "ground": ground}


def _devices(state: LogState, identity: JobIdentity) -> list[Row]:
    """One row per device seen; processes that only spoke, and never joined a communicator, count too."""
    seen: dict[tuple[str, int, str], Row] = {}
    for handle in state.handles:
        if handle.index in identity.alias:
            continue
        key = (handle.host, handle.pid, str(handle.bus_id or handle.device))
        row = seen.setdefault(
            key, {"kind": "device", **_process(handle.host, handle.pid), "ground": identity.rank_ground}
        )
        row["rank"] = identity.rank_of.get(handle.index) if row.get("rank") is None else row["rank"]
        row["device"] = handle.device
        row["bus_id"] = handle.bus_id or row.get("bus_id")
    spoken = {(host, pid) for host, pid, _ in seen}
    for (host, pid), lines in state.lines_of.items():
        if (host, pid) not in spoken and lines > 0 and host:
            devices = state.device_of.get((host, pid))
            device = devices.most_common(1)[0][0] if devices else None
            rank = state.process_rank.get((host, pid))
            row = {"kind": "device", **_process(host, pid), "device": device, "rank": rank, "ground": "read"}
            seen[host, pid, ""] = row
    return list(seen.values())


def _other_events(state: LogState, identity: JobIdentity) -> list[Row]:
    ranks = {(h.host, h.pid): identity.rank_of.get(h.index) for h in state.handles if h.index not in identity.alias}
    rows: list[Row] = []
    for error in state.errors:
        rank = error.rank if error.rank is not None else ranks.get((error.host, error.pid))
        rank = state.process_rank.get((error.host, error.pid)) if rank is None else rank
        rows.append(
            {
                "kind": "error",
                "op": error.kind,
                "rank": rank,
                **_process(error.host, error.pid),
                "device": error.device if error.device >= 0 else None,
                "code": error.status,
                "text": error.text[:1000],
                "task": _json(error.data | ({"peer": error.peer} if error.peer else {})),
                "start_s": error.time_s,
                "file": error.file,
                "line": error.line,
                "multiplicity": 1,
                "records": 1,
                "source": SOURCE,
                "ground": "read",
            }
        )
    for iteration, seconds in state.iterations:
        step = {"kind": "step", "iteration": iteration, "duration_s": seconds, "multiplicity": 1, "records": 1}
        rows.append(step | {"source": SOURCE, "ground": "read"})
    for (op, size, algorithm, protocol, channels), count in sorted(state.tuning.items()):
        choice: Row = {"kind": "tuning", "op": op, "size_bytes": size, "algorithm": algorithm}
        choice |= {"protocol": protocol, "channels": channels or None, "multiplicity": count, "records": count}
        rows.append(choice | {"source": SOURCE, "ground": "read"})
    return rows


def _json(data: dict[str, Any]) -> str:
    import json

    return json.dumps(data, sort_keys=True)


def _claims(state: LogState, identity: JobIdentity, fold: RecordSink) -> list[Row]:
    rows: list[Row] = []

    def claim(field: str, value: Any, ground: str, note: str = "", confidence: float = 1.0) -> None:
        row = {"field": field, "value": str(value), "source": SOURCE, "ground": ground, "confidence": confidence}
        rows.append(row | {"note": note})

    for version in sorted(state.versions, key=dialect.parse_version):
        claim("nccl_version", version, "read")
    if not state.versions:
        claim(
            "nccl_version",
            "unknown",
            "assumed",
            "no version line: counts are read as elements of the printed datatype",
            0.5,
        )
    if dialect.counts_bytes("all-gather", state.version):
        claim(
            "count unit of all-gather and broadcast", "bytes", "inferred", f"NCCL {state.versions.most_common(1)[0][0]}"
        )
    claim("global rank", identity.rank_ground, identity.rank_ground, _RANK_NOTES[identity.rank_ground])
    for name, (value, where) in state.launch.items():
        claim(f"launch {name}", value, "read", where)
    for name, values in state.environment.items():
        claim(f"env {name}", ", ".join(value for value, _ in values.most_common(3)), "read")
    _claim_systems(state, claim)
    if fold.records:
        claim(
            "operation counts", "lower bound", "inferred", "a replayed CUDA graph prints no line; captures count once"
        )
    if state.ras:
        claim("ras", _json(state.ras), "read", str(state.ras.get("place", "")))
    return rows


def _claim_systems(state: LogState, claim: Callable[..., None]) -> None:
    """Claim what the log says of networks, machines and how long it took to begin."""
    for name, ground in _networks(state):
        claim("network", name, ground, "" if ground == "read" else "from the connections")
    total, parts = state.init_time
    if total:
        claim(
            "initialisation", f"{total:.2f} s" + (f" ({parts})" if parts else ""), "read", "the longest that NCCL timed"
        )
    for why, _ in state.network_lost.most_common(3):
        claim("network not used", why, "read")
    for name, _ in state.platform.most_common(3):
        claim("platform", name, "read")


def _networks(state: LogState) -> list[tuple[str, str]]:
    """Return the networks that NCCL says it uses; in a log that begins later, those over which its connections go."""
    if state.network:
        return [(name, "read") for name, _ in state.network.most_common(3)]
    vias = Counter(str(fact.data[4]) for fact in state.facts if fact.kind == "connection" and fact.data[4])
    nets = [via.removeprefix(_OF_NETWORK) for via, _ in vias.most_common() if via.startswith(_OF_NETWORK)]
    return [(name, "inferred") for name in nets[:3]]


_OF_NETWORK = "NET/"  # what the transport of a connection between nodes begins with
_RANK_NOTES = {
    "read": "printed by the launcher or the collective's line",
    "inferred": "the rank in the largest communicator that holds every device once",
    "assumed": "no line tells it: devices are numbered in order of host and device",
}
