"""Write the log of a job: every line kind its release has, merged into one stream or one file per process.

``write_log`` is the whole interface; what the log must be read as comes back beside it as ``truth``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ringwright.ground.errors import UsageError
from ringwright_lab.testing import nccl_init
from ringwright_lab.testing.nccl_dialect import Dialect, dialect
from ringwright_lab.testing.nccl_dirt import LogLine, Written, stamp, write_stream
from ringwright_lab.testing.nccl_fields import PRINTED_NAME, CollText
from ringwright_lab.testing.nccl_job import Launch, NcclCall, NcclJob, size_of
from ringwright_lab.testing.nccl_placement import JobPlacement, RankProcess, place
from ringwright_lab.testing.nccl_truth import LogTruth

SUBSYSTEMS = ("INIT", "ENV", "NET", "GRAPH", "COLL", "TUNING")
_WIRE_BYTES_PER_S = 40e9


@dataclass(frozen=True)
class GeneratedLog:
    """A log and its truth: ``text`` is the merged stream (empty when ``files`` holds one file per process)."""

    text: bytes
    files: dict[str, bytes]
    truth: dict[str, Any]


# parameters: they are the ways in which a log may be printed and damaged
def write_log(
    job: NcclJob,
    release: str = "2.27",
    *,
    subsystems: tuple[str, ...] = SUBSYSTEMS,
    per_process: bool = False,
    dirty: float = 0.0,
    late_tails: bool = False,
    prefix: str | None = None,
    timestamps: bool = False,
    rccl: bool = False,
    calls: bool = False,
    symmetric: bool = False,
    channels: int = 2,
    omit_ranks: tuple[int, ...] = (),
    finish: str = "destroy",
) -> GeneratedLog:
    """Write a job as ``release`` would print it.

    ``subsystems`` as in NCCL_DEBUG_SUBSYS (plus CALL through ``calls``); ``dirty`` is the damaged fraction of lines
    (``late_tails``: cut lines may go on only after several lines of others);
    ``prefix`` a launcher (see ``nccl_dirt.PREFIXES``); ``omit_ranks`` left no log at all; ``symmetric``
    registers the buffers, so that TUNING names symmetric kernels and copy engines where the release has them;
    ``finish`` is ``destroy``, ``abort`` or ``running``. Raises UsageError for operations the release does not have.
    """
    words = dialect(release, rccl=rccl, timestamps=timestamps)
    truth = LogTruth(job, words)
    truth.seen_ranks = set(range(job.ranks)) - set(omit_ranks)
    writer = _Writer(job, words, place(job), truth, subsystems, calls, symmetric, channels)
    lines = [line for line in writer.lines(finish) if line.process is None or line.process.rank in truth.seen_ranks]
    lines.sort(key=lambda line: line.time_s)
    files: dict[str, bytes] = {}
    if per_process:
        written = _write_files(lines, files, dirty, job.seed)
    else:
        written = write_stream(lines, dirty=dirty, prefix=prefix, seed=job.seed, late_tails=late_tails)
    truth.lines.update(written.lines)
    facts = truth.as_dict()
    _subtract_lost(facts, written.lost)
    return GeneratedLog(b"" if per_process else written.text, files, facts)


def _write_files(lines: list[LogLine], files: dict[str, bytes], dirty: float, seed: int) -> Written:
    """One file per process, the script's own output in ``stdout.log``; a file's damage stays inside that file."""
    total = Written(b"")
    by_name: dict[str, list[LogLine]] = {}
    for line in lines:
        own = line.process is None or line.kind == "bare"
        by_name.setdefault("stdout.log" if own or line.process is None else line.process.file_name, []).append(line)
    for name, own_lines in by_name.items():
        written = write_stream(own_lines, dirty=dirty, prefix=None, seed=seed)
        files[name] = written.text
        total.lines.update(written.lines)
        total.lost.update(written.lost)
    return total


def _subtract_lost(facts: dict[str, Any], lost: Counter[tuple[str, str]]) -> None:
    """Take from ``records`` the lines whose tail is gone; the operations themselves took place all the same."""
    printed, logical = Counter[str](), Counter[str]()
    for (op, part_of), count in lost.items():
        printed[op] += count
        logical[part_of] += count
    facts["records_lost"] = dict(sorted(printed.items()))
    for row in facts["raw_operations"]:
        row["records"] -= printed[row["op"]]
    for row in facts["operations"]:
        row["records"] -= logical[row["op"]]


class _Writer:
    """Turns items into lines; holds the clock, the launch counters and the buffers in use."""

    def __init__(
        self,
        job: NcclJob,
        words: Dialect,
        placement: JobPlacement,
        truth: LogTruth,
        subsystems: tuple[str, ...],
        calls: bool,
        symmetric: bool,
        channels: int,
    ) -> None:
        self.job, self.words, self.placement, self.truth = job, words, placement, truth
        self.subsystems, self.calls, self.symmetric, self.channels = set(subsystems), calls, symmetric, channels
        self.clock_s = 0.0
        self.op_counts: Counter[tuple[int, int]] = Counter()  # by (communicator, rank in it)
        self.draw = random.Random(f"log {job.seed}")  # noqa: S311
        self.skew_s = [self.draw.random() * 3e-5 for _ in range(job.ranks)]
        self.buffers = [0x7F00_0000_0000 + self.draw.randrange(2**30) * 512 for _ in range(job.ranks)]

    def lines(self, finish: str) -> Iterator[LogLine]:
        """Yield every line with its moment; the caller sorts."""
        for moment_s, process, text, kind in nccl_init.start_lines(
            self.job, self.words, self.placement, self.subsystems, self.channels, self.draw
        ):
            self.clock_s = max(self.clock_s, moment_s)
            yield self._info(process, text, moment_s) if kind == "info" else LogLine(moment_s, process, text, kind)
        self.clock_s += 0.5
        for item in self.job.items:
            if isinstance(item, Launch):
                yield from self._launch(item)
            else:
                self.truth.add_training(item)
                self.clock_s += 1e-4
                yield LogLine(self.clock_s, None, item.text, "script")
        if finish != "running" and self.words.version >= (2, 12) and "INIT" in self.subsystems:
            yield from self._finish(aborted=finish == "abort")

    def _info(
        self, process: RankProcess, text: str, moment_s: float, *, op: str = "", part_of: str = "", tid: int = 0
    ) -> LogLine:
        when = stamp(moment_s) if self.words.timestamps else ""
        line = self.words.line(process.host, process.pid, tid or process.tid, process.device, text, when)
        return LogLine(moment_s, process, line, "coll" if op else "info", op, part_of)

    def _finish(self, *, aborted: bool) -> Iterator[LogLine]:
        self.clock_s += 0.2
        for index in reversed(range(len(self.job.communicators))):
            for who, member in zip(
                self.placement.identities[index], self.job.communicators[index].members, strict=True
            ):
                moment_s = self.clock_s + self.draw.random() * 0.05
                yield self._info(self.placement.processes[member], self.words.end_line(who, aborted=aborted), moment_s)
            self.clock_s += 0.06

    # -------------------------------------------------------------------------------------------------- operations
    def _launch(self, launch: Launch) -> Iterator[LogLine]:
        self.clock_s += launch.gap_s
        touched: set[tuple[int, int]] = set()
        for call in launch.calls:
            printed: Counter[str] = Counter()
            for rank, op, peer in self._parts(call):
                yield from self._record(call, rank, op, peer, printed, len(launch.calls))
                touched.add((call.communicator, rank))
            self.truth.add_call(call, printed)
            if not self.words.counts_launches:
                self._advance(touched)
                touched.clear()
            comm = self.job.communicators[call.communicator]
            self.clock_s += size_of(call.op, call.count, call.datatype, comm.size) / _WIRE_BYTES_PER_S / comm.size
            yield from self._tuning(call)
        self._advance(touched)
        self.clock_s += 1e-5

    def _advance(self, touched: set[tuple[int, int]]) -> None:
        for communicator, rank in touched:
            if not self.words.op_count_stays_zero(self.placement.nodes[communicator]):
                self.op_counts[communicator, rank] += 1

    def _parts(self, call: NcclCall) -> Iterator[tuple[int, str, int]]:
        """Yield (rank in communicator, printed operation, root or peer) for every line a call leaves."""
        size = self.job.communicators[call.communicator].size
        needs_p2p = call.op in {"send", "all-to-all", "gather", "scatter"}
        if needs_p2p and not self.words.has_point_to_point:
            raise UsageError(
                f"NCCL {self.words.text} has no {call.op}", remedy="choose a release from 2.7 on, or pp=1 and no ep"
            )
        if call.op == "send":
            yield call.root, "send", call.peer
            yield call.peer, "recv", call.root
        elif call.op == "all-to-all" and not self.words.has_own_all_to_all:
            for rank in range(size):
                for peer in range(size):
                    yield rank, "send", peer
                    yield rank, "recv", peer
        else:
            for rank in range(size):
                yield rank, call.op, call.root

    def _record(
        self, call: NcclCall, rank: int, op: str, peer: int, printed: Counter[str], group: int
    ) -> Iterator[LogLine]:
        comm = self.job.communicators[call.communicator]
        member = comm.members[rank]
        if member not in self.truth.seen_ranks or "COLL" not in self.subsystems:
            return
        process, who = self.placement.processes[member], self.placement.identities[call.communicator][rank]
        count, datatype = self.words.printed_count(op, call.count, call.datatype)
        alone = op in {"send", "recv"}
        send, receive = self._buffer(member), self._buffer(member)
        coll = CollText(
            PRINTED_NAME[op],
            self.op_counts[call.communicator, rank],
            0 if alone else send,
            send if op == "all-reduce" else receive,
            count,
            datatype,
            peer,
            who.pointer,
            comm.size,
            process.stream,
            global_rank=member,
            task=0 if group == 1 else printed[op],
        )
        moment_s = self.clock_s + self.skew_s[member] + self.draw.random() * 1e-6
        printed[op] += 1
        tid = process.issue_tid if self.draw.random() < 0.5 and call.datatype == 7 else process.pid
        part_of = op if call.op == "send" else call.op
        yield self._info(process, self.words.coll_line(coll), moment_s, op=op, part_of=part_of, tid=tid)
        if self.calls and self.words.version >= (2, 14):
            text = self.words.call_line(process.host, process.pid, tid, self.words.call_text(coll))
            yield LogLine(moment_s + 1e-7, process, text)

    def _buffer(self, member: int) -> int:
        return self.buffers[member] + self.draw.randrange(4096) * 0x200000

    def _tuning(self, call: NcclCall) -> Iterator[LogLine]:
        """Rank 0 alone says what was chosen; the size is the total up to 2.23 and the printed count's bytes since."""
        comm = self.job.communicators[call.communicator]
        quiet = call.op in {"send", "all-to-all", "gather", "scatter"} or comm.size == 1
        first = comm.members[0]
        if quiet or "TUNING" not in self.subsystems or first not in self.truth.seen_ranks:
            return
        total = size_of(call.op, call.count, call.datatype, comm.size)
        shown = total if self.words.version < (2, 24) else size_of("all-reduce", call.count, call.datatype, 1)
        algorithm, protocol, channels = choose(call.op, total, self.channels)
        text = self._symmetric_text(call, shown) if self.symmetric else None
        if text is None:
            time_s = 1e-5 + total / _WIRE_BYTES_PER_S
            text = self.words.tuning_line(PRINTED_NAME[call.op], shown, algorithm, protocol, channels, time_s)
            if text is None:
                return
            self.truth.algorithms[call.op, shown, algorithm, protocol, channels] += 1
        process = self.placement.processes[first]
        yield self._info(process, text, self.clock_s + self.skew_s[first] + 2e-6, tid=process.pid)

    def _symmetric_text(self, call: NcclCall, shown_bytes: int) -> str | None:
        """Return what a release prints for registered buffers: kernels for reductions, copy engines for gathering."""
        name, across = PRINTED_NAME[call.op], self.placement.nodes[call.communicator] > 1
        if call.op == "all-gather":
            return self.words.copy_engine_line(name, shown_bytes, hierarchical=across)
        return None if across else self.words.symmetric_line(name, shown_bytes, self.channels, 1)


def choose(op: str, size_bytes: int, channels: int) -> tuple[str, str, int]:
    """Return a plausible (algorithm, protocol, channels); trees exist for all-reduce alone."""
    if size_bytes <= 2**16:
        return ("TREE" if op == "all-reduce" else "RING"), "LL", 1
    if size_bytes <= 2**21:
        return ("TREE" if op == "all-reduce" else "RING"), "LL128", max(1, channels // 2)
    return "RING", "SIMPLE", channels
