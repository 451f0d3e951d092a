"""What a device kernel is by its name: a small matcher, to be replaced by the catalogue of all communication kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NCCL = re.compile(
    r"\b(?P<lib>nccl|rccl)(?:Dev|Symk?Dev|Symk)?Kernel_?(?P<op>[A-Za-z]+)?(?:_(?P<rest>\w+))?", re.IGNORECASE
)
_OPS = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send-recv",
    "alltoall": "all-to-all",
    "gather": "gather",
    "scatter": "scatter",
}
_ALGORITHMS = ("RING", "TREE", "COLLNET_DIRECT", "COLLNET_CHAIN", "COLLNET", "NVLS_TREE", "NVLS", "PAT")
_PROTOCOLS = ("LL128", "LL", "SIMPLE")
_LIKE = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|multimem|nvshmem|deep_?ep|cross_device", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class KernelKind:
    """A kernel's class (nccl, rccl, unknown-communication, compute), and for NCCL's what its name says."""

    kernel_class: str
    op: str | None = None
    algorithm: str | None = None
    protocol: str | None = None


def classify(name: str) -> KernelKind:
    """Return what a kernel is; a generic NCCL kernel has operation "unknown"."""
    match = _NCCL.search(name)
    if match is None:
        return KernelKind("unknown-communication" if _LIKE.search(name) else "compute")
    words = "_" + (match["rest"] or "").upper() + "_"
    algorithm = next((word for word in _ALGORITHMS if f"_{word}_" in words), None)
    protocol = next((word for word in _PROTOCOLS if f"_{word}_" in words), None)
    op = _OPS.get((match["op"] or "").lower(), "unknown")
    return KernelKind(match["lib"].lower(), op, algorithm and algorithm.lower(), protocol and protocol.lower())
