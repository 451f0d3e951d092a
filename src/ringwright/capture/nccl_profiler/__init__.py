"""The NCCL profiler plug-in: C source that ships with the package, built on demand with the machine's own compiler."""

from ringwright.capture.nccl_profiler.build import FILE_NAME, build, environment

__all__ = ["FILE_NAME", "build", "environment"]
