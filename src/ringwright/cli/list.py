"""``ringwright list``: what can be named."""

from __future__ import annotations

import sys

from ringwright.cli import options, reading


def list(what: str | None = None, *, json: options.Json = False) -> int:  # noqa: A001 - the verb's name
    """List what can be named, each with its meaning and a spelling that is accepted as it stands.

    Parameters
    ----------
    what
        fabrics, models, policies, gpus, faults, algorithms, collectives, formats, sources, calibrations, fits or executors.
    json
        Print one JSON object instead (schema ringwright.list/1).

    Examples
    --------
    ringwright list
    ringwright list fabrics
    """
    from ringwright.calls import lists

    rows = lists.listing(what)
    if json:
        reading.print_json(rows)
        return 0
    from ringwright.reports import listing

    listing.write(rows, sys.stdout)
    return 0
