"""Ranks of MPI: ``mpirun -n 4 ringwright ... --executor mpi``; rank 0 asks, the others answer until it is done."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from ringwright.executors.kinds import VARIABLE, WrappedExecutor, known
from ringwright.ground.errors import MissingExtraError, UsageError

WHAT = "the other ranks of mpirun -n N ringwright ...; where one dies the run ends, and resumes when it is typed again"
SPELLING = "mpi"
LEAST = 2
TYPED = "mpirun -n 4 ringwright ... --executor mpi"
_entered: list[Any] = []  # the executor of this command's ranks


def opened(address: str, settings: Mapping[str, str]) -> MpiEngine:
    """Return the other ranks; UsageError where there are none, or none of them waits for tasks."""
    known("mpi", settings)
    if address:
        raise UsageError(f"an executor of MPI has no address '{address}'", remedy=TYPED)
    if not _entered:
        raise UsageError("no other rank waits for tasks", remedy=TYPED)
    return MpiEngine(_entered[-1], "mpi", _world().Get_size() - 1)


@contextmanager
def ranks(words: Sequence[str]) -> Iterator[bool]:
    """Give whether this process asks: with ``--executor mpi`` all ranks but the first answer, until that one has ended."""
    if not _is_asked(words) or _world().Get_size() < LEAST:
        yield True
        return
    from mpi4py.futures import MPICommExecutor

    with MPICommExecutor(_world(), root=0) as executor:
        if executor is not None:
            _entered.append(executor)
        try:
            yield executor is not None
        finally:
            _entered.clear()


def _is_asked(words: Sequence[str]) -> bool:
    own = words[: words.index("--")] if "--" in words else words
    named = [after for word, after in pairwise(own) if word == "--executor"]
    named += [word.partition("=")[2] for word in own if word.startswith("--executor=")]
    return (named or [os.environ.get(VARIABLE, "")])[-1] == SPELLING


def _world() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise MissingExtraError("ranks of MPI need mpi4py and an MPI library", extra="mpi") from error
    return MPI.COMM_WORLD


class MpiEngine(WrappedExecutor):
    """The ranks beside this one; one that is gone ends the run."""

    def close(self, *, at_once: bool = False) -> None:
        """Take back what was not begun; the ranks end with the command (``ranks``)."""
        if at_once:
            self._executor.shutdown(wait=False, cancel_futures=True)
