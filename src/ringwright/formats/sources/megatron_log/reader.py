"""From logs of Megatron-LM, DeepSpeed and torchtitan to steps and phases of a Trace."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from statistics import fmean
from typing import TYPE_CHECKING

from ringwright.formats.sources.megatron_log.lines import FASTEST, SLOWEST, PrintedTimer, TrainingLines
from ringwright.formats.sources.members import Member, lines_without
from ringwright.formats.sources.nccl_log import framework
from ringwright.formats.sources.nccl_log.state import LogState
from ringwright.formats.sources.reader_rows import Gathered
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

KIND = "megatron-log"
LONGEST_LINE = 1 << 16
MOST_ROWS = 5_000_000
MOST_CLAIMS = 60
_REMEDY = "train with --log-interval 1 --timing-log-level 2 --timing-log-option minmax"
_MOST_S = 1e9
_BY_STAMPS = 0.8  # how sure the time of a step is between whose lines something else may have happened
# which operation a timer's name tells of; all-grads-sync tells none: it is an all-reduce or, sharded, a reduce-scatter
_MOVES = (
    (re.compile(r"reduce[-_]?scatter"), "reduce-scatter"),
    (re.compile(r"all[-_]?gather|gather-model-params"), "all-gather"),
    (re.compile(r"all[-_]?reduce"), "all-reduce"),
    (re.compile(r"send.*recv"), "send-recv"),
    (re.compile(r"(?:^|-)send(?:$|-)"), "send"),
    (re.compile(r"(?:^|-)recv(?:$|-)"), "recv"),
)


def read_megatron_log(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return steps and phases of a job's logs; InputError where none holds an iteration or a timer."""
    gathered, launch = Gathered(KIND), LogState()
    for member in gathered.members(sources, progress):
        lines = _read(gathered, launch, member)
        gathered.inputs.append(member.name)
        _emit(gathered, lines, member.name)
        _say(gathered, lines, member.name)
    if not gathered.events.total:
        where = ", ".join(source.name for source in sources[:3])
        raise InputError("no iteration and no timer of a training log", where=where, remedy=_REMEDY)
    for name, (value, where) in launch.launch.items():
        gathered.claim(f"launch {name}", value, where)
    world = launch.launch.get("world", (None, ""))[0]
    limits = ["operations, bytes and groups: timers tell how long a stretch of code took, not what it moved"]
    return gathered.trace(world=world, limits=limits)


def _read(gathered: Gathered, launch: LogState, member: Member) -> TrainingLines:
    lines, known, last = TrainingLines(), 0, 0
    for number, data in lines_without(member.stream, b"NCCL INFO", b"elapsed", LONGEST_LINE):
        last = number
        if data is None:
            continue
        text = data.decode("utf-8", "replace").rstrip("\r\n")
        if len(lines.iterations) + len(lines.timers) >= MOST_ROWS:
            gathered.note(member.name, "refused", f"lines after {MOST_ROWS:,} times")
            gathered.lose(f"{member.name}: lines after {MOST_ROWS:,} times are not read")
            break
        is_known = lines.take(text, number)
        if not is_known and ("world size" in text or " ..." in text):
            is_known = framework.read(text, launch, (member.name, number), None, None)
        known += is_known
    gathered.note(member.name, "understood", "lines", known)
    gathered.note(member.name, "other", "of no iteration and no timer", last - known)
    return lines


def _emit(gathered: Gathered, lines: TrainingLines, file: str) -> None:
    _emit_steps(gathered, lines, file)
    seen = {step.rank for step in lines.iterations if step.rank is not None}
    for timer in lines.timers:
        if timer.rank is not None:
            seen.add(timer.rank)
        gathered.events.add(
            kind="phase",
            phase=timer.name,
            op=moves(timer.name),
            task=timer.of or None,
            rank=timer.rank,
            iteration=timer.iteration,
            duration_s=timer.seconds if timer.seconds < _MOST_S else None,
            file=file,
            line=timer.line,
            text=f"{timer.name}, {timer.of}" if timer.of else timer.name,
        )
    for rank in sorted(seen):
        gathered.device(rank)


