"""Compile the plug-in, and say how to switch it on."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ringwright.ground.errors import UsageError

FILE_NAME = "libnccl-profiler-ringwright.so"  # found as NCCL_PROFILER_PLUGIN=ringwright, too
RECORDING = "nccl-profile-%h-%p.rwprof"
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden")
_SOURCE = Path(__file__).with_name("plugin.c")


def build(
    target: str | Path = FILE_NAME, *, compiler: str | None = None, force: bool = False, flags: Sequence[str] = ()
) -> Path:
    """Compile the plug-in to ``target`` (a file, or a folder that gets ``FILE_NAME``) and return the absolute path.

    ``compiler`` defaults to ``CC``, then cc, gcc, clang; ``flags`` are added to ours. An existing file is kept unless
    ``force``. Raises UsageError when there is no compiler, or when it fails, with its first words.
    """
    path = Path(target).absolute()
    path = path / FILE_NAME if path.is_dir() else path
    if path.exists() and not force:
        raise UsageError(f"{path} exists", remedy="add --force to build it anew, or name another file with -o")
    again = "ringwright plugin build"
    return shared_library(path, [find_compiler(compiler, again), *_FLAGS, *flags, str(_SOURCE), "-ldl"], again)


def shared_library(path: Path, command: Sequence[str], again: str) -> Path:
    """Run a compiler's command that makes the file ``path``; ``again`` is what the user calls to try anew.

    Raises UsageError with the compiler's first words when it fails.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A job may have the old library loaded: it is replaced by another file, never written into.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".building-") as folder:
        made = Path(folder) / path.name
        done = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True, check=False)
        if done.returncode or not made.is_file():
            words = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:300])
            raise UsageError(f"the compiler failed: {words}", where=" ".join(command), remedy=f"CC=gcc {again}")
        made.replace(path)
    return path


def environment(plugin: str | Path = FILE_NAME, recording: str = RECORDING) -> dict[str, str]:
    """Return the variables that switch the plug-in on; ``recording`` may hold %h (host) and %p (process)."""
    return {
        "NCCL_PROFILER_PLUGIN": str(Path(plugin).absolute()),
        "RINGWRIGHT_PROFILE_FILE": str(Path(recording).absolute()),
    }


def find_compiler(named: str | None, again: str) -> str:
    """Return the C compiler ``named``, or CC, cc, gcc, clang; UsageError with what to install when there is none."""
    candidates = [named] if named else [*filter(None, [os.environ.get("CC")]), *_COMPILERS]
    for name in candidates:
        found = shutil.which(name)
        if found:
            return found
    raise UsageError(
        f"no C compiler was found ({', '.join(candidates)})",
        remedy=f"apt install gcc, or on a cluster: module load gcc; then {again}",
    )
