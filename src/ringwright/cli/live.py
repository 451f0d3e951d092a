"""``ringwright live``: a growing log or recording, refreshed in place."""

from __future__ import annotations

import sys
from pathlib import Path

from ringwright.cli import options, reading


def live(
    *paths: str,
    sample: options.Sample = False,
    interval: float = 2.0,
    textfile: Path | None = None,
    once: bool = False,
    json: options.Json = False,
) -> int:
    """Follow logs and recordings of a running job; ends with Ctrl-C.

    Parameters
    ----------
    paths
        Logs or folders that grow.
    interval
        Seconds between looks, more where reading takes long.
    textfile
        Also keep a Prometheus textfile up to date, with the metric names of NCCL Inspector's exporter.
    once
        Look once and end.
    json
        Print one JSON object a look (schema ringwright.live/1).

    Examples
    --------
    ringwright live --sample --once
    """
    from ringwright.reports.live import screen
    from ringwright.studies.live import follow

    with screen(sys.stdout, plain=json or once) as show:
        for snapshot in follow(reading.inputs(paths, sample=sample), interval):
            if textfile is not None and snapshot.operations:
                reading.write_textfile(snapshot.trace, textfile)
            if json:
                reading.print_json(snapshot.document())
            else:
                show(snapshot)
            if once:
                break
    return 0
