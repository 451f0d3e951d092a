"""What each structured line changes in the state: one small function per rule of the grammar."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ringwright.formats.sources.nccl_log import dialect, grammar, switch_lines
from ringwright.formats.sources.nccl_log.segments import LineSegment
from ringwright.formats.sources.nccl_log.state import ErrorLine, LogState

Place = tuple[str, int]
# User-made reduce operations print a number of their own per rank; one code lets the ranks meet.
USER_REDUCE_OP = 5
_POINTER = re.compile(r"0x[0-9a-fA-F]{1,16}")


@dataclass(slots=True)
class CollRecord:
    """A collective's line, as the scanner's columns hold it."""

    handle: int
    op: str
    op_count: int
    count: int
    datatype: int
    redop: int
    root: int
    global_rank: int
    time_s: float
    line: int
    stream: int
    inplace: int


def take(segment: LineSegment, state: LogState, where: Place, stamp_s: float | None) -> CollRecord | str | None:
    """Take one segment into ``state``: a record for a collective, the rule's name for other lines, None for free text."""
    if segment.level in ("WARN", "ERROR"):
        _warning(segment, state, where, stamp_s)
        switch_lines.take(segment, state, where)
        return "warning"
    if segment.level != "INFO":
        state.calls[segment.text.partition("(")[0][:60]] += 1
        return segment.level.lower()
    parsed = grammar.parse(segment.text.rstrip())
    if parsed is None:
        return switch_lines.take(segment, state, where)
    name, match = parsed
    if name == "coll":
        return collective(match, segment, state, where, stamp_s)
    handler = _HANDLERS.get(name)
    if handler is not None:
        handler(match, segment, state, where)
    return name


def collective(
    match: re.Match[str], segment: LineSegment, state: LogState, where: Place, stamp_s: float | None
) -> CollRecord:
    """Return the record of a collective's line."""
    pointer, nranks = int(match["comm"], 16), int(match["nranks"])
    handle = state.handle(segment.host, segment.pid, segment.device, pointer, nranks, where)
    time_s = segment.time_s if segment.time_s is not None else stamp_s
    stream = match["stream"]
    return CollRecord(
        handle=handle.index,
        op=match["op"] or "unknown",
        op_count=int(match["opcount"], 16),
        count=min(int(match["count"]), 2**63 - 1),
        datatype=int(match["datatype"]),
        redop=min(int(match["redop"]) % 2**31, USER_REDUCE_OP),
        root=int(match["root"]),
        global_rank=int(match["globalrank"]) if match["globalrank"] else -1,
        time_s=float("nan") if time_s is None else time_s,
        line=where[1],
        stream=int(stream, 16) if stream.startswith("0x") else 0,
        inplace=int(match["send"] == match["recv"]),
    )


def _init(match: re.Match[str], segment: LineSegment, state: LogState, where: Place) -> None:
    said = grammar.keyed(match["rest"])
    fields: dict[str, Any] = {
        "pointer": int(match["comm"], 16),
        "rank": int(match["rank"]),
        "nranks": int(match["nranks"]),
        "comm_id": said.get("commId"),
        "phase": match["phase"],
    }
    thread = (segment.host, segment.pid, segment.tid)
    if match["what"] != "Init" or fields["rank"] >= fields["nranks"]:
        return  # the end of a communicator; or a rank that cannot be
    handle = state.initialise(thread, segment.device, fields, where)
    handle.rank = fields["rank"]
    handle.comm_id = fields["comm_id"] or handle.comm_id
    handle.device = _small(said.get("cudaDev"), handle.device)
    handle.nvml = _small(said.get("nvmlDev"), handle.nvml)
    handle.bus_id = said.get("busId", handle.bus_id)
    handle.call = match["call"] or handle.call
    handle.parent = int(said["parent"], 16) if _POINTER.fullmatch(said.get("parent", "")) else handle.parent
    handle.color = int(said["color"]) if re.fullmatch(r"-?\d{1,12}", said.get("color", "")) else handle.color
    if match["phase"] == "START":
        handle.started = True
        state.begin(thread, handle.index)
    else:
        handle.completed = True
        state.finish(thread, handle.index)


def _small(text: str | None, otherwise: int) -> int:
    """Return a device number, or what was known before where the text is none."""
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,5}", text) else otherwise


def _nodes(match: re.Match[str], segment: LineSegment, state: LogState, where: Place) -> None:
    epochs = state.by_pointer.get((segment.host, segment.pid, int(match["comm"], 16), int(match["nranks"])))
    if epochs:
        handle = state.handles[epochs[-1]]
        handle.nnodes = int(match["nodes"])
        handle.local_ranks = int(match["local"])
        handle.rank = int(match["rank"]) if handle.rank is None else handle.rank


def _connection(match: re.Match[str], segment: LineSegment, state: LogState, where: Place) -> None:
    kind, nic, proxy = grammar.transport(match["via"])
    data = (int(match["channel"]), int(match["src"]), int(match["dst"]), match["direction"], kind, nic, proxy)
    state.fact("connection", (segment.host, segment.pid, segment.tid), data)


