"""The limits of the gate that need times: of steps and of calls, bus bandwidth, waiting, and what is not hidden behind compute.

What was not measured cannot be judged, and fails: a gate that sees nothing does not pass.
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Literal

from ringwright.analysis.compared.diff_times import exposed, waiting
from ringwright.analysis.compared.gate_document import TIMED, CheckResult, ClassLimit, Thresholds, TimedBound, checked
from ringwright.analysis.document import Row, Summary
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS: tuple[Literal["max_time_us", "min_busbw_gbs", "min_percentile"], ...] = (
    "max_time_us",
    "min_busbw_gbs",
    "min_percentile",
)


def number(key: str, value: object, where: str) -> float:
    """Return a limit that is a time or a rate; raise UsageError for what is no positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UsageError(
            f"{key} is not a positive number: {value!r}", where=where, remedy=f"{key} = 250.0, its unit is in its name"
        )
    return float(value)


def whole(summary: Summary, limits: Thresholds) -> list[CheckResult]:
    """Judge the job as a whole: its median step, its waiting, its exposed communication."""
    judged = []
    if limits["max_step_us"] is not None:
        lasted = [row["time_s"] * 1e6 for row in summary.get("iterations") or [] if (row.get("time_s") or 0) > 0]
        judged.append(_most("step", "a median step", median(lasted) if lasted else None, limits["max_step_us"], _us))
    for key, limit, told, name in (
        ("wait_share", limits["max_wait_share"], waiting, "waiting for late ranks"),
        ("exposed_share", limits["max_exposed_share"], exposed, "communication not hidden behind compute"),
    ):
        if limit is not None:
            share = told(summary)
            judged.append(_most(key, name, None if share is None else share[1], limit, _percent))
    return judged


def of_class(summary: Summary, limit: ClassLimit, name: str) -> list[CheckResult]:
    """Judge one operation and size class: slowest size, lowest bandwidth and place among systems, waiting and exposed shares."""
    timed = [row for row in summary.get("bandwidth") or [] if _selected(row, limit) and (row.get("time_us") or 0) > 0]
    bare = [row for row in (summary.get("overlap") or {}).get("operations") or [] if _selected(row, limit)]
    rates = [row["busbw_gbs"] for row in timed if row.get("busbw_gbs") is not None]
    beside = [row["percentile"] for row in summary.get("normal") or [] if _is_in(row["op"], row["size_bytes"], limit)]
    measured: dict[TimedBound, float | None] = {
        "max_time_us": max((row["time_us"] for row in timed), default=None),
        "min_busbw_gbs": min(rates, default=None),
        "min_percentile": min(beside, default=None),
        "max_wait_share": _wait_share(timed),
        "max_exposed_share": _ratio(sum(row["exposed_us"] for row in bare), sum(row["comm_us"] for row in bare)),
    }
    return [_bounded(name, key, measured[key], limit[key]) for key in TIMED if key in limit]


def _selected(row: Row, limit: ClassLimit) -> bool:
    return _is_in(row.get("op"), row.get("size_bytes"), limit)


def _is_in(op: str | None, size: int | None, limit: ClassLimit) -> bool:
    low, high = limit.get("min_size", 0), limit.get("max_size")
    if size is None:
        return limit.get("op") in (None, op) and low == 0 and high is None
    return limit.get("op") in (None, op) and low <= size and (high is None or size <= high)


def _wait_share(timed: list[Row]) -> float | None:
    seen = [
        (row["wait_us"], row["time_us"], row.get("samples") or 1) for row in timed if row.get("wait_us") is not None
    ]
    waited = math.fsum(wait * many for wait, _, many in seen)
    return _ratio(waited, waited + math.fsum(time * many for _, time, many in seen))


def _ratio(part: float, all_of_it: float) -> float | None:
    return part / all_of_it if all_of_it > 0 else None


def _most(check: str, name: str, value: float | None, limit: float, show: Callable[[float], str]) -> CheckResult:
    if value is None:
        return checked(check, False, None, limit, f"{name}: not in the input, so {show(limit)} cannot be judged")
    return checked(check, value <= limit, round(value, 6), limit, f"{name}: {show(value)}, at most {show(limit)}")


def _bounded(name: str, key: TimedBound, value: float | None, limit: float) -> CheckResult:
    what, show = _SHOWN[key]
    if value is None:
        return checked(
            f"{name} {key}", False, None, limit, f"{name}: {what} is not in the input, so it cannot be judged"
        )
    least = key.startswith("min")
    passed = value >= limit if least else value <= limit
    detail = f"{name}: {what} {show(value)}, {'at least' if least else 'at most'} {show(limit)}"
    return checked(f"{name} {key}", passed, round(value, 6), limit, detail)


def _us(value: float) -> str:
    return f"{value:,.0f} us" if value >= 1000 else f"{value:.4g} us"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _gbs(value: float) -> str:
    return f"{value:.4g} GB/s"


_SHOWN: dict[TimedBound, tuple[str, Callable[[float], str]]] = {
    "max_time_us": ("time of the slowest size", _us),
    "min_busbw_gbs": ("lowest bus bandwidth", _gbs),
    "min_percentile": ("share of such systems that are slower, lowest size", lambda value: f"{value:.3g} %"),
    "max_wait_share": ("waiting for late ranks", _percent),
    "max_exposed_share": ("share not hidden behind compute", _percent),
}
