"""Metrics as others parse them: OpenMetrics by the strict parser of prometheus_client, OTLP by its own rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client import parser as older
from prometheus_client.openmetrics import parser as strict

from every_recording import MADE, put
from ringwright.cli import main
from ringwright.formats.exports.prometheus import METRICS, lines
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace

WITH_CALLS = sorted(
    set(MADE)
    - {"network", "run", "perf-table", "deepspeed-comms", "megatron-log", "bench", "prometheus", "pytorch-et"}
    - {"osu", "imb", "ucc", "perftest", "fr-trace"}  # tables, and what an analyser says
)


def made(**more: object) -> Trace:
    event = {
        "kind": "collective",
        "op": "all-reduce",
        "multiplicity": 3,
        "size_bytes": 10,
        "duration_s": 0.5,
        "nranks": 2,
    }
    comms = [{"communicator": n, "comm_id": "same", "name": 'a "b"\nc' if n else None, "size": 2} for n in range(4)]
    events = [event | {"communicator": n, "line": n} | more for n in range(4)]
    return Trace.of(
        {"events": rows("events", events), "communicators": rows("communicators", comms)}, {"source": "made"}
    )


def series(text: str) -> dict[str, list[tuple[tuple[tuple[str, str], ...], float]]]:
    """Return the samples of each metric by their labels, as the strict parser reads them."""
    told: dict[str, list[tuple[tuple[tuple[str, str], ...], float]]] = {}
    for family in strict.text_string_to_metric_families(text):
        for sample in family.samples:
            told.setdefault(sample.name, []).append((tuple(sorted(sample.labels.items())), sample.value))
    return told


def test_every_series_is_itself() -> None:
    text = "\n".join(lines(made())) + "\n"
    told = series(text)
    assert set(told) == set(METRICS)
    assert [value for _, value in told["nccl_collectives_total"]] == [3.0] * 4
    assert len({labels for labels, _ in told["nccl_collectives_total"]}) == 4
    names = {dict(labels)["comm_name"] for labels, _ in told["nccl_collectives_total"]}
    assert any('a "b"\nc' in name for name in names)
    plain = {sample.name for family in older.text_string_to_metric_families(text) for sample in family.samples}
    assert plain == set(METRICS)


def test_bytes_that_are_unknown_are_left_out() -> None:
    told = series("\n".join(lines(made(size_bytes=None, duration_s=None))) + "\n")
    assert set(told) == {"nccl_collectives_total"}


@pytest.mark.parametrize("kind", WITH_CALLS)
def test_recordings_as_openmetrics_and_otlp(kind: str, tmp_path: Path) -> None:
    source = str(put(tmp_path, MADE[kind](tmp_path))[0].parent)
    for form in ("prometheus", "otlp"):
        assert main(["convert", source, "--format", form, "-o", str(tmp_path / form)]) == 0
    told = series((tmp_path / "prometheus").read_text())
    body = json.loads((tmp_path / "otlp").read_text())
    (scope,) = body["resourceMetrics"][0]["scopeMetrics"]
    assert {metric["name"] for metric in scope["metrics"]} == set(told)
    for metric in scope["metrics"]:
        points = (metric.get("sum") or metric["gauge"])["dataPoints"]
        assert [each["asDouble"] for each in points] == pytest.approx([value for _, value in told[metric["name"]]])
        times = [(each.get("startTimeUnixNano"), each.get("timeUnixNano")) for each in points]
        assert all(int(end) >= int(begin) > 0 for begin, end in times if begin and end)
        assert all((begin is None) == (end is None) or "gauge" in metric for begin, end in times)
