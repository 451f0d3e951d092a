"""The gate: thresholds against a summary. Limits are per op and size class, so that small calls never judge large ones.

A threshold file is TOML::

    max_refused_share = "1%"     # refused lines over all lines
    expected_ranks = 64
    allow_verdict = false        # a verdict (hang, dead peer, ...) fails the gate
    allow_empty = false          # an input without operations fails the gate
    allow_truncated = true
    max_step_us = 250000.0       # the median step
    max_wait_share = "10%"       # of the time in collectives, waiting for late ranks
    max_exposed_share = "40%"    # of communication, not hidden behind compute

    [[limit]]
    op = "all-reduce"            # left out: every op
    min_size = "1K"              # size class, both ends included; left out: open
    max_size = "1M"
    max_count = 10000            # any of max_count, min_count, max_bytes, min_bytes, max_share (of all bytes),
    max_time_us = 900.0          # max_time_us (of its slowest size), min_busbw_gbs (of its slowest size), max_wait_share,
    min_busbw_gbs = 35.0         # max_exposed_share, min_percentile (of such systems, as summary's "normal" says)

What a limit asks for and the input does not tell fails: it cannot be judged.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from ringwright.analysis.compared import gate_times
from ringwright.analysis.compared.gate_document import (
    COUNTED,
    TIMED,
    CheckResult,
    ClassLimit,
    CountedBound,
    GateAnswer,
    Thresholds,
    checked,
)
from ringwright.analysis.document import Summary
from ringwright.bounds.laws import wrong_results
from ringwright.ground.errors import UsageError
from ringwright.ground.units import format_size, parse_size

SCHEMA = "ringwright.check/1"
DEFAULTS: Thresholds = {
    "max_refused_share": 0.01,
    "expected_ranks": None,
    "allow_verdict": False,
    "allow_empty": False,
    "allow_truncated": True,
    "max_step_us": None,
    "max_wait_share": None,
    "max_exposed_share": None,
    "limit": [],
}
_SELECTORS = ("op", "min_size", "max_size")
_SIZES: tuple[Literal["min_size", "max_size", "max_bytes", "min_bytes"], ...] = (
    "min_size",
    "max_size",
    "max_bytes",
    "min_bytes",
)
_SHARES: tuple[Literal["max_share", "max_wait_share", "max_exposed_share"], ...] = (
    "max_share",
    "max_wait_share",
    "max_exposed_share",
)
_COUNTS: tuple[Literal["max_count", "min_count"], ...] = ("max_count", "min_count")
_REMEDY = "see the threshold file in: ringwright check --help"


def read_thresholds(path: str | Path | None, **given: object) -> Thresholds:
    """Return thresholds: the defaults, then the file, then what is ``given`` and not None; raise UsageError."""
    loaded: dict[str, object] = {}
    if path is not None:
        try:
            loaded = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"the thresholds cannot be read: {error}", where=str(path), remedy=_REMEDY) from error
    stray = [key for key in loaded if key not in DEFAULTS]
    if stray:
        raise UsageError(f"unknown threshold {', '.join(stray)}", where=str(path), remedy=f"use {', '.join(DEFAULTS)}")
    merged: dict[str, object] = {
        **DEFAULTS,
        **loaded,
        **{key: value for key, value in given.items() if value is not None},
    }
    return _checked(merged, str(path or "the command line"))


def parse_share(value: str | float) -> float:
    """Return a share 0 to 1 for ``0.01`` or ``1%``; raise UsageError otherwise."""
    text = str(value).strip()
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError as error:
        raise UsageError(f"'{value}' is not a share", remedy="give 1% or 0.01") from error
    if not 0 <= share <= 1:
        raise UsageError(f"the share {value} is not between 0 and 1", remedy="give 1% or 0.01")
    return share


def check(summary: Summary, thresholds: Thresholds | None = None) -> GateAnswer:
    """Return ``passed``, ``checks`` (check, passed, measured, limit, detail) and ``line``, one line for CI."""
    limits = thresholds if thresholds is not None else read_thresholds(None)
    checks = [_operations(summary, limits), _refused(summary, limits), _verdict(summary, limits)]
    checks += _wrong(summary) + _truncated(summary, limits) + _ranks(summary, limits)
    checks += gate_times.whole(summary, limits)
    checks += [result for limit in limits["limit"] for result in _limit(summary, limit)]
    failed = [result for result in checks if not result["passed"]]
    if failed:
        line = f"FAIL {len(failed)} of {len(checks)} checks: " + "; ".join(result["detail"] for result in failed[:3])
        line += f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
    else:
        line = f"PASS {len(checks)} checks: {summary.get('coverage') or 'coverage not stated'}"
    return {"schema": SCHEMA, "passed": not failed, "checks": checks, "line": " ".join(line.split())}


def _checked(merged: Mapping[str, object], where: str) -> Thresholds:
    """Return thresholds with shares and sizes as numbers."""
    written = merged["limit"]
    if not isinstance(written, list) or not all(isinstance(entry, dict) for entry in written):
        raise UsageError("limits are tables", where=where, remedy="write [[limit]] above each")
    ranks = merged["expected_ranks"]
    expected = None if ranks is None else _whole_number("expected_ranks", ranks, where)
    allowed = {key: _flag(merged, key, where) for key in ("allow_verdict", "allow_empty", "allow_truncated")}
    limits = [_checked_limit(entry, f"{where}, limit {number}") for number, entry in enumerate(written, 1)]
    refused = parse_share(str(merged["max_refused_share"]))
    waited, exposed = _share(merged["max_wait_share"]), _share(merged["max_exposed_share"])
    step_us = merged["max_step_us"]
    return {
        "max_refused_share": refused,
        "expected_ranks": expected,
        "allow_verdict": allowed["allow_verdict"],
        "allow_empty": allowed["allow_empty"],
        "allow_truncated": allowed["allow_truncated"],
        "max_step_us": None if step_us is None else gate_times.number("max_step_us", step_us, where),
        "max_wait_share": waited,
        "max_exposed_share": exposed,
        "limit": limits,
    }


def _flag(merged: Mapping[str, object], key: str, where: str) -> bool:
    value = merged[key]
    if not isinstance(value, bool):
        raise UsageError(f"{key} is neither true nor false: {value!r}", where=where, remedy=_REMEDY)
    return value


def _share(value: object) -> float | None:
    return None if value is None else parse_share(str(value))


def _checked_limit(entry: Mapping[str, object], where: str) -> ClassLimit:
    bounds = (*COUNTED, *TIMED)
    known = (*_SELECTORS, *bounds)
    stray = [key for key in entry if key not in known]
    if stray:
        raise UsageError(f"unknown key {', '.join(stray)}", where=where, remedy=f"use {', '.join(known)}")
    if not any(key in entry for key in bounds):
        raise UsageError(
            "a limit without a bound limits nothing", where=where, remedy=f"add one of {', '.join(bounds)}"
        )
    limit: ClassLimit = {}
    if "op" in entry:
        limit["op"] = str(entry["op"])
    for size in _SIZES:
        if size in entry:
            limit[size] = parse_size(str(entry[size]))
    for share in _SHARES:
        if share in entry:
            limit[share] = parse_share(str(entry[share]))
    for number in gate_times.NUMBERS:
        if number in entry:
            limit[number] = gate_times.number(number, entry[number], where)
    for count in _COUNTS:
        if count in entry:
            limit[count] = _whole_number(count, entry[count], where)
    return limit


def _whole_number(key: str, value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{key} is not a whole number: {value!r}", where=where, remedy=_REMEDY)
    return value


def _operations(summary: Summary, limits: Thresholds) -> CheckResult:
    count = sum(o.get("count") or 0 for o in summary.get("operations") or [])
    detail = f"{count} operations read" if count else "no operation read, so nothing can be judged"
    timed = len(summary.get("bandwidth") or [])
    if timed and not count:
        count, detail = timed, f"{timed} rows of a benchmark read"
    return checked("operations", bool(count) or limits["allow_empty"], count, 0 if limits["allow_empty"] else 1, detail)


def _refused(summary: Summary, limits: Thresholds) -> CheckResult:
    ledger = summary.get("ledger") or {}
    lines = ledger.get("lines") or 0
    share = (ledger.get("refused") or 0) / lines if lines else 0.0
    bound = limits["max_refused_share"]
    return checked("refused", share <= bound, share, bound, f"{share:.2%} of lines refused, at most {bound:.2%}")


def _verdict(summary: Summary, limits: Thresholds) -> CheckResult:
    verdict = summary.get("verdict")
    if not verdict:
        return checked("verdict", True, None, None, "no verdict")
    ranks = ", ".join(str(rank) for rank in (verdict.get("ranks") or [])[:8]) or "unknown"
    detail = f"verdict {verdict.get('kind')}: ranks {ranks}"
    return checked("verdict", limits["allow_verdict"], verdict.get("kind"), None, detail)


def _wrong(summary: Summary) -> list[CheckResult]:
    """Fail where a benchmark's results are wrong: no limit allows that."""
    wrong = wrong_results(summary.get("laws") or [])
    if wrong is None:
        return []
    return [checked("results", passed=False, measured=wrong["refused"], limit=0, detail=wrong["example"])]


