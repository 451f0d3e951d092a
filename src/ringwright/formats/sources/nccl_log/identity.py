"""Who is who: processes under damaged names made one, handles joined to communicators, global ranks.

With a commId (2.16 and later) a communicator names itself. Before, handles of equal size are layered by order of creation,
as every process creates its communicators in the same order, and within a layer matched by their order among the global
ranks; that is right for any grid of groups, contiguous or strided, and it is checked by completeness: each rank once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ringwright.formats.sources.nccl_log import dialect
from ringwright.formats.sources.nccl_log.state import Handle, LogState

Process = tuple[str, int]
Device = tuple[str, int, str]


@dataclass
class LogCommunicator:
    """A communicator: its handles by rank in it, what is known about it and on what ground."""

    size: int
    handles: dict[int, list[int]]  # rank in the communicator -> handles
    comm_id: str | None
    ground: str  # read, inferred, assumed
    confidence: float
    spare: list[int] = field(default_factory=list)  # handles whose rank no line said

    def all_handles(self) -> list[int]:
        """Return every handle of the group."""
        return [handle for handles in self.handles.values() for handle in handles] + self.spare


@dataclass
class JobIdentity:
    """The outcome: groups, and the global rank of every handle (None where nothing tells it)."""

    groups: list[LogCommunicator]
    rank_of: dict[int, int | None]
    rank_ground: str
    world: int | None
    alias: dict[int, int]


def identify(state: LogState, said_ranks: dict[int, int], files: Sequence[str]) -> JobIdentity:
    """Return communicators and global ranks; ``said_ranks`` maps handles to ranks that collectives' lines gave.

    Handles count in the order of ``files`` and of their first lines there, in whatever turns the files were read.
    """
    numbers = {name: number for number, name in enumerate(files)}
    turn = {
        handle.index: (numbers.get(handle.since[0], len(numbers)), handle.since[1], handle.index)
        for handle in state.handles
    }
    before = [(handle.host, handle.pid) for handle in state.handles]
    merge_processes(state)
    damaged = {
        handle.index for handle, was in zip(state.handles, before, strict=True) if was != (handle.host, handle.pid)
    }
    alias = _aliases(state, damaged)
    handles = [
        handle
        for handle in sorted(state.handles, key=lambda handle: turn[handle.index])
        if handle.index not in alias and 0 < handle.nranks <= dialect.MAX_RANKS  # else the line was damaged
    ]
    groups: list[LogCommunicator] = []
    unnamed: list[Handle] = []
    by_name: dict[tuple[str, int], list[Handle]] = defaultdict(list)
    for handle in handles:
        if handle.comm_id:
            by_name[handle.comm_id, handle.nranks].append(handle)
        else:
            unnamed.append(handle)
    groups.extend(_group(members, "read", 1.0) for members in by_name.values())
    rank_of, ground = _global_ranks(state, handles, groups, unnamed, said_ranks)
    groups.extend(_match_unnamed(unnamed, rank_of))
    _assume_missing(handles, rank_of, groups)
    order = {id(group): min(turn[index] for index in group.all_handles()) for group in groups}
    groups.sort(key=lambda group: order[id(group)])
    return JobIdentity(groups, rank_of, ground, _world(state, groups), alias)


def merge_processes(state: LogState) -> dict[Process, Process]:
    """Give handles of a host whose name was damaged by a cut (a part missing or glued on) to the true process."""
    by_pid: dict[int, list[Process]] = defaultdict(list)
    for process in set(state.lines_of) | {(handle.host, handle.pid) for handle in state.handles}:
        by_pid[process[1]].append(process)
    weight = Counter({process: state.lines_of[process] for process in state.lines_of})
    hosts: Counter[str] = Counter()
    for (host, _), lines in weight.items():
        hosts[host] += lines
    renamed: dict[Process, Process] = {}
    for processes in by_pid.values():
        for damaged in processes:
            best = _true_name(damaged, processes, weight)
            best = best or _glued_name(damaged, hosts, weight)
            if best is not None:
                renamed[damaged] = best
    for handle in state.handles:
        handle.host, handle.pid = renamed.get((handle.host, handle.pid), (handle.host, handle.pid))
    for old, new in renamed.items():
        state.lines_of[new] += state.lines_of.pop(old, 0)
    for error in state.errors:
        error.host = renamed.get((error.host, error.pid), (error.host, error.pid))[0]
    for fact in state.facts:
        host, pid = renamed.get(fact.thread[:2], fact.thread[:2])
        fact.thread = (host, pid, fact.thread[2])
    return renamed


def _true_name(damaged: Process, same_pid: Iterable[Process], weight: Counter[Process]) -> Process | None:
    """Return the process of the same pid with the most lines whose host's name explains the damaged one."""
    host, best = damaged[0], None
    for other in same_pid:
        name = other[0]
        if name == host or not name or not host or weight[other] < weight[damaged]:
            continue
        same_end = host.endswith(name) or name.endswith(host)
        stray = weight[damaged] <= 2 and weight[other] >= 20  # a cut through the prefix: one's host, the other's pid
        if (same_end or stray) and (best is None or weight[other] > weight[best]):
            best = other
    return best


