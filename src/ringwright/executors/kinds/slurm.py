"""Job arrays of Slurm, through submitit: tasks wait a moment for each other and are submitted together."""

from __future__ import annotations

import logging
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from ringwright.executors.kinds import TellingFutures, known, shared_out, whole_number
from ringwright.ground.errors import InputError, MissingExtraError, UsageError

WHAT = "job arrays of Slurm through submitit: nodes= tasks of an array at a time, time= minutes each"
SPELLING = "slurm:partition=P,nodes=4,time=30"
CLUSTERS = ("slurm", "local")  # local: processes of this machine in Slurm's place, to try what will be submitted
SETTLED_S, LOOK_S = 0.2, 0.5  # without another task, before an array is submitted; between two looks at its files
QUEUE_S, MISSED = 5.0, 2  # between two looks at the queue; in as many of them a job is missed before it counts as lost
_QUEUE = ("squeue", "--noheader", "--array", "--me", "--format=%i")
ROUNDS = 4  # calls for each task of an array that runs at a time: some end early
SETTINGS = ("partition", "nodes", "time", "cpus", "mem", "account", "qos", "folder", "cluster")


def opened(address: str, settings: Mapping[str, str]) -> SlurmEngine:
    """Return the array's executor; InputError where no Slurm is here."""
    known("slurm", settings, *SETTINGS)
    try:
        import submitit
    except ImportError as error:
        raise MissingExtraError("Slurm needs submitit", extra="slurm") from error
    logging.getLogger("submitit").setLevel(logging.ERROR)  # that accounting is off is no news: the queue is asked
    cluster = settings.get("cluster", CLUSTERS[0])
    if cluster not in CLUSTERS or address:
        raise UsageError(f"'{address or cluster}' is no cluster of an executor", remedy=SPELLING)
    # A folder of this run alone, which goes with it: in the one that is named others may have things.
    folder = Path(tempfile.mkdtemp(prefix=".ringwright-slurm-", dir=Path(settings.get("folder", ".")).absolute()))
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
    except RuntimeError as error:
        folder.rmdir()
        raise InputError(
            "no Slurm is here: sbatch is not on the PATH", remedy="run it where jobs are submitted, or --executor local"
        ) from error
    nodes = whole_number(settings, "nodes", 1)
    told: dict[str, object] = {"name": "ringwright", "timeout_min": whole_number(settings, "time", 60)}
    told |= {"cpus_per_task": whole_number(settings, "cpus", 1), "slurm_array_parallelism": nodes}
    told |= {f"slurm_{name}": settings[name] for name in ("partition", "account", "qos", "mem") if name in settings}
    executor.update_parameters(**told)
    spelled = ",".join(f"{name}={value}" for name, value in settings.items())
    return SlurmEngine(executor, nodes, f"slurm:{spelled}", folder, is_here=cluster != CLUSTERS[0])


class LostJobError(Exception):
    """A job ended and left no result."""


class SlurmEngine(TellingFutures):
    """Calls gathered into job arrays, and a thread that looks at their jobs."""

    ahead: int | None = None
    begins_s = 5.0  # sbatch, the scheduler's next look, an interpreter and its imports

    def __init__(self, executor: Any, nodes: int, name: str, folder: Path, *, is_here: bool) -> None:
        self.name, self.workers, self.lost = name.rstrip(":"), nodes, (LostJobError,)
        self._executor, self._folder = executor, folder
        self._waiting: list[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = []
        self._jobs: dict[Future[Any], Any] = {}
        self._is_here, self._looked_s, self._missed = is_here, 0.0, dict[str, int]()
        self._lock, self._ended, self._last_s = threading.Lock(), threading.Event(), 0.0
        self._looks = threading.Thread(target=self._look, daemon=True)
        self._looks.start()

    def together(self, tasks: int) -> int:
        """Return how many tasks make a call: a job takes seconds to begin."""
        return shared_out(tasks, self.workers, ROUNDS)

    def submit(self, function: Callable[..., Any], /, *given: Any) -> Future[Any]:
        """Put a call into the next array."""
        begun: Future[Any] = Future()
        with self._lock:
            self._waiting.append((begun, function, given))
            self._last_s = time.monotonic()
        return begun

    def _look(self) -> None:
        """Submit what waits, and pass on what jobs say, until the engine is closed."""
        while not self._ended.wait(SETTLED_S):
            with self._lock:
                ready = bool(self._waiting) and time.monotonic() - self._last_s >= SETTLED_S
                calls = [call for call in self._waiting if call[0].set_running_or_notify_cancel()] if ready else []
                self._waiting = [] if ready else self._waiting
            if calls:
                self._submit(calls)
            self._look_at_queue()
            for begun, job in list(self._jobs.items()):
                if begun.done() or job.paths.result_pickle.exists() or self._missed.get(job.job_id, 0) >= MISSED:
                    self._jobs.pop(begun, None)
                    _settle(begun, job)
            if self._jobs:
                self._ended.wait(LOOK_S)

    def _look_at_queue(self) -> None:
        """Count how often each job was in no queue: ``squeue`` knows without accounting, and also of cancelled ones."""
        if not self._jobs or time.monotonic() - self._looked_s < QUEUE_S:
            return
        self._looked_s = time.monotonic()
        if self._is_here:
            missing = [job.job_id for job in self._jobs.values() if job.done()]
        else:
            try:
                queued = set(subprocess.run(_QUEUE, capture_output=True, text=True, check=True).stdout.split())
            except (OSError, subprocess.SubprocessError):
                return  # nobody knows now: no job is missed
            missing = [job.job_id for job in self._jobs.values() if job.job_id not in queued]
        self._missed = {each: self._missed.get(each, 0) + 1 for each in missing}

    def _submit(self, calls: list[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]]) -> None:
        try:
            with self._executor.batch():
                jobs = [self._executor.submit(function, *given) for _, function, given in calls]
        except Exception as error:  # noqa: BLE001 - sbatch says many things, and whoever waits must hear it
            for begun, *_ in calls:
                begun.set_exception(InputError(f"Slurm takes no jobs: {error}", remedy="sinfo; or --executor local"))
            return
        self._jobs |= {begun: job for (begun, *_), job in zip(calls, jobs, strict=True)}

    def renew(self) -> None:
        """Do nothing: each call is a job of its own."""

    def close(self, *, at_once: bool = False) -> None:
        """End the thread; ``at_once`` cancels the jobs that are left."""
        self._ended.set()
        self._looks.join(timeout=5)
        if at_once:
            for job in self._jobs.values():
                with suppress(Exception):
                    job.cancel(check=False)
        elif not self._jobs:
            shutil.rmtree(self._folder, ignore_errors=True)


def _settle(begun: Future[Any], job: Any) -> None:
    """Give a future what its job ended with; without a result it was cancelled, or its node is gone."""
    if begun.done():
        return
    if not job.paths.result_pickle.exists():
        said = (job.stderr() or "").strip().splitlines()[-3:]
        begun.set_exception(LostJobError(f"job {job.job_id} ended without a result: {' '.join(said)}"))
        return
    try:
        begun.set_result(job.result())
    except Exception as error:  # noqa: BLE001 - it is the future's now
        begun.set_exception(error)
