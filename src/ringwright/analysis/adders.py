"""Whether switches added for a job, as its log tells it: plug-in, leases, locks, and which ranks fell back without a word.

NCCL goes on where CollNet cannot be had: it takes rings and trees, and says so at most by one warning. A communicator of which
some ranks are connected and others refused may hang.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

CONNECTS = ("connection", "connected")
REFUSES = ("lock refused", "refused", "ignored")
ASKED = "env NCCL_COLLNET_ENABLE"
FEWEST_NODES = 2  # NCCL_COLLNET_NODE_THRESHOLD as it comes


class SaidPlugin(TypedDict):
    """A CollNet plug-in that was loaded, by name and version, and by how many processes."""

    name: str
    processes: int


class TreeLease(TypedDict):
    """A tree that SHARP leased: LLT or SAT, its number, operations outstanding (null: not told), by how many processes."""

    tree_type: str
    tree: str
    osts: int | None
    processes: int


class RefusedLease(TypedDict):
    """What was refused: in what words, which tree (null: not told), by which ranks and hosts, and where it stands."""

    what: str
    tree: str | None
    ranks: list[int]
    hosts: list[str]
    lines: int
    first_at: str


class AddedCommunicator(TypedDict):
    """What became of CollNet in a communicator. Ranks are those in the communicator.

    ``state``: connected, partly, refused, below the threshold, silent fallback, not connected or not asked for.
    """

    communicator: int
    size: int
    nnodes: int | None
    state: str
    ranks_connected: list[int]
    ranks_refused: list[int]
    collnet_channels: int | None
    nvls_channels: int | None
    why: str


class KeptLine(TypedDict):
    """A line that names CollNet, SHARP or NVLS in a form that no known release has."""

    text: str
    lines: int
    first_at: str


class _SaidRow(TypedDict):
    """Lines that said the same, as the Trace's topology holds them."""

    what: str
    name: str
    number: int
    count: int
    at: str
    host: str | None
    pid: int | None
    rank: int | None
    src: int | None
    communicator: int | None


class InNetworkSaid(TypedDict):
    """What a log says of switches that add; ``nvls_devices`` of (available, not) are counted in processes and devices."""

    collnet_asked: bool | None
    plugins: list[SaidPlugin]
    plugin_missing: int
    initialised: int
    leases: list[TreeLease]
    refused: list[RefusedLease]
    nvls_available: int
    nvls_not_available: int
    nvls_refused: int
    communicators: list[AddedCommunicator]
    unknown: list[KeptLine]
    lines: int
    lines_dropped: int


def adders(trace: Trace) -> InNetworkSaid | None:
    """Return what a log says of switches that add; None where it says nothing of them."""
    import polars as pl

    table = trace.table("topology").filter(pl.col("kind").is_in(["adding", "channels"])).to_dicts()
    said = [_opened(row) for row in table if row["kind"] == "adding"]
    dropped = int(trace.meta.get("adding_dropped") or 0)
    if not said and not dropped:
        return None
    by: dict[str, list[_SaidRow]] = defaultdict(list)
    for row in said:
        by[row["what"]].append(row)
    asked = _asked(trace, by)
    return {
        "collnet_asked": asked,
        "plugins": [SaidPlugin(name=name, processes=count) for name, count in _processes(by["plugin"]).items()],
        "plugin_missing": len(_of(by["no plugin"]) - _of(by["plugin"])),
        "initialised": len(_of(by["initialised"])),
        "leases": _leases(by["lease"]),
        "refused": _refused(by),
        "nvls_available": _devices(by["nvls"]),
        "nvls_not_available": _devices(by["no nvls"]),
        "nvls_refused": len(_of(by["nvls refused"])),
        "communicators": _communicators(trace, by, [row for row in table if row["kind"] == "channels"], asked=asked),
        "unknown": [KeptLine(text=row["name"], lines=row["count"], first_at=row["at"]) for row in by["unknown"]],
        "lines": sum(row["count"] for row in said),
        "lines_dropped": dropped,
    }


def _opened(row: Mapping[str, Any]) -> _SaidRow:
    """Return a row with what its value holds; of a value that does not hold it, as a line of no known form."""
    try:
        told = json.loads(row["value"] or "")
        what, name, at = row["transport"], str(told["name"]), str(told["at"])
        number, count = int(told["number"]), int(told["count"])
    except (ValueError, TypeError, KeyError):
        what, name, at, number, count = "unknown", str(row["value"]), "", -1, 1
    return _SaidRow(
        what=what,
        name=name,
        number=number,
        count=count,
        at=at,
        host=row["host"],
        pid=row["pid"],
        rank=row["rank"],
        src=row["src"],
        communicator=row["communicator"],
    )


def _asked(trace: Trace, by: dict[str, list[_SaidRow]]) -> bool | None:
    """Return whether CollNet was switched on; None where no line says it, and it is off unless NCCL is told otherwise."""
    import polars as pl

    values = trace.scan("claims").filter(pl.col("field") == ASKED).select("value").collect()["value"].to_list()
    if values:
        return all(value.strip().startswith("1") for value in values)
    return True if by["initialised"] or any(by[what] for what in (*CONNECTS, "lock refused")) else None


