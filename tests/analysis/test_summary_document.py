"""The summary is the typed structure that it says it is: its keys, their order, and no sentence that its own tables contradict."""

from __future__ import annotations

from typing import get_type_hints

import polars as pl

from ringwright.analysis.compared.diff import diff
from ringwright.analysis.compared.diff_document import RunDifference
from ringwright.analysis.compared.gate import check, read_thresholds
from ringwright.analysis.compared.gate_document import GateAnswer, Thresholds
from ringwright.analysis.document import Calls, Conclusions, Culprit, Judgements, Origin, Summary, Times, Traffic
from ringwright.analysis.summary import summarise
from ringwright.cli.reading import inputs
from ringwright.formats.sources import read
from ringwright.model.trace import Trace
from ringwright.reports import topology
from ringwright.reports.completion import complete
from ringwright_lab.testing import faulty_fabric, noise, slow_ranks
from typed_documents import departures


def trace(**columns: object) -> Trace:
    """Return eight all-reduces of four ranks, with the times that are given."""
    rows = {
        "kind": "collective",
        "op": "all-reduce",
        "communicator": 0,
        "nranks": 4,
        "multiplicity": 1,
        "records": 1,
        "size_bytes": 1 << 20,
        "duration_s": 1e-3,
        **columns,
    }
    frame = pl.DataFrame({"sequence": [at // 4 for at in range(8)], "rank": [at % 4 for at in range(8)]})
    events = frame.with_columns(pl.lit(value).alias(name) for name, value in rows.items())
    comms = pl.DataFrame({"communicator": [0], "size": [4], "members": [[0, 1, 2, 3]]})
    return Trace.of({"events": events, "communicators": comms}, {"source": "inspector", "world": 4})


def test_the_summary_has_the_keys_of_its_type_in_their_order() -> None:
    keys = [key for part in (Origin, Calls, Times, Traffic, Judgements, Conclusions) for key in get_type_hints(part)]
    assert list(summarise(trace())) == keys
    assert set(keys) == set(get_type_hints(Summary))


def test_every_part_of_a_summary_is_of_its_type() -> None:
    summary = summarise(read(inputs((), sample=True)))
    assert summary["topology"]["shown"]
    assert [*departures(summary, Summary)] == []
    section = topology.page(complete(summary))
    assert section is not None
    assert section.rings.pictures
    assert section.trees.pictures
    assert [*departures(section, topology.TopologySection)] == []


def test_a_difference_is_of_its_type() -> None:
    slower = summarise(trace(duration_s=2e-3, size_bytes=1 << 21))
    for before, after in ((summarise(trace()), summarise(trace(duration_s=2e-3))), (summarise(trace()), slower)):
        assert [*departures(diff(before, after), RunDifference)] == []
    assert diff(summarise(trace()), slower)["changes"]
    assert diff(summarise(trace()), summarise(trace(duration_s=2e-3)))["bandwidth"]


def test_the_gate_is_of_its_type() -> None:
    limit = {"op": "all-reduce", "min_size": "64K", "max_count": 1, "max_share": "50%", "max_time_us": 3}
    limits = read_thresholds(None, max_wait_share="1%", max_step_us=5.0, limit=[limit])
    assert [*departures(limits, Thresholds)] == []
    answer = check(summarise(trace()), limits)
    assert [*departures(answer, GateAnswer)] == []
    assert not answer["passed"]


def test_culprits_are_of_their_type() -> None:
    traces = [faulty_fabric.job(next(iter(faulty_fabric.RANK_FAULTS)), 3)[0]]
    traces += [slow_ranks.job(mechanism, 5, noise.ours())[0] for mechanism in [*slow_ranks.MECHANISMS][:2]]
    accused = [one for each in traces for one in summarise(each)["culprits"]]
    assert len(accused) >= len(traces)
    for one in accused:
        ordered = {key: one[key] for key in get_type_hints(Culprit) if key in one}  # type: ignore[literal-required]
        assert ordered == one
        assert [*departures(ordered, Culprit)] == []
        assert "command" in one


def test_what_departs_from_its_type_is_seen() -> None:
    answer = check(summarise(trace()))
    assert [*departures({**answer, "line": 3}, GateAnswer)] == ["document.line: 3 is no <class 'str'>"]
    assert [*departures(dict(reversed(answer.items())), GateAnswer)]
    assert [*departures({**answer, "more": 1}, GateAnswer)]
    del answer["checks"][0]["detail"]
    assert next(departures(answer, GateAnswer)).startswith("document.checks[0]: keys")


def test_durations_without_a_beginning_are_not_called_no_time() -> None:
    summary = summarise(trace())
    assert summary["bandwidth"]
    assert summary["timeline"] is None
    said = next(each for each in summary["limits"] if each.startswith("bursts"))
    assert said.endswith("the records carry how long calls took, not when they began")
    assert "no time" in next(each for each in summarise(trace(duration_s=None))["limits"] if each.startswith("bursts"))


def test_calls_that_only_know_when_they_moved_have_a_time_course() -> None:
    summary = summarise(trace(start_s=2.5))
    assert summary["timeline"] is not None
    assert not [each for each in summary["limits"] if each.startswith("bursts")]
