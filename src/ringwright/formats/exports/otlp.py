"""Metrics over OTLP/HTTP in JSON, with nothing but the standard library: what a collector of OpenTelemetry takes.

The body is ``ExportMetricsServiceRequest`` of opentelemetry-proto 1.x in the JSON encoding of the OTLP specification: integers of
64 bits as text, names in lowerCamelCase. Gauges are gauges; counters are monotonic sums since the sender began.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.formats.exports.placement import claim_file
from ringwright.formats.exports.prometheus import LIVE_METRICS, METRICS, MetricSample, samples
from ringwright.ground import drafts
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

EXPORTS = {"otlp": "otlp"}
PATH = "/v1/metrics"
TIMEOUT_S = 2.0
REST_S = 30.0  # after a post that failed, until the next one is tried
_CUMULATIVE = 2
_EXAMPLE = "http://localhost:4318"


def request_of(
    given: Iterable[MetricSample],
    begin_ns: int | None,
    now_ns: int | None,
    resource: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Return the request of some samples: counters since ``begin_ns``, all of ``now_ns``, since 1970, or None."""
    of: dict[str, list[MetricSample]] = {}
    for sample in given:
        of.setdefault(sample.name, []).append(sample)
    metrics = [_metric(name, each, begin_ns, now_ns) for name, each in of.items()]
    scope = {"scope": {"name": "ringwright"}, "metrics": metrics}
    about = {"service.name": "ringwright", **(resource or {})}
    return {"resourceMetrics": [{"resource": {"attributes": _attributes(about)}, "scopeMetrics": [scope]}]}


def _metric(name: str, samples: list[MetricSample], begin_ns: int | None, now_ns: int | None) -> dict[str, object]:
    kind, what = (METRICS | LIVE_METRICS)[name]
    since = {"startTimeUnixNano": str(begin_ns)} if kind == "counter" and begin_ns is not None else {}
    when = {"timeUnixNano": str(now_ns)} if now_ns is not None else {}
    points = [{"attributes": _attributes(each.labels), **since, **when, "asDouble": each.value} for each in samples]
    if kind == "counter":
        values: dict[str, object] = {
            "sum": {"dataPoints": points, "aggregationTemporality": _CUMULATIVE, "isMonotonic": True}
        }
    else:
        values = {"gauge": {"dataPoints": points}}
    return {"name": name, "description": what, **values}


def _attributes(labels: Mapping[str, str]) -> list[dict[str, object]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in labels.items()]


def otlp(trace: Trace, path: str | Path, *, force: bool = False) -> list[Path]:
    """Write a request as a collector of OpenTelemetry reads it from a file; InputError where there is no collective.

    Times are those of the recording, where its clock tells when that was; else they are left out, which is OTLP's unknown.
    """
    begin_ns = trace.meta.get("origin_ns")
    known_ns = begin_ns if isinstance(begin_ns, int) else None
    body = request_of(samples(trace), known_ns, known_ns)
    return [drafts.write(claim_file(path, force=force), json.dumps(body) + "\n")]


class OtlpSender:
    """Posts samples to a collector; a post that fails is told once, and until one succeeds only tried now and then.

    Raises UsageError for an address that is none of http or https with a host.
    """

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S, clock: Callable[[], float] = time.monotonic) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"no address of a collector: '{url}'", remedy=f"--otlp {_EXAMPLE}")
        path = parts.path if parts.path.strip("/") else PATH
        self.url = urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
        # A collector is near: no proxy, and no other address than the one that was named.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)
        self._timeout_s, self._clock = timeout_s, clock
        self._begin_ns = time.time_ns()
        self._failed_s: float | None = None

    def send(self, given: Iterable[MetricSample]) -> str:
        """Post samples; return what there is to tell: why it failed, the first time, or that it works again. Never raises."""
        if self._failed_s is not None and self._clock() - self._failed_s < REST_S:
            return ""
        body = json.dumps(request_of(given, self._begin_ns, time.time_ns())).encode()
        try:
            told = self._posted(body)
        except (urllib.error.URLError, HTTPException, OSError, ValueError) as error:
            told = str(getattr(error, "reason", "") or error) or type(error).__name__
        if not told:
            was, self._failed_s = self._failed_s, None
            return "" if was is None else f"{self.url}: metrics are taken again"
        is_first, self._failed_s = self._failed_s is None, self._clock()
        return f"{self.url}: metrics are not taken: {told}" if is_first else ""

    def _posted(self, body: bytes) -> str:
        """Post a request; return why it was not taken, or nothing."""
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"}, method="POST")  # noqa: S310 - http or https: seen above
        with self._opener.open(request, timeout=self._timeout_s) as answer:
            text = answer.read(1 << 16)
        try:
            rejected = int(json.loads(text or b"{}").get("partialSuccess", {}).get("rejectedDataPoints", 0) or 0)
        except (ValueError, AttributeError, TypeError):
            rejected = 0
        return f"{rejected} values were refused" if rejected else ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An answer that sends elsewhere is a failure."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Follow nothing."""
