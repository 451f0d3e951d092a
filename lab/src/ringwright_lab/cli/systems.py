"""``ringwright systems``: every system of every room, how long it is, what it has shown."""

from __future__ import annotations

import sys

from ringwright.cli import options, progress, reading


def systems(
    slug: str | None = None,
    *,
    family: str | None = None,
    check: bool = False,
    seed: int = 0,
    json: options.Json = False,
) -> int:
    """List all systems, or one with the range and choices of its knobs; --check runs a seeded part of the campaign on each.

    Parameters
    ----------
    slug
        One algorithm, scheduler, fabric or codec (ring, p3, dgx-h100, split-float): what it is and what can be set, as in
        ring:channels=2.
    family
        Only this family or class: collective-library, building-block, published, library, fabric, source, export,
        model-family, rewrite, codec, pipeline, law, executor.
    check
        Run the checks now instead of showing the recorded campaign (sources need recordings: of them, what is recorded;
        executors, which start real ranks, with --family executor).
    seed
        Which part of the campaign.
    json
        Print one JSON object instead (schema ringwright.systems/1, of one system ringwright.system/1).

    Examples
    --------
    ringwright systems ring
    ringwright systems --family communication-scheduling
    """
    from ringwright_lab.survey import catalogue

    if slug is not None:
        return _one(slug, json=json)
    with progress.steps("checking" if check else "listing") as advance:
        result = catalogue.catalogue(family=family, check=check, seed=seed, progress=advance)
    if json:
        reading.print_json(result)
        return 0
    from ringwright_lab.reports.systems import write

    write(result, sys.stdout)
    return 0


def _one(slug: str, *, json: bool) -> int:
    from ringwright_lab.reports.systems import write_one
    from ringwright_lab.survey import catalogue

    system = catalogue.one(slug)
    if json:
        reading.print_json(system)
    else:
        write_one(system, sys.stdout)
    return 0


def every_knob() -> str:
    """Return a line a system that has knobs: what can be set, with range or choices where they are short."""
    from ringwright_lab.survey import catalogue

    return "Knobs (of one with defaults and meanings: ringwright systems SLUG)\n" + "\n".join(catalogue.knob_lines())
