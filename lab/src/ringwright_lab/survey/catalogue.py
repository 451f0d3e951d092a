"""The list of the systems of every room with what each has shown: lines, checks of its contract, the paper's figure."""

from __future__ import annotations

import difflib
import inspect
import itertools
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ringwright.ground import stepwise
from ringwright.ground.errors import PluginError, UsageError
from ringwright.ground.headings import clause, of_several
from ringwright.ground.knobs import knobs_of
from ringwright.ground.plugins import HOUSE
from ringwright.model import registry
from ringwright_lab.contracts import campaign, rooms
from ringwright_lab.contracts.outcome import Outcome, tally
from ringwright_lab.papers import claims
from ringwright_lab.survey import in_network

if TYPE_CHECKING:
    from ringwright.model.codecs.formats import Codec

SCHEMA, SCHEMA_ONE = "ringwright.systems/1", "ringwright.system/1"
KNOB = "KNOB=VALUE"
FAMILIES = {  # the family of what each room holds
    "fabrics": "fabric",
    "sources": "source",
    "families": "model-family",
    "exports": "export",
    "rewrites": "rewrite",
    "codecs": "codec",
    "pipelines": "pipeline",
    "laws": "law",
    "executors": "executor",
}
NOTHING = {"passed": 0, "declined": 0, "failed": 0, "recorded": False}
Shown = dict[tuple[str, str], dict[str, Any]]  # (room, slug) -> what its contract showed


def catalogue(
    *, family: str | None = None, check: bool = False, seed: int = 0, progress: stepwise.Advance | None = None
) -> dict[str, Any]:
    """Return the object of schema ``ringwright.systems/1``: a row for every system of every room.

    Machines, models and formats come first, then algorithms and schedulers. ``check`` runs a seeded part of the campaign now,
    but on sources, which need recordings, and on executors where they are not asked for: they start real ranks. Systems that add
    in the network, asked for by their family or class, stand beside each other in ``in_network``.
    """
    everything = (*registry.systems(), *registry.schedulers())
    chosen = [system for system in everything if family in (None, system.family, system.kind)]
    broken = {system.slug: error for system in chosen if (error := system.problem)}
    chosen = [system for system in chosen if system.slug not in broken]
    beside = [each for room in rooms.ROOMS if family in (None, FAMILIES[room]) for each in rooms.members(room)]
    if not chosen and not broken and not beside:
        known = sorted({*FAMILIES.values(), *(name for system in everything for name in (system.family, system.kind))})
        raise UsageError(f"no systems of the family '{family}'", remedy=f"one of: {', '.join(known)}")
    tried = [each for each in beside if each.room != "executors" or family is not None]
    shown = recorded() | (_run(chosen, tried, seed, progress) if check else {})
    refusals = [*(each.error(each.refused) for each in registry.refused()), *broken.values(), *_of_other_rooms()]
    return {
        "schema": SCHEMA,
        "ground": f"checked now, seed {seed}" if check else _ground(),
        "systems": [*(_member(each, shown) for each in beside), *_rows(chosen, shown)],
        "in_network": [] if family is None else in_network.compared(chosen),
        "refused": [{"what": error.what, "where": error.where, "try": error.remedy} for error in refusals],
    }


def _rows(chosen: list[registry.System], shown: Shown) -> list[dict[str, Any]]:
    order = {system.slug for system in registry.schedulers()}
    reproduced = claims.recorded()
    return [
        {
            "slug": system.slug,
            "family": system.family,
            "class": system.kind,
            "origin": system.origin,
            "lines": system.lines,
            "conformance": shown.get(("schedulers" if system.slug in order else "algorithms", system.slug), NOTHING),
            "figure": system.headings.get("Figure", ""),
            "reproduced": reproduced.get(system.slug, ""),
        }
        for system in chosen
    ]


def _member(each: rooms.RoomMember, shown: Shown) -> dict[str, Any]:
    """Return the row of a fabric, source, codec, law or the like."""
    return {
        "slug": each.slug,
        "family": FAMILIES[each.room],
        "class": FAMILIES[each.room],
        "origin": each.origin,
        "lines": each.lines,
        "conformance": shown.get((each.room, each.slug), NOTHING),
        "figure": "",
        "reproduced": "",
    }