def _glued_name(damaged: Process, hosts: Counter[str], weight: Counter[Process]) -> Process | None:
    """A host name that ends in a well-known one, seen once or twice, is that one with a cut line glued in front."""
    host, pid = damaged
    if weight[damaged] > 2:
        return None
    for name, lines in hosts.items():
        if name != host and len(name) >= 4 and host.endswith(name) and lines > 20 * weight[damaged]:
            return (name, pid)
    return None


def _aliases(state: LogState, damaged: set[int]) -> dict[int, int]:
    """Map handles first met under a damaged host name to the process's own handle of the same communicator."""
    own: dict[tuple[str, int, int, int], int] = {}
    for handle in state.handles:
        if handle.index not in damaged:
            own.setdefault((handle.host, handle.pid, handle.pointer, handle.nranks), handle.index)
    aliases = {}
    for index in damaged:
        handle = state.handles[index]
        true = own.get((handle.host, handle.pid, handle.pointer, handle.nranks))
        if true is not None:
            aliases[index] = true
            _complete(state.handles[true], handle)
    return aliases


def _complete(true: Handle, other: Handle) -> None:
    """Take over what only the damaged line said."""
    for name in ("rank", "bus_id", "comm_id", "nnodes", "parent", "color"):
        if getattr(true, name) is None:
            setattr(true, name, getattr(other, name))


def _group(handles: Sequence[Handle], ground: str, confidence: float) -> LogCommunicator:
    by_rank: dict[int, list[int]] = defaultdict(list)
    spare: list[int] = []
    for handle in handles:
        if handle.rank is None:
            spare.append(handle.index)
        else:
            by_rank[handle.rank].append(handle.index)
    return LogCommunicator(
        handles[0].nranks, dict(sorted(by_rank.items())), handles[0].comm_id, ground, confidence, spare
    )


def device_of(handle: Handle) -> Device:
    """Return what a rank is: a device of a process (one process may drive several)."""
    device = f"bus {handle.bus_id}" if handle.bus_id else f"dev {handle.device}"
    return handle.host, handle.pid, device


def _global_ranks(
    state: LogState, handles: list[Handle], groups: list[LogCommunicator], unnamed: list[Handle], said: dict[int, int]
) -> tuple[dict[int, int | None], str]:
    """The rank in the largest communicator in which every device stands once; else what launcher or RCCL said."""
    rank_by_device: dict[Device, int] = {}
    ground = "assumed"
    world = _world_handles(handles, groups, unnamed)
    if world:
        ground = "inferred"
        rank_by_device = {device_of(handle): handle.rank for handle in world if handle.rank is not None}
    devices = {(handle.host, handle.pid): set[Device]() for handle in handles}
    for handle in handles:
        devices[handle.host, handle.pid].add(device_of(handle))
    for process, rank in state.process_rank.items():
        for device in devices.get(process, ()):
            if len(devices[process]) == 1 and device not in rank_by_device and rank not in rank_by_device.values():
                rank_by_device[device] = rank
                ground = "inferred" if world else "read"
    for index, rank in said.items():
        if not world:
            rank_by_device[device_of(state.handles[index])] = rank
            ground = "read"
    return {handle.index: rank_by_device.get(device_of(handle)) for handle in handles}, ground


