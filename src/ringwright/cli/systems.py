"""``ringwright systems``: every algorithm and library, how long it is, what it has shown."""

from __future__ import annotations

import sys

from ringwright.cli import reading


def systems(*, family: str | None = None, check: bool = False, seed: int = 0, json: bool = False) -> int:
    """List all systems; with --check run a seeded part of the conformance campaign on each.

    Parameters
    ----------
    family
        Only this family or class: collective-library, building-block, published, library.
    check
        Run the checks now instead of showing the recorded campaign.
    seed
        Which part of the campaign.
    json
        Print one JSON object instead (schema ringwright.systems/1).
    """
    from ringwright.studies import catalogue

    with reading.busy("checking" if check else "listing"):
        result = catalogue.catalogue(family=family, check=check, seed=seed)
    if json:
        reading.print_json(result)
        return 0
    from ringwright.reports import systems as report

    report.write(result, sys.stdout)
    return 0
