"""All rules that name a culprit: errors of a log, ranks that died, hangs, late ranks, a slow network. The culprit with the
highest confidence is the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ringwright.analysis import remedies
from ringwright.analysis.document import Culprit
from ringwright.analysis.hangs.died import KIND as DIED
from ringwright.analysis.hangs.died import died
from ringwright.analysis.hangs.hang import hang
from ringwright.analysis.hangs.hang_gauge import hang_gauge
from ringwright.analysis.slow.arrivals import arrivals
from ringwright.analysis.slow.fail_slow import fail_slow
from ringwright.analysis.slow.slow_groups import slow_groups
from ringwright.ground.errors import MissingExtraError

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

CANNOT_TELL = "cannot tell"


def culprits(
    trace: Trace,
    told: Culprit | None,
    *,
    states: bool,
    timed: bool,
    metrics: bool,
    closer: Callable[[], Trace] | None = None,
) -> tuple[list[Culprit], dict[str, Any], list[str]]:
    """Return culprits, the strongest first, the arrivals they rest on, and what could not be looked at.

    ``told`` is the verdict of a log's errors. Rules run only on what they need: ``states``, ``timed`` calls, ``metrics``. Where
    nobody is late in these calls, ``closer`` gives others that may tell, and the arrivals are with their ``limits``.
    """
    accused = [told] if told else []
    late: dict[str, Any] = {}
    missing: list[str] = []
    dead = died(trace)
    if dead:
        accused += dead  # and no hang: that others wait for it follows from it
    elif states:
        accused += hang(trace)
    if metrics:
        accused += hang_gauge(trace)
    if timed:
        late = arrivals(trace)
        if not late["culprits"] and closer is not None and (other := closer()) is not trace:
            told_there = arrivals(other)
            late |= {name: told_there[name] for name in ("verdict", "reason", "culprits")}
            late["limits"] = other.meta["limits"]
        accused += late["culprits"]
        accused += _tried(lambda: fail_slow(trace), missing)
        blamed = {rank for one in late["culprits"] for rank in one["ranks"]}  # whose groups meet others on the way
        accused += [one for one in slow_groups(trace) if blamed.isdisjoint(one["ranks"])]
    return sorted((_complete(one, trace.meta) for one in accused), key=_strength), late, missing


def verdict(accused: list[Culprit]) -> Culprit | None:
    """Return the strongest culprit; one that names nobody says that it cannot tell."""
    if not accused:
        return None
    best = accused[0]
    if not best["ranks"] and not best["hosts"] and CANNOT_TELL not in str(best["evidence"]):
        return {**best, "evidence": [*best["evidence"], CANNOT_TELL]}
    return {**best}


def _complete(one: Culprit, meta: Mapping[str, Any]) -> Culprit:
    """Return a culprit with all its keys; the next command shows the ranks side by side where the rule names none."""
    command = one.get("command") or (
        remedies.perfetto(meta) if one["kind"].startswith("straggler") else remedies.report(meta)
    )
    return {**one, "command": command}


def _strength(one: Culprit) -> tuple[bool, bool, float]:
    """Order: who is named before who is not; a rank that died before all that may have been slow; then by confidence."""
    return (not (one["ranks"] or one["hosts"]), one["kind"] != DIED, -one["confidence"])


def _tried(rule: Callable[[], list[Culprit]], missing: list[str]) -> list[Culprit]:
    try:
        return rule()
    except MissingExtraError as error:
        missing.append(f"{error.what}; {error.remedy}")
        return []
