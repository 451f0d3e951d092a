"""The list of systems with what each has shown: lines, conformance checks, the paper's figure."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from ringwright.errors import UsageError
from ringwright.studies import registry, reproduce

SCHEMA = "ringwright.systems/1"
RECORD = "conformance.json"  # written by scripts/conformance


def catalogue(*, family: str | None = None, check: bool = False, seed: int = 0) -> dict[str, Any]:
    """Return the object of schema ``ringwright.systems/1``; ``check`` runs a seeded part of the campaign now."""
    everything = (*registry.systems(), *registry.schedulers())
    chosen = [system for system in everything if family in (None, system.family, system.kind)]
    if not chosen:
        known = sorted({name for system in everything for name in (system.family, system.kind)})
        raise UsageError(f"no systems of the family '{family}'", remedy=f"one of: {', '.join(known)}")
    shown = _run(chosen, seed) if check else recorded()
    reproduced = reproduce.recorded()
    nothing = {"passed": 0, "declined": 0, "failed": 0, "recorded": False}
    return {
        "schema": SCHEMA,
        "ground": f"checked now, seed {seed}" if check else "recorded campaign (scripts/conformance)",
        "systems": [
            {
                "slug": system.slug,
                "family": system.family,
                "class": system.kind,
                "lines": system.lines,
                "conformance": shown.get(system.slug, nothing),
                "figure": system.headings.get("Figure", ""),
                "reproduced": reproduced.get(system.slug, ""),
            }
            for system in chosen
        ],
    }


def recorded() -> dict[str, dict[str, int]]:
    """Return the tallies of the last full campaign, by slug; empty where none ships."""
    record = files("ringwright") / "studies" / RECORD
    if not record.is_file():
        return {}
    tallies: dict[str, dict[str, int]] = json.loads(record.read_text())["systems"]
    return tallies


def _run(chosen: list[registry.System], seed: int) -> dict[str, dict[str, int]]:
    from ringwright.studies import conformance

    outcomes = (
        conformance.check(case)
        for case in conformance.pairwise([each for each in chosen if each in registry.systems()], seed)
    )
    return conformance.tally(outcomes)
