"""A recording as Chakra execution traces, ``job.N.et`` for each rank N, and ``comm_group.json`` with who is in which group.

ASTRA-sim opens them by ``--workload-configuration=FOLDER/job --comm-group-configuration=FOLDER/comm_group.json``; groups have
numbers. A node waits for what the recording says that it waits for; where that says nothing, for what had ended last on its rank
when it began, and, if nothing else of the rank is known, for a node as long as the pause between. Lost: element types,
algorithms, and all that is neither a call nor a kernel. Operations that Chakra has no type for are work of their length.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.formats.exports import chakra
from ringwright.formats.exports.chakra import (
    COMM_COLL,
    COMM_RECV,
    COMM_SEND,
    COMM_TYPES,
    COMP,
    GROUPS_FILE,
    ONE_BLOCK,
    ChakraGroup,
    groups_file,
    members_node,
)
from ringwright.formats.exports.placement import claim_folder
from ringwright.ground import drafts
from ringwright.ground.errors import UsageError
from ringwright.ground.trace_tables import Row

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

EXPORTS = {"chakra": "chakra_trace"}
MOST_NODES = 4_000_000
PAUSE = "pause"
_KINDS = ("collective", "p2p", "compute", "memory")
_COLUMNS = (
    *("event", "kind", "op", "communicator", "nranks", "rank", "size_bytes", "sent_bytes", "root", "peer"),
    *("kernel", "stream", "phase", "began_s", "duration_s"),
)


def chakra_trace(trace: Trace, path: str | Path, *, force: bool = False) -> list[Path]:
    """Write one file a rank, and the groups; UsageError where calls have no ranks, or are more than files should have."""
    groups = {row["communicator"]: _group(row) for row in trace.table("communicators").to_dicts()}
    of_rank = _rows(trace)
    waits = defaultdict(list)
    for before, after in trace.table("edges").select("src_event", "dst_event").rows():
        waits[after].append(before)
    target = claim_folder(path, force=force)
    made = [target / f"job.{rank}.et" for rank in of_rank]
    with drafts.alone(target):
        for file, rows in zip(made, of_rank.values(), strict=True):
            drafts.write(
                file, b"".join(map(chakra.framed, [chakra.metadata(), *_RankNodes(rows, groups, waits).nodes()]))
            )
        drafts.write(target / GROUPS_FILE, groups_file(groups.values()))
    return [*made, target / GROUPS_FILE]


def _group(row: Row) -> ChakraGroup:
    members = row["members"] or []
    return ChakraGroup(
        row["communicator"] + 1, () if -1 in members else tuple(members), row["name"] or row["comm_id"] or ""
    )


def _rows(trace: Trace) -> dict[int, list[Row]]:
    """Return the rows of each rank, in order."""
    import polars as pl

    frame = trace.scan("events").with_row_index("event").filter(pl.col("kind").is_in(_KINDS))
    began = pl.coalesce("start_s", "enqueue_s").alias("began_s")
    mine = (
        frame.filter(pl.col("rank").is_not_null()).with_columns(began).sort("rank", "began_s", "line", nulls_last=True)
    )
    rows = mine.select(*_COLUMNS, pl.col("multiplicity").fill_null(1)).collect()
    nodes = int(rows["multiplicity"].sum())
    if not nodes:
        raise UsageError("no call of a known rank", remedy="convert --format parquet keeps what there is")
    if nodes > MOST_NODES:
        raise UsageError(f"{nodes:,} nodes; at most {MOST_NODES:,}", remedy="fewer steps of the job")
    of_rank: dict[int, list[Row]] = defaultdict(list)
    for row in rows.to_dicts():
        of_rank[row["rank"]] += [row] * row["multiplicity"]
    return of_rank


class _RankNodes:
    """The nodes of one rank."""

    def __init__(self, rows: list[Row], groups: dict[int, ChakraGroup], waits: dict[int, list[int]]) -> None:
        self.rows, self.groups, self.waits = rows, groups, waits
        self.number_of: dict[int, int] = {}  # the node of an event
        self.tags: Counter[tuple[Any, ...]] = Counter()
        self.running: list[tuple[float, int]] = []
        self.last: tuple[float | None, int] | None = None  # when what ended last ended, and its node
        self.has_edges = any(row["event"] in waits for row in rows)
        self.has_pauses = not self.has_edges and all(row["kind"] in ("collective", "p2p") for row in rows)
        self.next = 1

    def nodes(self) -> Iterator[bytes]:
        """Yield the groups, then each row's node, and the pauses before them."""
        used = dict.fromkeys(row["communicator"] for row in self.rows if row["communicator"] in self.groups)
        if listed := [group for number in used if (group := self.groups[number]).members]:
            yield members_node(self._number(), listed)
        for row in self.rows:
            before = self._before(row)
            if self.has_pauses and before and (pause := self._pause_s(row)) > 0:
                number = self._number()
                yield chakra.node(number, PAUSE, COMP, self._ran(pause), before, round(pause * 1e6))
                before = [number]
            number = self._number()
            self.number_of[row["event"]] = number
            yield self._node(number, row, before)
            began, lasted = row["began_s"], row["duration_s"]
            if began is None:
                self.last = (None, number)
            else:
                heapq.heappush(self.running, (began + (lasted or 0.0), number))

    def _number(self) -> int:
        self.next += 1
        return self.next - 1

    def _before(self, row: Row) -> list[int]:
        """Return the nodes that a row waits for."""
        if self.has_edges:
            return [self.number_of[event] for event in self.waits.get(row["event"], ()) if event in self.number_of]
        while self.running and (row["began_s"] is None or self.running[0][0] <= row["began_s"]):
            self.last = heapq.heappop(self.running)
        return [] if self.last is None else [self.last[1]]

    def _pause_s(self, row: Row) -> float:
        end = None if self.last is None else self.last[0]
        return 0.0 if end is None or row["began_s"] is None else float(row["began_s"] - end)

    def _ran(self, lasted_s: float | None) -> list[bytes]:
        exact = [] if lasted_s is None else [chakra.number("duration_ps", round(lasted_s * 1e12))]
        return [chakra.flag("is_cpu_op", value=False), *exact]

    def _node(self, number: int, row: Row, before: list[int]) -> bytes:
        kind = {"send": COMM_SEND, "recv": COMM_RECV}.get(row["op"]) if row["kind"] == "p2p" else None
        kind = COMM_COLL if row["kind"] == "collective" and row["op"] in COMM_TYPES else kind
        attributes = self._ran(row["duration_s"])
        if row["stream"]:
            attributes.append(chakra.words("stream", row["stream"]))
        group = self.groups.get(row["communicator"])
        if kind is None:
            attributes += [chakra.words("phase", row["phase"])] if row["phase"] else []
        else:
            attributes += [chakra.words("pg_name", str(group.number))] if group else []
            attributes += self._call(row, group) if kind == COMM_COLL else self._message(row, group)
        began = 0 if row["began_s"] is None else round(max(0.0, row["began_s"]) * 1e6)
        lasted = round((row["duration_s"] or 0.0) * 1e6)
        name = row["kernel"] or row["op"] or row["kind"]
        return chakra.node(number, name, kind or COMP, attributes, before, lasted, began)

    def _call(self, row: Row, group: ChakraGroup | None) -> list[bytes]:
        size, ranks = row["size_bytes"], row["nranks"]
        if row["op"] in ONE_BLOCK and size is not None:
            size = size // ranks if ranks else row["sent_bytes"]
        said = [chakra.number("comm_type", COMM_TYPES[row["op"]])]
        said += [] if size is None else [chakra.number("comm_size", size)]
        return said + ([] if row["root"] is None else [chakra.small("root_rank", row["root"])])

    def _message(self, row: Row, group: ChakraGroup | None) -> list[bytes]:
        """Return size, ends and tag of a message; the n-th between two ranks in a group has tag n on both."""
        said = [] if row["size_bytes"] is None else [chakra.number("comm_size", row["size_bytes"])]
        held, peer = group.members if group else (), row["peer"]
        other = held[peer] if peer is not None and 0 <= peer < len(held) else peer
        if other is None or other < 0:
            return said
        ends = (row["rank"], other) if row["op"] == "send" else (other, row["rank"])
        turn = (row["communicator"], row["op"], other)
        self.tags[turn] += 1
        named = zip(("comm_src", "comm_dst", "comm_tag"), (*ends, self.tags[turn]), strict=True)
        return said + [chakra.small(name, value) for name, value in named]
