"""A Ray cluster: one that runs here (``ray``), or one whose client server is known (``ray://HOST:10001``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from ringwright.executors.kinds import TellingFutures, known, shared_out, whole_number
from ringwright.ground.errors import InputError, MissingExtraError

WHAT = "workers of a Ray cluster: the one of this machine (ray), or another's client server"
SPELLING = "ray://HOST:10001"
RETRIES = 3


def opened(address: str, settings: Mapping[str, str]) -> RayEngine:
    """Return a cluster's workers; InputError where none answers."""
    known("ray", settings, "cpus")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("a Ray cluster needs its library", extra="ray") from error
    where = f"ray://{address}" if address else "auto"
    mine = not ray.is_initialized()
    try:
        if mine:
            ray.init(address=where, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(
            "no Ray cluster answers", where=where, remedy="ray start --head; or --executor local"
        ) from error
    return RayEngine(address, ray, whole_number(settings, "cpus", 1), mine=mine)


class RayEngine(TellingFutures):
    """Remote tasks as futures; those of a node that is gone are begun elsewhere by Ray itself."""

    ahead: int | None = None

    def __init__(self, address: str, ray: Any, cpus: int, *, mine: bool) -> None:
        self.name, self._ray, self._mine = f"ray://{address}" if address else "ray", ray, mine
        self._remote = ray.remote(num_cpus=cpus, max_retries=RETRIES)(_call)
        self._cpus = cpus
        self._begun: dict[Future[Any], Any] = {}
        errors = ray.exceptions
        self.lost = (errors.WorkerCrashedError, errors.NodeDiedError, errors.TaskCancelledError, errors.ObjectLostError)

    @property
    def workers(self) -> int | None:
        """How many tasks the cluster can run at a time."""
        return int(self._ray.cluster_resources().get("CPU", 0)) // self._cpus or None

    def together(self, tasks: int) -> int:
        """Return how many tasks make a call."""
        return shared_out(tasks, self.workers)

    def submit(self, function: Callable[..., Any], /, *given: Any) -> Future[Any]:
        """Begin a remote task."""
        reference = self._remote.remote(function, *given)
        begun: Future[Any] = reference.future()
        self._begun[begun] = reference
        begun.add_done_callback(lambda done: self._begun.pop(done, None))
        return begun

    def renew(self) -> None:
        """Do nothing: Ray begins workers itself."""

    def close(self, *, at_once: bool = False) -> None:
        """Let go of the cluster; ``at_once`` ends the tasks that run."""
        if at_once:
            for reference in list(self._begun.values()):
                self._ray.cancel(reference, force=True)
        if self._mine:
            self._ray.shutdown()


def _call(function: Callable[..., Any], *given: Any) -> Any:
    return function(*given)
