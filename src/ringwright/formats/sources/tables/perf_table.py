"""Tables of expected performance: aiconfigurator's CSV and the results of PICO, as measurements.

- aiconfigurator: ``message_size`` counts ELEMENTS of ``nccl_dtype`` (half and int8 rows agree only so), ``latency`` is ms.
- PICO results: one file per size and algorithm, ``<bytes>_<collective>_<algorithm>.csv``: nanoseconds of the slowest rank
  per iteration (``highest``), the first of them warm-up; ``alloc.txt`` says which host and GPU each rank had.
- PICO summaries: ``aggregated_results_summary.csv``, nanoseconds, ``buffer_size`` in bytes.
"""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringwright.costs.nccl.names import printed_algorithm
from ringwright.formats.sources.c10d import operation
from ringwright.formats.sources.datatypes import BYTES, datatype
from ringwright.formats.sources.members import Member, whole
from ringwright.formats.sources.reader_rows import Gathered, whole_number
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

KIND = "perf-table"
WARM_UP = 0.2  # of PICO's iterations, as its own summary leaves out
MOST_BYTES = 512 << 20
_PICO = re.compile(r"^(\d{1,18})_([a-z_]+?)_(.+)\.csv$")
_PICO_OPS = (
    "reduce_scatter",
    "all_to_all",
    "allreduce",
    "allgather",
    "alltoall",
    "broadcast",
    "bcast",
    "gather",
    "scatter",
    "reduce",
)
_ALLOCATED = re.compile(r"\{\s*(\d{1,7})\s*:\s*(\S+)\s*-\s*(\d{1,4})\s*\}")
_NAMED_RELEASE = re.compile(r"nccl[_-]?(\d+\.\d+(?:\.\d+)?)", re.IGNORECASE)


@dataclass(slots=True)
class _Line:
    """One size of one case."""

    op: str
    size_bytes: int
    time_s: float
    table: str
    ranks: int | None = None
    nodes: int | None = None
    dtype: str | None = None
    algorithm: str | None = None
    iterations: int = 1
    file: str = ""
    number: int = 0


@dataclass
class _Read:
    """What has been read."""

    gathered: Gathered
    lines: list[_Line] = field(default_factory=list)
    placed: dict[str, dict[int, tuple[str, int]]] = field(default_factory=dict)  # folder -> rank -> (host, GPU)
    folders: dict[int, str] = field(default_factory=dict)  # index in lines -> folder of PICO


