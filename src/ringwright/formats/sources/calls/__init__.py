"""Calls files: what the PyTorch hook and the MPI shim wrote inside the processes of a recorded job."""

from ringwright.formats.sources.calls.reader import read_calls

__all__ = ["read_calls"]
