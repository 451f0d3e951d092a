"""Which policy removes how much of what the first one leaves exposed, at what price, and how it is switched on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

MOST = 3  # policies of a cause
OF_STEP = 0.005  # a cause that is less of a step needs no remedy
IN_PRACTICE = "in practice: "  # how schedulers begin what turns them on: a flag, or code
OF_CAUSE = 0.1  # what a remedy removes of its cause, at the least


class Remedy(TypedDict):
    """A cause of exposed communication in the first row, and a policy that leaves less of it; times in us, of a step.

    ``saved_us`` is what the whole step is shorter, with the interval that such steps have on GPUs (None: none were measured).
    ``memory_bytes`` is what a rank holds more at its peak (None: not known). ``rules`` counts the rules that rewrote the graph.
    """

    cause: str
    exposed_us: float
    policy: str
    exposed_after_us: float
    saved_us: float
    saved_us_p05: float | None
    saved_us_p95: float | None
    memory_bytes: int | None
    rules: dict[str, int]
    equal: str
    switch: list[str]


def remedies(rows: Sequence[Mapping[str, Any]]) -> list[Remedy]:
    """Return, for each cause of the first row, the policies that shorten the step and leave less of it, the best first.

    Told are causes from half a percent of the step on, and policies that remove a tenth of one or more.
    """
    told = [row for row in rows if row.get("declined") is None]
    if len(told) < 2:
        return []
    first, others = told[0], told[1:]
    listed = []
    for cause in first["why"]:
        if cause["exposed_us"] < OF_STEP * first["step_us"]:
            continue
        helping = [_remedy(cause, first, row) for row in others if row["step_us"] < first["step_us"]]
        better = [each for each in helping if each["exposed_after_us"] <= (1 - OF_CAUSE) * each["exposed_us"]]
        listed += sorted(better, key=lambda each: -each["saved_us"])[:MOST]
    return listed


def _remedy(cause: Mapping[str, Any], first: Mapping[str, Any], row: Mapping[str, Any]) -> Remedy:
    after = sum(each["exposed_us"] for each in row["why"] if each["cause"] == cause["cause"])
    saved = first["step_us"] - row["step_us"]
    held = (first["peak_memory_bytes"], row["peak_memory_bytes"])
    return {
        "cause": cause["cause"],
        "exposed_us": cause["exposed_us"],
        "policy": row["policy"],
        "exposed_after_us": after,
        "saved_us": saved,
        "saved_us_p05": _scaled(saved, first, "step_us_p05"),
        "saved_us_p95": _scaled(saved, first, "step_us_p95"),
        "memory_bytes": None if None in held else held[1] - held[0],
        "rules": dict(Counter(each["rule"] for each in row["applied"])),
        "equal": row["equal"],
        "switch": [each for each in row["decided"] if IN_PRACTICE in each],
    }


def _scaled(saved: float, row: Mapping[str, Any], end: str) -> float | None:
    """Return what is saved where such steps take as much longer, both alike: a machine is slow with each policy."""
    return None if row.get(end) is None else saved * row[end] / row["step_us"]
