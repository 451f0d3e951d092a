"""Processes of this machine, each a fresh interpreter that is used again for the next question."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from ringwright.executors.kinds import TellingFutures, known, processors, shared_out, whole_number
from ringwright.executors.worker import ignore_interrupts
from ringwright.ground.errors import MissingExtraError

WHAT = "processes of this machine, as many as it has cores"
SPELLING = "local:4"
AHEAD = 4  # calls for each worker
ROUNDS = 250  # calls for each worker: each costs whoever asks half a millisecond
IDLE_S = 120.0  # after which a worker without work ends


def opened(address: str, settings: Mapping[str, str]) -> LocalEngine:
    """Return the processes, as many as ``address`` says; none is started yet."""
    known("local", settings)
    return LocalEngine(whole_number({"workers": address}, "workers", 1) if address else processors())


class LocalEngine(TellingFutures):
    """A pool that is made anew where a process dies; they do not run the program that asks (``__main__``) again."""

    def __init__(self, workers: int) -> None:
        try:
            from loky import process_executor
        except ImportError as error:
            raise MissingExtraError("more processes need loky", only=("loky",)) from error
        self.workers, self.lost = workers, (process_executor.BrokenProcessPool,)
        self.ahead = AHEAD * workers  # a process that dies takes with it all that the pool was given

    @property
    def name(self) -> str:
        """How it is spelled."""
        return f"local:{self.workers}"

    def together(self, tasks: int) -> int:
        """Return how many tasks make a call: one, as long as they are fewer than thousands."""
        return shared_out(tasks, self.workers, ROUNDS)

    def submit(self, function: Callable[..., Any], /, *given: Any) -> Future[Any]:
        """Begin a call in a process that is free."""
        begun: Future[Any] = self._pool().submit(function, *given)
        return begun

    def _pool(self, *, anew: bool = False) -> Any:
        import polars as pl
        from loky import get_reusable_executor

        # Processes fill the cores already: threads of linear algebra would wait for each other. Polars has as many as here, for
        # the last bit of a sum of floats depends on them.
        threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
        warnings.filterwarnings(
            "ignore", "A worker was restarted", UserWarning
        )  # one that remembers much: it is no error
        threads |= {"POLARS_MAX_THREADS": str(pl.thread_pool_size())}
        return get_reusable_executor(
            max_workers=self.workers,
            timeout=IDLE_S,
            initializer=ignore_interrupts,
            env=threads,
            kill_workers=anew,
            reuse=not anew,
        )

    def renew(self) -> None:
        """End all processes, and be ready to begin others."""
        self._pool(anew=True)

    def close(self, *, at_once: bool = False) -> None:
        """Leave the processes for the next question, or end them."""
        if at_once:
            self._pool().shutdown(wait=True, kill_workers=True)
