"""``read_nccl_profiler``: the files of the NCCL profiler plug-in, one per process, as one Trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.gate.packed import parsed
from ringwright.formats.sources.nccl_profiler import records
from ringwright.formats.sources.nccl_profiler.file import NotOurFileError, ProfilerFile, read_file
from ringwright.formats.sources.nccl_profiler.groups import ProfilerCommunicator, device_of, groups_of, place_ranks
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from ringwright.formats.sources.source import Source
    from ringwright.ground.trace_tables import Row
    from ringwright.model.trace import Trace

_SOURCE = "nccl-profiler"
_MIXED_DRIFT_NS = 1_000_000
_MOST_ERROR = 4096  # of Linux


def read_nccl_profiler(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of a job from the files of its processes.

    Times are seconds on the hosts' wall clocks since the first file began; ``progress`` is called with the bytes of each
    piece. A file that is damaged or not ours is told in the ledger and in ``meta["losses"]``. Raises InputError when no file
    could be read.
    """
    return made([source.name for source in sources], *_read(sources, progress))


def made(names: list[str], files: list[ProfilerFile], losses: list[str], ledger: list[Row]) -> Trace:
    """Return the Trace of files that have been read, which are used up; InputError where there is none."""
    if not files:
        raise InputError(
            losses[0] if losses else "no file of the NCCL profiler plug-in",
            where=names[0] if names else "",
            remedy="ringwright plugin env",
        )
    import polars as pl

    from ringwright.formats.sources.nccl_profiler.events import events_of
    from ringwright.ground.trace_tables import conform, rows
    from ringwright.model.trace import Trace

    groups = groups_of(files)
    how = place_ranks(files, groups)
    origin_ns = min(recorded.real_ns for recorded in files)
    made = events_of(files, groups, origin_ns)
    losses += [loss for recorded in files for loss in recorded.losses]
    claims = _claims(files, groups, how)
    claims += _time_claims(made.clocks, files) + _other_claims(
        made.bad_kernels, made.inferred_sequences, groups, made.foreign_proxies
    )
    for recorded in files:
        dropped = _dropped(recorded)
        losses += [f"{recorded.name}: {text}" for text in dropped]
        claims += [_claim("records dropped", text, recorded.name) for text in dropped]
        ledger += _ledger(recorded)
    # Sorted while they are narrow: collectives first, then status and proxies, each by rank and time.
    parts = [conform("events", part.sort("rank", *_times(part), nulls_last=True)) for part in made.events if len(part)]
    events = pl.concat(parts) if parts else rows("events", [])
    tables = {
        "events": events,
        "communicators": rows("communicators", [_communicator(number, group) for number, group in enumerate(groups)]),
        "topology": rows("topology", _devices(files, groups)),
        "claims": rows("claims", claims),
        "ledger": rows("ledger", ledger),
    }
    return Trace.of(tables, _meta(names, files, groups, losses, origin_ns))


def _times(part: pl.DataFrame) -> list[str]:
    return [name for name in ("enqueue_s", "start_s", "op") if name in part.columns]


def _read(
    sources: list[Source], progress: Callable[[int], None] | None
) -> tuple[list[ProfilerFile], list[str], list[Row]]:
    files: list[ProfilerFile] = []
    losses: list[str] = []
    ledger: list[Row] = []
    for source in sources:
        try:
            files.append(parsed(source, read_file, progress))
        except (NotOurFileError, OSError) as error:
            source.losses.append((str(error), 0))
            refuse(source.name, error, losses, ledger)
    return files, losses, ledger


def refuse(name: str, error: Exception, losses: list[str], ledger: list[Row]) -> None:
    """Note a file that cannot be ours."""
    losses.append(f"{name}: {error}")
    ledger.append({"file": name, "outcome": "refused", "reason": str(error), "lines": 1})


def _meta(
    names: list[str], files: list[ProfilerFile], groups: list[ProfilerCommunicator], losses: list[str], origin_ns: int
) -> dict[str, Any]:
    codes = {recorded.number("nccl") or 0 for recorded in files}
    libraries = " ".join(recorded.text.get("library", "") for recorded in files)
    return {
        "source": _SOURCE,
        "inputs": names,
        "losses": losses,
        "world": max((group.size for group in groups), default=None),
        "nccl_versions": sorted({_version(code) for code in codes if code}),
        "library": "rccl" if "rccl" in libraries else "nccl",
        "origin_ns": origin_ns,
        "profiler_versions": sorted({member.version for group in groups for member in group.members}),
    }


def _version(code: int) -> str:
    """Return ``2.27.3`` of 22703; releases before 2.9 have one digit less."""
    major = 10000 if code >= 10000 else 1000
    return f"{code // major}.{code % major // 100}.{code % 100}"


def _communicator(number: int, group: ProfilerCommunicator) -> Row:
    members = [-1] * group.size
    for member in group.members:
        if 0 <= member.comm_rank < len(members) and member.rank is not None:
            members[member.comm_rank] = member.rank
    return {
        "communicator": number,
        "comm_id": group.comm_id,
        "name": group.name or None,
        "size": group.size,
        "members": members,
        "ranks_seen": len({member.comm_rank for member in group.members}),
        "nnodes": group.nnodes,
        "ground": "read" if group.nranks else "inferred",
        "confidence": 1.0 if group.nranks else 0.5,
    }


