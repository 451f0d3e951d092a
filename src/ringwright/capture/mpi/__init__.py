"""The MPI shim: C source that ships with the package, built on demand, and how a launcher passes it on to ranks."""

from ringwright.capture.mpi.build import FILE_NAME, build, environment
from ringwright.capture.mpi.launcher import FAMILIES, LauncherFamily, family_of, with_variables

__all__ = ["FAMILIES", "FILE_NAME", "LauncherFamily", "build", "environment", "family_of", "with_variables"]
