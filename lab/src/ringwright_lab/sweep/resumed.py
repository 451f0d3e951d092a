"""What a run takes over from an earlier one: how many grid points, from when, and of which version."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ringwright_lab.sweep.point import GridPoint
from ringwright_lab.sweep.run import CELLS, facts_of


def resumed(out: Path, points: Iterable[GridPoint]) -> list[dict[str, Any]]:
    """Return the facts of the grid points that lie in ``out``; each has ``started_s`` and ``versions`` if it could be read."""
    return [facts for point in points if (facts := facts_of(out / CELLS / point.key)) is not None]


def told(kept: list[dict[str, Any]], of: int) -> dict[str, Any] | None:
    """Return grid points, of, first and last (UTC, ISO 8601) and the versions of what was kept; None where nothing was."""
    if not kept:
        return None
    times = sorted(facts["started_s"] for facts in kept if isinstance(facts.get("started_s"), int | float))
    versions = {str(facts.get("versions", {}).get("ringwright", "unknown")) for facts in kept}
    first, last = (_date(times[at]) for at in (0, -1)) if times else ("unknown", "unknown")
    return {"cells": len(kept), "of": of, "first": first, "last": last, "ringwright": sorted(versions)}


def sentence(outcome: dict[str, Any]) -> str:
    """Return it in words."""
    when = outcome["first"] if outcome["first"] == outcome["last"] else f"{outcome['first']} to {outcome['last']}"
    return (
        f"resumed: {outcome['cells']} of {outcome['of']} cells are of an earlier run, {when}, "
        f"ringwright {', '.join(outcome['ringwright'])}; --fresh runs all again"
    )


def _date(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%MZ")
