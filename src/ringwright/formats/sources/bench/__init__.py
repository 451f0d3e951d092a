"""Benchmark tables: what was measured for each size, in the many shapes in which such measurements travel.

nccl-tests and rccl-tests (text, ``-J`` JSON, JSON and CSV reports), mscclpp JSON lines, superbench logs and results,
torch all-reduce benchmarks (they print Gbit/s). Rows are kind ``measurement``: no operation of a job.
"""

from __future__ import annotations

from ringwright.formats.sources.bench.reader import read_bench

__all__ = ["read_bench"]
