"""One file of an execution trace, read: its kernels and calls as tables, and what waits for what."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import polars as pl

from ringwright.formats.sources.chakra_et import nodes as chakra
from ringwright.formats.sources.chakra_et.edges import NodeDependencies
from ringwright.formats.sources.chakra_et.nodes import COLL, COMP, LOAD, METADATA, RECV, SEND, STORE, Head, Node
from ringwright.formats.sources.chakra_et.rows import call_row, kernel_row, operation
from ringwright.formats.sources.members import Member, members, whole
from ringwright.formats.sources.reader_rows import TableBuilder, whole_number
from ringwright.formats.sources.wire import WireError, framed
from ringwright.ground.trace_tables import schema

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source

VERSIONS = ("", "0.0.1", "0.0.2", "0.0.3", "0.0.4")
MOST_EDGES = 2_000_000
CallGroup = tuple[str, str]  # its name, or the dimensions that take part; all ranks where neither is told
PER_RANK = ("all-gather", "gather")  # operations whose ``comm_size`` is what one rank hands in


@dataclass
class ChakraFile:
    """What one rank's file says by itself. ``kernels`` and ``calls`` have columns of events, those that are not empty."""

    name: str
    title: str
    rank: int = 0  # told by whoever knows all files
    refused: str = ""  # why nothing is read
    cut: str = ""  # why the rest is not
    version: str = ""
    pid: int | None = None
    nodes: int = 0
    twins: int = 0
    kernels: pl.DataFrame = field(default_factory=pl.DataFrame)
    calls: pl.DataFrame = field(default_factory=pl.DataFrame)  # communicator: the number of its group here
    groups: list[CallGroup] = field(default_factory=list)
    members: dict[str, list[int]] = field(default_factory=dict)  # of groups, by name
    texts: dict[str, str] = field(default_factory=dict)  # what groups are described as
    edges: pl.DataFrame = field(default_factory=pl.DataFrame)  # between rows: of kernels, behind them of calls
    unknown: int = 0  # dependencies on nodes that it does not hold
    contracted: int = 0  # host operators behind which some events are left out
    says_per_rank: bool = False  # whether an operation is named whose size is one rank's


@dataclass
class ChakraSource:
    """What one source holds: a file, or the files of its tar."""

    files: list[ChakraFile]
    losses: list[tuple[str, int]]


def read_source(source: Source, progress: Callable[[int], None] | None = None) -> ChakraSource:
    """Return the nodes of a source's files; what is no execution trace says why."""
    before = len(source.losses)
    files = [_Reading(member).whole() for member in members(source, progress)]
    return ChakraSource(files, source.losses[before:])