def read_perf_table(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the measurements of performance tables; InputError where none holds a row."""
    state = _Read(Gathered(KIND))
    for member in state.gathered.members(sources, progress):
        _member(state, member)
    state.gathered.inputs += [source.name for source in sources]
    if not state.lines:
        raise InputError(
            "no row of a performance table was found",
            where=", ".join(source.name for source in sources[:3]),
            remedy="give an aiconfigurator CSV (op_name, num_gpus, message_size, latency) or the results of PICO",
        )
    _allocate(state)
    for line in state.lines:
        _emit(state.gathered, line)
    ranks = {line.ranks for line in state.lines}
    return state.gathered.trace(world=ranks.pop() if len(ranks) == 1 else None)


def _member(state: _Read, member: Member) -> None:
    before = len(state.lines)
    if member.title == "alloc.txt":
        _allocation(state, member)
        return
    match = _PICO.match(member.title)
    if match:
        _pico(state, member, match)
    else:
        _table(state, member)
    state.gathered.note(member.name, "understood", "rows", len(state.lines) - before)
    if len(state.lines) == before:
        state.gathered.note(member.name, "refused", "no row of a performance table")


# --------------------------------------------------------------------------------------------------------------- PICO
LONGEST_NUMBER = 20  # digits of a time in ns


def _pico(state: _Read, member: Member, match: re.Match[str]) -> None:
    """Read one file of times; lines that are no number are PICO's own remarks."""
    rest = f"{match[2]}_{match[3]}"
    spelled = next((op for op in _PICO_OPS if rest.startswith(op)), "")
    op = operation(spelled) if spelled else "unknown"
    algorithm = rest.removeprefix(spelled).strip("_")
    lines = (line.strip() for line in whole(member, MOST_BYTES).decode("ascii", "replace").splitlines())
    times = [int(line) for line in lines if line.isdecimal() and len(line) < LONGEST_NUMBER]
    taken = [time for time in times if 0 < time < 10**15]
    steady = taken[int(len(taken) * WARM_UP) :]
    if not steady:
        return
    folder = member.name.replace("\\", "/").rsplit("/", 2)[0]
    is_nccl = algorithm.startswith("nccl_")
    table = f"{re.split(r'[/!:]', folder)[-1]} {algorithm}"
    state.folders[len(state.lines)] = folder
    state.lines.append(
        _Line(
            op or "unknown",
            int(match[1]),
            statistics.median(steady) * 1e-9,
            table,
            iterations=len(steady),
            file=member.name,
            algorithm=printed_algorithm(algorithm.removeprefix("nccl_")) if is_nccl else algorithm,
        )
    )


def _allocation(state: _Read, member: Member) -> None:
    """Read ``{35 : host - 3}``: rank, host, GPU."""
    text = whole(member, 64 << 20).decode("utf-8", "replace")
    folder = member.name.replace("\\", "/").rsplit("/", 1)[0]
    state.placed[folder] = {int(rank): (host, int(gpu)) for rank, host, gpu in _ALLOCATED.findall(text)}
    for rank, (host, gpu) in sorted(state.placed[folder].items()):
        state.gathered.device(rank, host, device=gpu)
    state.gathered.note(member.name, "understood", "ranks placed", len(state.placed[folder]))


def _allocate(state: _Read) -> None:
    for number, folder in state.folders.items():
        ranks = state.placed.get(folder)
        if ranks:
            state.lines[number].ranks = max(ranks) + 1
            state.lines[number].nodes = len({host for host, _ in ranks.values()})


# ---------------------------------------------------------------------------------------------------------------- CSV
def _table(state: _Read, member: Member) -> None:
    text = io.StringIO(whole(member, MOST_BYTES).decode("utf-8-sig", "replace"), newline="")
    versions, gpus = set(), set()
    try:
        for line_number, raw in enumerate(csv.DictReader(text), 2):
            row = {
                (key or "").strip().lower(): (value or "").strip()
                for key, value in raw.items()
                if isinstance(value, str)
            }
            line = _expected(row, member) or _summary(row, member)
            if line is None:
                state.gathered.note(member.name, "refused", "a row without operation, size and time", at=line_number)
                continue
            line.file, line.number = member.name, line_number
            state.lines.append(line)
            versions.add(row.get("version", ""))
            gpus.add(row.get("device", ""))
    except csv.Error as error:
        state.gathered.note(member.name, "refused", f"no CSV: {error}")
    _say(state.gathered, member, versions - {""}, gpus - {""})


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value < 1e18 else None


def _expected(row: dict[str, str], member: Member) -> _Line | None:
    """Return a row of aiconfigurator."""
    spelled = row.get("op_name") or row.get("operation") or row.get("op")
    elements, time_ms = whole_number(row.get("message_size")), _number(row.get("latency"))
    dtype = datatype(row.get("nccl_dtype") or row.get("dtype") or row.get("allreduce_dtype") or "")
    op = operation(spelled) if spelled else None
    if op is None or elements is None or elements < 0 or time_ms is None or dtype is None:
        return None
    ranks = whole_number(row.get("num_gpus"), 1 << 24)
    size = elements * BYTES[dtype]
    nodes = 1 if ranks and ranks <= 8 else None  # its collector runs nccl-tests in one process
    return _Line(op, size, time_ms * 1e-3, f"{member.title} {dtype}", ranks, nodes, dtype)


def _summary(row: dict[str, str], member: Member) -> _Line | None:
    """Return a row of PICO's ``aggregated_results_summary.csv``."""
    words = {key: value or "" for key, value in row.items()}
    size = whole_number(words.get("buffer_size", "").split(".")[0])
    time_ns = _number(row.get("median") or row.get("mean"))
    op = operation(words.get("collective_type", ""))
    if op is None or size is None or size < 0 or time_ns is None:
        return None
    nodes = whole_number(row.get("nnodes"), 1 << 24)
    each = whole_number(row.get("tasks_per_node"), 1 << 16)
    ranks = nodes * (each or 1) if nodes else None
    algorithm = words.get("algo_name", "")
    table = f"{row.get('system') or member.title} {words.get('mpi_lib', '')} {algorithm}".strip()
    dtype = datatype(words.get("datatype", ""))
    return _Line(
        op, size, time_ns * 1e-9, table, ranks, nodes, dtype, algorithm or None, int(_number(row.get("n_iter")) or 1)
    )


def _say(gathered: Gathered, member: Member, versions: set[str], gpus: set[str]) -> None:
    for gpu in sorted(gpus):
        gathered.claim("gpu", gpu, member.title)
    for version in sorted(versions):
        gathered.release(version)
        gathered.claim("release", version, member.title)
    named = _NAMED_RELEASE.search(member.title)
    if named and versions and named[1] not in versions:
        note = f"the name says {named[1]}, the column 'version' {', '.join(sorted(versions))}"
        gathered.claim(
            "release",
            named[1],
            f"name of {member.title}",
            ground="inferred",
            confidence=0.5,
            note=f"contradiction: {note}",
        )
        gathered.lose(f"{member.title}: {note}; which release was measured is not sure")
    if gpus:
        note = "half and int8 rows give one bandwidth only when message_size counts elements"
        gathered.claim("message_size", "elements", member.title, ground="inferred", confidence=0.95, note=note)
        gathered.claim(
            "nodes", 1, member.title, ground="assumed", confidence=0.9, note="up to 8 GPUs are taken as one node"
        )


def _emit(gathered: Gathered, line: _Line) -> None:
    number = None
    if line.ranks:
        name = f"{line.ranks} ranks" + (f" on {line.nodes} nodes" if line.nodes else "")
        number = gathered.communicator(name, name=name, size=line.ranks, nnodes=line.nodes)
    row: dict[str, Any] = {
        "kind": "measurement",
        "op": line.op,
        "communicator": number,
        "nranks": line.ranks,
        "nnodes": line.nodes,
        "size_bytes": line.size_bytes,
        "datatype": line.dtype,
        "element_bytes": BYTES[line.dtype] if line.dtype else None,
        "algorithm": line.algorithm,
        "duration_s": line.time_s,
        "task": "out-of-place",
        "text": line.table,
        "records": line.iterations,
        "multiplicity": 1,
        "source": KIND,
        "file": line.file,
        "line": line.number,
        "ground": "read",
        "confidence": 1.0,
    }
    gathered.events.add(**row)
