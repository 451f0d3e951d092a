"""A switch that adds: jobs, their workers and the switch above. It knows no clock and no socket; replies go to any address.

A job has a fixed share of the slots. A worker joins with its number, and from then on is known by where it sends from and, with
a key, by the token of its frames; whatever else comes is counted and dropped. A new session of a job takes the slots over when
all workers of the old one have left or been silent.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ringwright.execute.switched.frames import (
    JOIN,
    JOINED,
    LEAVE,
    MOST_SLOTS,
    MOST_WORKERS,
    REFUSED,
    WAITING,
    ControlFrame,
    control_bytes,
    headers,
    is_sealed,
    token,
)
from ringwright.execute.switched.pool import PoolOutcome, SwitchSlots
from ringwright.ground.errors import UsageError

IDLE_S = 2.0  # a job that nobody has sent to for so long may be taken over by a new session
MOST_JOBS = 256
NO_PORT, PORT_IS_SHARED, PORT_DOES_NOT_SEND = 7, 8, 9  # of a switch inside the kernel
REASONS = (
    "",
    "the switch has fewer jobs",
    "the switch has fewer ports for workers than this number",
    "another worker of this job has said other slots, frames or number of workers",
    "the switch has fewer slots for a job",
    "this job is at work for another session",
    "another worker has this number",
    "it is reached through no port on which the kernel adds",
    "another worker of this job is behind the same port, and the kernel sends a result once through each",
    "its port sends nothing that the kernel adds",
)
SAME_TERMS = "the same --workers and --slots at the switch, and one session for all workers of a run"
REMEDIES = {
    NO_PORT: "--xdp all at the switch, or the port towards it",
    PORT_IS_SHARED: "a port for each worker, or a switch without --xdp",
    PORT_DOES_NOT_SEND: "at the other end of its veth: ethtool -K DEVICE gro on; or a driver that sends for XDP",
}


@dataclass(frozen=True)
class SwitchSettings:
    """``workers``: that each job has here; ``slots``: of all jobs together; ``branch``: this switch's number at the one above."""

    workers: int
    slots: int = 64
    jobs: int = 1
    key: bytes = b""
    branch: int = -1  # none above

    def __post_init__(self) -> None:
        """Refuse what the frames or the bitmap cannot hold."""
        if not 1 <= self.workers <= MOST_WORKERS:
            raise UsageError(
                f"a slot's bitmap has {MOST_WORKERS} bits, for {self.workers} workers",
                remedy="two levels: --workers 32 at each, and --parent HOST:PORT",
            )
        if not 1 <= self.jobs <= MOST_JOBS:
            raise UsageError(f"{self.jobs} jobs do not fit the header's byte", remedy=f"--jobs 1 to {MOST_JOBS}")
        if not self.jobs <= self.slots <= MOST_SLOTS:
            raise UsageError(
                f"{self.slots} slots for {self.jobs} jobs", remedy=f"--slots {max(self.jobs, 64)}; at most {MOST_SLOTS}"
            )


@dataclass
class SwitchJob:
    """One job at this switch. Chunks of its workers go through ``pool``."""

    pool: SwitchSlots
    asked: ControlFrame
    addresses: dict[int, Hashable] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    heard_s: float = 0.0
    tokens: dict[int, np.ndarray] = field(default_factory=dict)  # of workers; -1: the switch's own
    is_joined_above: bool = False


Sent = list[tuple[Hashable, Any]]  # (address, frames of uint8 or one control frame)
ABOVE = "above"  # the address of the switch above


