"""A snapshot as metrics: what the Prometheus textfile and OTLP carry of a running job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.capture.live.live_late import named
from ringwright.formats.exports.prometheus import MetricSample, samples, spelled
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringwright.capture.live.following import Snapshot


def gauges(snapshot: Snapshot) -> list[MetricSample]:
    """Return the gauges of a look; what is not known has none."""
    return [*_rates(snapshot), *_late(snapshot), *_state(snapshot)]


def metrics_of(snapshot: Snapshot) -> list[MetricSample]:
    """Return everything: the totals of the recording, and the gauges of the look."""
    try:
        totals = samples(snapshot.trace) if snapshot.trace is not None else []
    except InputError:
        totals = []  # no collective yet
    return [*totals, *gauges(snapshot)]


def _rates(snapshot: Snapshot) -> Iterator[MetricSample]:
    for row in snapshot.operations:
        labels = {"collective": spelled(row["op"])}
        if row["per_s"] is not None:
            yield MetricSample("ringwright_calls_per_second", labels, row["per_s"])
        if row["gbs"] is not None:
            yield MetricSample("ringwright_bytes_per_second", labels, row["gbs"] * 1e9)
    for nic in snapshot.nics:
        labels = {"host": nic["host"], "nic": nic["nic"]}
        if nic["sent_gbs"] is not None and nic["received_gbs"] is not None:
            yield MetricSample("ringwright_nic_sent_bytes_per_second", labels, nic["sent_gbs"] * 1e9)
            yield MetricSample("ringwright_nic_received_bytes_per_second", labels, nic["received_gbs"] * 1e9)


def _late(snapshot: Snapshot) -> Iterator[MetricSample]:
    for row in snapshot.late:
        # No two series may have the same labels: where no line tells a global rank, another name stands for it.
        labels = {
            "rank": str(row["rank"]) if row["rank"] is not None else named(row),
            "host": row["host"] or "",
            "communicator": str(row["communicator"]),
        }
        yield MetricSample("ringwright_rank_behind_calls", labels, float(row["behind"]))
        yield MetricSample("ringwright_rank_still_looks", labels, float(row["still_looks"]))


def _state(snapshot: Snapshot) -> Iterator[MetricSample]:
    yield MetricSample("ringwright_quiet_seconds", {}, snapshot.quiet_s)
    yield MetricSample("ringwright_errors", {}, float(snapshot.errors))
    for alert in snapshot.alerts:
        labels = {"name": alert["name"], "metric": alert["metric"], "of": alert["of"]}
        yield MetricSample("ringwright_alerts", labels, alert["value"])
