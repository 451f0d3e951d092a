"""Calls files of one job to a Trace: groups become communicators, calls events, iterations steps.

A call's end is known only where the host sees it (gloo, MPI); a NCCL call is enqueued, and its time comes from another source.
Ranks that a process manager started again are told apart by their order in time: a second life has communicators of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ringwright.errors import InputError
from ringwright.sources.c10d import POINTWISE, sizes
from ringwright.sources.calls.file import Call, Group, Process, read_file
from ringwright.sources.gathered import Gathered

if TYPE_CHECKING:
    import polars as pl

    from ringwright.sources.source import Source
    from ringwright.trace import Trace

KIND = "calls"
_MEASURED = ("gloo", "mpi", "ucc")
_ROLES = ("world", "dp", "tp", "pp", "ep", "cp", "sp", "fsdp", "embedding")


def read_calls(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of a job's calls files; InputError where none holds a line of the format."""
    found = Gathered(KIND)
    processes: list[Process] = []
    for source in sources:
        process = read_file(source, progress)
        found.damage(source.name, source.losses)
        _account(found, process)
        if process.head or process.calls:
            processes.append(process)
            found.inputs.append(source.name)
    if not processes:
        remedy = "ringwright run -- torchrun train.py writes such files"
        raise InputError("no calls file", where=", ".join(source.name for source in sources[:3]), remedy=remedy)
    processes.sort(key=lambda process: (process.head.get("wall_ns", 0), process.name))
    origin_ns = _origin_ns(processes)
    lives = _lives(processes)
    frames = [_Process(found, process, life, origin_ns).frame() for process, life in zip(processes, lives, strict=True)]
    return _trace(found, processes, frames, origin_ns)


def _account(found: Gathered, process: Process) -> None:
    """Note in the ledger what was read, refused and lost."""
    found.note(process.name, "understood", "lines of a calls file", process.lines - len(process.refused))
    for line, text in process.refused[:20]:
        found.note(process.name, "refused", "no line of a calls file", at=line, example=text)
    found.note(process.name, "refused", "no line of a calls file", max(0, len(process.refused) - 20))
    who = f"rank {process.rank}" if process.rank is not None else process.name
    for reason, records in process.lost.items():
        found.note(process.name, "refused", f"not recorded: {reason}", records)
        found.lose(f"{who}: {records:,} records are missing ({reason})")
    if process.head and not process.ended:
        found.lose(f"{who}: its recording stops without an end: it was killed, or still runs")


def _origin_ns(processes: list[Process]) -> int:
    firsts = [
        process.offset_ns + at_ns
        for process in processes
        for at_ns in (*(call.at_ns for call in process.calls[:1]), *(begin for _, begin, _ in process.steps[:1]))
    ]
    return min(firsts, default=0)


def _lives(processes: list[Process]) -> list[int]:
    """Return for each process how many earlier ones had its rank."""
    seen: Counter[int] = Counter()
    found = []
    for process in processes:
        rank = process.rank
        found.append(seen[rank] if rank is not None else 0)
        if rank is not None:
            seen[rank] += 1
    return found


