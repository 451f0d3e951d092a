"""Sort what a device executed: an operation among devices, which waits for all files, or compute and copies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ringwright.sources.kineto.catalogue import UNKNOWN
from ringwright.sources.xplane.job import PendingXlaCall, is_container
from ringwright.sources.xplane.program import OPCODES, Communication

if TYPE_CHECKING:
    from ringwright.sources.kineto.catalogue import Catalogue, Kernel
    from ringwright.sources.xplane.executed import Executed
    from ringwright.sources.xplane.job import XlaFile, XlaJob

_COPY = re.compile(r"^(?:Memcpy|Memset)|copyBuffer|fillBuffer", re.IGNORECASE)
_SET = re.compile(r"set|fill", re.IGNORECASE)
_BYTES = re.compile(r"\bsize:(\d{1,18})\b")
_ENDING = re.compile(r"[.\d]*$")


def take(job: XlaJob, file: XlaFile, executed: Executed, kernels: Catalogue | None) -> None:
    """Sort one event; ``kernels`` is given where names are those of a device's kernels."""
    held = file.program_of(executed)
    if is_container(held, executed.hlo):
        job.gathered.note(file.name, "other", "loops, calls and branches: what they hold has events of its own")
        return
    if executed.device is not None:
        executed.device = file.numbers.get(executed.device, executed.device)
        file.devices.add(executed.device)
    if held is not None and executed.hlo in held.begins and kernels is None:
        _end(job, file, executed, held.begins[executed.hlo])
        return
    kernel = kernels.classify(executed.name) if kernels is not None else None
    communication = held.communications.get(executed.hlo) if held is not None else None
    is_copy = kernel is not None and bool(_COPY.search(executed.name))
    if is_copy and not (communication is not None and "P2P" in executed.name):
        size = _BYTES.search(executed.memory)
        op = "set" if _SET.search(executed.name) else "copy"
        file.rows.add(executed, "memory", op, "memory", int(size[1]) if size else None, _step(file, executed))
        return
    if communication is None:
        communication = _by_name(job, file, executed, kernel, is_known=held is not None)
    if communication is not None:
        _call(job, file, executed, communication, kernel)
        return
    kernel_class = UNKNOWN if kernel is not None and kernel.library == UNKNOWN else "compute"
    if kernel_class == UNKNOWN:
        job.gathered.claim(UNKNOWN, executed.name[:200], file.name, ground="inferred", confidence=0.5)
    file.rows.add(executed, "compute", None, kernel_class, None, _step(file, executed))


def _step(file: XlaFile, executed: Executed) -> int | None:
    return file.iterations.get(executed.run) if executed.run is not None else None


def _by_name(
    job: XlaJob, file: XlaFile, executed: Executed, kernel: Kernel | None, *, is_known: bool
) -> Communication | None:
    """Return what a name alone says: that of a kernel, or of an operation whose program the file does not carry."""
    op, reason = None, ""
    if kernel is not None and kernel.communicates:
        op = kernel.op or "unknown"
        reason = "kernels that communicate outside any program that the file carries: no size, no members"
    elif kernel is None and not is_known:
        op = OPCODES.get(_ENDING.sub("", executed.hlo).removesuffix("-start"))
        reason = "operations of a program that the file does not carry: no size, no members, and names may hide more"
    if op is None:
        return None
    job.gathered.note(file.name, "other", reason, example=executed.name)
    job.gathered.lose(f"{file.name}: {reason}")
    return Communication(executed.hlo or executed.name, op, op, None, None, None, None, None, [], "")


def _call(job: XlaJob, file: XlaFile, executed: Executed, communication: Communication, kernel: Kernel | None) -> None:
    begun = (file.name, executed.device, executed.module, executed.run, communication.name)
    is_kernel = kernel is not None and kernel.communicates
    call = PendingXlaCall(
        file,
        executed,
        communication,
        executed.module,
        executed.name if kernel is not None else communication.name,
        kernel.library if kernel is not None and is_kernel else "xla",
        kernel.algorithm if kernel is not None else None,
        kernel.protocol if kernel is not None else None,
        executed.start_ps + executed.duration_ps,
        job.nth(*begun),
    )
    job.calls.append(call)
    if kernel is None and communication.opcode:
        job.begun[begun].append(call)


def _end(job: XlaJob, file: XlaFile, executed: Executed, begun: str) -> None:
    """Give an operation the end of the event that waits for it."""
    waiting = job.begun.get((file.name, executed.device, executed.module, executed.run, begun))
    if not waiting:
        job.gathered.note(
            file.name, "other", "ends of operations that began before the recording", example=executed.hlo
        )
        return
    call = waiting.pop(0)
    call.end_ps = max(call.end_ps, executed.start_ps + executed.duration_ps)
    job.gathered.note(file.name, "understood", "ends of operations, joined with their beginnings")
