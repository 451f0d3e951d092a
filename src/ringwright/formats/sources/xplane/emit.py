"""From the calls of all files to rows: ranks, groups, the numbers of logical operations, and sizes."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.datatypes import BYTES
from ringwright.formats.sources.xplane.program import MOST_BYTES
from ringwright.ground.trace_tables import rows

if TYPE_CHECKING:
    import polars as pl

    from ringwright.formats.sources.xplane.job import PendingXlaCall, XlaFile, XlaJob
    from ringwright.formats.sources.xplane.program import Communication
    from ringwright.ground.trace_tables import Row

_MOST_SHOWN = 8
_ROWS = 50_000


class Emission:
    """What rows need to know of the whole job: ranks, the origin of time, and where groups stand in the table."""

    def __init__(self, job: XlaJob) -> None:
        self.job = job
        devices = sorted(job.devices | {device for file in job.files for device in file.devices})
        self.ranks = {device: rank for rank, device in enumerate(devices)}
        self.origin_ns = min((file.wall_ns for file in job.files if file.wall_ns is not None), default=None)
        self._of_device: dict[int, dict[int, list[int]]] = {}  # a communication -> device -> its group
        self._held: list[Communication] = []  # what the keys above are the identities of
        self._numbers: dict[tuple[int, ...], int] = {}
        self._rows: list[Row] = []

    def add(self, row: Row) -> None:
        """Add a row whose values fit their columns; many rows go into the table at once."""
        self._rows.append(row)
        if len(self._rows) >= _ROWS:
            self.flush()

    def flush(self) -> None:
        """Put the rows so far into the table."""
        self.job.gathered.events.extend(rows("events", self._rows))
        self._rows = []

    def shift_s(self, file: XlaFile) -> float:
        """Return what brings a file's times onto the job's clock."""
        is_known = file.wall_ns is not None and self.origin_ns is not None
        return (file.wall_ns - self.origin_ns) * 1e-9 if is_known else 0.0  # type: ignore[operator]

    def rank(self, device: int | None) -> int | None:
        """Return the rank of a device."""
        return self.ranks.get(device) if device is not None else None

    def group(self, call: PendingXlaCall) -> tuple[int | None, list[int] | None]:
        """Return number and ranks of a call's group; None where neither device nor program tell which it is."""
        held = call.communication
        if held.groups is None:
            name = f"unknown group of {call.module or call.kernel}"[:200]
            return self.job.gathered.communicator(name, name=name, ground="assumed", confidence=0.3), None
        if call.device is None:
            ranks = self._ranks(held.groups[0]) if len(held.groups) == 1 else None
        else:
            if id(held) not in self._of_device:
                self._of_device[id(held)] = {each: group for group in held.groups for each in group}
                self._held.append(held)
            members = self._of_device[id(held)].get(call.device)
            ranks = self._ranks(members) if members is not None else None
        return (self._number(ranks), ranks) if ranks else (None, None)

    def _ranks(self, devices: list[int]) -> list[int]:
        return [self.ranks[device] for device in devices if device in self.ranks]

    def _number(self, ranks: list[int]) -> int:
        key = tuple(ranks)
        if key not in self._numbers:
            shown = ",".join(map(str, ranks[:_MOST_SHOWN])) + (",..." if len(ranks) > _MOST_SHOWN else "")
            gathered = self.job.gathered
            name = f"devices {shown}" if len(ranks) <= _MOST_SHOWN else f"devices {shown} ({len(ranks)}, {hash(key):x})"
            self._numbers[key] = gathered.communicator(name, name=name, members=ranks, size=len(ranks))
        return self._numbers[key]


