"""How near learnt answers come to measured tables: error by class of transport and region of size, and what intervals cover."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ringwright.accuracy import mpi_accuracy
from ringwright.accuracy.judged_choices import choices
from ringwright.accuracy.judged_engines import ENGINE, EVENTS, PROGRAM, call_seconds
from ringwright.accuracy.measured_calls import MeasuredFolder, RefusedRow, measured_folder, mpi_tables
from ringwright.calls.library_calls import LIBRARY
from ringwright.calls.provenance import AskedOf, asked_of
from ringwright.costs.learnt import Prior, expected, rising, shipped
from ringwright.costs.learnt.parts import LARGE_BYTES, SMALL_BYTES
from ringwright.costs.learnt.trusted import HALF, MeasuredCall
from ringwright.costs.probable_time import NINETY
from ringwright.executors.fan_out import Chosen, FanOut, fan_out
from ringwright.ground.errors import InputError
from ringwright.ground.stepwise import Advance

SCHEMA = "ringwright.accuracy/2"
CLASSES = {"nvlink": "nvlink", "tcp": "tcp"}  # any other transport is rdma
REGIONS = ("to 64 KiB", "between", "from 64 MiB")


@dataclass(frozen=True)
class JudgedRow:
    """One measured size beside its answer, in us; ``calibrated``: tables of its system were given."""

    case: str
    system: str
    size_bytes: int
    measured_us: float
    time_us_p05: float | None
    time_us_p50: float
    time_us_p95: float | None
    engine: str
    transport: str
    calibrated: bool
    outside: tuple[str, ...]
    sigma: float

    @property
    def off(self) -> float:
        """The logarithm of answer over measured."""
        return math.log(self.time_us_p50 / self.measured_us)

    @property
    def kind(self) -> str:
        """The class of its transport: nvlink, rdma or tcp."""
        return CLASSES.get(self.transport, "rdma")

    @property
    def region(self) -> str:
        """Which sizes it is judged with."""
        return REGIONS[0 if self.size_bytes <= SMALL_BYTES else 2 if self.size_bytes >= LARGE_BYTES else 1]


def study(
    paths: Sequence[str | Path],
    calibrate: Sequence[str | Path] = (),
    *,
    engine: str = ENGINE,
    progress: Advance | None = None,
    executor: Chosen = None,
) -> Mapping[str, Any]:
    """Return the object of schema ``ringwright.accuracy/2``; ``calibrate`` folders hold tables that may be learnt from.

    ``executor`` asks engines, call by call. InputError for a folder without tables.
    """
    mpi = mpi_tables(paths)
    asked = measured_folder(paths, mpi)
    given = measured_folder(calibrate) if calibrate else MeasuredFolder((), ())
    prior = shipped()
    without: list[tuple[str, str]] = []
    with fan_out(executor) as fan:
        calls = [(each.call, engine) for each in asked.calls]
        seconds = fan.map(call_seconds, calls, title=lambda call, _: call.table, progress=progress)
        ranked, unread = _ranked(mpi, engine, fan)
    rows = judged(asked.calls, given.calls, prior, engine=engine, without=without, seconds=seconds)
    refused = [*asked.refused, *given.refused, *(RefusedRow(*each) for each in without), *unread]
    return {
        "schema": SCHEMA,
        "asked": _asked(asked.calls, calibrate),
        "engine": engine,
        "rows": [asdict(row) for row in rows],
        "summary": summary(rows),
        "left_out": [{"case": each.case, "reason": each.told} for each in refused],
        "refused": [asdict(each) for each in refused],
        "choices": choices(asked.calls, _by_owner(given.calls), prior) if engine == ENGINE else [],
        "mpi": ranked,
        "learnt_from": sorted({each.call.owner for each in asked.calls} & set(prior.systems)),
        "executor": fan.account.document(),
    }


def _asked(calls: Sequence[MeasuredCall], calibrate: Sequence[str | Path]) -> AskedOf:
    """Return which releases and transports the tables are of, by system, and which folders were learnt from."""
    asked = asked_of(None, sorted({f"{LIBRARY}@{each.call.release}" for each in calls}))
    carriers: dict[str, set[str]] = defaultdict(set)
    for each in calls:
        carriers[each.call.owner].add(each.call.carrier)
    asked["transports"] = {owner: ", ".join(sorted(carried)) for owner, carried in carriers.items()}
    asked["calibration"] = ", ".join(map(str, calibrate)) or None
    return asked


def _ranked(paths: Sequence[Path], engine: str, fan: FanOut) -> tuple[list[Mapping[str, Any]], list[RefusedRow]]:
    """Return the tables of MPI algorithms, and what of them cannot be read."""
    tables: list[Mapping[str, Any]] = []
    refused: list[RefusedRow] = []
    for path in paths:
        try:
            tables.append(mpi_accuracy.study(path, engine, fan))
        except InputError as error:
            refused.append(RefusedRow(path.name, error.what))
            continue
        refused += [RefusedRow(path.name, each["reason"], each["line"]) for each in tables[-1]["refused"]]
    return tables, refused


def judged(
    asked: Sequence[MeasuredCall],
    given: Sequence[MeasuredCall],
    prior: Prior,
    *,
    engine: str = ENGINE,
    without: list[tuple[str, str]] | None = None,
    seconds: Sequence[list[float] | str] | None = None,
) -> list[JudgedRow]:
    """Return every size of ``asked``, its answer made with the tables of ``given`` that are of its system; never with its own.

    ``without`` takes in (table, reason) of what an engine does not answer; ``seconds`` of each call are ``call_seconds``.
    """
    own, known = _by_owner(given), seconds or [call_seconds(each.call, engine) for each in asked]
    rows: list[JudgedRow] = []
    for owner in dict.fromkeys(each.call.owner for each in asked):
        mine = [(each, told_s) for each, told_s in zip(asked, known, strict=True) if each.call.owner == owner]
        answers = expected([each.call for each, _ in mine], own.get(owner, ()), prior)
        for (each, told_s), answer in zip(mine, answers, strict=True):
            if isinstance(told_s, str):
                if without is not None:
                    without.append((each.call.table, told_s))
                continue
            told, learnt, simulated = rising(answer), engine == ENGINE, engine in (EVENTS, PROGRAM)
            own_s = told_s if simulated else [said.p50_s if learnt else said.closed_form_s for said in told]
            bounds = told_s if learnt else [0.0] * len(told)
            for time_s, answer_s, said, bound_s in zip(each.times_s, own_s, told, bounds, strict=True):
                rows.append(
                    JudgedRow(
                        each.call.table,
                        owner,
                        said.size_bytes,
                        time_s * 1e6,
                        max(said.p05_s, bound_s) * 1e6 if learnt else None,
                        max(answer_s, bound_s) * 1e6,
                        max(said.p95_s, bound_s) * 1e6 if learnt else None,
                        engine,
                        each.call.carrier,
                        owner in own,
                        said.outside,
                        said.sigma if learnt else 0.0,
                    )
                )
    return rows


def _by_owner(calls: Sequence[MeasuredCall]) -> Mapping[str, list[MeasuredCall]]:
    own: dict[str, list[MeasuredCall]] = defaultdict(list)
    for each in calls:
        own[each.call.owner].append(each)
    return own


def summary(rows: Iterable[JudgedRow]) -> list[Mapping[str, Any]]:
    """Return a line by class and region, systems with tables of their own apart; ``all`` over the classes.

    ``geomean_error``: exp(mean over systems of the mean over rows of abs(ln(answer / measured))) - 1; ``rows_error``: over all
    rows at once. ``width``: the median of the 90 % interval's upper end over its lower one.
    """
    groups: dict[tuple[bool, str, str], list[JudgedRow]] = defaultdict(list)
    for row in rows:
        for kind in (row.kind, "all"):
            groups[row.calibrated, kind, row.region].append(row)
    order = [
        (given, kind, region)
        for given in (False, True)
        for kind in ("nvlink", "rdma", "tcp", "all")
        for region in REGIONS
    ]
    return [_line(*key, groups[key]) for key in order if key in groups]


def _line(calibrated: bool, kind: str, region: str, rows: Sequence[JudgedRow]) -> Mapping[str, Any]:
    off = np.array([abs(row.off) for row in rows])
    systems = np.array([row.system for row in rows])
    means = [float(off[systems == system].mean()) for system in dict.fromkeys(systems.tolist())]
    sigma = np.array([row.sigma for row in rows])
    has_interval = bool((sigma > 0).all())
    return {
        "class": kind,
        "region": region,
        "calibrated": calibrated,
        "geomean_error": math.exp(float(np.mean(means))) - 1,
        "rows_error": math.exp(float(off.mean())) - 1,
        "coverage": float((off <= NINETY * sigma).mean()) if has_interval else None,
        "coverage_50": float((off <= HALF * sigma).mean()) if has_interval else None,
        "width": float(np.median(np.exp(2 * NINETY * sigma))) if has_interval else None,
        "systems": len(means),
        "n": len(rows),
    }
