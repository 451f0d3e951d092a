"""Trace files of the example among NCCL's own profiler plug-ins: one file a communicator and rank, events in microseconds.

A call's own event ends when NCCL has enqueued it, or when the last of what stands inside it ends; so only what stands inside
tells how long it took: its kernel's channels, by the GPU's timer where that is printed, else its work for the network. Times
count from when the plug-in was loaded into each process. Counts are one rank's part, as NCCL has them; the size of the
communicator is not told. Source: ``plugins/profiler/example`` of NVIDIA/nccl, before 2.29 ``ext-profiler/example``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from ringwright.formats.sources.datatypes import BYTES, datatype
from ringwright.formats.sources.kineto.pieces import Reading
from ringwright.formats.sources.kineto.records import BAD_JSON, Event, decode_any
from ringwright.formats.sources.kineto.stream import batches
from ringwright.formats.sources.nccl_functions import OPS
from ringwright.formats.sources.nccl_log.dialect import MAX_RANKS, PER_RANK_COUNT, algorithm, protocol
from ringwright.formats.sources.nccl_profiler.sequence import number
from ringwright.formats.sources.ranks import world_of
from ringwright.formats.sources.reader_rows import Gathered, fitting, whole_number
from ringwright.formats.sources.source import Source
from ringwright.ground.errors import InputError
from ringwright.ground.units import MOST_BYTES

if TYPE_CHECKING:
    from ringwright.ground.trace_tables import Row
    from ringwright.model.trace import Trace

KIND = "nccl-profiler-example"
MOST_CALLS = 2_000_000
_CALLS = {"COLL": "collective", "P2P": "p2p"}
_KERNEL, _PROXY = "GPU", "PROXY"
_MOST_COUNT = 1 << 56
_TOO_MANY = f"calls beyond {MOST_CALLS:,}"


@dataclass(slots=True)
class SpannedWork:
    """What stands inside a call, of one kind: when the first began and the last ended, in seconds; None where one has no end."""

    begun: int = 0
    ended: int = 0
    start_s: float = float("inf")
    stop_s: float = float("-inf")

    def span_s(self) -> float | None:
        """How long all of it took; None where not all of it ended, or time runs backwards."""
        if self.begun != self.ended or self.stop_s < self.start_s:
            return None
        return self.stop_s - self.start_s


@dataclass(slots=True)
class ExampleCall:
    """A collective, send or receive as printed, and what stands between its begin and its end."""

    kind: str
    name: str
    file: str
    line: int
    pid: int | None
    enqueue_s: float | None
    args: Mapping[str, object]
    inside: defaultdict[str, SpannedWork] = field(default_factory=lambda: defaultdict(SpannedWork))
    timers: list[tuple[int, int]] = field(default_factory=list)  # of the channels, by the GPU in ns
    is_over: bool = False
    is_whole: bool = False  # its end is in the file, and so is all that stands inside

    @property
    def comm(self) -> str:
        """The communicator's hash, as logs print it."""
        told = whole_number(self.args.get("CommHash"), (1 << 64) - 1)
        return f"0x{told:x}" if told is not None and told >= 0 else f"not named, of {self.file}"

    @property
    def rank(self) -> int | None:
        """The rank within the communicator."""
        told = whole_number(self.args.get("Rank"), MAX_RANKS)
        return told if told is not None and told >= 0 else None

    def took(self) -> tuple[float | None, float | None, str]:
        """Return when the transfer began and how long it took, in seconds, and on what ground."""
        kernel, proxy = self.inside[_KERNEL], self.inside[_PROXY]
        if not kernel.begun:
            return (proxy.start_s, self._whole(proxy), "inferred") if proxy.begun else (None, None, "read")
        whole = self._whole(kernel)
        if whole is not None and len(self.timers) == kernel.begun:
            first, last = min(start for start, _ in self.timers), max(stop for _, stop in self.timers)
            whole = (last - first) * 1e-9 if last >= first else whole
        return kernel.start_s, whole, "read"

    def _whole(self, work: SpannedWork) -> float | None:
        return work.span_s() if self.is_whole else None