def emit(job: XlaJob) -> Emission:
    """Write all calls, and what the devices did besides, in the order of files."""
    emission = Emission(job)
    called = [(call, *emission.group(call)) for call in job.calls]
    sequences = _sequences(called)
    for index, (call, number, ranks) in enumerate(called):
        _write(emission, call, number, ranks, sequences.get(index))
    emission.flush()
    for file in job.files:
        for frame in file.frames:
            job.gathered.events.extend(_rows(emission, file, frame))
        _write_steps(emission, file)
        for device in sorted(file.devices):
            job.gathered.device(emission.rank(device), file.host, file.pid, file.own(device))
    emission.flush()
    return emission


def _sequences(called: list[tuple[PendingXlaCall, int | None, list[int] | None]]) -> dict[int, int]:
    """Return the number of the logical operation of each collective: the same on every rank of a group.

    A program does the same operations on every device, though not in one order: calls belong together by module, instruction,
    run and how often it came before, and are numbered by the earliest of their beginnings. Where no device is recorded, every
    so many beginnings as there are ranks are one: nobody begins the next before all have begun this one.
    """
    together: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    unnamed: dict[tuple[Any, ...], int] = defaultdict(int)
    for index in sorted(range(len(called)), key=lambda index: called[index][0].start_ps):
        call, number, ranks = called[index]
        if number is None or not ranks or call.communication.op == "send-recv":
            continue
        key = (number, call.module, call.communication.name, call.run)
        nth = call.nth
        if call.device is None:
            nth, unnamed[key] = unnamed[key] // len(ranks), unnamed[key] + 1
        together[*key, nth].append(index)
    first = {key: min(called[each][0].start_ps for each in held) for key, held in together.items()}
    counted: dict[int, int] = defaultdict(int)
    sequences: dict[int, int] = {}
    for key in sorted(together, key=lambda key: (key[0], first[key], str(key))):
        for index in together[key]:
            sequences[index] = counted[key[0]]
        counted[key[0]] += 1
    return sequences


def _write(
    emission: Emission, call: PendingXlaCall, number: int | None, ranks: list[int] | None, sequence: int | None
) -> None:
    """Write one call: a collective as one row, a permutation as what the rank sends and what it gets."""
    row = _common(emission, call, number, ranks) | {"sequence": sequence}
    gathered, held = emission.job.gathered, call.communication
    if number is not None and row["rank"] is not None:
        gathered.of(number)["ranks"].add(row["rank"])
    if held.op not in ("send-recv", "send", "recv"):
        emission.add({"kind": "collective", "op": held.op, **row, **_sizes(held, ranks)})
        return
    sides = _sides(emission, call, ranks)
    if sides is None:
        emission.add({"kind": "p2p", "op": held.op, **row, "size_bytes": held.size_bytes})
        return
    if not sides:
        gathered.note(call.file.name, "other", "permutations in which a device takes no part", example=held.name)
    for op, peer in sides:
        emission.add({"kind": "p2p", "op": op, **row, "peer": peer, "size_bytes": held.size_bytes})
        row |= {"kernel": None, "kernel_class": None}  # one event is both sides: its time counts once


def _sides(emission: Emission, call: PendingXlaCall, ranks: list[int] | None) -> list[tuple[str, int]] | None:
    """Return (send or recv, peer in the group) of a permutation; None where device or pairs are not known."""
    held, device = call.communication, call.device
    if held.op != "send-recv" or not held.pairs or ranks is None or device is None:
        return None
    at = {rank: index for index, rank in enumerate(ranks)}
    ends = [("send", emission.rank(target)) for source, target in held.pairs if source == device]
    ends += [("recv", emission.rank(source)) for source, target in held.pairs if target == device]
    return [(op, at[rank]) for op, rank in ends if rank is not None and rank in at]


