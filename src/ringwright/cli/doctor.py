"""``ringwright doctor``: why do I see nothing?"""

from __future__ import annotations

import sys

from ringwright.cli import options, reading


def doctor(*paths: str, sample: options.Sample = False, json: options.Json = False) -> int:
    """Say what this machine and its settings record, or what some recordings can and cannot tell, with remedies.

    Parameters
    ----------
    paths
        Recordings to look at; without any the environment is.
    json
        Print one JSON object instead (schema ringwright.doctor/1).

    Examples
    --------
    ringwright doctor
    ringwright doctor --sample
    """
    from ringwright.capture.doctor import examine

    document = examine(trace=reading.trace(reading.inputs(paths, sample=sample)) if paths or sample else None)
    if json:
        reading.print_json(document)
        return 0
    from ringwright.reports import checkup

    checkup.write(document, sys.stdout)
    return 0
