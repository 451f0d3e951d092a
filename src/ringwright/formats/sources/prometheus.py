"""Prometheus text: the gauges of xpu_timer (DLRover) and of the NCCL Inspector, and any other metric as it is.

Every sample becomes a ``metric`` row; a bandwidth or time of an operation becomes a ``measurement`` row too. Sizes of the
Inspector's buckets are their lower bound. Exposition format: version 0.0.4 of Prometheus.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ringwright.costs.nccl.names import printed_algorithm, printed_protocol
from ringwright.formats.sources.nccl_functions import OPS
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.ground.trace_tables import Row
    from ringwright.model.trace import Trace

SOURCE = "prometheus"
MOST_SAMPLES = 2_000_000
MOST_LABELS = 64
REMEDY = "pass the text that the exporter serves: curl HOST:PORT/metrics > job.prom"
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+(-?\d+))?\s*")
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"([^"\\]*+(?:\\.[^"\\]*+)*+)"\s*(?:,|$)')
_BUCKET = re.compile(r"(\d+)-(\d+)([KMGT]?)B")
_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_INSPECTOR = {
    "nccl_bus_bandwidth_gbs": "busbw_gbs",
    "nccl_collective_exec_time_microseconds": "time_us",
    "nccl_p2p_bus_bandwidth_gbs": "busbw_gbs",
    "nccl_p2p_exec_time_microseconds": "time_us",
}
_XPU_TIME = "_AVG_LATENCY"

Sample = tuple[str, dict[str, str], float, str, int]  # name, labels, value, file, line


def read_prometheus(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of the metrics of one job; raise InputError when no sample could be read."""
    from ringwright.ground.trace_tables import rows
    from ringwright.model.trace import Trace

    samples: list[Sample] = []
    ledger: list[Row] = []
    losses: list[str] = []
    for source in sources:
        taken, refused, comments, example = _samples(source, MOST_SAMPLES - len(samples), progress)
        samples += taken
        counts = (
            ("understood", "sample", len(taken)),
            ("other", "comment", comments),
            ("refused", "no sample", refused),
        )
        for outcome, reason, lines in counts:
            if lines:
                text = example if outcome == "refused" else None
                ledger.append(
                    {"file": source.name, "outcome": outcome, "reason": reason, "lines": lines, "example": text}
                )
        losses += [f"{source.name}: byte {at:,}: {reason}" for reason, at in source.losses]
    if not samples:
        names = ", ".join(source.name for source in sources[:3])
        raise InputError("no metric could be read", where=names, remedy=REMEDY)
    devices = _devices(samples)
    ranks = [device["rank"] for device in devices if device["rank"] is not None]
    tables = {
        "events": rows("events", [_metric(sample) for sample in samples] + _measurements(samples)),
        "topology": rows("topology", devices),
        "claims": rows("claims", _claims(samples)),
        "ledger": rows("ledger", ledger),
    }
    meta = {
        "source": SOURCE,
        "inputs": [source.name for source in sources],
        "losses": losses,
        "world": max(ranks) + 1 if ranks else None,
        "nccl_versions": [],
        "library": None,
        "origin_ns": None,
        "summary": f"{len(samples):,} samples of {len({s[0] for s in samples})} metrics",
    }
    return Trace.of(tables, meta)


def _samples(
    source: Source, most: int, progress: Callable[[int], None] | None
) -> tuple[list[Sample], int, int, str | None]:
    """Return samples, the counts of refused lines and of comments, and the first refused line."""
    from ringwright.formats.sources.gate.inputs import chunks

    samples: list[Sample] = []
    refused = comments = number = 0
    example: str | None = None
    for chunk in chunks(source):
        if progress is not None:
            progress(len(chunk.data))
        for raw in chunk.data.split(b"\n"):
            number += 1
            text = raw.strip()
            if not text or text.startswith(b"#"):
                comments += bool(text)
                continue
            sample = _sample(text, source.name, number) if len(text) < 65_536 else None
            if sample is None:
                refused += 1
                example = example or text[:200].decode("utf-8", "replace")
            elif len(samples) >= most:
                source.losses.append((f"more than {MOST_SAMPLES:,} samples, rest not read", 0))
                return samples, refused, comments, example
            else:
                samples.append(sample)
    return samples, refused, comments, example