def read_profiler_example(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of such files, all of one job; InputError where none holds a call."""
    gathered = Gathered(KIND)
    calls: list[ExampleCall] = []
    for member in gathered.members(sources, progress):
        reading = Reading(member.name)
        calls += _calls(gathered, Source(member.name, partial(_same, member.stream)), reading, MOST_CALLS - len(calls))
        gathered.inputs.append(member.name)
        gathered.note(
            member.name, "refused", "no event", reading.refused, at=reading.example_at, example=reading.example
        )
        for loss in reading.losses:
            gathered.lose(f"{member.name}: {loss}")
    if not calls:
        raise InputError(
            "no call in what NCCL's example profiler plug-in wrote",
            where=", ".join(source.name for source in sources[:3]),
            remedy="set NCCL_PROFILE_EVENT_MASK=79 (groups, calls, network, kernels) and end the job in order",
        )
    sizes = _emit(gathered, calls)
    limits = ["how long calls without a kernel or work for the network inside took: only their enqueueing is recorded"]
    return gathered.trace(world=max(sizes.values(), default=0) or None, library="nccl", from_zero=True, limits=limits)


def _same(stream: BinaryIO) -> BinaryIO:
    return stream


def _calls(gathered: Gathered, source: Source, reading: Reading, most: int) -> list[ExampleCall]:
    """Return the calls of a file in its order; one that the file's end cuts off is kept as far as it goes."""
    calls: list[ExampleCall] = []
    counts: Counter[str] = Counter()
    for events in batches(source, reading):
        for line, event in enumerate(events, reading.events - len(events) + 1):
            counts[_take(calls, event, reading.name, line, most)] += 1
    gathered.note(reading.name, "understood", "events of calls", counts.pop("", 0))
    for reason, count in counts.items():
        gathered.note(reading.name, "other", reason, count)
    if counts[_TOO_MANY]:
        gathered.lose(f"{reading.name}: {_TOO_MANY}")
    return calls


def _take(calls: list[ExampleCall], event: Event, file: str, line: int, most: int) -> str:
    """Take an event; return why it is of no call, empty where it is of one."""
    call = calls[-1] if calls and not calls[-1].is_over else None
    begins = event.ph == "b"
    if event.ph not in ("b", "e") or not isinstance(event.cat, str):
        return "no begin and no end"  # as the empty one that ends a file
    if event.cat in _CALLS and begins:
        if len(calls) >= most:
            return _TOO_MANY
        if call is not None:
            call.is_over = True
        at = (whole_number(event.pid), _seconds(event.ts))
        calls.append(ExampleCall(event.cat, str(event.name)[:100], file, line, *at, _args(event)))
    elif call is None:
        return f"of no call: {event.cat[:40]}"
    elif event.cat == call.kind:
        call.is_over = call.is_whole = True
    elif begins:
        _begin(call, event)
    else:
        _end(call, event)
    return ""


def _begin(call: ExampleCall, event: Event) -> None:
    start = _seconds(event.ts)
    work = _work(call, event)
    if start is None or work is None:
        return
    work.begun += 1
    work.start_s = min(work.start_s, start)
    if event.cat == _KERNEL:
        args = _args(event)
        first, last = (whole_number(args.get(name)) or 0 for name in ("StartGpuClk", "StopGpuClk"))
        if 0 < first <= last:
            call.timers.append((first, last))


def _end(call: ExampleCall, event: Event) -> None:
    stop, work = _seconds(event.ts), _work(call, event)
    if stop is not None and work is not None and stop >= work.start_s:
        work.ended += 1
        work.stop_s = max(work.stop_s, stop)


def _work(call: ExampleCall, event: Event) -> SpannedWork | None:
    """Return where an event inside a call is counted; steps of a channel, or of work for the network, are part of it."""
    is_channel = event.cat == _KERNEL and event.name == "KernelCh"
    return call.inside[event.cat] if is_channel or event.cat == _PROXY else None


def _seconds(us: object) -> float | None:
    told = fitting(us, "f64")
    return told * 1e-6 if told is not None and told > 0 else None


def _args(event: Event) -> Mapping[str, object]:
    try:
        told = decode_any(event.args)
    except BAD_JSON:
        return {}
    return told if isinstance(told, dict) else {}


def _emit(gathered: Gathered, calls: list[ExampleCall]) -> dict[str, int]:
    """Write the calls; return the sizes of communicators: how many ranks were seen, where none below the highest lacks."""
    seen: defaultdict[str, set[int]] = defaultdict(set)
    for call in calls:
        seen[call.comm] |= {call.rank} if call.rank is not None else set()
    sizes = {comm: size for comm, ranks in seen.items() if (size := world_of(ranks))}
    world = max(seen, key=lambda comm: len(seen[comm]))
    ranks = _global_ranks(calls, world)
    sequences = _sequences(gathered, calls, sizes)
    for at, call in enumerate(calls):
        size = sizes.get(call.comm)
        rank = call.rank if call.comm == world else ranks.get(call.pid)
        comm = gathered.communicator(call.comm, size=size, ground="inferred", confidence=0.5)
        gathered.of(comm)["ranks"].add(rank)
        gathered.device(rank, pid=call.pid)
        gathered.events.add(**_row(call, size), communicator=comm, rank=rank, sequence=sequences.get(at))
    note = f"ranks are those of the communicator in which most were seen, {world}"
    gathered.claim("global ranks", len(seen[world]), KIND, ground="inferred", confidence=0.8, note=note)
    return sizes


def _global_ranks(calls: list[ExampleCall], world: str) -> dict[int | None, int]:
    """Return of each process its rank in a communicator, where that is one: on two hosts processes may have one number."""
    told: defaultdict[int, set[int]] = defaultdict(set)
    for call in calls:
        if call.comm == world and call.pid is not None and call.rank is not None:
            told[call.pid].add(call.rank)
    return {pid: min(ranks) for pid, ranks in told.items() if len(ranks) == 1}


def _sequences(gathered: Gathered, calls: list[ExampleCall], sizes: dict[str, int]) -> dict[int, int]:
    """Return the place of each collective among those of its communicator, from counters by function."""
    import polars as pl

    counted = [
        (at, call.comm, call.file, call.rank or 0, call.line, call.name, seq)
        for at, call in enumerate(calls)
        if call.kind == "COLL" and (seq := whole_number(call.args.get("SeqNum"))) is not None and seq >= 0
    ]
    if not counted:
        return {}
    columns = ["id", "communicator", "file", "context", "ns", "counter", "seq"]
    placed, inferred = number(pl.DataFrame(counted, schema=columns, orient="row"))
    for comm in inferred:
        note = "the plug-in keeps the last calls only, so counters of this communicator have gaps"
        gathered.claim("sequence", comm, KIND, ground="inferred", confidence=0.8, note=note)
    return dict(zip(placed["id"].to_list(), placed["sequence"].to_list(), strict=True))


def _whole(op: str, count: int | None, kind: str | None, size: int | None) -> int | None:
    """Return the bytes of a call over all ranks where it counts a rank's part; None where something of that is not told."""
    if count is None or count < 0 or not kind or (op in PER_RANK_COUNT and not size):
        return None
    whole = count * BYTES[kind] * (size or 1 if op in PER_RANK_COUNT else 1)
    return whole if whole <= MOST_BYTES else None


def _row(call: ExampleCall, size: int | None) -> Row:
    op, kind = OPS.get(call.name, "unknown"), datatype(call.args.get("Datatype"))
    count = whole_number(call.args.get("Count"), _MOST_COUNT)
    start, took, ground = call.took()
    said = {name: call.args.get(name) for name in ("Algorithm", "Protocol")}
    return {
        "kind": _CALLS[call.kind],
        "op": op,
        "comm_rank": call.rank,
        "nranks": size,
        "pid": call.pid,
        "op_count": whole_number(call.args.get("SeqNum")),
        "count": count,
        "datatype": kind,
        "element_bytes": BYTES[kind] if kind else None,
        "size_bytes": _whole(op, count, kind, size),
        "peer": whole_number(call.args.get("Peer"), MAX_RANKS),
        "algorithm": algorithm(told) if isinstance(told := said["Algorithm"], str) and told else None,
        "protocol": protocol(told) if isinstance(told := said["Protocol"], str) and told else None,
        "channels": whole_number(call.args.get("nChannels", call.args.get("nMaxChannels"))),
        "enqueue_s": call.enqueue_s,
        "start_s": start,
        "duration_s": took,
        "clock": f"host:process{call.pid}",
        "kernel_class": "nccl" if call.inside[_KERNEL].begun else None,
        "ground": ground,
        "confidence": 1.0 if ground == "read" else 0.6,
        "text": call.name,
        "file": call.file,
        "line": call.line,
    }