def _emit_steps(gathered: Gathered, lines: TrainingLines, file: str) -> None:
    before = 0
    for step in lines.iterations:
        since = step.since or (step.number - before if step.number > before else 1)
        if lines.rated and step.since is None:
            since = 1
        elif before == 0 and len(lines.iterations) > 1:
            # the first line of a job that went on from a checkpoint counts as many as the next
            since = min(since, max(lines.iterations[1].number - step.number, 1))
        before = step.number
        row = {
            "kind": "step",
            "iteration": step.number,
            "multiplicity": min(since, 1 << 40),
            "file": file,
            "line": step.line,
            "rank": step.rank,
        }
        row |= {"ground": "inferred", "confidence": _BY_STAMPS} if step.is_inferred else {}
        gathered.events.add(
            **row, duration_s=step.seconds if step.seconds is not None and step.seconds < _MOST_S else None
        )


def moves(name: str) -> str | None:
    """Return the operation that a timer's name tells of, None where it tells of none."""
    return next((op for pattern, op in _MOVES if pattern.search(name)), None)


def _say(gathered: Gathered, lines: TrainingLines, file: str) -> None:
    """Claim for each timer of the iterations its mean, its share of the step, and how far ranks are apart."""
    steps = {step.number: step.seconds for step in lines.iterations if step.seconds is not None}
    flops = [step.tflops for step in lines.iterations if step.tflops is not None]
    if flops:
        gathered.claim("throughput", f"{fmean(flops):.1f} TFLOP/s per GPU", file, note="mean of what the log prints")
    _say_rates(gathered, lines, file)
    by_name: dict[str, list[PrintedTimer]] = defaultdict(list)
    for timer in lines.timers:
        if timer.iteration is not None:
            by_name[timer.name].append(timer)
    for name, timers in list(by_name.items())[:MOST_CLAIMS]:
        longest = [timer for timer in timers if timer.of != FASTEST]
        mean = fmean(timer.seconds for timer in longest)
        whole = [steps[timer.iteration] for timer in longest if timer.iteration in steps]
        share = f", {mean / fmean(whole):.0%} of the step" if whole and fmean(whole) > 0 else ""
        moved = f"; named after {moves(name)}, bytes not told" if moves(name) else ""
        gathered.claim(f"phase {name}", f"{mean * 1e3:.2f} ms{share}", file, note=f"{_whose(timers)}{moved}")


def _say_rates(gathered: Gathered, lines: TrainingLines, file: str) -> None:
    """Claim the means of what torchtitan prints of its steps."""
    steps = [step for told in lines.rated.values() for step in told]
    if steps:
        rate = fmean(step.tokens_per_s for step in steps)
        gathered.claim("tokens", f"{rate:,.0f} a second and GPU", file, note="mean of what the log prints")
    if shares := [step.mfu_percent for step in steps if step.mfu_percent is not None]:
        gathered.claim("mfu", f"{fmean(shares):.2f} %", file, note="mean of what the log prints")
    if any(step.is_inferred for step in lines.iterations):
        note = "from when its line and the one before it were printed"
        gathered.claim("time of a step", "by time stamps", file, ground="inferred", confidence=_BY_STAMPS, note=note)


def _whose(timers: list[PrintedTimer]) -> str:
    """Say whose time it is, and how far the ranks are apart where that is told."""
    least = [timer.seconds for timer in timers if timer.of == FASTEST]
    if least:
        return f"the slowest rank; the fastest {fmean(least) * 1e3:.2f} ms"
    if any(timer.of == SLOWEST for timer in timers):
        return "the slowest rank"
    ranks = {timer.rank for timer in timers}
    if ranks == {None}:
        return "the rank that prints, the last one as a rule"
    return f"mean of {len(ranks)} ranks" if len(ranks) > 1 else f"rank {next(iter(ranks))}"