def _sample(text: bytes, file: str, line: int) -> Sample | None:
    match = _SAMPLE.fullmatch(text.decode("utf-8", "replace"))
    if match is None:
        return None
    labels: dict[str, str] = {}
    at, body = 0, match[2] or ""
    while at < len(body):
        label = _LABEL.match(body, at)
        if label is None or len(labels) >= MOST_LABELS:
            return None
        labels[label[1]] = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], label[2])[:1024]
        at = label.end()
    try:
        value = float(match[3])
    except ValueError:
        return None
    return match[1], labels, value, file, line


def _rank(labels: dict[str, str]) -> int | None:
    return _whole(labels.get("rank") or labels.get("global_rank"))


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 8 else None


def _host(labels: dict[str, str]) -> str | None:
    return next((labels[key] for key in ("node", "hostname", "ip", "instance", "pod_name") if labels.get(key)), None)


def _device(labels: dict[str, str]) -> int | None:
    return _whole(labels.get("local_rank") or labels.get("gpu", "").removeprefix("GPU"))


def _metric(sample: Sample) -> Row:
    name, labels, value, file, line = sample
    return {
        "kind": "metric",
        "op": name,
        "value": value,
        "rank": _rank(labels),
        "host": _host(labels),
        "device": _device(labels),
        "text": json.dumps(labels, sort_keys=True),
        "source": SOURCE,
        "file": file,
        "line": line,
        "ground": "read",
        "confidence": 1.0,
    }


def _measurements(samples: list[Sample]) -> list[Row]:
    """Return one row per operation, bucket and process: the bandwidth and the time of the same labels belong together."""
    rows: dict[tuple[Any, ...], Row] = {}
    for sample in samples:
        name, labels, value, _, _ = sample
        what = _INSPECTOR.get(name) or ("time_us" if name.endswith(_XPU_TIME) else None)
        op = OPS.get(labels.get("collective") or labels.get("p2p_operation") or labels.get("operation", ""))
        if what is None or op is None or not 0 <= value < 1e15:
            continue
        row = rows.setdefault((sample[3], name.split("_")[0], *sorted(labels.items())), _measurement(sample, op))
        if what == "time_us":
            row["duration_s"] = value / 1e6
        else:
            row["value"] = value
    return list(rows.values())


def _measurement(sample: Sample, op: str) -> Row:
    name, labels, _, _, _ = sample
    algorithm, _, protocol = labels.get("algo_proto", "").rpartition("_")
    is_known = algorithm.lower() not in ("", "unknown")
    table = "Inspector gauge of a size bucket" if name in _INSPECTOR else f"{name} level {labels.get('level', '?')}"
    return _metric(sample) | {
        "kind": "measurement",
        "op": op,
        "value": None,
        "size_bytes": bucket_bytes(labels.get("message_size", "")),
        "nranks": _whole(labels.get("nranks")),
        "nnodes": _whole(labels.get("n_nodes")),
        "algorithm": printed_algorithm(algorithm) if is_known else None,
        "protocol": printed_protocol(protocol) or None if is_known else None,
        "text": table,
        "ground": "inferred",
        "confidence": 0.8,
    }


def bucket_bytes(text: str) -> int | None:
    """Return the lower bound in bytes of a bucket such as ``4-5GB`` (binary), 0 for ``0B``, None for anything else."""
    if text == "0B":
        return 0
    match = _BUCKET.fullmatch(text)
    return int(match[1]) * _SIZES[match[3]] if match and len(match[1]) < 8 else None


def _devices(samples: list[Sample]) -> list[Row]:
    rows: dict[tuple[Any, ...], Row] = {}
    for _, labels, _, _, _ in samples:
        key = (_rank(labels), _host(labels), _device(labels))
        if key[0] is not None or key[2] is not None:
            rows[key] = {"kind": "device", "rank": key[0], "host": key[1], "device": key[2], "ground": "read"}
    return [
        rows[key] for key in sorted(rows, key=lambda key: tuple((part is None, str(part).zfill(8)) for part in key))
    ]


def _claims(samples: list[Sample]) -> list[Row]:
    def claim(field: str, value: str, note: str) -> Row:
        return {"field": field, "value": value, "source": SOURCE, "ground": "read", "confidence": 1.0, "note": note}

    claims = [claim("coverage", "gauges", "a sample is the state when it was scraped; operations are not counted")]
    if any(name in _INSPECTOR for name, *_ in samples):
        claims.append(claim("size", "lower bound of a bucket", "the Inspector's gauges carry ranges of sizes"))
    lost = sum(value for name, _, value, _, _ in samples if name.endswith("_dropped_total") and 0 < value < 1e15)
    if lost:
        claims.append(claim("dropped records", f"{lost:.0f}", "counters of the Inspector: its gauges leave these out"))
    return claims
