"""What PyTorch's process groups call their operations, and how their buffers become sizes.

Sizes in bytes: the nccl-tests size column (total over ranks for all-gather, gather, reduce-scatter, scatter, all-to-all).
Source: ``RECORD_PARAM_COMMS`` in ``torch/csrc/distributed/c10d/ParamCommsUtils.hpp`` and ProcessGroupNCCL.cpp.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NOISE = re.compile(
    r"^(?:c10d::|nccl:|gloo:|ucc:|mpi:|xccl:|hccl:|rccl:)|[\s_\-]|coalesced|intotensor|tensor$|base$|single$|oop$"
)
_OPS = {
    "allreduce": "all-reduce",
    "allreducesparse": "all-reduce",
    "allgather": "all-gather",
    "allgatherv": "all-gather",
    "reducescatter": "reduce-scatter",
    "reducescatterv": "reduce-scatter",
    "alltoall": "all-to-all",
    "alltoallv": "all-to-all",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "monitoredbarrier": "barrier",
    "send": "send",
    "isend": "send",
    "recv": "recv",
    "irecv": "recv",
    "recvanysource": "recv",
    "sendrecv": "send-recv",
}
NO_CALLS = {
    "wait",
    "init",
    "startcoalesced",
    "endcoalesced",
    "coalesced",
    "",
    "abort",
    "destroy",
    "pgconfig",
    "waitall",
}
ROOTED = {"broadcast", "reduce", "gather", "scatter"}
POINTWISE = {"send", "recv", "send-recv"}


def operation(spelled: str) -> str | None:
    """Return our name of an operation, None for what is no call (``wait``, ``init``), "unknown" for a strange one."""
    key = spelled.strip().lower()
    previous = None
    while key != previous:
        previous, key = key, _NOISE.sub("", key)
    if key in _OPS:
        return _OPS[key]
    bare = re.sub(r"[\s_\-]", "", spelled.lower())
    return None if key in NO_CALLS or bare in NO_CALLS else "unknown"


@dataclass(frozen=True, slots=True)
class CallSizes:
    """Bytes of a call on one rank: the size column, what the rank hands in, what it gets; None where not known."""

    size: int | None
    sent: int | None
    received: int | None


def sizes(op: str, inside: int | None, outside: int | None, p: int | None) -> CallSizes:
    """Return the sizes of an operation whose buffers on this rank hold ``inside`` and ``outside`` bytes.

    Some writers give the buffer of one peer for a list of tensors: the larger side is then the smaller one times p.
    """
    if op == "barrier":
        return CallSizes(0, 0, 0)
    if op in ("all-gather", "gather"):
        total = _total(inside, outside if op == "all-gather" or _grew(inside, outside) else None, p)
        return CallSizes(total, inside, total if op == "all-gather" else outside)
    if op in ("reduce-scatter", "scatter"):
        total = _total(outside, inside if op == "reduce-scatter" or _grew(outside, inside) else None, p)
        return CallSizes(total, total if op == "reduce-scatter" else inside, outside)
    if op == "send":
        return CallSizes(inside, inside, None)
    if op == "recv":
        buffer = inside if outside is None else outside
        return CallSizes(buffer, None, buffer)
    size = inside if inside or outside is None else outside
    return CallSizes(size, inside, outside)


def _grew(part: int | None, whole: int | None) -> bool:
    return part is not None and whole is not None and whole > part


def _total(part: int | None, whole: int | None, p: int | None) -> int | None:
    """Return the total over ranks from one rank's part and what should be the whole."""
    if whole is not None and (part is None or whole > part or p == 1):
        return whole
    if part is None:
        return whole
    return part * p if p else None
