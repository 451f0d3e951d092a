"""The files of the NCCL profiler plug-in (``ringwright plugin``)."""

from ringwright.formats.sources.nccl_profiler.reader import read_nccl_profiler

__all__ = ["read_nccl_profiler"]
