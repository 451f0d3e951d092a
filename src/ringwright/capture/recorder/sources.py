"""PyTorch's own recordings beside the calls file: Flight Recorder dumps, and on request a profile and an execution trace."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

REQUEST = "dump-request"  # a file in the capture: every rank dumps its Flight Recorder
_LOOK_S = 1.0


def start(job: Any) -> None:
    """Begin what the options ask for; the process group is there."""
    from torch import distributed

    rank = distributed.get_rank()
    if os.environ.get("TORCH_FR_BUFFER_SIZE", "0") not in ("", "0") and job.options.get("flight", False):
        flight = _Flight(job, rank)
        watching = threading.Thread(target=flight.watch, name="ringwright", daemon=True)
        atexit.register(flight.leave, watching)
        watching.start()
    if job.options.get("network", True) and os.environ.get("LOCAL_RANK", "0") == "0":
        from . import network

        network.start(job, rank)
    profile = job.options.get("profile")
    if profile:
        job.context.on_step = _Profile(job, rank, int(profile[0]), int(profile[1])).step


class _Flight:
    """Writes the Flight Recorder's dump at the end, and whenever it is asked for: also while the main thread waits in a call."""

    def __init__(self, job: Any, rank: int) -> None:
        self._job, self._rank = job, rank
        self._target = os.path.join(job.folder, "fr_rank_%d" % rank)  # noqa: PTH118
        self._seen: Any = None
        self._wake = threading.Event()

    def leave(self, watching: threading.Thread) -> None:
        """At the end of the process: the thread must not be in a call then."""
        if os.getpid() == self._job.pid:
            self._wake.set()
            watching.join(_LOOK_S)
            self.dump()

    def watch(self) -> None:
        request = os.path.join(self._job.folder, REQUEST)  # noqa: PTH118
        while not self._wake.wait(_LOOK_S):
            try:
                asked = os.stat(request).st_mtime_ns  # noqa: PTH116
            except OSError:
                continue
            if asked != self._seen:
                self._seen = asked
                self.dump()

    def dump(self) -> None:
        """Write the dump whole or not at all; stacks are left out: they need locks that a stuck rank may hold."""
        if os.getpid() != self._job.pid:
            return
        try:
            from torch._C import _distributed_c10d as native

            beside = self._target + ".part"
            with open(beside, "wb") as file:  # noqa: PTH123
                file.write(native._dump_fr_trace(includeStackTraces=False))
            os.replace(beside, self._target)  # noqa: PTH105
        except Exception as error:  # noqa: BLE001 - recording must not disturb
            self._job.writer.lose("no Flight Recorder dump: %s" % str(error)[:100])


class _Profile:
    """Profiles ``count`` iterations after the first ``skipped``, as a Kineto trace and an execution trace."""

    def __init__(self, job: Any, rank: int, skipped: int, count: int) -> None:
        self._job, self._rank, self._first, self._last = job, rank, skipped, skipped + count
        self._running: Any = None
        if skipped == 0:
            self._begin()

    def step(self, iteration: int) -> None:
        """Called when an iteration has ended."""
        try:
            if iteration + 1 == self._first and self._running is None:
                self._begin()
            elif self._running is not None and iteration + 1 >= self._last:
                self._end()
        except Exception as error:  # noqa: BLE001 - recording must not disturb
            self._job.writer.lose("profile: %s" % str(error)[:100])
            self._running = None

    def _path(self, kind: str) -> str:
        return os.path.join(self._job.folder, "%s_rank_%d.json" % (kind, self._rank))  # noqa: PTH118

    def _begin(self) -> None:
        import torch
        from torch import profiler

        observer = profiler.ExecutionTraceObserver()
        observer.register_callback(self._path("et"))
        kinds = [profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(profiler.ProfilerActivity.CUDA)
        made = profiler.profile(activities=kinds, record_shapes=True)
        observer.start()
        made.start()
        self._running = (made, observer)
        atexit.register(self._at_exit)

    def _end(self) -> None:
        made, observer = self._running
        self._running = None
        made.stop()
        observer.stop()
        observer.unregister_callback()
        made.export_chrome_trace(self._path("kineto"))

    def _at_exit(self) -> None:
        if self._running is not None and os.getpid() == self._job.pid:
            self._end()
