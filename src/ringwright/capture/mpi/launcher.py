"""Which family of MPI launchers a command belongs to, and how it hands variables on to its ranks.

Ranks on this machine inherit the launcher's environment in every family. Ranks on other machines get what they are told to get,
so the variables are given as arguments as well. In a launcher without MPI inside the shim does nothing.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringwright.ground import extras
from ringwright.ground.errors import UsageError

_ANSWER_S = 20.0


@dataclass(frozen=True)
class LauncherFamily:
    """One family: what its ``--version`` says, and the arguments that give ranks a variable ({name}, {value}).

    Without arguments its ranks inherit the launcher's environment on every machine.
    """

    name: str
    says: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()  # names that only this family has, for a launcher that cannot find its own texts


# In this order: Intel's launcher is a hydra too.
FAMILIES = (
    LauncherFamily("open-mpi", ("(Open MPI)", "OpenRTE"), ("-x", "{name}={value}"), ("orterun", "ompirun_wrapper")),
    LauncherFamily("prrte", ("PRRTE",), ("-x", "{name}={value}"), ("prterun", "prun")),
    LauncherFamily("intel-mpi", ("Intel(R) MPI",), ("-genv", "{name}", "{value}")),
    LauncherFamily("hydra", ("HYDRA",), ("-genv", "{name}", "{value}"), ("mpiexec.hydra",)),
    LauncherFamily("slurm", ("slurm ",), programs=("srun",)),
)
UNKNOWN = LauncherFamily("unknown", ())


def family_of(launcher: str) -> LauncherFamily:
    """Return the family of a launcher (a name on the PATH or a file) by what its ``--version`` prints, else ``UNKNOWN``.

    Raises UsageError when there is no such program.
    """
    path = shutil.which(launcher)
    if path is None:
        raise UsageError(
            f"'{launcher}' is not a program on the PATH",
            remedy=f"module load openmpi, or {extras.install('mpi')}, or name its file",
        )
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace", timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    said = done.stdout + done.stderr
    named = Path(path).name
    says = (family for family in FAMILIES if any(words in said for words in family.says))
    return next(says, next((family for family in FAMILIES if named in family.programs), UNKNOWN))


def with_variables(
    command: Sequence[str], variables: Mapping[str, str], family: LauncherFamily | None = None
) -> tuple[list[str], dict[str, str]]:
    """Return a launcher's command line that gives ``variables`` to all ranks, and what its own environment must hold as well.

    ``family`` is asked of the launcher where it is not given. Raises UsageError for an empty command.
    """
    if not command:
        raise UsageError("there is no command to run", remedy="ringwright run -- mpirun -n 4 ./program")
    kind = family or family_of(command[0])
    given = [
        argument.format(name=name, value=value) for name, value in variables.items() for argument in kind.arguments
    ]
    return [command[0], *given, *command[1:]], dict(variables)


def is_launcher(program: str) -> bool:
    """Return whether a command's name is one under which MPI launchers are known."""
    name = Path(program).name
    known = {"mpirun", "mpiexec", "orterun", "prterun", "prun", "srun"}
    return name.split(".")[0] in known
