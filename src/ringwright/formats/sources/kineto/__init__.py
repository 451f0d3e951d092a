"""PyTorch profiler (Kineto) traces: one file, or one per rank, of any size.

``read_kineto`` is the entry point; what it reads, assumes and leaves out is in docs/reference/kineto.md.
"""

from __future__ import annotations

from ringwright.formats.sources.kineto.reader import read_kineto

__all__ = ["read_kineto"]
