"""The error of simulated times against public tables of measured ones; sizes used for the fit are not judged.

(a) per case: fitted on every second size, judged on the others. (b) other node counts: fitted on all other node counts of
the same system, settings and operation, judged on every size of this one. Judged is the out-of-place time, by the
geometric mean of max(t_sim/t, t/t_sim) - 1 over sizes of 64 KiB and more; smaller sizes are reported separately, and so is TCP.

No number is fitted to a judged size, but the structure of the model (what adds up, what runs side by side, how strongly
the fit is pulled to the data sheet) was chosen with these same tables in view, so the errors here are optimistic: only
systems that were not used can show the true error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ringwright.calls.calibrate import refused_rows
from ringwright.costs.calibration import MeasuredTimes, fit, ratio_error, times_s
from ringwright.costs.calibration.fit import LARGE_BYTES
from ringwright.costs.nccl import placed
from ringwright.costs.transports import USUAL_TRANSPORT, carrier
from ringwright.executors.fan_out import Chosen, FanOut, fan_out
from ringwright.formats.sources.tables.nccl_tests import read_tables
from ringwright.formats.sources.tables.nccl_tests_table import NcclTestsTable
from ringwright.ground.errors import InputError, UsageError
from ringwright_lab.judges.accuracy_cases import known

if TYPE_CHECKING:
    from ringwright.costs.calibration import Calibration

SCHEMA = "ringwright.accuracy/1"
TARGET_SIZES, TARGET_NODES = 0.12, 0.20


@dataclass(frozen=True)
class AccuracyCase:
    """A table with what stands for it: ``group`` names the cases that differ by node count only."""

    name: str
    transport: str
    measured: MeasuredTimes  # steady times, to fit
    raw_s: tuple[float, ...]  # out-of-place times, to judge
    group: str
    assumed: bool = False
    carrier: str = ""  # between its nodes

    def judge(self, calibration: Calibration, places: Sequence[int]) -> float | None:
        """Return the error over some sizes, None for no size."""
        if not places:
            return None
        chosen = self.measured.at(places)
        return ratio_error(times_s(calibration, chosen), [self.raw_s[index] for index in places])

    def places(self, *, large: bool, every: slice = slice(None)) -> list[int]:
        """Return the sizes from 64 KiB on, or those below."""
        sizes = self.measured.sizes_bytes
        return [index for index in range(len(sizes))[every] if (sizes[index] >= LARGE_BYTES) == large]


class HasError(Protocol):
    """What a summary asks of a line."""

    @property
    def transport(self) -> str:
        """The group of the line: nvlink, tcp or rdma."""

    @property
    def error(self) -> float | None:
        """The line's error, a fraction."""


@dataclass(frozen=True)
class AccuracyRow:
    """One line of the table; errors are fractions, None where there is no such size."""

    case: str
    transport: str
    fabric: str
    release: str
    fitted: float
    error: float | None
    small: float | None
    trained_on: int
    release_assumed: bool = False


def cases(path: str | Path) -> tuple[list[AccuracyCase], list[str]]:
    """Return the cases of ``nccl_times.csv`` that the model covers, and the names of the others."""
    made, left = [], []
    for table in read_tables(path):
        judged = _case(table)
        if judged is None:
            left.append(table.name)
        else:
            made.append(judged)
    if not made:
        raise InputError("no case here is known", where=str(path), remedy="ringwright calibrate TABLE --fabric ...")
    return made, left


def _case(table: NcclTestsTable) -> AccuracyCase | None:
    entry = known(table.name)
    if entry is None:
        return None
    release = entry.release or _digits(table.facts.get("software", ""))
    gpus = table.facts.get("gpus_per_node", "")
    fabric = entry.fabric.format(n=table.nodes, g=gpus, r=table.nodes * int(gpus or 0))
    try:
        placed(fabric)
    except UsageError:
        return None  # more GPUs than one of its NVLink domains has
    rows = [row for row in table.rows if row.size_bytes > 0]
    measured = MeasuredTimes(
        table.op,
        fabric,
        release,
        tuple(row.size_bytes for row in rows),
        tuple(row.steady_s for row in rows),
        entry.forced,
    )
    settings = table.facts.get("settings", "")
    group = f"{entry.system}|{release}|{settings}|{table.op}" if entry.system else ""
    raw = tuple(row.time_s for row in rows)
    over = carrier(f"{settings} {table.facts.get('inter_node', '')}", USUAL_TRANSPORT)
    return AccuracyCase(table.name, transport(fabric, settings), measured, raw, group, entry.assumed, over)


