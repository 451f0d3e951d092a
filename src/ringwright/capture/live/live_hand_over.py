"""What each look of a running job hands on to others: a Prometheus textfile, a collector of OpenTelemetry."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.capture.live.live_metrics import gauges, metrics_of
from ringwright.formats.exports.otlp import OtlpSender
from ringwright.formats.exports.prometheus import prometheus

if TYPE_CHECKING:
    from pathlib import Path

    from ringwright.capture.live.following import Snapshot


class HandOver:
    """Hands each snapshot on. Raises UsageError for an address that is none; a collector that is away stops nothing."""

    def __init__(self, textfile: Path | None = None, otlp: str | None = None) -> None:
        self._textfile = textfile
        self._sender = OtlpSender(otlp) if otlp is not None else None

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with what there is to tell of handing it on."""
        has_calls = any(row["op"] not in ("send", "recv") for row in snapshot.operations)
        if self._textfile is not None and snapshot.trace is not None and has_calls:
            prometheus(snapshot.trace, self._textfile, force=True, live=gauges(snapshot))
        told = self._sender.send(metrics_of(snapshot)) if self._sender is not None else ""
        return replace(snapshot, events=[*snapshot.events, told]) if told else snapshot
