"""What limited a run: the wire, or the machine that plays all the hosts at once.

A look at the counters is *active* when a link carried a fiftieth of its rate since the last one. Of the active ones, those count
for the wire in which a link was full, or in which a fault disturbed the network while cores were free; those count for the CPU in
which no link was full and a process of the lab waited for a core or used a whole one. Frames for which the switch in user space
was too slow count for the CPU in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from ringwright_lab.network.counters import CounterSample

ACTIVE = 0.02
FULL = 0.85  # of the rate, over a look; bursts and gaps of TCP leave some of it
NOT_FREE = 0.95  # cores busy
WAITED = 0.2  # of the time, by one process of the lab
WAITING = 0.5  # of the time some process waited for a core
WHOLE_CORE = 0.9
LEAST_LOOKS = 3
CPU_SHARE = 0.3
WIRE_SHARE = 0.5
OVERRUN_SHARE = 1e-4


@dataclass(frozen=True)
class Limit:
    """``what``: wire, cpu or unknown. Shares are of the active looks; ``busy`` and ``pressure`` are their means."""

    what: str
    why: str
    active_looks: int
    wire_share: float
    cpu_share: float
    busy: float
    pressure: float
    busiest_cores: float
    busiest_name: str
    overruns: int

    def __str__(self) -> str:
        return self.what

    def document(self) -> dict[str, object]:
        """Return it as a JSON object."""
        return asdict(self)

    @property
    def verdict(self) -> str:
        """One line: a result only where the wire was the limit."""
        names = {"wire": "the wire was the limit", "cpu": "none, CPU-bound", "unknown": "none, the limit is not known"}
        return f"{names[self.what]}: {self.why}"


def judge(samples: Sequence[CounterSample]) -> Limit:
    """Return what limited the run that these looks saw."""
    kinds: list[str] = []
    active: list[CounterSample] = []
    for before, now in pairwise(samples):
        fill = _fill(before, now)
        if fill >= ACTIVE:
            active.append(now)
            kinds.append(_kind(now, fill))
    looks = len(kinds)
    wire, cpu = (kinds.count(kind) / looks if looks else 0.0 for kind in ("wire", "cpu"))
    worst = max(active, key=lambda sample: sample.busiest, default=None)
    busy = sum(sample.busy for sample in active) / looks if looks else 0.0
    pressure = sum(sample.pressure for sample in active) / looks if looks else 0.0
    overruns = samples[-1].overruns if samples else 0
    what, why = _decide(samples, looks, wire, cpu, overruns)
    figures = f"{looks} looks, {wire:.0%} at the wire, {cpu:.0%} at the CPU, cores {busy:.0%} busy"
    return Limit(
        what,
        f"{why} ({figures})",
        looks,
        wire,
        cpu,
        busy,
        pressure,
        worst.busiest if worst else 0.0,
        worst.busiest_name if worst else "",
        overruns,
    )


def _fill(before: CounterSample, now: CounterSample) -> float:
    """Return the share of its rate that the fullest link carried between two looks."""
    elapsed_s = now.mono_s - before.mono_s
    fullest = 0.0
    for then, later, old, new in zip(before.size_bytes, now.size_bytes, before.rates, now.rates, strict=True):
        rate = min(old, new) or max(old, new)
        if rate and elapsed_s > 0:
            fullest = max(fullest, (later - then) / (rate * elapsed_s))
    return fullest


def _kind(sample: CounterSample, fill: float) -> str:
    if fill >= FULL:
        return "wire"
    if sample.busiest >= WHOLE_CORE or _waits(sample):
        return "cpu"
    return "wire" if sample.is_disturbed else "neither"


def _waits(sample: CounterSample) -> bool:
    """Whether processes of the lab waited for cores; where the kernel does not tell of each, whether any did."""
    if sample.waited is not None:
        return sample.waited >= WAITED
    return sample.busy >= NOT_FREE or sample.pressure >= WAITING


def _decide(samples: Sequence[CounterSample], looks: int, wire: float, cpu: float, overruns: int) -> tuple[str, str]:
    frames = sum(counts["frames"] for counts in samples[-1].switched.values()) if samples else 0
    if overruns > OVERRUN_SHARE * frames:
        return "cpu", f"the switch in user space was too slow for {overruns} of {frames} frames"
    if looks < LEAST_LOOKS:
        return "unknown", "next to nothing was sent"
    if cpu >= CPU_SHARE:
        return "cpu", "cores were the limit while no link was full"
    if wire >= WIRE_SHARE:
        return "wire", "a link was full or disturbed most of the time"
    return "unknown", "neither a full link nor full cores"


def unknown(why: str) -> Limit:
    """Return the limit of a run that cannot be judged."""
    return Limit("unknown", why, 0, 0.0, 0.0, 0.0, 0.0, 0.0, "", 0)
