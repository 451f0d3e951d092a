"""Nsight Systems exports (``nsys export --type sqlite``): device kernels, copies, and NCCL's own NVTX ranges.

A kernel's time holds the waiting for its peers. NCCL's ranges are on the host; they give operation and message size and
are matched to kernels by order within a process and operation, only where both are equally many.
"""

from __future__ import annotations

from ringwright.formats.sources.nsys.reader import read_nsys

__all__ = ["read_nsys"]
