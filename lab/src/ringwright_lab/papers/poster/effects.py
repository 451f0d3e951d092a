"""What each disturbance does to collectives and steps, over seeds and models, and whether it was told right."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ringwright.analysis.slow.disturbance import NONE, UNKNOWN, disturbance
from ringwright.formats.sources import read
from ringwright_lab.papers.poster.plan import ANOMALIES
from ringwright_lab.sweep.measure import step_times
from ringwright_lab.sweep.point import GridPoint
from ringwright_lab.sweep.table import recordings

# Student's t, 97.5 %, by degrees of freedom.
_T = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
    14: 2.145,
    19: 2.093,
    29: 2.045,
}


@dataclass
class AnomalyEffect:
    """One disturbance on one model: the answer of every seed, and the steps of the last run beside those undisturbed."""

    model: str
    anomaly: str
    told: list[dict[str, Any]] = field(default_factory=list)
    steps_s: list[float] = field(default_factory=list)
    usual_s: list[float] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """Return the effect as a row: ratios with 95 % intervals over seeds, and how often the cause was told right."""
        truth = NONE if self.anomaly == NONE else self.anomaly
        right = sum(answer["kind"] == truth for answer in self.told)
        unsure = sum(answer["kind"] == UNKNOWN for answer in self.told)
        row: dict[str, Any] = {"model": self.model, "anomaly": self.anomaly, "fault": ANOMALIES.get(self.anomaly, "")}
        for what in ("collective_ratio", "step_ratio"):
            values = [answer["effect"][what] for answer in self.told if answer["effect"][what]]
            row[what], row[f"{what}_low"], row[f"{what}_high"] = interval(values)
        row |= {"seeds": len(self.told), "right": right, "cannot_tell": unsure}
        row["wrong"] = len(self.told) - right - unsure
        row["answers"] = [answer["kind"] for answer in self.told]
        row["named"] = [", ".join([*map(str, answer["ranks"]), *answer["hosts"]]) for answer in self.told]
        row |= {"steps_s": self.steps_s, "usual_s": self.usual_s}
        return row


def interval(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Return the geometric mean of ratios with its 95 % interval (Student's t on logarithms); ends None for one value."""
    logs = [math.log(value) for value in values if value > 0]
    if not logs:
        return None, None, None
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return math.exp(mean), None, None
    freedom = max(n for n in _T if n <= max(1, len(logs) - 1))
    half = _T[freedom] * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def effects(points: Sequence[tuple[GridPoint, Path, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return a row per model and disturbance; each run is compared with the undisturbed one of its model and seed.

    Runs undisturbed are compared too, with those of another seed: what is found there is a false alarm.
    """
    from ringwright.model.trace import Trace

    usual = {point: folder for point, folder, _ in points if not point.fault}
    name_of = {fault: name for name, fault in ANOMALIES.items()}
    by_case: dict[tuple[str, str], AnomalyEffect] = {}
    opened: dict[Path, Trace] = {}

    def trace(folder: Path) -> Trace:
        if folder not in opened:
            opened[folder] = read(
                [str(path) for path in [*recordings(folder), *sorted(folder.glob("network.*.jsonl"))]]
            )
        return opened[folder]

    for point, folder, _ in points:
        beside = _baseline(point, usual)
        if beside is None:
            continue
        name = name_of.get(point.fault, NONE)
        effect = by_case.setdefault((point.model, name), AnomalyEffect(point.model, name))
        since = point.warm + 1
        effect.told.append(disturbance(trace(folder), trace(beside), since=since))
        effect.steps_s = step_times(point, trace(folder))["duration_s"].to_list()
        effect.usual_s = step_times(point, trace(beside))["duration_s"].to_list()
    return [effect.row() for _, effect in sorted(by_case.items())]


def _baseline(point: GridPoint, usual: dict[GridPoint, Path]) -> Path | None:
    """Return the run of the same grid point undisturbed; for an undisturbed run, that of another seed."""
    if point.fault:
        return usual.get(replace(point, fault=""))
    others = sorted(
        other.seed for other in usual if other.seed != point.seed and replace(other, seed=point.seed) == point
    )
    after = [seed for seed in others if seed > point.seed] or others
    return usual[replace(point, seed=after[0])] if after else None
