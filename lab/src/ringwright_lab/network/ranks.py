"""Runs one command as every rank of a lab, with the fault script's clock started beside it, for a limited time."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ringwright.execute.launch import terminable
from ringwright.ground.errors import EXIT_INFEASIBLE, UsageError
from ringwright_lab.network.capture import SCHEMA
from ringwright_lab.network.network import LabNetwork, document, network
from ringwright_lab.network.verdict import Limit

LOOK_S = 0.01
TAIL_BYTES = 2000


@dataclass(frozen=True)
class RankExit:
    """How one rank ended. ``code``: its exit code, 128 + the signal that ended it; ``is_late``: stopped by the time limit."""

    rank: int
    code: int
    took_s: float
    is_late: bool
    tail: str


@dataclass(frozen=True)
class LabResult:
    """What a lab's run gave."""

    document: dict[str, Any]
    ranks: tuple[RankExit, ...]
    limit: Limit
    timeline: tuple[dict[str, Any], ...]

    def full(self) -> dict[str, Any]:
        """Return the document with the timeline and what the ranks said last."""
        exits = [{**each, "tail": own.tail} for each, own in zip(self.document["exits"], self.ranks, strict=True)]
        return {"schema": SCHEMA, **self.document, "exits": exits, "timeline": list(self.timeline)}

    @property
    def code(self) -> int:
        """Exit code: out of time, else that of the worst rank."""
        if any(ended.is_late for ended in self.ranks):
            return EXIT_INFEASIBLE
        return max(ended.code for ended in self.ranks)


def run(
    fabric: str,
    command: Sequence[str],
    *,
    faults: Sequence[str] = (),
    seed: int = 0,
    tcp: str = "reno",
    timeout_s: float = 60.0,
    ready: str = "",
    out: Path,
    rootless: bool | None = None,
    force: bool = False,
) -> LabResult:
    """Build a network, run the command on every rank, and return how it went; the capture is in ``out``.

    ``ready``: a text; the script's clock starts when every rank has printed it, or else when all have been started.
    """
    if not command:
        raise UsageError("no command is named", remedy="ringwright lab switch:4,rate=100Mb/s -- python train.py")
    options: dict[str, Any] = {"seed": seed, "tcp": tcp, "rootless": rootless, "horizon_s": timeout_s, "force": force}
    with terminable(), network(fabric, faults, out=out, **options) as net:
        began_s = time.monotonic()
        ended = _ranks(net, command, timeout_s, ready, out)
        net.counters()
        limit = net.limit(since_s=began_s)
        net.capture.event("verdict", verdict=limit.verdict)
        told = _told(net, command, timeout_s, ended, limit)
        net.capture.head(told)
        return LabResult(told, ended, limit, tuple(net.timeline))


def free_folder(parent: Path) -> Path:
    """Return the first of ringwright-lab-1, -2, ... that does not exist yet."""
    return next(path for path in (parent / f"ringwright-lab-{n}" for n in itertools.count(1)) if not path.exists())


def _told(
    net: LabNetwork, command: Sequence[str], timeout_s: float, ended: Sequence[RankExit], limit: Limit
) -> dict[str, Any]:
    sample = net.samples[-1]
    dropped = net.dropped()
    totals = [
        {"name": name, "bytes": size, "packets": packets, "dropped": dropped[name]}
        for name, size, packets in zip(dropped, sample.size_bytes, sample.packets, strict=True)
    ]
    exits = [{"rank": each.rank, "code": each.code, "took_s": each.took_s, "is_late": each.is_late} for each in ended]
    return document(
        net,
        command=list(command),
        timeout_s=timeout_s,
        out=str(net.capture.folder),
        verdict=limit.verdict,
        limit=limit.document(),
        totals=totals,
        switched=sample.switched,
        exits=exits,
    )


def _ranks(net: LabNetwork, command: Sequence[str], timeout_s: float, ready: str, out: Path) -> tuple[RankExit, ...]:
    running: dict[int, subprocess.Popen[bytes]] = {}
    with ExitStack() as stack:
        began_s = time.monotonic()
        for place in net.places:
            files = [
                stack.enter_context((out / f"rank-{place.rank}.{end}").open("wb", buffering=0))
                for end in ("out", "err")
            ]
            running[place.rank] = _start(net, place.rank, command, files)
            stack.callback(_end, running[place.rank])
            net.capture.event("rank started", rank=place.rank, pid=running[place.rank].pid)
        waiting = {rank: out / f"rank-{rank}.out" for rank in running} if ready else {}
        if not ready:
            net.start_faults()
        ended: dict[int, RankExit] = {}
        while len(ended) < len(running):
            if waiting:
                waiting = {rank: path for rank, path in waiting.items() if ready.encode() not in path.read_bytes()}
                if not waiting:
                    net.start_faults()
            _look(net, running, ended, began_s, timeout_s, out)
            time.sleep(LOOK_S)
        return tuple(ended[rank] for rank in sorted(ended))


def _start(net: LabNetwork, rank: int, command: Sequence[str], files: Sequence[IO[bytes]]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*net.places[rank].command, *command],
        stdin=subprocess.DEVNULL,
        stdout=files[0],
        stderr=files[1],
        env={**os.environ, **net.environment(rank)},
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a rank that still runs: with the one who waits for it outside, it ends itself."""
    with suppress(ProcessLookupError):
        process.kill()
    process.wait()


def _look(
    net: LabNetwork,
    running: dict[int, subprocess.Popen[bytes]],
    ended: dict[int, RankExit],
    began_s: float,
    timeout_s: float,
    out: Path,
) -> None:
    """Note the ranks that have ended; end those that are late."""
    took_s = time.monotonic() - began_s
    for rank, process in running.items():
        if rank in ended:
            continue
        is_late = took_s >= timeout_s and process.poll() is None
        if is_late:
            _end(process)
        if (code := process.poll()) is not None:
            code = 128 - code if code < 0 else code
            ended[rank] = RankExit(rank, code, took_s, is_late, _tail(out / f"rank-{rank}.err"))
            net.capture.event("rank ended", rank=rank, code=code, is_late=is_late)


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace")