def _truncated(summary: Summary, limits: Thresholds) -> list[CheckResult]:
    if limits["allow_truncated"]:
        return []
    truncated = bool(summary.get("losses"))
    return [
        checked(
            "complete",
            not truncated,
            truncated,
            False,
            "part of the input was not read" if truncated else "input complete",
        )
    ]


def _ranks(summary: Summary, limits: Thresholds) -> list[CheckResult]:
    expected = limits["expected_ranks"]
    if expected is None:
        return []
    seen = summary.get("ranks_seen") or 0
    return [checked("ranks", seen == expected, seen, expected, f"{seen} ranks seen, {expected} expected")]


def _limit(summary: Summary, limit: ClassLimit) -> list[CheckResult]:
    """Return one result per bound of a limit, over the calls that its op and size class select."""
    low, high = limit.get("min_size", 0), limit.get("max_size")
    count = moved = whole = 0
    for operation in summary.get("operations") or []:
        for entry in operation.get("size_histogram") or []:
            size = entry["size_bytes"]
            whole += size * entry["count"]
            if limit.get("op") in (None, operation["op"]) and low <= size and (high is None or size <= high):
                count += entry["count"]
                moved += size * entry["count"]
    name = f"{limit.get('op', 'any op')} {format_size(low)} to {format_size(high) if high is not None else 'any size'}"
    measured = {"count": count, "bytes": moved, "share": moved / whole if whole else 0.0}
    counted = [
        _bounded(name, bound, limit[bound], measured[bound.split("_")[1]]) for bound in COUNTED if bound in limit
    ]
    return counted + gate_times.of_class(summary, limit, name)


def _bounded(name: str, bound: CountedBound, limit: float, value: float) -> CheckResult:
    side, quantity = bound.split("_")
    passed = value <= limit if side == "max" else value >= limit
    shown = [
        format_size(v) if quantity == "bytes" else f"{v:.1%}" if quantity == "share" else f"{v} calls"
        for v in (value, limit)
    ]
    return checked(
        f"{name} {bound}",
        passed,
        value,
        limit,
        f"{name}: {shown[0]}, {'at most' if side == 'max' else 'at least'} {shown[1]}",
    )