def _of_other_rooms() -> list[PluginError]:
    """Return why plug-ins that are no systems cannot be used: fabrics, exports, sources, families, codecs and so on."""
    from ringwright import fabrics
    from ringwright.bounds.laws import law
    from ringwright.execute import executors
    from ringwright.formats import exports
    from ringwright.formats.sources import kinds
    from ringwright.graph import pipelines
    from ringwright.model.codecs import formats
    from ringwright.workloads import families

    rooms_asked = (fabrics, exports, kinds, families, formats, pipelines, law, executors)
    return [error for room in rooms_asked for error in room.problems()]


def one(slug: str) -> dict[str, Any]:
    """Return the object of schema ``ringwright.system/1``: what a system, fabric or number format is, and its knobs.

    A name that several have is looked for among algorithms, schedulers, fabrics and number formats in turn. UsageError for none.
    """
    from ringwright.fabrics import families, family, knobs, plugin_of
    from ringwright.model.codecs.formats import codecs

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
    if slug in codecs():
        return _codec(codecs()[slug])
    near = difflib.get_close_matches(slug, [*everything, *families(), *codecs()], 3)
    hint = f"; perhaps {', '.join(near)}" if near else ""
    raise UsageError(f"no system or fabric is called '{slug}'", remedy=f"ringwright systems{hint}")


def _codec(codec: Codec) -> dict[str, object]:
    """Return the object of schema ``ringwright.system/1`` of a number format."""
    home = sys.modules[inspect.unwrap(codec.call).__module__]
    said = of_several(tuple(filter(None, (home.__doc__, codec.call.__doc__))))
    return {
        "schema": SCHEMA_ONE,
        "slug": codec.name,
        "family": "codec",
        "class": "codec",
        "origin": codec.origin,
        "collectives": [],
        "headings": said,
        "spelled": f"in Python, numerics(program, knobs={{'{codec.name}': ...}})",
        "knobs": [
            knob.document() for knob in knobs_of(codec.call, lambda name: clause(said.get("Knobs", ""), name)).values()
        ],
    }


def knob_lines() -> list[str]:
    """Return a line for each algorithm, scheduler and fabric that has knobs: ``ring: channels=1..64``."""
    from ringwright.fabrics import families, knobs

    usable = [system for system in (*registry.systems(), *registry.schedulers()) if not system.problem]
    everything = {system.slug: system.knobs() for system in usable}
    for name in families():
        with suppress(PluginError):
            everything[f"{name} (fabric)"] = knobs(name)
    return [
        f"  {slug}: " + ", ".join(f"{knob.name}={knob.brief}" for knob in own.values() if knob.can_be_typed)
        for slug, own in everything.items()
        if own
    ]


def recorded() -> Shown:
    """Return the tallies of the last campaign, by room and slug; empty where none ships."""
    tallies: dict[str, dict[str, dict[str, int]]] = campaign.recorded().get("rooms", {})
    return {(room, slug): {**row, "recorded": True} for room, rows in tallies.items() for slug, row in rows.items()}


def _ground() -> str:
    """Say what the record is: how many cases of how many, drawn by which seed, and when."""
    record = campaign.recorded()
    if "seed" not in record:
        return "recorded campaign (scripts/conformance)"
    all_of = f"{record['cases']:,} of {record['of']:,}" if record["cases"] < record["of"] else f"all {record['of']:,}"
    return f"recorded campaign (scripts/conformance) of {record['date']}: {all_of} cases, seed {record['seed']}"


def _run(
    chosen: list[registry.System], beside: list[rooms.RoomMember], seed: int, progress: stepwise.Advance | None
) -> Shown:
    """Return what a seeded part of the campaign shows now, by room and slug."""
    members = {(each.room, each.slug) for each in beside}
    cases = itertools.chain(
        campaign.some_cases(chosen, seed),
        (case for room in rooms.ROOMS for case in rooms.cases(room) if (room, case.slug) in members),
    )
    outcomes: dict[str, list[Outcome]] = {room: [] for room in campaign.ROOMS}
    for case in stepwise.track_progress([*cases], progress):
        outcomes[campaign.room_of(case)].append(campaign.check(case))
    return {
        (room, slug): {**row, "recorded": False} for room, mine in outcomes.items() for slug, row in tally(mine).items()
    }
