"""``ringwright reproduce``: is the paper right?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import reading
from ringwright.errors import EXIT_GATE, EXIT_GOOD


def reproduce(
    *names: str,
    record: Annotated[Path | None, Parameter(help="Write the answers here as JSON.")] = None,
    json: bool = False,
) -> int:
    """Run what papers claim and hold it against the band of each; exit code 1 when one lies outside.

    Parameters
    ----------
    names
        Slugs, or TOML files; all of the checkout if left out.
    json
        Print one JSON object instead (schema ringwright.reproduce/1).
    """
    from ringwright.studies import reproduce as study

    with reading.busy("reproducing"):
        result = study.reproduce(study.find(names))
    if record:
        import json as encoder

        record.write_text(encoder.dumps(result, indent=1) + "\n", encoding="utf-8")
    if json:
        reading.print_json(result)
    else:
        from ringwright.reports import reproduced

        reproduced.write(result, sys.stdout)
    return EXIT_GOOD if all(paper["inside"] for paper in result["papers"]) else EXIT_GATE
