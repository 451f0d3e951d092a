"""From the files of a Chakra execution trace to a Trace."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringwright.errors import InputError
from ringwright.sources.chakra_et import nodes as chakra
from ringwright.sources.chakra_et.edges import Dependencies, Edge
from ringwright.sources.chakra_et.nodes import COLL, COMP, LOAD, METADATA, RECV, SEND, STORE, Head, Node
from ringwright.sources.chakra_et.wire import WireError, framed
from ringwright.sources.datatypes import datatype
from ringwright.sources.gathered import Gathered, whole_number
from ringwright.sources.members import Member, members, whole
from ringwright.sources.ranks import rank_in_name, world_of

if TYPE_CHECKING:
    from ringwright.sources.inputs import Source
    from ringwright.trace import Trace

KIND = "chakra-et"
VERSIONS = ("", "0.0.1", "0.0.2", "0.0.3", "0.0.4")
MOST_EDGES = 2_000_000
_REMEDY = "write it with chakra_converter of mlcommons/chakra, one file per rank: PREFIX.0.et, PREFIX.1.et, ..."
_INSIDE = re.compile(r"nccl(?:Dev)?Kernel_?(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|AlltoAll)")
_KERNEL_OPS = {
    "AllReduce": "all-reduce", "AllGather": "all-gather", "ReduceScatter": "reduce-scatter", "Broadcast": "broadcast",
    "Reduce": "reduce", "AlltoAll": "all-to-all",
}  # fmt: skip
_ALGORITHM = re.compile(r"_(RING|TREE|COLLNET|NVLS)_(LL128|LL|SIMPLE)(?:_|$|\()")
_TENSOR = re.compile(r"\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*,\s*(\d+)\s*,\s*(\d+)\s*,")


@dataclass
class Call:
    """A collective, send or receive, kept until the size of its group is known."""

    node: Node
    rank: int
    file: str
    place: int


@dataclass
class _File:
    """One rank's file, read."""

    name: str
    rank: int
    head: Head = field(default_factory=Head)
    events: dict[int, int] = field(default_factory=dict)  # node -> row of a kernel
    calls: dict[int, int] = field(default_factory=dict)  # node -> place in the list of calls
    edges: list[Edge] = field(default_factory=list)


@dataclass
class _Job:
    """All files."""

    found: Gathered
    files: list[_File] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    groups: dict[str, list[int]] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)


