"""``ringwright read``: what some files are."""

from __future__ import annotations

import sys

from ringwright.cli import options, reading


def read(*paths: str, sample: options.Sample = False, json: options.Json = False) -> int:
    """Say which kind of recording each file is, and what was read of it.

    Parameters
    ----------
    paths
        Files, folders, archives or captures; - reads standard input.
    json
        Print one JSON object instead (schema ringwright.read/1).

    Examples
    --------
    ringwright read --sample
    """
    from ringwright.capture.recordings import document

    kinds = document(reading.inputs(paths, sample=sample), reading.trace)
    if json:
        reading.print_json(kinds)
        return 0
    from ringwright.reports import checkup

    checkup.write_kinds(kinds, sys.stdout)
    return 0
