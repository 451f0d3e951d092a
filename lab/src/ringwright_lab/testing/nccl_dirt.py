"""How a clean stream of lines becomes the file people have: cut in two, glued, prefixed, left unfinished."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ringwright.ground.errors import UsageError
from ringwright_lab.testing.nccl_placement import RankProcess

_EPOCH_S = datetime(2025, 11, 3, 14, 22, 5, tzinfo=UTC).timestamp()
PREFIXES = ("mpirun", "mpirun-time", "srun", "ray", "kubernetes", "torchrun")


@dataclass(frozen=True)
class LogLine:
    """One line before it is written; ``process`` None is the training script, ``kind`` info, coll, script or bare."""

    time_s: float
    process: RankProcess | None
    text: str
    kind: str = "info"
    op: str = ""  # the operation a COLL line prints
    part_of: str = ""  # the operation it belongs to: all-to-all for a grouped send


@dataclass
class Written:
    """A finished stream; ``lost`` counts the records that no reader can recover, by (printed, part of)."""

    text: bytes
    lines: Counter[str] = field(default_factory=Counter)
    lost: Counter[tuple[str, str]] = field(default_factory=Counter)


def stamp(time_s: float, shape: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a moment of the job (seconds from its start) as text."""
    return datetime.fromtimestamp(_EPOCH_S + time_s, tz=UTC).strftime(shape)


def prefix_of(kind: str, line: LogLine) -> str:
    """Return what a launcher puts in front of a line of one rank."""
    who = line.process
    rank = who.rank if who else 0
    if kind == "mpirun":
        return f"[1,{rank}]<stdout>:"
    if kind == "mpirun-time":
        return f"{stamp(line.time_s, '%Y-%m-%dT%H:%M:%S')}.{int(line.time_s * 1e3) % 1000:03d}Z: [1,{rank}]<stdout>:"
    if kind == "srun":
        return f"{rank}: "
    if kind == "ray":
        pid, address = (who.pid, who.address) if who else (615, "10.4.0.2")
        return f"(RayTrainWorker pid={pid}, ip={address}) "
    if kind == "kubernetes":
        return f"{stamp(line.time_s, '%Y-%m-%dT%H:%M:%S')}.{int(line.time_s * 1e9) % 10**9:09d}Z stdout F "
    if kind == "torchrun":
        return f"[rank{rank}]:"
    raise UsageError(f"no launcher prefix '{kind}'", remedy=f"choose one of {', '.join(PREFIXES)}")


def progress_bar(draw: random.Random) -> str:
    """Return a progress bar as it stands, without its line end."""
    done, rate = draw.randrange(1, 3104), 20 + 200 * draw.random()
    return f"train: {done * 100 // 3104:3d}%|          | {done}/3104 [00:{done % 60:02d}<00:32, {rate:.2f}it/s]"


def write_stream(
    lines: list[LogLine], *, dirty: float, prefix: str | None, seed: int, late_tails: bool = False
) -> Written:
    """Write one merged stream; ``dirty`` is the fraction of NCCL lines that are damaged.

    Of the damaged lines, six in ten are cut by the next rank's line and go on after it, two in ten have a progress
    bar glued in front, one follows a blank line, one loses its tail for good. With ``late_tails`` up to four lines
    of others pass before a cut line goes on.
    """
    draw = random.Random(f"dirt {seed}")  # noqa: S311
    out = Written(b"")
    parts: list[str] = []
    pending: tuple[LogLine, str] | None = None  # a line that was cut, and its tail with the launcher's prefix
    wait = 0
    for number, line in enumerate(lines):
        lead = prefix_of(prefix, line) if prefix else ""
        out.lines["logical"] += 1
        out.lines["script" if line.kind == "script" else "nccl"] += 1
        text = lead + line.text
        damage = _damage(line, draw, dirty) if pending is None else "none"
        after = lines[number + 1] if number + 1 < len(lines) else None
        if damage == "cut" and after is not None and after.process is not line.process and after.kind != "script":
            at = len(lead) + draw.randrange(8, len(line.text))
            parts.append(text[:at])
            pending = (line, lead + text[at:] + "\n")
            wait = draw.randrange(1, 5) if late_tails else 1
            out.lines["cut"] += 1
            continue
        parts.append(_damaged(damage, lead, line, draw, out) + "\n")
        wait -= 1
        if pending is not None and (wait <= 0 or after is None or after.process is pending[0].process):
            parts.append(pending[1])
            pending = None
    out.text = "".join(parts).encode()
    out.lines["physical"] = out.text.count(b"\n")
    return out


def _damage(line: LogLine, draw: random.Random, dirty: float) -> str:
    if line.kind not in {"info", "coll"} or draw.random() >= dirty:
        return "none"
    return draw.choices(("cut", "glue", "blank", "tail"), (6, 2, 1, 1))[0]


def _damaged(damage: str, lead: str, line: LogLine, draw: random.Random, out: Written) -> str:
    """Return a line without its tail, behind a progress bar or a blank line, or whole; what was done is counted."""
    if damage == "tail":
        out.lines["truncated"] += 1
        if line.op:
            out.lost[line.op, line.part_of] += 1
        return lead + line.text[: draw.randrange(8, max(9, len(line.text) // 2))]
    if damage == "glue":
        out.lines["glued"] += 1
        return progress_bar(draw) + lead + line.text
    if damage == "blank":
        out.lines["blank"] += 1
        return "\n" + lead + line.text
    return lead + line.text