def read_chakra_et(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of a job's execution traces; InputError where no node could be read, with the reason."""
    job = _Job(Gathered(KIND))
    for source in sources:
        before = len(source.losses)
        for member in members(source, progress):
            _read(job, member)
        job.found.damage(source.name, source.losses[before:])
    if not job.files:
        what = job.refusals[0] if job.refusals else "no file holds a node"
        raise InputError(
            f"no Chakra execution trace: {what}", where=", ".join(s.name for s in sources[:3]), remedy=_REMEDY
        )
    world = world_of(file.rank for file in job.files)
    _emit_calls(job, world)
    _emit_edges(job)
    return job.found.trace(world=world)


def _read(job: _Job, member: Member) -> None:
    """Read one file; what is no execution trace is refused in the ledger and does not stop the others."""
    rank = rank_in_name(member.title)
    file = _File(member.name, len(job.files) if rank is None else rank)
    if rank is None or any(other.rank == file.rank for other in job.files):
        taken = {other.rank for other in job.files}
        file.rank = file.rank if file.rank not in taken else next(n for n in range(len(taken) + 1) if n not in taken)
        note = f"{member.name}: no rank of its own in the name"
        job.found.claim("rank", file.rank, member.name, ground="assumed", confidence=0.5, note=note)
    marks = len(job.calls), len(member.losses)
    waits = Dependencies()
    count = 0
    try:
        for place, node in _nodes(file, member):
            count += 1
            _take(job, file, waits, node, place)
    except (WireError, ValueError, RecursionError) as error:
        reason = str(error.args[0] if error.args else error)[:200]
        if not count:
            job.refusals.append(reason)
            job.found.note(member.name, "refused", reason)
            job.found.lose(f"{member.name}: {reason}")
            return
        job.found.note(member.name, "refused", f"the rest is not read: {reason}")
        job.found.lose(f"{member.name}: {count} nodes read, the rest not: {reason}")
    if not count:
        job.refusals.append(f"{member.name} holds no node")
        return
    _close(job, file, waits, count, len(job.calls) - marks[0])


def _nodes(file: _File, member: Member) -> Iterator[tuple[int, Node]]:
    start = member.stream.peek(64) if hasattr(member.stream, "peek") else b""
    if start.lstrip()[:1] in (b"{", b"["):
        yield from _json_nodes(member)
        return
    held: list[tuple[int, Node]] = []
    is_graph = is_first = False
    for place, (_, message) in enumerate(framed(member.stream)):
        head = chakra.head_of(message) if place == 0 else None
        if head is not None:
            file.head, is_first = head, True
            if head.version not in VERSIONS:
                raise WireError(
                    f"version '{head.version[:40]}' of the schema; {VERSIONS[1]} to {VERSIONS[-1]} are known"
                )
            continue
        node = chakra.node_of(message)
        if is_first:
            yield place, node
            continue
        held.append((place, node))  # without metadata: the schema of 2022 shows only in some node
        is_graph = is_graph or node.is_graph
    yield from ((place, chakra.from_graph(node) if is_graph else node) for place, node in held)


def _json_nodes(member: Member) -> Iterator[tuple[int, Node]]:
    import msgspec

    try:
        document = msgspec.json.decode(whole(member))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError(f"no JSON: {error}") from error
    entries = document.get("workload_graph", document.get("nodes")) if isinstance(document, dict) else document
    if not isinstance(entries, list):
        raise WireError("JSON without a list 'workload_graph'")
    for place, entry in enumerate(entries):
        node = chakra.from_json(entry)
        if node is None:
            raise WireError(f"entry {place} of workload_graph has no Id and NodeType")
        yield place, node


def _take(job: _Job, file: _File, waits: Dependencies, node: Node, place: int) -> None:
    """Sort one node: a call, a kernel, a group, or host work that only carries dependencies."""
    is_event = True
    if node.type in (COLL, SEND, RECV):
        is_event = node.type != COLL or (not node.is_cpu and _op(node)[0] is not None)
        if is_event:
            file.calls[node.id] = len(job.calls)
            job.calls.append(Call(node, file.rank, file.name, place))
        else:
            job.found.note(file.name, "other", "host twin of a collective, not counted again")
    elif node.type in (COMP, LOAD, STORE) and not node.is_cpu:
        file.events[node.id] = _kernel(job, file, node, place)
    else:
        is_event = False
        if node.type == METADATA:
            _groups(job, node)
    waits.add(node.id, node.ctrl, node.data, is_event=is_event)


def _op(node: Node) -> tuple[str | None, str]:
    """Return the operation and its ground: from ``comm_type``, else from the kernel's name."""
    if node.op is not None:
        return node.op, "read"
    if "comm_type" in node.attributes:
        return "unknown", "read"
    named = _INSIDE.search(node.name)
    return (_KERNEL_OPS[named[1]], "inferred") if named else (None, "read")


def _kernel(job: _Job, file: _File, node: Node, place: int) -> int:
    is_memory = node.type in (LOAD, STORE)
    return job.found.events.add(
        kind="memory" if is_memory else "compute", op={LOAD: "load", STORE: "store"}.get(node.type), rank=file.rank,
        kernel=node.name, kernel_class="memory" if is_memory else "compute", stream=_stream(node),
        size_bytes=node.number("tensor_size"), multiplicity=1, records=1, source=KIND, file=file.name, line=place,
        ground="read", confidence=1.0, **_times(node, file.rank),
    )  # fmt: skip


def _times(node: Node, rank: int) -> dict[str, Any]:
    start = node.start_us * 1e-6 if node.start_us else None
    return {
        "start_s": start, "duration_s": node.duration_us * 1e-6 if node.duration_us else None,
        "clock": f"gpu:{rank}" if start is not None else None,
    }  # fmt: skip


def _stream(node: Node) -> str | None:
    stream = node.attributes.get("stream", node.attributes.get("tid"))
    return str(stream) if stream is not None else None


def _groups(job: _Job, node: Node) -> None:
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
            job.groups.setdefault(str(entry["pg_name"]), ranks)


def _close(job: _Job, file: _File, waits: Dependencies, count: int, calls: int) -> None:
    """Account for a file that was read."""
    found = job.found
    job.files.append(file)
    found.inputs.append(file.name)
    attributes = file.head.attributes
    found.device(file.rank, pid=whole_number(attributes.get("pid")))
    found.note(file.name, "understood", "nodes", count)
    schema = str(attributes.get("schema", ""))
    origin = f"; from a PyTorch trace of schema {schema}" if schema[:1].isdigit() and len(schema) < 40 else ""
    version = file.head.version or f"not named{origin}"
    found.claim("Chakra schema", version, file.name)
    unknown = waits.unknown
    if unknown:
        found.note(file.name, "other", "dependencies on nodes that the file does not hold, taken as done", unknown)
    room = MOST_EDGES - sum(len(other.edges) for other in job.files)
    for edge in waits.edges():
        if len(file.edges) >= room:
            found.lose(f"{file.name}: more than {MOST_EDGES} dependencies, the rest left out")
            break
        file.edges.append(edge)
    if waits.cut:
        found.note(file.name, "other", "host operators behind which not every event is kept as a dependency", waits.cut)
    if not calls:
        found.lose(f"{file.name}: no collective of a device among {count} nodes")


def _emit_calls(job: _Job, world: int | None) -> None:
    """Write the calls, now that the number of ranks is known."""
    counters: dict[tuple[int, int], int] = {}
    rows: list[int] = []
    for call in job.calls:
        number = _communicator(job, call, world)
        facts = job.found.of(number)
        facts["ranks"].add(call.rank)
        is_collective = call.node.type == COLL
        key = number, call.rank
        sequence = counters.get(key, 0) if is_collective else None
        if is_collective:
            counters[key] = counters.get(key, 0) + 1
        members = facts["members"] or []
        common = {
            "communicator": number, "sequence": sequence, "rank": call.rank, "nranks": facts["size"],
            "comm_rank": members.index(call.rank) if call.rank in members else None, "multiplicity": 1, "records": 1,
            "task": str(call.node.id), "stream": _stream(call.node), "kernel": call.node.name, "source": KIND,
            "file": call.file, "line": call.place,
        }  # fmt: skip
        ways = _collective(call.node, facts["size"]) if is_collective else _p2p(call, members)
        rows.append(job.found.events.add(**common, **ways, **_times(call.node, call.rank)))
    for file in job.files:
        file.events |= {node: rows[place] for node, place in file.calls.items()}
    _say_sizes(job)


def _communicator(job: _Job, call: Call, world: int | None) -> int:
    """Return the group: named by ``pg_name``, or by the dimensions that take part, else all ranks."""
    held = call.node.attributes
    name, dims = held.get("pg_name"), held.get("involved_dim")
    everyone = list(range(world)) if world else []
    if name not in (None, ""):
        ranks = job.groups.get(str(name))
        if ranks is not None:
            return job.found.communicator(str(name), name=f"process group {name}", members=ranks or everyone)
        return job.found.communicator(
            str(name), name=f"process group {name}, members not in the trace", ground="inferred", confidence=0.5
        )
    if isinstance(dims, list) and dims and not all(dims):
        label = "".join("1" if dim else "0" for dim in dims[:64])
        return job.found.communicator(f"dims:{label}", name=f"dimensions {label}", ground="inferred", confidence=0.5)
    return job.found.communicator("world", name="all ranks", members=everyone, ground="inferred", confidence=0.8)


def _collective(node: Node, p: int | None) -> dict[str, Any]:
    op, ground = _op(node)
    said = node.number("comm_size")
    said = said if said is not None and said >= 0 else None
    is_part = op in ("all-gather", "gather")
    size = said if not is_part else said * p if said is not None and p else None
    tensor = _TENSOR.search(node.values)
    count, width = (int(tensor[1]), int(tensor[2])) if tensor else (None, None)
    ran = _ALGORITHM.search(node.name)
    sent, received = said, said
    if op == "all-gather":
        received = size
    if op == "reduce-scatter":
        received = said // p if said is not None and p else None
    return {
        "kind": "collective", "op": op, "size_bytes": size, "sent_bytes": sent, "received_bytes": received,
        "count": count, "element_bytes": width, "datatype": datatype(node.types.strip("[]'\" ")), "ground": ground,
        "root": node.number("root_rank"), "algorithm": ran[1].lower() if ran else None,
        "protocol": ran[2].lower() if ran else None, "kernel_class": "nccl" if "nccl" in node.name.lower() else None,
        "confidence": 1.0 if ground == "read" else 0.7,
    }  # fmt: skip


def _p2p(call: Call, members: list[int]) -> dict[str, Any]:
    """Return a send or receive; a ``comm_type`` on it is the node's type and not a collective's."""
    node = call.node
    other = node.number("comm_dst" if node.type == SEND else "comm_src")
    size = node.number("comm_size")
    peer = members.index(other) if other in members else other
    is_send = node.type == SEND
    return {
        "kind": "p2p", "op": "send" if is_send else "recv", "peer": peer, "size_bytes": size,
        "sent_bytes": size if is_send else None, "received_bytes": None if is_send else size, "ground": "read",
        "text": f"tag {node.number('comm_tag')}" if node.number("comm_tag") is not None else None, "confidence": 1.0,
    }  # fmt: skip


def _say_sizes(job: _Job) -> None:
    if any(call.node.op in ("all-gather", "gather") for call in job.calls):
        job.found.claim(
            "comm_size of all-gather", "what one rank hands in", KIND, ground="assumed", confidence=0.8,
            note="the size column is comm_size x ranks; it is empty where the size of the group is not known",
        )  # fmt: skip


def _emit_edges(job: _Job) -> None:
    for file in job.files:
        for before, after, kind in file.edges:
            job.found.edges.add(src_event=file.events[before], dst_event=file.events[after], kind=kind)