def _digits(software: str) -> str:
    found = re.search(r"\d+\.\d+(?:\.\d+)?", software)
    return found[0] if found else "2.18"


def transport(fabric: str, settings: str) -> str:
    """Return nvlink (one node), tcp or rdma."""
    if placed(fabric)[1].nodes < 2:
        return "nvlink"
    return "tcp" if "TCP" in settings else "rdma"


def by_sizes(rows: Iterable[AccuracyCase], executor: Chosen | FanOut = None) -> list[AccuracyRow]:
    """Return (a), case by case by ``executor``: fitted on sizes 0, 2, 4, ..., judged on sizes 1, 3, 5, ..."""
    with fan_out(executor) as fan:
        return fan.map(every_second_judged, [(case,) for case in rows], title=_name)


def every_second_judged(case: AccuracyCase) -> AccuracyRow:
    """Return a case as (a) judges it: the next size by those beside it."""
    sizes = range(0, len(case.measured.sizes_bytes), 2)
    calibration = fit([case.measured.at(sizes)], name=case.name, transport=case.carrier)
    return _judged(case, calibration, 1, every=slice(1, None, 2))


def by_nodes(rows: Sequence[AccuracyCase], executor: Chosen | FanOut = None) -> list[AccuracyRow]:
    """Return (b), case by case by ``executor``: fitted on the other node counts.

    A case is left out where all others stay within one node and it does not.
    """
    pairs = [(case, others) for case in rows if (others := other_node_counts(case, rows))]
    with fan_out(executor) as fan:
        return fan.map(by_others_judged, pairs, title=_name)


def by_others_judged(case: AccuracyCase, others: list[AccuracyCase]) -> AccuracyRow:
    """Return a case as (b) judges it: by its system's other node counts."""
    calibration = fit([other.measured for other in others], name=case.name, transport=case.carrier)
    return _judged(case, calibration, len(others))


def _name(case: AccuracyCase, *_: object) -> str:
    return case.name


def other_node_counts(case: AccuracyCase, measured: Iterable[AccuracyCase]) -> list[AccuracyCase]:
    """Return the cases from which this one can be predicted; empty where it spans several nodes and no other case does."""
    others = [
        other
        for other in measured
        if other.group and other.group == case.group and other.measured.fabric != case.measured.fabric
    ]
    stay = case.transport != "nvlink" and all(other.transport == "nvlink" for other in others)
    return [] if stay else others


def _judged(case: AccuracyCase, calibration: Calibration, trained_on: int, every: slice = slice(None)) -> AccuracyRow:
    large, small = (case.judge(calibration, case.places(large=size, every=every)) for size in (True, False))
    measured = case.measured
    return AccuracyRow(
        case.name,
        case.transport,
        measured.fabric,
        measured.release,
        calibration.error,
        large,
        small,
        trained_on,
        case.assumed,
    )


def summary(lines: Iterable[HasError], target: float) -> dict[str, dict[str, float]]:
    """Return per transport: cases, mean and median error, how many reach the target."""
    import numpy as np

    factors: dict[str, list[float]] = {}
    for line in lines:
        if line.error is not None:
            factors.setdefault(line.transport, []).append(line.error)
    return {
        transport: {
            "cases": len(errors),
            "mean": float(np.mean(errors)),
            "median": float(np.median(errors)),
            "reached": sum(error <= target for error in errors),
        }
        for transport, errors in sorted(factors.items())
    }


def study(path: str | Path, executor: Chosen | FanOut = None) -> dict[str, Any]:
    """Return the object of schema ``ringwright.accuracy/1``."""
    judged, left = cases(path)
    sizes, nodes = by_sizes(judged, executor), by_nodes(judged, executor)
    return {
        "schema": SCHEMA,
        "engine": "closed form (costs.nccl.timing)",
        "large_bytes": LARGE_BYTES,
        "sizes": [asdict(line) for line in sizes],
        "sizes_target": TARGET_SIZES,
        "sizes_summary": summary(sizes, TARGET_SIZES),
        "nodes": [asdict(line) for line in nodes],
        "nodes_target": TARGET_NODES,
        "nodes_summary": summary(nodes, TARGET_NODES),
        "not_covered": left,
        "refused": refused_rows(read_tables(path)),
    }
