"""Sort what a device executed: an operation among devices, which waits for all files, or compute and copies.

Events are sorted by kind, not one by one: all that have the name, the operation and the program in common are of one kind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.formats.sources.kineto.catalogue import UNKNOWN
from ringwright.formats.sources.xplane.job import PendingXlaCall, is_container
from ringwright.formats.sources.xplane.program import OPCODES, Communication

if TYPE_CHECKING:
    import polars as pl

    from ringwright.formats.sources.kineto.catalogue import Catalogue, Kernel
    from ringwright.formats.sources.xplane.job import XlaFile, XlaJob
    from ringwright.ground.trace_tables import Row

KEYS = ("kernel", "hlo_op", "hlo_module", "program_id", "memcpy_details")
_COPY = re.compile(r"^(?:Memcpy|Memset)|copyBuffer|fillBuffer", re.IGNORECASE)
_SET = re.compile(r"set|fill", re.IGNORECASE)
_BYTES = re.compile(r"\bsize:(\d{1,18})\b")
_ENDING = re.compile(r"[.\d]*$")
_INSIDE = "loops, calls and branches: what they hold has events of its own"
_OUTSIDE = "kernels that communicate outside any program that the file carries: no size, no members"
_UNTOLD = "operations of a program that the file does not carry: no size, no members, and names may hide more"


@dataclass(slots=True)
class ExecutedKind:
    """What all events of one name, operation and program are."""

    kind: str  # of the row: compute, memory; or call, end, inside
    op: str | None = None
    kernel_class: str | None = None
    size_bytes: int | None = None
    communication: Communication | None = None
    kernel: Kernel | None = None
    begun: str = ""


def take(job: XlaJob, file: XlaFile, frame: pl.DataFrame, kernels: Catalogue | None) -> None:
    """Sort events, whose column ``device`` says where they ran; ``kernels`` is given where names are those of kernels."""
    import polars as pl

    devices = frame["device"].drop_nulls().unique().to_list()
    file.devices |= {file.numbers.get(device, device) for device in devices}
    kinds = frame.group_by(KEYS, maintain_order=True).len().with_row_index("which")
    sorted_kinds = [_kind_of(job, file, row, kernels) for row in kinds.iter_rows(named=True)]
    told = kinds.select("which", *KEYS).with_columns(
        pl.Series("kind", [each.kind for each in sorted_kinds], dtype=pl.String),
        pl.Series("op", [each.op for each in sorted_kinds], dtype=pl.String),
        pl.Series("kernel_class", [each.kernel_class for each in sorted_kinds], dtype=pl.String),
        pl.Series("size_bytes", [each.size_bytes for each in sorted_kinds], dtype=pl.Int64),
    )
    every = frame.join(told, on=KEYS, how="left", nulls_equal=True, maintain_order="left")
    rows = every.filter(pl.col("kind").is_in(["compute", "memory"]))
    columns = (
        "kind",
        "op",
        "device",
        "kernel",
        "kernel_class",
        "stream",
        "size_bytes",
        "start_ps",
        "duration_ps",
        "run_id",
    )
    file.frames.append(rows.select(columns))
    waiting = every.filter(pl.col("kind").is_in(["call", "end"])).sort("start_ps", maintain_order=True)
    for row in waiting.iter_rows(named=True):
        held = sorted_kinds[row["which"]]
        if held.communication is not None:
            _call(job, file, row, held.communication, held.kernel)
        else:
            _end(job, file, row, held.begun)


# branches: a rule for each kind of event, of which the first that holds decides
def _kind_of(job: XlaJob, file: XlaFile, row: Row, kernels: Catalogue | None) -> ExecutedKind:
    """Return what some events are; ``row`` has their keys and their number ``len``."""
    name, hlo, count = row["kernel"], row["hlo_op"] or "", row["len"]
    held = file.program_of(row["program_id"], row["hlo_module"] or "")
    if is_container(held, hlo):
        job.gathered.note(file.name, "other", _INSIDE, count)
        return ExecutedKind("inside")
    if held is not None and hlo in held.begins and kernels is None:
        return ExecutedKind("end", begun=held.begins[hlo])
    kernel = kernels.classify(name) if kernels is not None else None
    communication = held.communications.get(hlo) if held is not None else None
    is_copy = kernel is not None and bool(_COPY.search(name))
    if is_copy and not (communication is not None and "P2P" in name):
        size = _BYTES.search(row["memcpy_details"] or "")
        return ExecutedKind("memory", "set" if _SET.search(name) else "copy", "memory", int(size[1]) if size else None)
    if communication is None:
        communication = _by_name(job, file, row, kernel, is_known=held is not None)
    if communication is not None:
        return ExecutedKind("call", communication=communication, kernel=kernel)
    kernel_class = UNKNOWN if kernel is not None and kernel.library == UNKNOWN else "compute"
    if kernel_class == UNKNOWN:
        job.gathered.claim(UNKNOWN, name[:200], file.name, ground="inferred", confidence=0.5)
    return ExecutedKind("compute", None, kernel_class)


def _by_name(job: XlaJob, file: XlaFile, row: Row, kernel: Kernel | None, *, is_known: bool) -> Communication | None:
    """Return what a name alone says: that of a kernel, or of an operation whose program the file does not carry."""
    op, reason = None, ""
    if kernel is not None and kernel.communicates:
        op, reason = kernel.op or "unknown", _OUTSIDE
    elif kernel is None and not is_known:
        op, reason = OPCODES.get(_ENDING.sub("", row["hlo_op"] or "").removesuffix("-start")), _UNTOLD
    if op is None:
        return None
    job.gathered.note(file.name, "other", reason, row["len"], example=row["kernel"])
    job.gathered.lose(f"{file.name}: {reason}")
    return Communication(row["hlo_op"] or row["kernel"], op, op, None, None, None, None, None, [], "")


def _call(job: XlaJob, file: XlaFile, row: Row, communication: Communication, kernel: Kernel | None) -> None:
    module, device = (row["hlo_module"] or "")[:4096], row["device"]
    key = (file.name, device, module, row["run_id"], communication.name)
    call = PendingXlaCall(
        file,
        communication,
        module,
        file.numbers.get(device, device) if device is not None else None,
        row["run_id"],
        row["stream"],
        row["kernel"] if kernel is not None else communication.name,
        kernel.library if kernel is not None and kernel.communicates else "xla",
        kernel.algorithm if kernel is not None else None,
        kernel.protocol if kernel is not None else None,
        row["start_ps"],
        row["start_ps"] + row["duration_ps"],
        job.nth(key),
    )
    job.calls.append(call)
    if kernel is None:
        job.begun[key].append(call)


def _end(job: XlaJob, file: XlaFile, row: Row, begun: str) -> None:
    """Give an operation the end of the event that waits for it."""
    waiting = job.begun.get((file.name, row["device"], row["hlo_module"] or "", row["run_id"], begun))
    if not waiting:
        job.gathered.note(
            file.name, "other", "ends of operations that began before the recording", example=row["hlo_op"]
        )
        return
    call = waiting.pop(0)
    call.end_ps = max(call.end_ps, row["start_ps"] + row["duration_ps"])
    job.gathered.note(file.name, "understood", "ends of operations, joined with their beginnings")
