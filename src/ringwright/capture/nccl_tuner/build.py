"""Compile the tuner plug-in, and say how to switch it on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ringwright.capture.nccl_profiler.build import find_compiler, shared_library
from ringwright.ground.errors import UsageError

TUNER_FILE_NAME = "libnccl-tuner-ringwright.so"  # found as NCCL_TUNER_PLUGIN=ringwright, too
_FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
_SOURCE = Path(__file__).with_name("plugin.c")


def build_tuner(
    target: str | Path = TUNER_FILE_NAME, *, compiler: str | None = None, force: bool = False, flags: Sequence[str] = ()
) -> Path:
    """Compile the plug-in to ``target`` (a file, or a folder that gets ``TUNER_FILE_NAME``) and return the absolute path.

    ``compiler`` defaults to ``CC``, then cc, gcc, clang; ``flags`` are added to ours. An existing file is kept unless
    ``force``. Raises UsageError when there is no compiler, or when it fails, with its first words.
    """
    path = Path(target).absolute()
    path = path / TUNER_FILE_NAME if path.is_dir() else path
    if path.exists() and not force:
        raise UsageError(f"{path} exists", remedy="add --force to build it anew, or name another file with -o")
    again = "ringwright plugin build tuner"
    return shared_library(path, [find_compiler(compiler, again), *_FLAGS, *flags, str(_SOURCE)], again)


def tuner_environment(plugin: str | Path = TUNER_FILE_NAME, table: str | Path = "tuner.csv") -> dict[str, str]:
    """Return the variables that switch the plug-in on; ``table`` is the CSV that it follows."""
    return {"NCCL_TUNER_PLUGIN": str(Path(plugin).absolute()), "NCCL_TUNER_CONFIG_FILE": str(Path(table).absolute())}
