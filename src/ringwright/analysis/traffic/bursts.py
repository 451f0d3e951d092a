"""Bursts of transfers: how many there are, how large, how far apart, and how many sources send to one NIC at once.

A burst is what one NIC sends with no pause longer than the gap: the next transfer belongs to it if it begins at most the gap
after all before it have ended. The same rule holds for a log, a trace, a recording and a simulation, so that their figures can
be compared. Incast is counted where transfers arrive: the different sources that send to one NIC at the same time.

A percentile is by nearest rank: a burst (a pause, a duration) that did occur, and that this share of them does not exceed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringwright.analysis.intervals import length, union
from ringwright.analysis.traffic.burst_document import BurstClasses, BurstFigures, Bursts, NicBursts, StepBursts
from ringwright.analysis.traffic.incast import PERCENTILES, Incast, incast
from ringwright.ground.errors import UsageError
from ringwright.ground.units import format_us

if TYPE_CHECKING:
    import numpy as np

    Values = Sequence[Any] | np.ndarray

GAP_S = 50e-6  # longer than the pauses within one collective, shorter than those between the collectives of a step
US = 1e6
DIGITS = 12  # of seconds: ps
MOST_ROWS = 1000
NOBODY = -1  # the number of what is not named
_NONE = [None, None, None]


def bursts_of(
    nic: Values,
    start_s: Values,
    size_bytes: Values,
    *,
    end_s: Values | None = None,
    to: Values | None = None,
    phase: Values | None = None,
    step: Values | None = None,
    gap_s: float | None = None,
    window_s: tuple[float, float] | None = None,
) -> Bursts:
    """Return the bursts of transfers, a value of each column for each transfer, in any order.

    Parameters
    ----------
    nic
        Which NIC sends: names or numbers.
    start_s, end_s
        When a transfer begins and ends, s, not below 0; without ``end_s`` only beginnings are known: pauses are then from
        beginning to beginning, and durations, duty and incast are None.
    size_bytes
        Bytes of each transfer; None: not known.
    to
        Which NIC receives; None for a transfer that counts for no incast. Without the column incast is None.
    phase, step
        Of what each transfer is part; None for no part.
    gap_s
        The longest pause within a burst, s; 50 us if left out.
    window_s
        From when to when was watched, s: what ``duty`` is a share of. From the first beginning to the last end if left out.

    Returns
    -------
    Bursts
        Plain values. Rows by NIC and phase are in order of name, by step in order of number; of more than MOST_ROWS NICs those
        that send most, of steps the first, are kept. A burst of a row by phase or step is
        one of its own transfers alone: counts of rows need not add up to the count of all.

    Raises
    ------
    UsageError
        Columns of different lengths, a time or size that is negative or no number, an end before its beginning, a negative gap, a
        window that does not hold all transfers.

    Examples
    --------
    >>> two = bursts_of(["a", "a", "a"], [0.0, 20e-6, 1.0], [100, 50, 10], end_s=[10e-6, 30e-6, 1.5])
    >>> two["count"], two["size_bytes_p50"], two["size_bytes_p99"], two["gap_us_p50"]
    (2, 10.0, 150.0, 999970.0)
    """
    gap = GAP_S if gap_s is None else gap_s
    transfers = _checked(nic, start_s, size_bytes, end_s, to, gap)
    window = _window(transfers, window_s)
    phases, steps = _parts(phase, transfers), _parts(step, transfers)
    return {
        "gap_rule": f"a pause of more than {format_us(gap)} ends a burst of a NIC",
        "gap_us": _us(gap),
        "window_us": None if window is None else _us(window),
        **_figures(transfers, gap, window),
        **_classes(transfers, gap),
        "nics": _by_nic(transfers, gap, window),
        "phases": [
            {"phase": str(name), **_figures(transfers.of(where), gap, window)} for name, where in phases[:MOST_ROWS]
        ],
        "steps": [_of_step(int(name), transfers.of(where), gap) for name, where in steps[:MOST_ROWS]],
        "nics_total": len(transfers.names),
        "steps_total": len(steps),
    }


@dataclass(frozen=True)
class _Transfers:
    """Transfers as arrays, in order of NIC and time; ``ends`` None where only beginnings are known."""

    nics: np.ndarray  # numbers
    names: Sequence[Any]  # of the numbers, of both ends of transfers
    starts: np.ndarray
    ends: np.ndarray | None
    sizes: np.ndarray
    to: np.ndarray | None
    order: np.ndarray  # where each stood in the columns given

    def of(self, where: np.ndarray) -> _Transfers:
        """Return some of them, in the same order."""
        ends, to = (None if column is None else column[where] for column in (self.ends, self.to))
        return _Transfers(
            self.nics[where], self.names, self.starts[where], ends, self.sizes[where], to, self.order[where]
        )

    def by_nic(self) -> list[slice]:
        """Return where the transfers of each NIC that sends stand."""
        import numpy as np

        firsts = np.flatnonzero(np.diff(self.nics, prepend=-1)).tolist()
        return [slice(first, last) for first, last in zip(firsts, [*firsts[1:], len(self.nics)], strict=False)]

    @property
    def until(self) -> np.ndarray:
        """When each ended, as far as that is known: float64 of shape (transfers,), s."""
        return self.starts if self.ends is None else self.ends


def _checked(
    nic: Values, start_s: Values, size_bytes: Values, end_s: Values | None, to: Values | None, gap_s: float
) -> _Transfers:
    import numpy as np

    columns = {"start_s": start_s, "size_bytes": size_bytes, "end_s": end_s, "to": to}
    for name, column in columns.items():
        if column is not None and len(column) != len(nic):
            raise UsageError(f"{name} has {len(column)} values for {len(nic)} transfers")
    if not (np.isfinite(gap_s) and gap_s >= 0):
        raise UsageError(f"a gap of {gap_s} s", remedy="give a time from 0 on, for example 50us")
    starts, sizes = _moments("start_s", start_s), _sizes(size_bytes)
    ends = None if end_s is None else _moments("end_s", end_s)
    if ends is not None and (ends < starts).any():
        at = int(np.argmax(ends < starts))
        raise UsageError(f"transfer {at} ends at {ends[at]} s, before it begins at {starts[at]} s")
    names, number = _numbered([*_listed(nic), *([] if to is None else _listed(to))])
    if (number[: len(starts)] == NOBODY).any():
        raise UsageError("a transfer names no NIC that sends it")
    nics, receivers = number[: len(starts)], None if to is None else number[len(starts) :]
    # Every column is a key, so that sums come out the same in whatever order the transfers were given.
    keys = [sizes, starts if ends is None else ends, starts, nics]
    order = np.lexsort(keys if receivers is None else [receivers, *keys])
    given = _Transfers(nics, names, starts, ends, sizes, receivers, np.arange(len(starts)))
    return given.of(order)


def _moments(name: str, column: Values) -> np.ndarray:
    """Return times to the ps, so that what ends when another begins does so however the two were computed: float64, s."""
    return _numbers(name, column).round(DIGITS)


def _sizes(column: Values) -> np.ndarray:
    """Return sizes, NaN where they are not known: float64 of shape (transfers,)."""
    import numpy as np

    given = _listed(column)
    told = np.array([value is not None for value in given], bool)
    sizes = np.full(len(given), np.nan)
    sizes[told] = _numbers("size_bytes", [0 if value is None else value for value in given])[told]
    return sizes


def _numbers(name: str, column: Values) -> np.ndarray:
    import numpy as np

    try:
        values = np.asarray(column, np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} holds something else than numbers") from error
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise UsageError(f"{name} of transfer {at} is {values[at]}; times and sizes are numbers from 0 on")
    return values


def _listed(values: Values) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _numbered(values: list[Any]) -> tuple[list[Any], np.ndarray]:
    """Return the names in order and the number of each value in them, NOBODY of None: int64 of shape (values,)."""
    import numpy as np

    names = sorted({value for value in values if value is not None}, key=lambda name: (isinstance(name, str), name))
    number = {None: NOBODY} | {name: at for at, name in enumerate(names)}
    return names, np.array([number[value] for value in values], np.int64)


def _window(transfers: _Transfers, asked: tuple[float, float] | None) -> float | None:
    """Return for how long was watched, s; None where that is not known."""
    if transfers.ends is None or not len(transfers.starts):
        return None
    first, last = float(transfers.starts.min()), float(transfers.ends.max())
    if asked is None:
        return last - first
    if not round(asked[0], DIGITS) <= first <= last <= round(asked[1], DIGITS):
        raise UsageError(f"transfers from {first} s to {last} s lie outside the window {asked[0]} s to {asked[1]} s")
    return asked[1] - asked[0]


def _parts(part: Values | None, transfers: _Transfers) -> list[tuple[Any, np.ndarray]]:
    """Return each part that a column names, in order, with where its transfers stand."""
    import numpy as np

    if part is None:
        return []
    if len(part) != len(transfers.starts):
        raise UsageError(f"{len(part)} phases or steps for {len(transfers.starts)} transfers")
    given = _listed(part)
    ordered = [given[at] for at in transfers.order.tolist()]
    names, number = _numbered(ordered)
    by_part = np.argsort(number, kind="stable")
    ends = np.searchsorted(number[by_part], np.arange(len(names) + 1))
    return [(name, by_part[ends[at] : ends[at + 1]]) for at, name in enumerate(names)]


def _busiest(transfers: _Transfers) -> list[int]:
    """Return the numbers of the MOST_ROWS NICs that send most, in order."""
    import numpy as np

    moved = np.bincount(transfers.nics, weights=np.nan_to_num(transfers.sizes), minlength=len(transfers.names))
    most: list[int] = np.sort(np.argsort(-moved, kind="stable")[:MOST_ROWS]).tolist()
    return most


def _by_nic(transfers: _Transfers, gap_s: float, window_s: float | None) -> list[NicBursts]:
    """Return a row for each NIC that sends or receives, of many for those that send most."""
    import numpy as np

    every = np.arange(len(transfers.names) + 1)
    sent = np.searchsorted(transfers.nics, every)
    arrivals = transfers if transfers.to is None else transfers.of(np.argsort(transfers.to, kind="stable"))
    came = np.searchsorted(transfers.nics if arrivals.to is None else arrivals.to, every)
    rows: list[NicBursts] = []
    for number in _busiest(transfers):
        name = transfers.names[number]
        mine = transfers.of(np.arange(sent[number], sent[number + 1]))
        others = arrivals.of(np.arange(came[number], came[number + 1]))
        rows.append({"nic": str(name), **_figures(mine, gap_s, window_s, others)})
    return rows


def _of_step(number: int, transfers: _Transfers, gap_s: float) -> StepBursts:
    return {"step": number, **_figures(transfers, gap_s, _window(transfers, None))}


def _figures(
    transfers: _Transfers, gap_s: float, window_s: float | None, came: _Transfers | None = None
) -> BurstFigures:
    """Return the figures of what was sent, and of the incast of what ``came``, the same transfers if left out."""
    import numpy as np

    sizes, is_unsized = transfers.sizes, np.isnan(transfers.sizes)
    heads, burst_sizes, pauses, durations = _split(transfers, gap_s)
    size, gap = _percentiles(burst_sizes[~np.isnan(burst_sizes)]), _percentiles(pauses)
    lasted: list[float] | list[None] = _NONE if transfers.ends is None else _percentiles(durations)
    degree = _degree(transfers if came is None else came)
    return {
        "transfers": len(sizes),
        "unsized": int(is_unsized.sum()),
        "bytes": None if len(sizes) and is_unsized.all() else float(sizes[~is_unsized].sum()),
        "count": heads,
        "size_bytes_p50": size[0],
        "size_bytes_p95": size[1],
        "size_bytes_p99": size[2],
        "gap_us_p50": gap[0],
        "gap_us_p95": gap[1],
        "gap_us_p99": gap[2],
        "duration_us_p50": lasted[0],
        "duration_us_p95": lasted[1],
        "duration_us_p99": lasted[2],
        "duty": _duty(transfers, window_s),
        "incast_p50": degree.p50,
        "incast_p95": degree.p95,
        "incast_p99": degree.p99,
        "incast_max": degree.largest,
    }


def _degree(transfers: _Transfers) -> Incast:
    if transfers.to is None or transfers.ends is None:
        return Incast()
    told = transfers.to != NOBODY
    return incast(transfers.to[told], transfers.nics[told], transfers.starts[told], transfers.ends[told])


def _split(transfers: _Transfers, gap_s: float) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """Return how many bursts there are, their sizes, the pauses between those of a NIC and their durations, us."""
    import numpy as np

    starts, reach = transfers.starts, transfers.until.copy()
    begins = np.zeros(len(starts), bool)
    for mine in transfers.by_nic():
        np.maximum.accumulate(reach[mine], out=reach[mine])
        begins[mine.start] = True
    pauses_us = np.zeros(len(starts))
    pauses_us[1:] = np.round((starts[1:] - reach[:-1]) * US, 6)  # to the ps: 50 us between two floats are 50 us
    is_between = ~begins & (pauses_us > _us(gap_s))
    heads = np.flatnonzero(begins | is_between)
    if not len(heads):
        return 0, starts, starts, starts
    lasts = np.append(heads[1:], len(starts)) - 1
    durations_us = np.round((reach[lasts] - starts[heads]) * US, 6)
    return len(heads), np.add.reduceat(transfers.sizes, heads), pauses_us[is_between], durations_us


def _classes(transfers: _Transfers, gap_s: float) -> BurstClasses:
    """Return how many bursts and pauses there are in each power of two; sizes that are not known are in none."""
    import numpy as np

    _, sizes, pauses, _ = _split(transfers, gap_s)
    return {
        "size_classes": [
            {"log2_low_bytes": low, "log2_high_bytes": high, "count": count}
            for low, high, count in _powers(sizes[~np.isnan(sizes)])
        ],
        "gap_classes": [
            {"log2_low_us": low, "log2_high_us": high, "count": count} for low, high, count in _powers(pauses)
        ],
    }


def _powers(values: np.ndarray) -> list[tuple[int, int, int]]:
    """Return (low, high, count) of each power of two that holds values, low among it and high not; below 1 it is 0 to 1."""
    import numpy as np

    exponents = np.frexp(np.floor(values))[1]  # 0 below 1, else one more than the power
    powers, counts = np.unique(exponents, return_counts=True)
    return [
        (1 << power - 1 if power else 0, 1 << power, count)
        for power, count in zip(powers.tolist(), counts.tolist(), strict=True)
    ]


def _percentiles(values: np.ndarray) -> list[float] | list[None]:
    import numpy as np

    if not len(values):
        return _NONE
    return [float(value) for value in np.percentile(values, PERCENTILES, method="inverted_cdf")]


def _duty(transfers: _Transfers, window_s: float | None) -> float | None:
    """Return the share of the time in which a NIC sends, in the mean over those that send."""
    if transfers.ends is None or not window_s:
        return None
    ends = transfers.ends
    busy = [length(union(transfers.starts[mine], ends[mine])) for mine in transfers.by_nic()]
    return min(1.0, sum(busy) / (len(busy) * window_s)) if busy else None


def _us(time_s: float) -> float:
    return round(time_s * US, 6)