class AddingSwitch:
    """Every ``arrived`` batch has its answers; ``ABOVE`` stands for the address of the switch above."""

    def __init__(self, settings: SwitchSettings) -> None:
        self.settings = settings
        self.jobs: dict[int, SwitchJob] = {}
        self._members: dict[Hashable, tuple[SwitchJob, int]] = {}
        self._past: Counter[str] = Counter()  # counts of sessions that are over
        self.strangers = 0

    @property
    def job_slots(self) -> int:
        """Slots of each job."""
        return self.settings.slots // self.settings.jobs

    @property
    def size_bytes(self) -> int:
        """Memory of all slots in use."""
        return sum(job.pool.size_bytes for job in self.jobs.values())

    def counts(self) -> dict[str, int]:
        """Return what was counted so far, of all jobs and sessions together."""
        counts = Counter(self._past)
        for job in self.jobs.values():
            counts.update(job.pool.counts)
        return {"strangers": self.strangers, **counts}

    def arrived(self, batch: Iterable[tuple[Hashable, np.ndarray]], now_s: float) -> Sent:
        """Take frames (uint8, one a row, of one width each) by where they came from; return what to send."""
        sent: Sent = []
        outcomes: dict[int, PoolOutcome] = {}
        short = control_bytes(self.settings.key)
        for source, frames in batch:
            if frames.shape[1] == short:
                for frame in frames:
                    self._control(source, frame.tobytes(), now_s, sent)
            elif source == ABOVE:
                self._results(frames, outcomes)
            else:
                self._data(source, frames, now_s, outcomes)
        for number, outcome in outcomes.items():
            sent += self._answers(self.jobs[number], outcome)
        return sent

    def _data(self, source: Hashable, frames: np.ndarray, now_s: float, outcomes: dict[int, PoolOutcome]) -> None:
        member = self._members.get(source)
        if member is None or frames.shape[1] != member[0].pool.shape.width:
            self.strangers += len(frames)
            return
        job, worker = member
        frames = self._believed(job, worker, frames)
        if len(frames):
            job.heard_s = now_s
            job.pool.arrive(worker, frames, outcomes.setdefault(job.pool.job, PoolOutcome()))

    def _believed(self, job: SwitchJob, speaker: int, frames: np.ndarray) -> np.ndarray:
        """Return the frames of this job that end with the speaker's token. uint8 of shape (frames, width)."""
        good = frames[:, 1] == job.pool.job
        if self.settings.key:
            good &= is_sealed(frames, job.tokens[speaker])
        self.strangers += int((~good).sum())
        believed: np.ndarray = frames[good]
        return believed

    def _results(self, frames: np.ndarray, outcomes: dict[int, PoolOutcome]) -> None:
        for number in np.unique(headers(frames)["job"]).tolist():
            job = self.jobs.get(number)
            mine = frames[frames[:, 1] == number]
            if job is None or frames.shape[1] != job.pool.shape.width:
                self.strangers += len(mine)
                continue
            mine = self._believed(job, -1, mine)
            job.pool.from_above(mine, outcomes.setdefault(number, PoolOutcome()))

    def _answers(self, job: SwitchJob, outcome: PoolOutcome) -> Sent:
        pool, sealed = job.pool, job.tokens.get(-1)
        sent: Sent = []
        if outcome.complete:
            frames = pool.frames(outcome.complete, sealed)
            sent += [(address, frames) for address in job.addresses.values()]
        if outcome.upward:
            sent.append((ABOVE, pool.frames(outcome.upward, job.tokens.get(-2))))
        for worker, pairs in outcome.again.items():
            sent.append((job.addresses[worker], pool.frames(pairs, sealed)))
        for worker, slots in outcome.waiting.items():
            version, slot = slots[-1]  # the newest is enough to say who is missing
            tsi, index, bitmap = pool.missing(version, slot)
            if bitmap != pool.full:  # else the peer's frame came later in this batch
                said = ControlFrame(
                    WAITING,
                    pool.job,
                    0,
                    worker,
                    pool.workers,
                    pool.shape,
                    pool.slots,
                    bitmap,
                    job.asked.session,
                    tsi,
                    index,
                )
                sent.append((job.addresses[worker], said.frame(self.settings.key)))
        return sent

    def _control(self, source: Hashable, frame: bytes, now_s: float, sent: Sent) -> None:
        said = ControlFrame.read(frame, self.settings.key)
        if said is None:
            self.strangers += 1
        elif source == ABOVE:
            self._from_above(said, sent)
        elif said.kind == JOIN:
            self._join(source, said, now_s, sent)
        elif said.kind == LEAVE and (member := self._members.get(source)) and member[0].asked.session == said.session:
            member[0].left.add(member[1])
        elif said.kind != LEAVE:
            self.strangers += 1

    def _from_above(self, said: ControlFrame, sent: Sent) -> None:
        """Pass on what the switch above says of one of our jobs."""
        job = self.jobs.get(said.job)
        if job is None or said.session != job.asked.session:
            self.strangers += 1
            return
        if said.kind == JOINED:
            job.is_joined_above = True
        level = said.what + 1 if said.kind == WAITING else said.what
        frame = dataclasses.replace(said, what=level).frame(self.settings.key)
        sent += [(address, frame) for address in job.addresses.values()]

    def _join(self, source: Hashable, said: ControlFrame, now_s: float, sent: Sent) -> None:
        reason = self._refuses(source, said, now_s)
        if reason:
            answer = ControlFrame(REFUSED, said.job, reason, session=said.session, shape=said.shape)
            sent.append((source, answer.frame(self.settings.key)))
            return
        job = self.jobs.get(said.job)
        if job is None or job.asked.session != said.session:
            job = self._begin(said)
        job.heard_s = now_s
        job.left.discard(said.worker)
        job.addresses[said.worker] = source
        self._members[source] = job, said.worker
        if self.settings.key:
            job.tokens[said.worker] = token(self.settings.key, said.session, said.job, said.worker)
        self._admitted(source, said, job)
        if self.settings.branch >= 0 and not job.is_joined_above:
            up = ControlFrame(
                JOIN, said.job, 0, self.settings.branch, said.workers, said.shape, said.slots, session=said.session
            )
            sent.append((ABOVE, up.frame(self.settings.key)))
            return  # its word reaches the worker through us
        answer = ControlFrame(JOINED, said.job, session=said.session, shape=said.shape, workers=self.settings.workers)
        sent.append((source, answer.frame(self.settings.key)))

    def _begin(self, said: ControlFrame) -> SwitchJob:
        old = self.jobs.get(said.job)
        if old is not None:
            self._past.update(old.pool.counts)
            for address in old.addresses.values():
                self._members.pop(address, None)
        settings = self.settings
        job = self.jobs[said.job] = SwitchJob(self._pool(said), said)
        if settings.key:
            job.tokens[-1] = token(settings.key, said.session, said.job, -1)
            job.tokens[-2] = token(
                settings.key, said.session, said.job, settings.branch
            )  # as a worker of the one above
        return job

    def _admitted(self, source: Hashable, said: ControlFrame, job: SwitchJob) -> None:
        """Take note of a worker that has joined a job."""

    def _pool(self, said: ControlFrame) -> SwitchSlots:
        settings = self.settings
        return SwitchSlots(said.slots, settings.workers, said.shape, said.job, is_root=settings.branch < 0)

    def _refuses(self, source: Hashable, said: ControlFrame, now_s: float) -> int:
        """Return the number of the reason why a worker cannot join; 0: it can."""
        if said.job >= self.settings.jobs:
            return 1
        if said.worker >= self.settings.workers:
            return 2
        if not 1 <= said.slots <= self.job_slots:
            return 4
        job = self.jobs.get(said.job)
        if job is None:
            return 0
        if job.asked.session != said.session:
            is_over = job.left >= set(job.addresses) or now_s - job.heard_s > IDLE_S
            return 0 if is_over else 5
        if (job.asked.workers, job.asked.shape, job.asked.slots) != (said.workers, said.shape, said.slots):
            return 3
        if job.addresses.get(said.worker, source) != source:
            return 6
        return 0
