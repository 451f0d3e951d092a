"""Chakra execution traces (MLCommons): length-prefixed protobuf, one file a rank, or its JSON twin.

``duration_micros`` is an integer, so kernels below a microsecond read 0 or 1. ``comm_size`` is bytes: for all-gather and
gather what ONE rank hands in (so the PyTorch converter writes it and ASTRA-sim reads it), for all else the size column.
Host operators named like a collective (``is_cpu_op``, or without ``comm_type``) are twins of the kernels and not counted.
"""

from __future__ import annotations

from ringwright.formats.sources.chakra_et.reader import read_chakra_et

__all__ = ["read_chakra_et"]