def _world_handles(handles: list[Handle], groups: list[LogCommunicator], unnamed: list[Handle]) -> list[Handle]:
    """Return one handle per device from the largest communicator that could span the job, or nothing."""
    sizes = sorted({handle.nranks for handle in handles}, reverse=True)
    if not sizes or sizes[0] < 2:
        return []
    largest = sizes[0]
    devices = {device_of(handle) for handle in handles}
    by_device: dict[Device, Handle] = {}
    for handle in handles:
        if handle.nranks == largest and handle.rank is not None:
            by_device.setdefault(device_of(handle), handle)
    ranks = Counter(handle.rank for handle in by_device.values())
    if len(by_device) < max(1, (len(devices) + 1) // 2) or any(n > 1 for n in ranks.values()):
        return []
    return list(by_device.values())


def _match_unnamed(unnamed: list[Handle], rank_of: dict[int, int | None]) -> list[LogCommunicator]:
    by_size: dict[int, list[Handle]] = defaultdict(list)
    for handle in unnamed:
        by_size[handle.nranks].append(handle)
    groups: list[LogCommunicator] = []
    for size, handles in by_size.items():
        if size == 1:
            groups.extend(_group([handle], "read", 1.0) for handle in handles)
            continue
        ranked = [handle for handle in handles if handle.rank is not None]
        groups.extend(_match_ranked(size, ranked, rank_of))
        groups.extend(_match_rankless(size, [handle for handle in handles if handle.rank is None]))
    return groups


def _match_ranked(size: int, handles: list[Handle], rank_of: dict[int, int | None]) -> list[LogCommunicator]:
    """Layer by order of creation, first among all handles of a size, then among those of one rank; zip what fits."""
    layered = _layers(handles, by_rank=False)
    if not all(_even(layer, size) for layer in layered):
        layered = _layers(handles, by_rank=True)
    groups: list[LogCommunicator] = []
    for layer in layered:
        lists: dict[int, list[Handle]] = defaultdict(list)
        for handle in layer:
            lists[handle.rank if handle.rank is not None else -1].append(handle)
        for entries in lists.values():
            entries.sort(key=lambda handle: _known(rank_of[handle.index]))
        whole = len(lists) == size and len({len(entries) for entries in lists.values()}) == 1
        for number in range(max(len(entries) for entries in lists.values())):
            members = [entries[number] for entries in lists.values() if number < len(entries)]
            groups.append(_group(members, "inferred" if whole else "assumed", 0.9 if whole else 0.5))
    return groups


def _known(rank: int | None) -> int:
    return 1 << 30 if rank is None else rank


def _layers(handles: list[Handle], *, by_rank: bool) -> list[list[Handle]]:
    seen: Counter[tuple[Device, int | None]] = Counter()
    layers: dict[int, list[Handle]] = defaultdict(list)
    for handle in handles:
        key = (device_of(handle), handle.rank if by_rank else None)
        layers[seen[key]].append(handle)
        seen[key] += 1
    return list(layers.values())


def _even(layer: list[Handle], size: int) -> bool:
    ranks = Counter(handle.rank for handle in layer)
    return len(ranks) == size and len(set(ranks.values())) == 1


def _match_rankless(size: int, handles: list[Handle]) -> list[LogCommunicator]:
    """Only collectives named these: take them in order of host and device, ``size`` at a time."""
    groups: list[LogCommunicator] = []
    for layer in _layers(handles, by_rank=False):
        layer.sort(key=lambda handle: (handle.host, handle.device, handle.pid))
        confidence = 0.6 if len(layer) <= size else 0.3
        parts = [layer[start : start + size] for start in range(0, len(layer), size)]
        groups.extend(_group(part, "assumed", confidence) for part in parts)
    return groups


def _assume_missing(handles: list[Handle], rank_of: dict[int, int | None], groups: list[LogCommunicator]) -> None:
    """Where no line tells any rank, number the devices in order of host and device."""
    if any(rank is not None for rank in rank_of.values()):
        return
    largest = max((handle.nranks for handle in handles), default=0)
    if len({device_of(handle) for handle in handles}) < largest:
        return  # ranks are missing: any number would be a guess
    devices = sorted({device_of(handle): handle for handle in handles}.items(), key=lambda item: _device_key(item[1]))
    number = {device: index for index, (device, _) in enumerate(devices)}
    for handle in handles:
        rank_of[handle.index] = number[device_of(handle)]


def _device_key(handle: Handle) -> tuple[str, int, int]:
    return handle.host, handle.device, handle.pid


def _world(state: LogState, groups: list[LogCommunicator]) -> int | None:
    """Return how many ranks the job has, by its launch arguments or its largest communicator."""
    said = state.launch.get("world", (0, ""))[0]
    if 0 < said <= dialect.MAX_RANKS:
        return said
    counted = [row["size"] for row in state.ras.get("groups", [])]
    return max((*(group.size for group in groups), *counted), default=None)