def _of(rows: Iterable[_SaidRow]) -> set[tuple[str | None, int | None]]:
    """Return the processes that said something."""
    return {(row["host"], row["pid"]) for row in rows}


def _processes(rows: Sequence[_SaidRow]) -> dict[str, int]:
    return {
        name: len(_of(row for row in rows if row["name"] == name)) for name in sorted({row["name"] for row in rows})
    }


def _devices(rows: Sequence[_SaidRow]) -> int:
    return len({(row["host"], row["pid"], row["number"]) for row in rows})


def _leases(rows: Sequence[_SaidRow]) -> list[TreeLease]:
    told = []
    for name in sorted({row["name"] for row in rows}):
        mine = [row for row in rows if row["name"] == name]
        kind, _, tree = name.partition(" ")
        osts = next((row["number"] for row in mine if row["number"] >= 0), None)
        told.append(TreeLease(tree_type=kind, tree=tree, osts=osts, processes=len(_of(mine))))
    return told


def _refused(by: dict[str, list[_SaidRow]]) -> list[RefusedLease]:
    """Return what was refused: the library's line names the tree, NCCL's the rank; they are one refusal a process."""
    told: list[RefusedLease] = []
    for what in REFUSES:
        named = sorted({row["name"] for row in by[what]} - {""}) or ([""] if by[what] else [])
        for name in named:
            rows = [row for row in by[what] if row["name"] in (name, "")]
            told.append(
                RefusedLease(
                    what="SAT lock refused" if what == "lock refused" else f"{what}: {name}",
                    tree=name or None if what == "lock refused" else None,
                    ranks=sorted({row["rank"] for row in rows if row["rank"] is not None}),
                    hosts=sorted({row["host"] for row in rows if row["host"]}),
                    lines=sum(row["count"] for row in rows),
                    first_at=rows[0]["at"],
                )
            )
    return told


def _communicators(
    trace: Trace, by: dict[str, list[_SaidRow]], channels: Sequence[Mapping[str, Any]], *, asked: bool | None
) -> list[AddedCommunicator]:
    counts: dict[int, dict[str, int]] = defaultdict(dict)
    for row in channels:
        kind, _, count = str(row["value"]).partition("=")
        if row["communicator"] is not None and count.isdecimal():
            counts[row["communicator"]][kind] = int(count)
    told = []
    for comm in trace.table("communicators").to_dicts():
        number, nnodes = comm["communicator"], comm["nnodes"]
        connected, refused = (
            _inside(number, [row for what in kinds for row in by[what]]) for kinds in (CONNECTS, REFUSES)
        )
        is_below = any(row["communicator"] == number for row in by["threshold"])
        if not (connected or refused or is_below or (nnodes or 0) >= FEWEST_NODES):
            continue
        unplaced = [row for what in REFUSES for row in by[what] if row["communicator"] is None]
        # Each rank says that it is connected, but only the heads of nodes tell of connections.
        silent = comm["ranks_seen"] - len(told_all) if (told_all := _inside(number, by["connected"])) else 0
        state = _state(connected, refused, silent, is_below=is_below, asked=asked)
        told.append(
            AddedCommunicator(
                communicator=number,
                size=comm["size"],
                nnodes=nnodes,
                state=state,
                ranks_connected=sorted(connected),
                ranks_refused=sorted(refused),
                collnet_channels=counts[number].get("collnet"),
                nvls_channels=counts[number].get("nvls"),
                why=_why(state, unplaced, by),
            )
        )
    return told


def _inside(number: int, rows: Iterable[_SaidRow]) -> set[int]:
    return {row["src"] for row in rows if row["communicator"] == number and row["src"] is not None}


def _state(connected: set[int], refused: set[int], silent: int, *, is_below: bool, asked: bool | None) -> str:
    """Return what became of a communicator; ``silent``: ranks seen that do not say what others do, that they are connected."""
    if connected and (refused or silent > 0):
        return "partly"
    if connected:
        return "connected"
    if refused:
        return "refused"
    if is_below:
        return "below the threshold"
    return {True: "silent fallback", False: "not asked for", None: "not asked for"}[asked]


def _why(state: str, unplaced: Sequence[_SaidRow], by: dict[str, list[_SaidRow]]) -> str:
    """Say what a state rests on."""
    if state == "partly":
        return "some ranks add in the network and others do not: such a job may hang"
    if state == "refused":
        return "the network refused: NCCL takes rings and trees"
    if state == "below the threshold":
        return "fewer nodes than NCCL_COLLNET_NODE_THRESHOLD"
    if state == "silent fallback" and unplaced:
        return f"a process was told: {unplaced[0]['name'] or unplaced[0]['what']}; no rank says that it is connected"
    if state == "silent fallback":
        loaded = "a plug-in was loaded" if by["plugin"] else "no plug-in was found"
        return f"CollNet was asked for, {loaded}, and no rank says that it is connected: rings and trees run"
    if state == "not asked for":
        return "NCCL_COLLNET_ENABLE=1 asks for it"
    return "ranks say that they are connected"
