"""Compile the shim, once for each user, compiler and source, and say which variables switch it on.

It needs a C compiler and no MPI: the library asks the libmpi of the running program what its handles mean, so that one file
serves Open MPI, the MPICH family and the ABI of the MPI 5 standard, whichever of them the program turns out to use.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ringwright.capture.nccl_profiler.build import find_compiler, shared_library
from ringwright.ground.cache_folder import cache_folder
from ringwright.ground.errors import UsageError

FILE_NAME = "libringwright-mpi.so"
_AGAIN = "ringwright run"
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-Wl,-soname," + FILE_NAME)
_SOURCES = tuple(sorted(Path(__file__).parent.glob("*.c")))
_HEADERS = tuple(sorted(Path(__file__).parent.glob("*.h")))


def build(folder: str | Path | None = None, *, compiler: str | None = None, flags: Sequence[str] = ()) -> Path:
    """Return the shim's absolute path, compiled now unless the same source was compiled by the same compiler before.

    It lies in a folder of its own under ``folder`` (by default the user's cache), and must be seen under
    that path by every node of a job. ``compiler`` defaults to ``CC``, then cc, gcc, clang; ``flags`` are added to ours. Raises
    UsageError when there is no compiler, when it fails, or when the folder cannot be written.
    """
    found = find_compiler(compiler, _AGAIN)
    command = [found, *_FLAGS, *flags]
    path = Path(folder or cache_folder("mpi-shim")).absolute() / _digest(command) / FILE_NAME
    if path.is_file():
        return path
    try:
        return shared_library(path, [*command, *map(str, _SOURCES), "-ldl"], _AGAIN)
    except OSError as error:
        remedy = f"XDG_CACHE_HOME=/a/folder/to/write {_AGAIN}"
        raise UsageError(f"the shim cannot be written: {error.strerror}", where=str(path), remedy=remedy) from error


def environment(library: str | Path, capture: str | Path, existing: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that every rank needs to record into the folder ``capture``.

    A preloaded library in ``existing`` stays in front of ours. Raises UsageError for a path that LD_PRELOAD cannot name.
    """
    path = str(Path(library).absolute())
    if set(path) & set(" :;\t\n$"):
        what = "a path with spaces, colons or dollars cannot be preloaded"
        raise UsageError(what, where=path, remedy=f"XDG_CACHE_HOME=/tmp/cache {_AGAIN}")
    before = (existing or {}).get("LD_PRELOAD", "").strip(": ")
    others = [name for name in before.replace(":", " ").split() if name != path]
    return {"LD_PRELOAD": ":".join([*others, path]), "RINGWRIGHT_CAPTURE": str(Path(capture).absolute())}


def _digest(command: Sequence[str]) -> str:
    """Return what names a build: the compiler, its version and flags, the processor, every source."""
    said = subprocess.run([command[0], "--version"], capture_output=True, check=False).stdout
    parts = [" ".join(command).encode(), said, platform.machine().encode()]
    parts += [path.read_bytes() for path in (*_SOURCES, *_HEADERS)]
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.hexdigest()[:16]
