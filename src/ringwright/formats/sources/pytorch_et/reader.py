"""From the files of a PyTorch execution trace to a Trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.c10d import POINTWISE, ROOTED, sizes
from ringwright.formats.sources.gate.packed import parsed
from ringwright.formats.sources.members import Member, members, whole
from ringwright.formats.sources.pytorch_et.calls import CommsNode, InitGroup, call_of, groups_of, label_of
from ringwright.formats.sources.pytorch_et.document import DocumentError, link_of, node_of, parse
from ringwright.formats.sources.ranks import rank_in_name, world_of
from ringwright.formats.sources.reader_rows import Gathered, whole_number
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

KIND = "pytorch-et"
MOST_PARENTS = 200
_WANTED = (b"record_param_comms", b"process_group:init", b'"gloo:')
_BACKWARD = ("autograd::engine", "torch::autograd", "## backward", "[pytorch|profiler|execution_graph|thread]2")


@dataclass
class _File:
    """One rank's file, read."""

    name: str
    title: str
    rank: int | None = None
    pid: int | None = None
    schema: str = ""
    nodes: int = 0
    broken: int = 0  # nodes without id and name
    strange: int = 0  # nodes of calls whose arguments are of no known order
    cut: str = ""  # why the rest is not read
    refused: str = ""  # why nothing is
    groups: list[InitGroup] = field(default_factory=list)
    calls: list[tuple[CommsNode, str, str]] = field(default_factory=list)  # with layer and phase
    waits: int = 0

    def group(self, call: CommsNode) -> InitGroup | None:
        """Return what the init node says of a call's group."""
        if not call.group and len(self.groups) == 1:
            return self.groups[0]  # the process has no other
        return next((g for g in self.groups if call.group and call.group in (g.name, g.backend)), None)


@dataclass
class EtSource:
    """What one source holds: a file, or the files of its tar."""

    files: list[_File] = field(default_factory=list)
    losses: list[tuple[str, int]] = field(default_factory=list)


