"""What a device kernel is by its name, for readers that know no more of it: the catalogue's answer in one form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.formats.sources.c10d import POINTWISE
from ringwright.formats.sources.kineto import catalogue

if TYPE_CHECKING:
    import polars as pl

    from ringwright.ground.trace_tables import Row

# Why tables of kernels name neither, as their readers tell it.
LIMITS = (
    "rank: a table of kernels does not tell which rank printed it",
    "communicator: a kernel's name does not tell the group, nor bytes",
)


@dataclass(frozen=True, slots=True)
class KernelKind:
    """A kernel's class (nccl, rccl, ..., unknown-communication, compute), and what its name says where it communicates."""

    kernel_class: str
    op: str | None = None
    algorithm: str | None = None
    protocol: str | None = None


def classify(name: str) -> KernelKind:
    """Return what a kernel is; one that communicates and does not say what has the operation "unknown"."""
    kernel = catalogue.load().classify(name)
    if not kernel.communicates:
        return KernelKind(kernel.library)
    return KernelKind(kernel.library, kernel.op or "unknown", kernel.algorithm, kernel.protocol)


def library_of(kernels: pl.DataFrame) -> str | None:
    """Return the library of the communication kernels of some events, None where they are of none or of several."""
    named = set(kernels.filter(kernels["kind"].is_in(["collective", "p2p"]))["kernel_class"].drop_nulls())
    return named.pop() if len(named) == 1 and named <= {"nccl", "rccl"} else None


def printed_kernel(name: str) -> Row:
    """Return the row of a kernel of which a table holds the name and times alone: a call, a copy, or what computes."""
    if name.startswith(("[CUDA mem", "Memcpy ", "Memset ")):
        return {"kind": "memory", "op": "set" if "memset" in name.lower() else "copy", "kernel_class": "memory"}
    kind = classify(name)
    row: Row = {"kind": "compute", "kernel": name, "kernel_class": kind.kernel_class}
    if kind.op is None:
        return row
    row |= {"op": kind.op, "algorithm": kind.algorithm, "protocol": kind.protocol}
    return row | {"kind": "p2p" if kind.op in POINTWISE else "collective"}