class _Reading:
    """A file on its way to :class:`ChakraFile`."""

    def __init__(self, member: Member) -> None:
        self.member, self.file = member, ChakraFile(member.name, member.title)
        self.head, self.waits = Head(), NodeDependencies()
        self.kernels, self.calls = TableBuilder("events"), TableBuilder("events")
        self.kernel_of: dict[int, int] = {}  # node -> row
        self.call_of: dict[int, int] = {}
        self.groups: dict[CallGroup, int] = {}

    def whole(self) -> ChakraFile:
        """Read the file to its end, or to where it is none."""
        file = self.file
        try:
            for number, node in self._nodes():
                file.nodes += 1
                self._take(node, number)
        except (WireError, ValueError, RecursionError) as error:
            reason = str(error.args[0] if error.args else error)[:200]
            file.refused, file.cut = ("", reason) if file.nodes else (reason, "")
        attributes, waits = self.head.attributes, self.waits
        said = str(attributes.get("schema", ""))
        origin = f"; from a PyTorch trace of schema {said}" if said[:1].isdigit() and len(said) < 40 else ""
        file.version, file.pid = self.head.version or f"not named{origin}", whole_number(attributes.get("pid"))
        file.kernels, file.calls, file.groups = _filled(self.kernels), _filled(self.calls), [*self.groups]
        file.edges = self._edges()
        file.unknown, file.contracted = waits.unknown, waits.cut
        return file

    def _edges(self) -> pl.DataFrame:
        """Return what waits for what; one more than is kept of a whole job, where there are as many."""
        behind = self.kernels.total
        row = {**self.kernel_of, **{node: behind + number for node, number in self.call_of.items()}}
        edges = [(row[before], row[after], kind) for before, after, kind in islice(self.waits.edges(), MOST_EDGES + 1)]
        return pl.DataFrame(edges, schema=schema("edges"), orient="row")

    def _nodes(self) -> Iterator[tuple[int, Node]]:
        stream = self.member.stream
        start = stream.peek(64) if hasattr(stream, "peek") else b""
        if start.lstrip()[:1] in (b"{", b"["):
            yield from _json_nodes(self.member)
            return
        held: list[tuple[int, Node]] = []
        is_graph = is_first = False
        for number, (_, message) in enumerate(framed(stream)):
            head = chakra.head_of(message) if number == 0 else None
            if head is not None:
                self.head, is_first = head, True
                if head.version not in VERSIONS:
                    known = f"{VERSIONS[1]} to {VERSIONS[-1]} are known"
                    raise WireError(f"version '{head.version[:40]}' of the schema; {known}")
                continue
            node = chakra.node_of(message)
            if is_first:
                yield number, node
                continue
            held.append((number, node))  # without metadata: the schema of 2022 shows only in some node
            is_graph = is_graph or node.is_graph
        yield from ((number, chakra.from_graph(node) if is_graph else node) for number, node in held)

    def _take(self, node: Node, number: int) -> None:
        """Sort one node: a call, a kernel, a group, or host work that only carries dependencies."""
        is_event = True
        if node.type in (COLL, SEND, RECV):
            is_event = node.type != COLL or (not node.is_cpu and operation(node)[0] is not None)
            if is_event:
                group = self.groups.setdefault(_group(node), len(self.groups))
                self.call_of[node.id] = self.calls.add(communicator=group, **call_row(node, number))
                self.file.says_per_rank |= node.op in PER_RANK
            else:
                self.file.twins += 1
        elif node.type in (COMP, LOAD, STORE) and not node.is_cpu:
            self.kernel_of[node.id] = self.kernels.add(**kernel_row(node, number))
        else:
            is_event = False
            if node.type == METADATA:
                self._members(node)
        self.waits.add(node.id, node.ctrl, node.data, is_event=is_event)

    def _members(self, node: Node) -> None:
        """Take group membership from a metadata node: JSON with ``pg_name`` and ``ranks`` among its printed inputs."""
        start, end = node.values.find("[{"), node.values.rfind("}]")
        if start < 0 or end < start:
            return
        try:
            entries = json.loads(node.values[start : end + 2].replace('\\"', '"').replace("'", '"'))
        except (ValueError, RecursionError):
            return
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("ranks"), list) and "pg_name" in entry:
                ranks = [number for rank in entry["ranks"] if (number := whole_number(rank, 1 << 24)) is not None]
                name, text = str(entry["pg_name"]), entry.get("pg_desc")
                self.file.members.setdefault(name, ranks)
                if isinstance(text, str) and text:
                    self.file.texts.setdefault(name, text)


def _json_nodes(member: Member) -> Iterator[tuple[int, Node]]:
    import msgspec

    try:
        document = msgspec.json.decode(whole(member))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError(f"no JSON: {error}") from error
    entries = document.get("workload_graph", document.get("nodes")) if isinstance(document, dict) else document
    if not isinstance(entries, list):
        raise WireError("JSON without a list 'workload_graph'")
    for number, entry in enumerate(entries):
        node = chakra.from_json(entry)
        if node is None:
            raise WireError(f"entry {number} of workload_graph has no Id and NodeType")
        yield number, node


def _group(node: Node) -> CallGroup:
    name, dims = node.attributes.get("pg_name"), node.attributes.get("involved_dim")
    if name not in (None, ""):
        return str(name), ""
    if isinstance(dims, list) and not all(dims):
        return "", "".join("1" if dim else "0" for dim in dims[:64])
    return "", ""


def _filled(table: TableBuilder) -> pl.DataFrame:
    """Return a table's columns that hold something."""
    return pl.DataFrame([column for column in table.frame() if column.null_count() < len(column)])
