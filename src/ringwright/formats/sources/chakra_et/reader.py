"""From the files of a Chakra execution trace to a Trace."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ringwright.formats.sources.chakra_et import nodes as chakra
from ringwright.formats.sources.chakra_et.edges import MOST_THROUGH, NodeDependencies
from ringwright.formats.sources.chakra_et.job import KIND, ChakraJob, File, PendingCall
from ringwright.formats.sources.chakra_et.nodes import COLL, COMP, LOAD, METADATA, RECV, SEND, STORE, Node
from ringwright.formats.sources.chakra_et.rows import emit_calls, emit_edges, emit_kernel, operation
from ringwright.formats.sources.members import Member, whole
from ringwright.formats.sources.ranks import rank_in_name, world_of
from ringwright.formats.sources.reader_rows import Gathered, whole_number
from ringwright.formats.sources.wire import WireError, framed
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

VERSIONS = ("", "0.0.1", "0.0.2", "0.0.3", "0.0.4")
MOST_EDGES = 2_000_000
_REMEDY = "write it with chakra_converter of mlcommons/chakra, one file per rank: PREFIX.0.et, PREFIX.1.et, ..."


def read_chakra_et(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of a job's execution traces; InputError where no node could be read, with the reason."""
    job = ChakraJob(Gathered(KIND))
    for member in job.gathered.members(sources, progress):
        _read(job, member)
    if not job.files:
        what = job.refusals[0] if job.refusals else "no file holds a node"
        raise InputError(
            f"no Chakra execution trace: {what}", where=", ".join(s.name for s in sources[:3]), remedy=_REMEDY
        )
    world = world_of(file.rank for file in job.files)
    emit_calls(job, world)
    emit_edges(job)
    return job.gathered.trace(world=world, from_zero=True)


def _read(job: ChakraJob, member: Member) -> None:
    """Read one file; what is no execution trace is refused in the ledger and does not stop the others."""
    rank = rank_in_name(member.title)
    file = File(member.name, len(job.files) if rank is None else rank)
    if rank is None or any(other.rank == file.rank for other in job.files):
        taken = {other.rank for other in job.files}
        file.rank = file.rank if file.rank not in taken else next(n for n in range(len(taken) + 1) if n not in taken)
        note = f"{member.name}: no rank of its own in the name"
        job.gathered.claim("rank", file.rank, member.name, ground="assumed", confidence=0.5, note=note)
    marks = len(job.calls), len(member.losses)
    waits = NodeDependencies()
    count = 0
    try:
        for number, node in _nodes(file, member):
            count += 1
            _take(job, file, waits, node, number)
    except (WireError, ValueError, RecursionError) as error:
        reason = str(error.args[0] if error.args else error)[:200]
        if not count:
            job.refusals.append(reason)
            job.gathered.note(member.name, "refused", reason)
            job.gathered.lose(f"{member.name}: {reason}")
            return
        job.gathered.note(member.name, "refused", f"the rest is not read: {reason}")
        job.gathered.lose(f"{member.name}: {count} nodes read, the rest not: {reason}")
    if not count:
        job.refusals.append(f"{member.name} holds no node")
        return
    _close(job, file, waits, count, len(job.calls) - marks[0])


def _nodes(file: File, member: Member) -> Iterator[tuple[int, Node]]:
    start = member.stream.peek(64) if hasattr(member.stream, "peek") else b""
    if start.lstrip()[:1] in (b"{", b"["):
        yield from _json_nodes(member)
        return
    held: list[tuple[int, Node]] = []
    is_graph = is_first = False
    for number, (_, message) in enumerate(framed(member.stream)):
        head = chakra.head_of(message) if number == 0 else None
        if head is not None:
            file.head, is_first = head, True
            if head.version not in VERSIONS:
                raise WireError(
                    f"version '{head.version[:40]}' of the schema; {VERSIONS[1]} to {VERSIONS[-1]} are known"
                )
            continue
        node = chakra.node_of(message)
        if is_first:
            yield number, node
            continue
        held.append((number, node))  # without metadata: the schema of 2022 shows only in some node
        is_graph = is_graph or node.is_graph
    yield from ((number, chakra.from_graph(node) if is_graph else node) for number, node in held)


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


def _take(job: ChakraJob, file: File, waits: NodeDependencies, node: Node, number: int) -> None:
    """Sort one node: a call, a kernel, a group, or host work that only carries dependencies."""
    is_event = True
    if node.type in (COLL, SEND, RECV):
        is_event = node.type != COLL or (not node.is_cpu and operation(node)[0] is not None)
        if is_event:
            file.calls[node.id] = len(job.calls)
            job.calls.append(PendingCall(node, file.rank, file.name, number))
        else:
            file.twins += 1
    elif node.type in (COMP, LOAD, STORE) and not node.is_cpu:
        file.events[node.id] = emit_kernel(job, file, node, number)
    else:
        is_event = False
        if node.type == METADATA:
            _groups(job, node)
    waits.add(node.id, node.ctrl, node.data, is_event=is_event)


def _groups(job: ChakraJob, node: Node) -> None:
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


def _close(job: ChakraJob, file: File, waits: NodeDependencies, count: int, calls: int) -> None:
    """Account for a file that was read."""
    gathered = job.gathered
    job.files.append(file)
    gathered.inputs.append(file.name)
    attributes = file.head.attributes
    gathered.device(file.rank, pid=whole_number(attributes.get("pid")))
    gathered.note(file.name, "understood", "nodes", count - file.twins)
    gathered.note(file.name, "other", "host twin of a collective, not counted again", file.twins)
    schema = str(attributes.get("schema", ""))
    origin = f"; from a PyTorch trace of schema {schema}" if schema[:1].isdigit() and len(schema) < 40 else ""
    version = file.head.version or f"not named{origin}"
    gathered.claim("Chakra schema", version, file.name)
    unknown = waits.unknown
    if unknown:
        note = "the traced window is cut there; taken as done"
        gathered.claim("dependencies on nodes outside", unknown, file.name, note=note)
    room = MOST_EDGES - sum(len(other.edges) for other in job.files)
    for edge in waits.edges():
        if len(file.edges) >= room:
            gathered.lose(f"{file.name}: more than {MOST_EDGES} dependencies, the rest left out")
            break
        file.edges.append(edge)
    if waits.cut:
        note = f"behind so many host operators only {MOST_THROUGH} events each are kept as dependencies"
        gathered.claim("dependencies cut", waits.cut, file.name, note=note)
    if not calls:
        gathered.lose(f"{file.name}: no collective of a device among {count} nodes")
