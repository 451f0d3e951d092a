"""Start the ranks of a job, wait for their answers, and where there are none say which rank the others wait for."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ringwright.execute.job import NodeResult, RankJob, Status, plan_path, read_struct, write
from ringwright.execute.plan import NodePlan
from ringwright.execute.pull import make_counters
from ringwright.execute.rank_host import Place
from ringwright.execute.watch import EXIT_WAITING
from ringwright.ground.errors import RanksFailedError
from ringwright.ground.scratch import Scratch

PREFIX = "ringwright-job-"
ASKED_S = 2.0  # for a launcher to end its ranks
GRACE_S = 3.0  # for a rank to say where it stands once others have failed


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Have SIGTERM end the block as Ctrl-C does, so that everything is taken down."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True)
class Start:
    """A command that starts one rank, or one that starts all."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    ranks: tuple[int, ...]


def rank_command(folder: Path, *, node: int | None = None) -> tuple[str, ...]:
    """Return what a rank's process runs."""
    return (sys.executable, "-m", "ringwright.execute.rank", str(folder), *([str(node)] if node is not None else []))


def rank_environment() -> dict[str, str]:
    """Return the environment of ranks: this one, the package found again, one thread each."""
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(dict.fromkeys([package, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def plain(folder: Path, places: Sequence[Place]) -> list[Start]:
    """Return the starts of plain processes, one a place."""
    environment = rank_environment()
    return [
        Start((*place.command, *rank_command(folder, node=place.rank)), environment, (place.rank,)) for place in places
    ]


@contextlib.contextmanager
def job_folder(*, elsewhere: bool = False) -> Iterator[Path]:
    """Make a folder for one job; it goes when the job is over, or, where we are killed before, when the next one starts.

    It lies in memory, unless ranks are ``elsewhere``: nodes of a lab have a memory of their own and share only the disk.
    """
    memory = Path("/dev/shm")  # noqa: S108 - the folder in it has a random name and only we can read it
    in_memory = not elsewhere and memory.is_dir() and os.access(memory, os.W_OK)
    where = memory if in_memory else Path(tempfile.gettempdir())
    held = Scratch(PREFIX, where)
    try:
        yield held.path
    finally:
        held.close()


def lay_out(folder: Path, job: RankJob, plans: Sequence[Sequence[NodePlan]]) -> None:
    """Write the job and its plans where the ranks will look."""
    for number, nodes in enumerate(plans):
        for plan in nodes:
            write(plan_path(folder, number, plan.node), plan)
    make_counters(folder / "gate", job.nodes)
    write(folder / "job", job)


def run(
    folder: Path, job: RankJob, starts: Sequence[Start], *, limit_s: float, begin: Callable[[], object] | None = None
) -> list[list[NodeResult]]:
    """Return each node's answers. RanksFailedError where a rank died, stood still for too long, or time ran out.

    ``begin`` is called when all ranks stand before the case at which the job says it begins.
    """
    started: list[tuple[Start, subprocess.Popen[bytes]]] = []
    errors = folder / "errors"
    try:
        with errors.open("wb") as log:
            for start in starts:
                process = subprocess.Popen(
                    start.argv,
                    env=dict(start.environment),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                started.append((start, process))
        _wait(folder, started, limit_s, begin)
        return _answers(folder, job, started)
    finally:
        for _, process in started:
            _end(process)


def _wait(
    folder: Path,
    started: Sequence[tuple[Start, subprocess.Popen[bytes]]],
    limit_s: float,
    begin: Callable[[], object] | None,
) -> None:
    """Return when all have ended; once one has failed, or time is up, the others are asked where they stand."""
    until_s = time.monotonic() + limit_s
    asked = False
    go = folder / "go"
    while any(process.poll() is None for _, process in started):
        if not go.exists() and (folder / "begun").exists():
            if begin is not None:
                begin()
            go.touch()
        failed = any(process.poll() not in (None, 0) for _, process in started)
        if time.monotonic() > until_s:
            if asked:
                return
            failed = True
        if failed and not asked:
            (folder / "stop").touch()
            asked, until_s = True, time.monotonic() + GRACE_S
        time.sleep(0.01)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a rank, or a launcher, which is asked first: killed outright it would leave files behind."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ASKED_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _answers(
    folder: Path, job: RankJob, started: Sequence[tuple[Start, subprocess.Popen[bytes]]]
) -> list[list[NodeResult]]:
    paths = [folder / f"answer-{node}" for node in range(job.nodes)]
    if all(path.exists() for path in paths):
        return [read_struct(path, list[NodeResult]) for path in paths]
    raise verdict(folder, job, started)


def _partial(folder: Path, job: RankJob) -> list[list[NodeResult]]:
    """Return what each node had written down, which is nothing outside a lab."""
    paths = [folder / f"partial-{node}" for node in range(job.nodes)]
    return [read_struct(path, list[NodeResult]) if path.exists() else [] for path in paths]


def verdict(folder: Path, job: RankJob, started: Sequence[tuple[Start, subprocess.Popen[bytes]]]) -> RanksFailedError:
    """Return what went wrong: which rank the others wait for, where, and how that one ended."""
    codes: dict[int, int | None] = {rank: process.poll() for start, process in started for rank in start.ranks}
    statuses = {
        node: read_struct(path, Status) for node in range(job.nodes) if (path := folder / f"status-{node}").exists()
    }
    answered = {node for node in range(job.nodes) if (folder / f"answer-{node}").exists()}
    said = [_sentence(node, statuses, codes, answered, job) for node in range(job.nodes) if node not in answered]
    first = min(statuses.values(), key=lambda each: (each.state != "failed", each.step < 0, each.step), default=None)
    where = _where(first, job) if first else "before the first case"
    log = (folder / "errors").read_text("utf-8", "replace").strip().splitlines()[-12:]
    silent = any(codes.get(node) not in (None, 0) and node not in statuses for node in range(job.nodes))
    said += ["the ranks' last words:", *(f"  {line}" for line in log)] if log and (silent or not statuses) else []
    died = any(each.state == "failed" for each in statuses.values()) or any((code or 0) < 0 for code in codes.values())
    remedy = "mend what ended that rank (dmesg | tail, where nobody meant to kill it), then the same again"
    return RanksFailedError(
        "\n".join(said) or "no rank has answered",
        where=where,
        remedy=remedy if died else "the same with --timeout larger, if it was only slow",
        answers=_partial(folder, job),
    )


def _sentence(
    node: int, statuses: Mapping[int, Status], codes: Mapping[int, int | None], answered: set[int], job: RankJob
) -> str:
    status, code = statuses.get(node), codes.get(node)
    who = f"rank {node}"
    if status is not None:
        peers = f" rank {', '.join(map(str, status.peers))}" if status.peers else ""
        missing = [each for each in range(job.nodes) if each not in statuses and each not in answered]
        late = f" (rank {', '.join(map(str, missing))} did not come)" if "barrier" in status.doing and missing else ""
        where = f" (step {status.step}, chunk {status.chunk})" if status.step >= 0 else ""
        if status.state == "failed":
            return f"{who} failed: {status.error}; it {status.doing}{peers}{where}"
        return f"{who} {status.doing}{peers}{where}{late}"
    if code is not None and code < 0:
        return f"{who} was killed by signal {-code}"
    if code is not None and code not in (0, EXIT_WAITING):
        return f"{who} ended with exit code {code}"
    return f"{who} does not answer (stopped, or its machine is)"


def _where(status: Status, job: RankJob) -> str:
    if not 0 <= status.case < len(job.cases):
        return "before the first case"
    asked = job.cases[status.case].asked
    at = f", step {status.step}, chunk {status.chunk}" if status.step >= 0 else ""
    return f"{status.label}, {asked.op} of {asked.size_bytes} B over {asked.p} ranks{at}"
