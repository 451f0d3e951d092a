"""Which call a kernel belongs to: by its launch within NCCL's range, by the group that ended with it, else by order.

A launch lies in the range of its call, or in that of ``ncclGroupEnd`` for all calls of the group since the one before. Where one
kernel does several calls, all of them are its calls. What is left is matched by order where kernels and calls are equally many.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ringwright.formats.sources.kernel_names import KernelKind
from ringwright.formats.sources.nsys.ranges import NvtxRange

CALLED = ("nccl", "rccl")  # whose calls the ranges are; kernels of others have none
_SIDES = {"send-recv": ("send", "recv")}


@dataclass(slots=True)
class CommunicationKernel:
    """A communication kernel, kept until the ranges are known; times in nanoseconds."""

    start: int
    end: int
    stream: str
    name: str
    kind: KernelKind
    enqueue: int | None
    thread: int | None
    is_graph: bool


@dataclass(slots=True)
class Matched:
    """Kernel -> its calls, and of operations with neither why."""

    calls: dict[int, list[NvtxRange]]
    reasons: dict[str, str]


def match(kernels: Sequence[CommunicationKernel], said: Sequence[NvtxRange], ends: Sequence[NvtxRange]) -> Matched:
    """Return the calls of the kernels of one process; ``said`` are its calls, ``ends`` the ends of its groups."""
    mine = {index: each for index, each in enumerate(kernels) if each.kind.kernel_class in CALLED}
    calls = _by_launch(mine, said)
    taken = {id(call) for held in calls.values() for call in held}
    rest = [call for call in said if id(call) not in taken]
    calls |= _by_group({index: each for index, each in mine.items() if index not in calls}, rest, ends)
    taken = {id(call) for held in calls.values() for call in held}
    rest = [call for call in said if id(call) not in taken]
    return _by_order({index: each for index, each in mine.items() if index not in calls}, rest, calls)


def _fits(kernel: CommunicationKernel, call: NvtxRange) -> bool:
    return call.op == kernel.kind.op or call.op in _SIDES.get(kernel.kind.op or "", ())


def _by_launch(kernels: dict[int, CommunicationKernel], said: Sequence[NvtxRange]) -> dict[int, list[NvtxRange]]:
    """Match kernels that were launched inside the range of a call of their operation, one kernel a call."""
    threads: dict[int, list[NvtxRange]] = defaultdict(list)
    for call in said:
        threads[call.thread].append(call)
    starts = {thread: [call.start for call in held] for thread, held in threads.items()}
    calls: dict[int, list[NvtxRange]] = {}
    taken: set[int] = set()
    for index, kernel in kernels.items():
        held = threads.get(kernel.thread) if kernel.thread is not None and kernel.enqueue is not None else None
        if not held or kernel.enqueue is None or kernel.thread is None:
            continue
        at = bisect_right(starts[kernel.thread], kernel.enqueue) - 1
        nearest = held[at] if at >= 0 else None
        if nearest is None or kernel.enqueue > nearest.end:
            continue
        if id(nearest) not in taken and _fits(kernel, nearest):
            calls[index] = [nearest]
            taken.add(id(nearest))
    return calls


def _by_group(
    kernels: dict[int, CommunicationKernel], said: Sequence[NvtxRange], ends: Sequence[NvtxRange]
) -> dict[int, list[NvtxRange]]:
    """Match kernels launched at the end of a group with its calls: one to one, or one kernel that does all of an operation."""
    calls: dict[int, list[NvtxRange]] = {}
    last_end: dict[int, int] = {}
    for end in ends:
        begin = last_end.get(end.thread, -1)
        last_end[end.thread] = end.end
        group = [call for call in said if call.thread == end.thread and begin < call.start <= end.start]
        launched = [
            index
            for index, each in kernels.items()
            if each.thread == end.thread and each.enqueue is not None and end.start <= each.enqueue <= end.end
        ]
        for op in {kernels[index].kind.op for index in launched}:
            of_op = [index for index in launched if kernels[index].kind.op == op]
            wanted = [call for call in group if _fits(kernels[of_op[0]], call)]
            if len(of_op) == len(wanted):
                calls.update((index, [call]) for index, call in zip(of_op, wanted, strict=True))
            elif len(of_op) == 1 and wanted:
                calls[of_op[0]] = wanted
    return calls


def _by_order(
    kernels: dict[int, CommunicationKernel], said: Sequence[NvtxRange], calls: dict[int, list[NvtxRange]]
) -> Matched:
    """Match the rest in order within an operation, only where both are equally many (no graphs, no fusing)."""
    reasons: dict[str, str] = {}
    by_op: dict[str, list[int]] = defaultdict(list)
    for index, kernel in kernels.items():
        by_op[kernel.kind.op or ""].append(index)
    for op, mine in by_op.items():
        wanted = [call for call in said if call.op == op]
        if len(wanted) == len(mine):
            calls.update((index, [call]) for index, call in zip(mine, wanted, strict=True))
        elif wanted:
            reasons[op] = (
                f"{op}: {len(wanted)} calls and {len(mine)} kernels, so no size is given (grouped calls, or CUDA graphs)"
            )
    return Matched(calls, reasons)
