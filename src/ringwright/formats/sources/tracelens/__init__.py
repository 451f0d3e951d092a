"""What TraceLens (AMD) makes of profiler traces, one table of collectives a CSV file."""

from ringwright.formats.sources.tracelens.reader import read_tracelens

__all__ = ["read_tracelens"]