def _devices(files: list[ProfilerFile], groups: list[ProfilerCommunicator]) -> list[Row]:
    ranks: dict[int, set[int]] = {}
    for group in groups:
        for member in group.members:
            if member.rank is not None:
                ranks.setdefault(member.file, set()).add(member.rank)
    return [
        {
            "kind": "device",
            "rank": rank,
            "host": recorded.host,
            "pid": recorded.pid,
            "device": device_of(recorded),
            "ground": "read" if device_of(recorded) is None else "inferred",
        }
        for number, recorded in enumerate(files)
        for rank in sorted(ranks.get(number, ()))
    ]


def _claim(field: str, value: str, source: str, ground: str = "read", note: str | None = None) -> Row:
    confidence = {"read": 1.0, "inferred": 0.8, "assumed": 0.5}[ground]
    return {"field": field, "value": value, "source": source, "ground": ground, "confidence": confidence, "note": note}


def _claims(files: list[ProfilerFile], groups: list[ProfilerCommunicator], how: str) -> list[Row]:
    claims = [_claim("global ranks", how, _SOURCE, "read" if how == "environment" else "inferred")]
    if len({recorded.host for recorded in files}) > 1:
        note = "times of different hosts are compared as their wall clocks stand"
        claims.append(_claim("clocks of hosts", "agree", _SOURCE, "assumed", note))
    if any(group.nranks is None for group in groups):
        note = "interfaces v1 to v3 (NCCL 2.23 to 2.26) do not tell; one more than the highest rank seen"
        claims.append(_claim("ranks of a communicator", "from the ranks seen", _SOURCE, "inferred", note))
    for recorded in files:
        if not recorded.is_closed:
            note = "what came in the last tenth of a second may be missing"
            claims.append(_claim("end of recording", "not in order", recorded.name, "read", note))
        if abs(recorded.drift_ns) > _MIXED_DRIFT_NS:
            value = f"{recorded.drift_ns / 1e6:.3f} ms between wall and monotonic clock"
            claims.append(_claim("clock drift", value, recorded.name, "read"))
    return claims


def _time_claims(clocks: dict[tuple[int, int], Any], files: list[ProfilerFile]) -> list[Row]:
    note = "GPU timer placed between enqueue and what the host saw; durations are the GPU's own"
    return [
        _claim(
            "start of kernels",
            f"good to {clock.uncertainty_ns / 1e3:.1f} us either way",
            files[file].name + (f", rank {rank}" if rank >= 0 else ""),
            "inferred",
            note,
        )
        for (file, rank), clock in sorted(clocks.items())
    ]


def _other_claims(bad_kernels: int, inferred: list[int], groups: list[ProfilerCommunicator], foreign: int) -> list[Row]:
    claims = []
    if bad_kernels:
        note = "NCCL's ring of GPU timers wrapped: the end lies before the start"
        claims.append(_claim("kernel channels left out", str(bad_kernels), _SOURCE, "read", note))
    for number in inferred:
        note = "the counters of this communicator have gaps or repeat"
        claims.append(_claim("sequence", groups[number].comm_id, _SOURCE, "inferred", note))
    if foreign:
        note = "PXN: the work of a rank of another process"
        claims.append(_claim("proxy operations for other processes", str(foreign), _SOURCE, "read", note))
    return claims


def _dropped(recorded: ProfilerFile) -> list[str]:
    """Return what the plug-in itself could not keep, in sentences."""
    ring = max(sum(ring for ring, _ in recorded.dropped.values()), recorded.status.get("dropped_ring", 0))
    slots = max(sum(slots for _, slots in recorded.dropped.values()), recorded.status.get("dropped_slots", 0))
    reason, limit = recorded.status.get("reason", 0), recorded.status.get("flags", 0) & 2
    counts = {
        "records dropped because a buffer was full (RINGWRIGHT_PROFILE_BUFFER makes it larger)": ring,
        "events dropped because too many ran at a time": slots,
        "events dropped because there were too many threads": recorded.status.get("dropped_threads", 0),
        "records lost after the file could grow no more": recorded.status.get("lost_disk", 0),
        "calls not passed on to the next plug-in": recorded.status.get("unforwarded", 0),
    }
    texts = [f"{count} {text}" for text, count in counts.items() if count]
    if reason:
        texts.append(f"recording ended early: {_os_error(reason)}")
    if limit:
        texts.append("recording ended early: RINGWRIGHT_PROFILE_LIMIT was reached")
    return texts


def _os_error(number: int) -> str:
    import os

    return os.strerror(number) if number < _MOST_ERROR else f"error {number}"


def _ledger(recorded: ProfilerFile) -> list[Row]:
    rows = [
        {"file": recorded.name, "outcome": "understood", "reason": records.NAMES[kind], "lines": count}
        for kind, count in sorted(recorded.counts.items())
    ]
    if recorded.damaged_blocks:
        rows.append(
            {"file": recorded.name, "outcome": "refused", "reason": "damaged block", "lines": recorded.damaged_blocks}
        )
    if recorded.impossible_records:
        reason = "a number that cannot be"
        rows.append(
            {"file": recorded.name, "outcome": "refused", "reason": reason, "lines": recorded.impossible_records}
        )
    if recorded.unknown_records:
        rows.append(
            {"file": recorded.name, "outcome": "other", "reason": "unknown record", "lines": recorded.unknown_records}
        )
    return rows
