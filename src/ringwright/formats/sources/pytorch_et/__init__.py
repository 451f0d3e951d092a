"""PyTorch execution traces (schemas 1.0.1, 1.0.2, 1.0.3, 1.1.0), one JSON a rank.

Each collective stands there three times: ``c10d::op``, its child ``record_param_comms`` and its child ``nccl:op``; only
the middle one is counted. ``wait`` is no collective. An execution trace has no times, only the order of calls.
"""

from __future__ import annotations

from ringwright.formats.sources.pytorch_et.reader import read_pytorch_et

__all__ = ["read_pytorch_et"]
