"""``ringwright verify``: is this program legal, and does it do what it says?"""

from __future__ import annotations

import sys
from pathlib import Path

from ringwright.cli import options, reading
from ringwright.errors import EXIT_GOOD, EXIT_PROGRAM


def verify(file: Path, *, json: options.Json = False) -> int:
    """Check an MSCCL XML or MSCCL++ JSON program: rules, deadlock, races, result; exit code 4 when it is not legal.

    Parameters
    ----------
    file
        The program.
    json
        Print one JSON object instead (schema ringwright.verify/1).

    Examples
    --------
    ringwright export all-reduce --fabric switch:8 --to msccl-xml -o ring.xml --force && ringwright verify ring.xml
    """
    from ringwright.sources.programs import verify_file

    result = verify_file(file)
    if json:
        reading.print_json(result)
    else:
        from ringwright.reports import verified

        verified.write(result, sys.stdout)
    return EXIT_GOOD if result["valid"] else EXIT_PROGRAM
