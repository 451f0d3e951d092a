"""``ringwright live``: a growing log or recording, refreshed in place."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import options, reading
from ringwright.ground.errors import EXIT_GATE, EXIT_GOOD


def live(
    *paths: str,
    sample: options.Sample = False,
    interval: float = 2.0,
    alerts: Path | None = None,
    fail_on_alert: bool = False,
    textfile: Annotated[Path | None, Parameter(group=options.OUTPUT)] = None,
    otlp: Annotated[str | None, Parameter(group=options.OUTPUT)] = None,
    grafana: Annotated[Path | None, Parameter(group=options.OUTPUT)] = None,
    once: bool = False,
    json: options.Json = False,
    force: options.Force = False,
) -> int:
    """Follow logs and recordings of a running job; ends with Ctrl-C.

    Parameters
    ----------
    paths
        Logs or folders that grow.
    interval
        Seconds between looks, more where a look takes long.
    alerts
        A TOML file of rules; those that hold are shown, and stand in --json and in the metrics.
    fail_on_alert
        End at the first alert, with exit code 1.
    textfile
        Also keep a Prometheus textfile up to date, with the metric names of NCCL Inspector's exporter.
    otlp
        Also post the metrics to a collector, OTLP over HTTP in JSON: http://localhost:4318.
    grafana
        Write a dashboard over these metrics for Grafana, and end.
    once
        Look once and end.
    json
        Print one JSON object a look, each on a line (schema ringwright.live/1).

    Examples
    --------
    ringwright live --sample --once
    ringwright live --grafana dashboard.json
    """
    if grafana is not None:
        return reading.write_dashboard(grafana, force=force)
    from ringwright.capture.live import following as studied
    from ringwright.capture.live.live_hand_over import HandOver
    from ringwright.reports.live import screen

    given = reading.inputs(paths, sample=sample)
    hand_over = HandOver(textfile, otlp)
    is_steady = json or sys.stdout.isatty()
    with screen(sys.stdout, plain=once, as_json=json) as show:
        for snapshot in studied.watched(given, interval, alerts, is_once=once, is_steady=is_steady):
            show(hand_over(snapshot))
            if fail_on_alert and snapshot.alerts:
                return EXIT_GATE
    return EXIT_GOOD
