"""Reader of NCCL and RCCL debug logs, releases 2.3 to 2.30."""

from ringwright.formats.sources.nccl_log.reader import read_log

__all__ = ["read_log"]