class _Process:
    """One process on its way to rows."""

    def __init__(self, found: Gathered, process: Process, life: int, origin_ns: int) -> None:
        self.found, self.process, self.life = found, process, life
        self.shift_ns = process.offset_ns - origin_ns
        self.numbers: dict[int, int] = {}
        self.host = str(process.head.get("host", "")) or None
        found.device(process.rank, self.host, process.head.get("pid"), process.head.get("local_rank"))
        if process.head.get("library"):
            found.release(str(process.head["library"]))

    def frame(self) -> pl.DataFrame:
        """Return the events of the process."""
        import polars as pl

        from ringwright.trace import rows

        sequences: dict[int, int] = defaultdict(int)
        records = [row for call in self.process.calls if (row := self._call(call, sequences)) is not None]
        records += [self._step(*step) for step in self.process.steps]
        records += [self._error(*error) for error in self.process.errors]
        base = {"rank": self.process.rank, "host": self.host, "pid": self.process.head.get("pid")}
        base |= {"source": KIND, "file": self.process.name, "clock": f"host:{self.host}", "ground": "read"}
        base |= {"multiplicity": 1, "records": 1, "confidence": 1.0}
        made = rows("events", records)
        types = made.schema
        return made.with_columns(pl.lit(value, dtype=types[name]).alias(name) for name, value in base.items())

    def _s(self, at_ns: int) -> float:
        return (at_ns + self.shift_ns) / 1e9

    def _call(self, call: Call, sequences: dict[int, int]) -> dict[str, Any] | None:
        group = self.process.groups.get(call.group)
        if group is None:
            self.found.note(self.process.name, "refused", "a call of a group that was not described", at=call.line)
            return None
        number = self._communicator(call.group, group)
        kind = "p2p" if call.op in POINTWISE else "collective"
        sequence = None
        if kind == "collective":
            sequence = sequences[number]
            sequences[number] += 1
        context = self.process.contexts.get(call.context) if call.context is not None else None
        phase, layer, tokens = context or (None, None, None)
        size = sizes(call.op, call.sent, call.received, group.size)
        end_ns = self.process.ends.get(call.number)
        return {
            "kind": kind, "op": call.op, "communicator": number, "comm_rank": group.mine, "nranks": group.size,
            "sequence": sequence, "op_count": call.number, "thread": call.thread, "count": call.count,
            "datatype": call.datatype or None, "element_bytes": _element(call), "size_bytes": size.size,
            "sent_bytes": size.sent, "received_bytes": size.received, "reduce_op": call.reduction or None,
            "root": call.root, "peer": call.peer, "phase": phase or None, "layer": layer or None, "tokens": tokens,
            "iteration": None if phase == "setup" else call.iteration, "state": self._state(call, group, end_ns),
            "enqueue_s": self._s(call.at_ns), "start_s": self._s(call.at_ns) if end_ns is not None else None,
            "duration_s": (end_ns - call.at_ns) / 1e9 if end_ns is not None else None, "line": call.line,
        }  # fmt: skip

    def _state(self, call: Call, group: Group, end_ns: int | None) -> str | None:
        """Return whether the call is over; None where the host cannot know."""
        if group.backend.lower() not in _MEASURED:
            return None
        return "completed" if end_ns is not None or self.process.ended else "started"

    def _communicator(self, own: int, group: Group) -> int:
        known = self.numbers.get(own)
        if known is None:
            members = ",".join(map(str, group.members[:4])) + f"..{len(group.members)}" if group.members else "?"
            comm_id = f"{group.name}@{members}" + (f"#{self.life}" if self.life else "")
            known = self.found.communicator(
                comm_id, name=f"{group.name} {group.description}".strip(), size=group.size, members=group.members,
                role=_role(group), role_evidence=f"its description is {group.description}" if _role(group) else None,
            )  # fmt: skip
            self.numbers[own] = known
        self.found.of(known)["ranks"].add(self.process.rank)
        return known

    def _step(self, iteration: int, begin_ns: int, end_ns: int) -> dict[str, Any]:
        seconds = max(0, end_ns - begin_ns) / 1e9
        return {"kind": "step", "op": "step", "iteration": iteration, "start_s": self._s(begin_ns), "duration_s": seconds}

    def _error(self, _call: int | None, at_ns: int, text: str, line: int) -> dict[str, Any]:
        return {"kind": "error", "op": "exception", "start_s": self._s(at_ns), "text": text, "line": line}


def _role(group: Group) -> str | None:
    """Return the role that a group's description names: default_pg, mesh_tp, fsdp, ..."""
    word = group.description.lower().removeprefix("mesh_").partition("_")[0]
    if group.description in ("default_pg", "MPI_COMM_WORLD"):
        return "world"
    return word if word in _ROLES else None


def _element(call: Call) -> int | None:
    size = call.sent if call.sent is not None else call.received
    return size // call.count if size and call.count and not size % call.count else None


def _trace(found: Gathered, processes: list[Process], frames: list[pl.DataFrame], origin_ns: int) -> Trace:
    import polars as pl

    from ringwright.trace import conform

    worlds = [process.head["world"] for process in processes if process.head.get("world")]
    seen = {process.rank for process in processes if process.rank is not None}
    world = max(worlds, default=None)
    if not any("fake" in group.backend for process in processes for group in process.groups.values()):
        missing = sorted(set(range(min(world or 0, 1 << 20))) - seen)
        if missing:
            listed = ", ".join(map(str, missing[:32])) + (", ..." if len(missing) > 32 else "")
            found.claim("missing ranks", listed, KIND, note=f"{len(missing)} of {world} ranks have no calls file")
    ends = Counter(process.ended or "none" for process in processes)
    found.claim("end of processes", ", ".join(f"{count} {how}" for how, count in sorted(ends.items())), KIND)
    found.claim("clock", "host", KIND, note="times are those of each host's clock; hosts are not aligned with each other")
    backends = Counter(group.backend for process in processes for group in process.groups.values())
    library = backends.most_common(1)[0][0] if backends else None
    trace = found.trace(world=world, origin_ns=origin_ns or None, library=library)
    events = pl.concat(frames) if frames else trace.table("events")
    return replace(trace, tables={**trace.tables, "events": conform("events", events).lazy()})