def _sizes(held: Communication, ranks: list[int] | None) -> dict[str, int | None]:
    """Return the size column of nccl-tests and what a rank hands in and gets; unknown stays unknown."""
    size = held.size_bytes
    if size is None:
        return {}
    if held.op == "all-gather":
        whole = size * len(ranks) if ranks and size * len(ranks) <= MOST_BYTES else None
        return {"size_bytes": whole, "sent_bytes": size, "received_bytes": whole}
    if held.op == "reduce-scatter":
        return {"size_bytes": size, "sent_bytes": size, "received_bytes": size // len(ranks) if ranks else None}
    return {"size_bytes": size, "sent_bytes": size, "received_bytes": size}


# branches: a value for each column, many of which a call may lack
def _common(emission: Emission, call: PendingXlaCall, number: int | None, ranks: list[int] | None) -> Row:
    file, held = call.file, call.communication
    rank = emission.rank(call.device)
    is_alike = held.groups is not None and len({len(group) for group in held.groups}) == 1
    nranks = len(ranks) if ranks else len(held.groups[0]) if is_alike and held.groups else None
    is_sure = held.groups is not None and call.device is not None
    named = held.datatype if held.datatype in BYTES else None
    return {
        "task": f"{call.module}/{held.name}" if call.module else held.name,
        "rank": rank,
        "communicator": number,
        "comm_rank": ranks.index(rank) if ranks and rank in ranks else None,
        "nranks": nranks,
        "host": file.host or None,
        "pid": file.pid,
        "device": file.own(call.device),
        "count": held.elements,
        "datatype": held.datatype,
        "element_bytes": BYTES[named] if named else None,
        "reduce_op": held.reduce_op,
        "root": 0 if held.op == "broadcast" else None,
        "stream": call.stream,
        "iteration": file.iterations.get(call.run) if call.run is not None else None,
        "kernel": call.kernel,
        "kernel_class": call.kernel_class,
        "algorithm": call.algorithm,
        "protocol": call.protocol,
        "start_s": call.start_ps * 1e-12 + emission.shift_s(file),
        "duration_s": (call.end_ps - call.start_ps) * 1e-12,
        "clock": file.clock,
        "text": held.framework_name or None,
        "file": file.name,
        "ground": "read" if is_sure else "inferred",
        "confidence": 1.0 if is_sure else 0.5,
    }


def _write_steps(emission: Emission, file: XlaFile) -> None:
    """Write the steps once for each device of the file, which all take part in them."""
    ranks: list[int | None] = [*sorted(emission.ranks[device] for device in file.devices)]
    for step in file.steps:
        row: Row = {"host": file.host or None, "clock": file.clock, "file": file.name}
        row |= {"iteration": step.number, "text": step.name}
        row |= {"start_s": step.start_ps * 1e-12 + emission.shift_s(file), "duration_s": step.duration_ps * 1e-12}
        for rank in ranks or [None]:
            emission.add({"kind": "step", "rank": rank, **row})


def _rows(emission: Emission, file: XlaFile, frame: pl.DataFrame) -> pl.DataFrame:
    """Return what a file's devices did besides communicating, as rows of the table."""
    import polars as pl

    devices = frame["device"].drop_nulls().unique().to_list()
    ranks = [emission.rank(file.numbers.get(device, device)) for device in devices]
    runs = frame["run_id"].drop_nulls().unique().to_list()
    steps = [file.iterations.get(run) for run in runs]
    return frame.select(
        "kind",
        "op",
        "kernel",
        "kernel_class",
        "stream",
        "size_bytes",
        pl.col("device").cast(pl.Int32),
        pl.col("device").replace_strict(devices, ranks, default=None, return_dtype=pl.Int32).alias("rank"),
        pl.col("run_id").replace_strict(runs, steps, default=None, return_dtype=pl.Int64).alias("iteration"),
        (pl.col("start_ps").cast(pl.Float64) * 1e-12 + emission.shift_s(file)).alias("start_s"),
        (pl.col("duration_ps").cast(pl.Float64) * 1e-12).alias("duration_s"),
        pl.lit(file.host or None, dtype=pl.String).alias("host"),
        pl.lit(file.clock).alias("clock"),
        pl.lit(file.name).alias("file"),
    )