def odd_connection(segment: LineSegment, state: LogState) -> bool:
    """Keep the ranks of a connection whose transport is none; say whether the text is such a line."""
    match = grammar.ODD_CONNECTION.match(segment.text)
    if match is None:
        return False
    data = (int(match["channel"]), int(match["src"]), int(match["dst"]), match["direction"], None, None, None)
    state.fact("connection", (segment.host, segment.pid, segment.tid), data)
    return True


def _ring(match: re.Match[str], segment: LineSegment, state: LogState, where: Place) -> None:
    ranks = [int(rank) for rank in match["ranks"].split()]
    data = (int(match["channel"]), ranks, bool(match["more"]))
    state.fact("ring", (segment.host, segment.pid, segment.tid), data)


def _trees(match: re.Match[str], segment: LineSegment, state: LogState, where: Place) -> None:
    state.fact("trees", (segment.host, segment.pid, segment.tid), grammar.trees(match["trees"]))


def _channels(match: re.Match[str], segment: LineSegment, state: LogState, where: Place) -> None:
    counts = {key: int(value) for key, value in match.groupdict().items() if value is not None}
    state.fact("channels", (segment.host, segment.pid, segment.tid), counts)


def _tuning(match: re.Match[str], segment: LineSegment, state: LogState, where: Place) -> None:
    channels = int(match["hi"]) - int(match["lo"]) + 1 if match["lo"] else 0
    op = dialect.operation(match["op"]) if match["op"] else "unknown"
    key = (op, int(match["bytes"]), dialect.algorithm(match["algo"]), dialect.protocol(match["proto"]), channels)
    state.tuning[key] += 1


def _tuning_kernel(match: re.Match[str], segment: LineSegment, state: LogState, where: Place) -> None:
    path = match["path"].strip().lower().replace(" ", "-")
    found = re.search(r"n[cC]hannels (\d{1,6})\b", match["rest"])
    key = (dialect.operation(match["op"]), int(match["bytes"]), path, "-", int(found[1]) if found else 0)
    state.tuning[key] += 1


def _version(match: re.Match[str], segment: LineSegment, state: LogState, where: Place) -> None:
    state.versions[match["version"]] += 1
    state.rccl = state.rccl or match[0].startswith("RCCL")


def _nics(match: re.Match[str], segment: LineSegment, state: LogState, where: Place) -> None:
    for index, name in grammar.nics(match["list"]):
        state.nics[segment.host, index] = name


def _network_lost(match: re.Match[str], segment: LineSegment, state: LogState, where: Place) -> None:
    state.network_lost[match["why"][:160]] += 1


def _init_timing(match: re.Match[str], segment: LineSegment, state: LogState, where: Place) -> None:
    state.init_time = max(state.init_time, (float(match["total"]), match["parts"] or ""))


def _platform(match: re.Match[str], segment: LineSegment, state: LogState, where: Place) -> None:
    state.platform[match["name"]] += 1


def _network(match: re.Match[str], segment: LineSegment, state: LogState, where: Place) -> None:
    state.network[match["name"]] += 1


def _environment(match: re.Match[str], segment: LineSegment, state: LogState, where: Place) -> None:
    state.environment[match["name"]][match["value"]] += 1


def _chain(match: re.Match[str], segment: LineSegment, state: LogState, where: Place) -> None:
    data = {"at": match["at"], "thread": match["thread"]}
    error = ErrorLine("chain", segment.host, segment.pid, segment.device, segment.text, *where, data=data)
    error.status = int(match["code"])
    state.error(error)


def _warning(segment: LineSegment, state: LogState, where: Place, stamp_s: float | None) -> None:
    parsed = grammar.parse(segment.text.rstrip())
    kind = parsed[0] if parsed and parsed[0] in ("completion", "async") else "warning"
    error = ErrorLine(kind, segment.host, segment.pid, segment.device, segment.text, *where)
    error.time_s = segment.time_s if segment.time_s is not None else stamp_s
    error.data = {"at": segment.place}
    if parsed and kind == "completion":
        error.status, error.peer = int(parsed[1]["status"]), parsed[1]["peer"]
    if parsed and kind == "async":
        severity = parsed[1]["severity"] or parsed[1]["severity2"] or ""
        error.data |= {"event": parsed[1]["event"].strip(), "severity": severity.strip(), "port": parsed[1]["device"]}
    state.error(error)


_HANDLERS: dict[str, Callable[[re.Match[str], LineSegment, LogState, Place], None]] = {
    "init": _init,
    "nodes": _nodes,
    "connection": _connection,
    "ring": _ring,
    "trees": _trees,
    "channels": _channels,
    "tuning": _tuning,
    "tuning-kernel": _tuning_kernel,
    "version": _version,
    "nics": _nics,
    "network": _network,
    "network-lost": _network_lost,
    "init-timing": _init_timing,
    "platform": _platform,
    "environment": _environment,
    "chain": _chain,
}
