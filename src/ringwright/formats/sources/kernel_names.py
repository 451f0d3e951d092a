"""What a device kernel is by its name, for readers that know no more of it: the catalogue's answer in one form."""

from __future__ import annotations

from dataclasses import dataclass

from ringwright.formats.sources.kineto import catalogue


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
