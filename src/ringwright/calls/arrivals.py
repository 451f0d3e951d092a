"""When the ranks of a collective come: typed as a list, as a few late ranks, as a distribution, or measured in a recording."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ringwright.ground.errors import UsageError
from ringwright.ground.units import format_us, parse_time

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

DRAWN: dict[str, Callable[[random.Random, float], float]] = {
    "normal": lambda draw, spread: draw.gauss(0.0, spread),
    "exponential": lambda draw, spread: draw.expovariate(1.0 / spread) if spread else 0.0,
    "uniform": lambda draw, spread: draw.uniform(0.0, spread),
}
LATE = "late"
SPELLINGS = "0,20us,0,1ms (one a rank), late:3=2ms, normal:20us,seed=1, exponential:20us, uniform:20us, or a recording"
Asked = str | Path | Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Arrivals:
    """Seconds at which each rank of the group comes, float64 of shape (p,), and where they are from, in words."""

    seconds: np.ndarray
    said: str

    @property
    def last_s(self) -> float:
        """Seconds until the last rank is there."""
        return float(self.seconds.max(initial=0.0))


def arriving(asked: Asked, ranks: int) -> Arrivals:
    """Return when each of so many ranks comes; UsageError for what is no such thing.

    ``asked`` is seconds by rank in the group; a text as in ``SPELLINGS``, where ``late`` names ranks in the group and all others
    come at 0, and what is drawn is counted from the first rank to come (``normal`` by its standard deviation, ``exponential``
    by its mean, ``uniform`` by its longest time); or the path of a recording, of which the operation of so many ranks with the
    median distance from the first arrival to the last is taken.
    """
    if isinstance(asked, Path) or (isinstance(asked, str) and Path(asked).exists()):
        return _measured(Path(asked), ranks)
    if not isinstance(asked, str):
        seconds = np.asarray(asked, np.float64)
        if seconds.shape != (ranks,):
            raise _refused(f"{seconds.size} arrivals are given for {ranks} ranks")
        return Arrivals(seconds, "as given")
    kind, colon, rest = asked.partition(":")
    if not colon:
        return Arrivals(_listed(asked, ranks), asked)
    if kind == LATE:
        return Arrivals(_late(rest, ranks), asked)
    if kind in DRAWN:
        return Arrivals(_drawn(kind, rest, ranks), asked)
    raise _refused(f"'{asked}' says not when ranks come, and is no recording")


def _refused(what: str) -> UsageError:
    return UsageError(what, remedy=f"--arrivals {SPELLINGS}")


def _listed(text: str, ranks: int) -> np.ndarray:
    times = [parse_time(each.strip()) for each in text.split(",")]
    if len(times) != ranks:
        raise _refused(f"{len(times)} arrivals are given for {ranks} ranks")
    return np.array(times)


def _late(text: str, ranks: int) -> np.ndarray:
    seconds = np.zeros(ranks)
    for each in text.split(","):
        rank, equals, time = each.partition("=")
        if not equals or not rank.strip().isdecimal():
            raise _refused(f"'{each}' names no late rank")
        if int(rank) >= ranks:
            raise UsageError(f"rank {int(rank)} is not in the group", remedy=f"0 to {ranks - 1}")
        seconds[int(rank)] = parse_time(time)
    return seconds


def _drawn(kind: str, text: str, ranks: int) -> np.ndarray:
    spread, *more = text.split(",")
    seed = 0
    for each in more:
        name, _, value = each.partition("=")
        if name != "seed" or not value.isdecimal():
            raise _refused(f"'{each}' is no part of a distribution")
        seed = int(value)
    draw, spread_s = random.Random(seed), parse_time(spread)  # noqa: S311 (times, not secrets)
    seconds = np.array([DRAWN[kind](draw, spread_s) for _ in range(ranks)])
    counted: np.ndarray = seconds - seconds.min(initial=np.inf)
    return counted


def _measured(path: Path, ranks: int) -> Arrivals:
    from ringwright.formats.sources import read

    return of_recording(read(path), ranks, str(path))


def of_recording(trace: Trace, ranks: int, name: str = "the recording") -> Arrivals:
    """Return when the ranks of a measured operation came; UsageError where none of so many ranks has times.

    Of all operations of that many ranks, the one whose last rank came a median time after the first.
    """
    from ringwright.analysis.slow.arrivals import measured

    rows = measured(trace, ranks)
    if not rows:
        raise UsageError(
            f"{name} has no collective of {ranks} ranks in which the times of all of them were measured",
            remedy=f"ringwright summary {name}",
        )
    rows.sort(key=lambda each: max(each.offsets_s))
    chosen = rows[(len(rows) - 1) // 2]
    spread = format_us(max(chosen.offsets_s))
    said = f"{chosen.op} {chosen.sequence} of {name}: the last {spread} after the first, the median of {len(rows):,} operations"
    return Arrivals(np.array(chosen.offsets_s), said)