def read_pytorch_et(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of a job's execution traces; InputError where none could be read, with the schema found."""
    gathered = Gathered(KIND)
    files: list[_File] = []
    refusals: list[str] = []
    for source in sources:
        read = parsed(source, read_source, progress)
        for file in read.files:
            if file.refused:
                refusals.append(f"{file.title}: {file.refused}")
                gathered.note(file.name, "refused", file.refused)
                gathered.lose(f"{file.name}: {file.refused}")
            else:
                files.append(file)
                _account(gathered, file)
        gathered.damage(source.name, read.losses)
    if not files:
        raise InputError(
            f"no PyTorch execution trace: {refusals[0] if refusals else 'no file holds one'}",
            where=", ".join(source.name for source in sources[:3]),
            remedy="record one with torch.profiler's ExecutionTraceObserver (schema 1.0.1 to 1.1.0)",
        )
    _rank_files(gathered, files)
    world = _world(files)
    _emit(gathered, files, world)
    if not any(file.calls for file in files):
        gathered.lose("no collective in these traces: a run of one process, or one without torch.distributed")
    gathered.claim("times", "none", KIND, note="an execution trace gives the order of calls, not when they ran")
    return gathered.trace(world=world, library=None)


def read_source(source: Source, progress: Callable[[int], None] | None = None) -> EtSource:
    """Return the calls and groups of a source's files; what is no execution trace says why."""
    read, before = EtSource(), len(source.losses)
    for member in members(source, progress):
        try:
            read.files.append(_read(member))
        except DocumentError as error:
            read.files.append(_File(member.name, member.title, refused=str(error.args[0])))
    read.losses = source.losses[before:]
    return read


def _read(member: Member) -> _File:
    """Return one file's calls and groups; DocumentError where it is no execution trace."""
    document = parse(whole(member))
    file = _File(member.name, member.title, pid=whole_number(document.pid), schema=document.schema or "")
    file.nodes, file.cut = len(document.nodes), document.cut or ""
    around: dict[int, tuple[str, int | None]] = {}
    wanted = []
    for raw in document.nodes:
        link = link_of(raw)
        if link is None:
            file.broken += 1
            continue
        around[link.id] = link.name, link.parent if link.parent is not None else link.ctrl_deps
        if any(name in bytes(raw) for name in _WANTED):
            wanted.append((link.name, raw))
    for name, raw in wanted:
        file.strange += not _take(file, name, node_of(raw), around)
    return file


def _account(gathered: Gathered, file: _File) -> None:
    """Note what was read of a file, and what not."""
    gathered.note(file.name, "refused", "record_param_comms with arguments of no known order", file.strange)
    gathered.inputs.append(file.name)
    gathered.note(file.name, "understood", "nodes", file.nodes - file.broken - file.waits)
    gathered.note(file.name, "refused", "a node without id and name", file.broken)
    gathered.note(file.name, "other", "wait and init, no collectives", file.waits)
    gathered.claim("PyTorch ET schema", file.schema or "not named", file.name)
    if file.cut:
        gathered.lose(f"{file.name}: {file.nodes} nodes read, the rest not: {file.cut}")
        gathered.note(file.name, "refused", f"the rest is not read: {file.cut}")


def _take(file: _File, name: str, node: dict[str, Any] | None, around: dict[int, tuple[str, int | None]]) -> bool:
    """Add a node's call or groups; False where its arguments are not understood."""
    if node is None:
        return False
    if "process_group:init" in name:
        file.groups.extend(groups_of(node))
        return True
    is_label = name.startswith("gloo:")  # gloo writes no record_param_comms
    if name != "record_param_comms" and not is_label:
        return True
    call = label_of(node, name) if is_label else call_of(node)
    if call is None:
        return False
    if call.op is None:
        file.waits += 1
    file.calls.append((call, *_context(call.node, around)))
    return True


def _context(node: int, around: dict[int, tuple[str, int | None]]) -> tuple[str, str]:
    """Return (layer, phase): the nearest marked range round a call, and whether it runs in the backward pass."""
    layer, phase = "", ""
    here: int | None = node
    for _ in range(MOST_PARENTS):
        name, here = around.get(here, ("", None)) if here is not None else ("", None)
        if not layer and name.startswith("## ") and "process_group" not in name:
            layer = name.strip("# ")
        if not phase and name.startswith(_BACKWARD):
            phase = "backward"
        if here is None:
            break
    return layer, phase


def _rank_files(gathered: Gathered, files: list[_File]) -> None:
    """Give each file its global rank: by its calls in a group of known members, else by its name, else by its place."""
    taken: set[int] = set()
    for file in files:
        said, named = _rank_said(file), rank_in_name(file.name)
        options = [rank for rank in (said, named) if rank is not None and rank not in taken]
        if options:
            file.rank = options[0]
        else:
            file.rank = next(rank for rank in range(len(files) + len(taken) + 1) if rank not in taken)
        ground = "read" if file.rank == said else "inferred" if file.rank == named else "assumed"
        if ground != "read" or (said is not None and named is not None and said != named):
            note = f"its calls say {said}, its name says {named}"
            gathered.claim("rank", file.rank, file.name, ground=ground, confidence=0.6, note=note)
        taken.add(file.rank)
        gathered.device(file.rank, pid=file.pid)
    files.sort(key=lambda file: file.rank or 0)


def _rank_said(file: _File) -> int | None:
    """Return the rank that most calls imply; the field holds the root of rooted operations, so these are left out."""
    votes: Counter[int] = Counter()
    several = len({call.group for call, _, _ in file.calls if call.op is not None}) > 1
    for call, _, _ in file.calls:
        if call.rank is None or call.op in ROOTED or call.op in POINTWISE or call.rank < 0:
            continue
        group = file.group(call)
        if group and call.rank < len(group.ranks):
            votes[group.ranks[call.rank]] += 2
        elif not several:
            votes[call.rank] += 1
    return votes.most_common(1)[0][0] if votes else None


def _world(files: list[_File]) -> int | None:
    """Return the number of ranks: of the default group, else as many as were seen when none is missing."""
    default = [
        g.size or len(g.ranks) for file in files for g in file.groups if g.description == "default_pg" or g.name == "0"
    ]
    sizes_ = [size for size in default if size]
    seen = world_of(file.rank for file in files if file.rank is not None)
    if sizes_:
        return max(sizes_)
    stated = [call.size for file in files for call, _, _ in file.calls if call.op is not None and call.size]
    split = [len(call.in_split) for file in files for call, _, _ in file.calls if len(call.in_split) > 1]
    return max([*stated, *split, seen or 0], default=0) or None


def _emit(gathered: Gathered, files: list[_File], world: int | None) -> None:
    rows = [
        (file, call, layer, phase, _communicator(gathered, file, call, world))
        for file in files
        for call, layer, phase in file.calls
        if call.op is not None
    ]
    counted = _unsure_sequences(rows)
    counters: Counter[tuple[int, int | None]] = Counter()
    for file, call, layer, phase, number in rows:
        facts = gathered.of(number)
        facts["ranks"].add(file.rank)
        sequence = call.sequence
        if number in counted or sequence is None:
            sequence = counters[number, file.rank]
            counters[number, file.rank] += 1
        if call.op in POINTWISE:
            sequence = None
        gathered.events.add(**_event(file, call, facts, sequence), layer=layer or None, phase=phase or None)
    for number in counted:
        note = "several calls share a number in this group (coalesced), so calls are counted in order"
        gathered.claim(
            "sequence", "counted", gathered.of(number)["comm_id"], ground="inferred", confidence=0.9, note=note
        )


Row = tuple[_File, CommsNode, str, str, int]


def _unsure_sequences(rows: list[Row]) -> set[int]:
    """Return the communicators in which the printed sequence does not number the calls."""
    seen: set[tuple[int, int | None, int | None]] = set()
    unsure = set()
    for file, call, _, _, number in rows:
        key = number, file.rank, call.sequence
        if call.op not in POINTWISE and (call.sequence is None or key in seen):
            unsure.add(number)
        seen.add(key)
    return unsure


def _communicator(gathered: Gathered, file: _File, call: CommsNode, world: int | None) -> int:
    """Return the group of a call: as the init node says, as start and stride say, or the n-th that the rank uses."""
    group = file.group(call)
    if group:
        return gathered.communicator(
            group.name, name=group.description or call.description, members=group.ranks, size=group.size
        )
    size = call.size if call.op is not None and call.size and call.size > 0 else len(call.in_split) or None
    if call.description or not call.group.lstrip("-").isdecimal() or len(call.group) < 6:
        members = _run(call, size)
        ground = "read" if members else "inferred"
        return gathered.communicator(
            call.group or "default", name=call.description, size=size, members=members, ground=ground
        )
    return _by_address(gathered, list(_addresses(file)).index(call.group), size, world)


def _by_address(gathered: Gathered, number: int, size: int | None, world: int | None) -> int:
    """Return the n-th group of a rank where an address names it, which differs by rank."""
    everyone = range(world) if world and (size or world) == world and number == 0 else range(0)
    note = "named by an address that differs by rank; the n-th group of one rank is taken for the n-th of another"
    gathered.claim(f"group {number}", "matched by order", KIND, ground="assumed", confidence=0.6, note=note)
    return gathered.communicator(
        f"group {number}",
        name=f"process group {number}, members inferred",
        size=size or (world if everyone else None),
        members=everyone,
        ground="inferred",
        confidence=0.6,
    )


def _run(call: CommsNode, size: int | None) -> range:
    """Return the global ranks of a group that start and stride describe, else none."""
    if call.start is None or call.stride is None or not size or call.start < 0 or call.stride < 1 or size > 1 << 20:
        return range(0)
    return range(call.start, call.start + size * call.stride, call.stride)


def _addresses(file: _File) -> Iterator[str]:
    seen = set()
    for call, _, _ in file.calls:
        if call.op is not None and call.group not in seen and not file.group(call):
            seen.add(call.group)
            yield call.group


def _event(file: _File, call: CommsNode, facts: dict[str, Any], sequence: int | None) -> dict[str, Any]:
    op = call.op or "unknown"
    members = facts["members"] or []
    held = sizes(op, call.inside, call.outside, facts["size"])
    is_pointwise = op in POINTWISE
    return {
        "kind": "p2p" if is_pointwise else "collective",
        "op": op,
        "rank": file.rank,
        "communicator": facts["communicator"],
        "sequence": sequence,
        "op_count": call.sequence,
        "nranks": facts["size"],
        "comm_rank": members.index(file.rank) if file.rank in members else None,
        "size_bytes": held.size,
        "sent_bytes": held.sent,
        "received_bytes": held.received,
        "count": call.count,
        "datatype": call.datatype,
        "element_bytes": call.width,
        "root": call.rank if op in ROOTED else None,
        "peer": call.rank if is_pointwise else None,
        "text": call.spelled,
        "task": str(call.node),
        "records": 1,
        "multiplicity": 1,
        "source": KIND,
        "file": file.name,
        "ground": "read",
        "confidence": 1.0,
    }
