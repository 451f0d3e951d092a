"""The list of systems with what each has shown: lines, conformance checks, the paper's figure."""

from __future__ import annotations

import difflib
from contextlib import suppress
from typing import Any

from ringwright import registry, steps
from ringwright.errors import PluginError, UsageError
from ringwright.papers import reproduce
from ringwright.plugins import HOUSE

SCHEMA, SCHEMA_ONE = "ringwright.systems/1", "ringwright.system/1"
KNOB = "KNOB=VALUE"


def catalogue(
    *, family: str | None = None, check: bool = False, seed: int = 0, progress: steps.Advance | None = None
) -> dict[str, Any]:
    """Return the object of schema ``ringwright.systems/1``; ``check`` runs a seeded part of the campaign now."""
    everything = (*registry.systems(), *registry.schedulers())
    chosen = [system for system in everything if family in (None, system.family, system.kind)]
    broken = {system.slug: error for system in chosen if (error := system.problem)}
    chosen = [system for system in chosen if system.slug not in broken]
    if not chosen and not broken:
        known = sorted({name for system in everything for name in (system.family, system.kind)})
        raise UsageError(f"no systems of the family '{family}'", remedy=f"one of: {', '.join(known)}")
    shown = _run(chosen, seed, progress) if check else recorded()
    reproduced = reproduce.recorded()
    refusals = [*(each.error(each.refused) for each in registry.refused()), *broken.values(), *_of_other_rooms()]
    nothing = {"passed": 0, "declined": 0, "failed": 0, "recorded": False}
    return {
        "schema": SCHEMA,
        "ground": f"checked now, seed {seed}" if check else _ground(),
        "systems": [
            {
                "slug": system.slug,
                "family": system.family,
                "class": system.kind,
                "origin": system.origin,
                "lines": system.lines,
                "conformance": shown.get(system.slug, nothing),
                "figure": system.headings.get("Figure", ""),
                "reproduced": reproduced.get(system.slug, ""),
            }
            for system in chosen
        ],
        "refused": [{"what": error.what, "where": error.where, "try": error.remedy} for error in refusals],
    }


def _of_other_rooms() -> list[PluginError]:
    """Return why plug-ins that are no systems cannot be used: fabrics, exports, sources and families."""
    from ringwright import exports, fabrics
    from ringwright.sources import kinds
    from ringwright.workloads import families

    return [*fabrics.problems(), *exports.problems(), *kinds.problems(), *families.problems()]


def one(slug: str) -> dict[str, Any]:
    """Return the object of schema ``ringwright.system/1``: what a system or fabric is, and its knobs.

    A name that several have is looked for among algorithms, schedulers and fabrics in turn. UsageError for none.
    """
    from ringwright.fabrics import families, family, knobs, plugin_of

    everything = {system.slug: system for system in (*registry.schedulers(), *registry.systems())}
    name = registry.ALSO_CALLED.get(slug, slug)
    if name in everything:
        system = everything[name]
        return {
            "schema": SCHEMA_ONE,
            "slug": name,
            "family": system.family,
            "class": system.kind,
            "origin": system.origin,
            "collectives": list(system.ops),
            "headings": system.headings,
            "spelled": f"{name}:{KNOB}",
            "knobs": [knob.document() for knob in system.knobs().values()],
        }
    if slug in families():
        about = " ".join((family(slug).__doc__ or "").split())
        return {
            "schema": SCHEMA_ONE,
            "slug": slug,
            "family": "fabric",
            "class": "fabric",
            "origin": plugin.distribution if (plugin := plugin_of(slug)) else HOUSE,
            "collectives": [],
            "headings": {"Idea": about},
            "spelled": f"{slug}:SIZE,{KNOB}",
            "knobs": [knob.document() for knob in knobs(slug).values()],
        }
    near = difflib.get_close_matches(slug, [*everything, *families()], 3)
    hint = f"; perhaps {', '.join(near)}" if near else ""
    raise UsageError(f"no system or fabric is called '{slug}'", remedy=f"ringwright systems{hint}")


def knob_lines() -> list[str]:
    """Return a line for each algorithm, scheduler and fabric that has knobs: ``ring: channels=1..64``."""
    from ringwright.fabrics import families, knobs

    usable = [system for system in (*registry.systems(), *registry.schedulers()) if not system.problem]
    everything = {system.slug: system.knobs() for system in usable}
    for name in families():
        with suppress(PluginError):
            everything[f"{name} (fabric)"] = knobs(name)
    return [
        f"  {slug}: " + ", ".join(f"{knob.name}={knob.brief}" for knob in found.values() if knob.can_be_typed)
        for slug, found in everything.items()
        if found
    ]


def recorded() -> dict[str, dict[str, Any]]:
    """Return the tallies of the last campaign, by slug; empty where none ships."""
    from ringwright.contracts import campaign

    tallies: dict[str, dict[str, Any]] = campaign.recorded().get("systems", {})
    return {slug: {**row, "recorded": True} for slug, row in tallies.items()}


def _ground() -> str:
    """Say what the record is: how many cases of how many, drawn by which seed, and when."""
    from ringwright.contracts import campaign

    record = campaign.recorded()
    if "seed" not in record:
        return "recorded campaign (scripts/conformance)"
    all_of = f"{record['cases']:,} of {record['of']:,}" if record["cases"] < record["of"] else f"all {record['of']:,}"
    return f"recorded campaign (scripts/conformance) of {record['date']}: {all_of} cases, seed {record['seed']}"


def _run(chosen: list[registry.System], seed: int, progress: steps.Advance | None) -> dict[str, dict[str, Any]]:
    from ringwright.contracts import campaign
    from ringwright.contracts.outcome import tally

    cases = steps.told([*campaign.some_cases(chosen, seed)], progress)
    results = tally(map(campaign.check, cases), [system.slug for system in chosen])
    return {slug: {**row, "recorded": False} for slug, row in results.items()}
